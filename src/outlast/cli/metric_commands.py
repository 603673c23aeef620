"""`outlast metrics`: runs by time, durations of runs and nodes, and the time that people take to decide."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypedDict

import click

from outlast.cli.command_session import reads_client
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Group
from outlast.cli.screen import Screen, iso_of
from outlast.cli.text import duration, took
from outlast.insight.run_tally import RUNNING
from outlast.models import exact_instant
from outlast.models.causes import Bar
from outlast.models.measurements import MeasuredTime
from outlast.runtime.client import Client

OUTCOMES: Final = tuple(
    name for name, of in Bar.model_fields.items() if of.annotation is not datetime and name != RUNNING
)
COLUMNS: Final = ("COUNT", "P50", "P95", "LONGEST")


@click.group(cls=Group)
def metrics() -> None:
    """Measure runs, nodes and decisions."""


def filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that each measurement has."""
    for option in (
        click.option("--since", type=duration, default="24h", metavar="DURATION", help="Length of the time [24h]."),
        click.option("--version", type=click.IntRange(0), metavar="N", help="Only this version of the workflow."),
        click.option("--workflow", default="", metavar="NAME", help="Only this workflow."),
    ):
        command = option(command)
    return command


@metrics.command("throughput")
@filters
@click.option("--bars", type=click.IntRange(1, 48), default=24, help="Number of parts of the time [24].")
@reads_client
async def throughput(client: Client, screen: Screen, workflow: str, version: int | None, since: int, bars: int) -> int:
    """Count runs by the time of their end, and by when they began to need a person."""
    found = await client.bars(workflow=workflow, version=version, **_time(screen, since), bars=bars)
    if screen.data(found):
        return OK
    rows = [(iso_of(each.at), *(_count(each, name) for name in OUTCOMES)) for each in found.bars]
    screen.table(("FROM", *map(str.upper, OUTCOMES)), rows)
    _accuracy(screen, about=found.about, cut="the earlier parts lack some runs" if found.at_least else "")
    return OK


@metrics.command("durations")
@filters
@reads_client
async def durations(client: Client, screen: Screen, workflow: str, version: int | None, since: int) -> int:
    """Measure how long ended runs took and waited, and the visits to their nodes."""
    found = await client.run_durations(workflow=workflow, version=version, **_time(screen, since))
    if screen.data(found):
        return OK
    if not found.runs:
        screen.line("no run ended in this time")
        return OK
    of_runs = (
        ("duration", found.duration),
        ("wait for the first step", found.first_step),
        ("with people", found.people),
        ("other waits", found.waits),
        ("calls", found.calls),
    )
    screen.table(("OF A RUN", *COLUMNS), [(name, *_cells(each)) for name, each in of_runs])
    of_nodes = [
        (each.node, each.workflow, *_cells(each.visit), _p95(each.people), _p95(each.waits), _p95(each.calls))
        for each in found.nodes
    ]
    screen.table(("NODE", "WORKFLOW", *COLUMNS, "P95 WITH PEOPLE", "P95 OTHER WAITS", "P95 CALLS"), of_nodes)
    ended = f"{found.ended:,}{' or more' if found.at_least else ''}"
    screen.line(f"{found.runs:,} of {ended} runs that ended; nodes, waits and calls of the last {found.sampled:,}")
    _accuracy(screen, about=found.about)
    return OK


@metrics.command("decisions")
@filters
@reads_client
async def decisions(client: Client, screen: Screen, workflow: str, version: int | None, since: int) -> int:
    """Measure how long approvals waited for a decision, and the age of the pending ones."""
    found = await client.decision_times(workflow=workflow, version=version, **_time(screen, since))
    if screen.data(found):
        return OK
    rows = [
        (each.workflow, each.rule, *_cells(each.decided), f"{each.open.count:,}", took(each.open.longest_ms))
        for each in found.groups
    ]
    every = ("all", "", *_cells(found.decided), f"{found.open.count:,}", took(found.open.longest_ms))
    screen.table(("WORKFLOW", "WHO", *COLUMNS, "OPEN", "OLDEST"), [*rows, every])
    cut = "only some approvals of this time were read" if found.at_least or found.open_at_least else ""
    _accuracy(screen, about=found.about, cut=cut)
    return OK


class Time(TypedDict):
    """First and last instant of a measurement."""

    since: datetime
    until: datetime


def _time(screen: Screen, length: int) -> Time:
    return {"since": exact_instant(max(0, screen.now_ms - length)), "until": exact_instant(screen.now_ms)}


def _count(bar: Bar, outcome: str) -> str:
    return f"{getattr(bar, outcome):,}"


def _cells(measured: MeasuredTime) -> tuple[str, str, str, str]:
    times = (measured.p50_ms, measured.p95_ms, measured.longest_ms)
    p50, p95, longest = map(took, times)
    return f"{measured.count:,}", p50, p95, longest


def _p95(measured: MeasuredTime) -> str:
    return took(measured.p95_ms) if measured.longest_ms else ""


def _accuracy(screen: Screen, *, about: bool, cut: str = "") -> None:
    """Say what the numbers leave out."""
    if cut:
        screen.line(cut)
    if about:
        screen.line("the numbers come from indexes that may lag by a moment")

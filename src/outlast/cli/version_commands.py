"""`outlast versions` and `outlast check`: versions of workflows, and the runs that new code would break."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from outlast.cli.command_session import on_client, operations, reads_client
from outlast.cli.exit_codes import CONFLICT, OK, RUN_FAILED
from outlast.cli.global_options import CliSettings, Command, Group, settings_now
from outlast.cli.lint_commands import linted, show
from outlast.cli.modules import load_workflows, split
from outlast.cli.screen import Screen
from outlast.core.lanes import OWN, lane_of, version_in
from outlast.errors import WillNotContinue
from outlast.flow.workflow import Workflow
from outlast.insight.labels import counted
from outlast.lint import selected
from outlast.runtime.client import Client
from outlast.upkeep.deploy_check import DeployReport, StrandedRun, check


@click.group(cls=Group)
def versions() -> None:
    """List versions of workflows; move runs between them."""


@versions.command("ls")
@reads_client
async def ls(client: Client, screen: Screen) -> int:
    """List every version with its runs, workers and topology."""
    views = await client.versions()
    if screen.listing("versions", views):
        return OK
    if not views:
        screen.line("no workflow was served yet → outlast worker MODULE")
        return OK
    rows: list[tuple[str, ...]] = []
    for each in views:
        more = "+" if each.flagged_at_least else ""
        needs = f" ({each.flagged:,}{more} need a person)" if each.flagged else ""
        by = " ".join(each.served_by) or (f"no worker serves {each.lane}" if each.runs else "no worker")
        since = screen.since(each.since)
        rows.append((each.workflow, str(each.version), f"{counted(each.runs)}{needs}", by, each.topology, since))
    columns: tuple[str, ...] = ("WORKFLOW", "VERSION", "RUNS", "SERVED BY", "TOPOLOGY", "SEEN FIRST")
    if any(each.scheduler != OWN for each in views):
        columns = (*columns, "SCHEDULER")
        rows = [(*row, each.scheduler) for row, each in zip(rows, views, strict=True)]
    screen.table(columns, rows)
    for each in views:
        others = [v for v in views if (v.workflow, v.scheduler) == (each.workflow, each.scheduler) and v.served_by]
        if each.runs and not each.served_by and others:
            to, of = others[-1].version, each.version
            move = f"outlast versions move {each.workflow} {to} --all-of {of} --reason …"
            screen.advice(f"{each.lane}: start a worker of version {of}, or → {move}")
    return OK


@versions.command("move")
@click.argument("workflow")
@click.argument("version", type=click.IntRange(min=1))
@click.argument("runs", nargs=-1, metavar="RUN…")
@click.option("--at", "node", default="", metavar="NODE", help="Continue in this node [its current node].")
@click.option(
    "--all-of", type=click.IntRange(min=1), default=None, metavar="V", help="Move every unfinished run of version V."
)
@click.option("--reason", default="", help="Reason for the history of the runs.")
@on_client
async def move_runs(
    client: Client,
    screen: Screen,
    workflow: str,
    version: int,
    runs: tuple[str, ...],
    node: str,
    all_of: int | None,
    reason: str,
) -> int:
    """Move runs to VERSION of WORKFLOW.

    Runs can move if no worker serves their version, or if their node is gone. A worker of the new version moves them,
    by the declared migration or else with the unchanged state if it is valid. The visit remains, so no call repeats.
    """
    if bool(runs) == (all_of is not None):
        raise click.UsageError("name runs, or a version with --all-of")
    wanted = list(runs)
    if all_of is not None:
        lanes = [each.lane for each in await client.versions() if (each.workflow, each.version) == (workflow, all_of)]
        wanted = [run for lane in lanes for run in await client.unfinished(workflow, lane)]
    asked, failed, _ = await client.move_runs(workflow, version, wanted, node=node, reason=reason)
    code = CONFLICT if failed else OK
    if screen.data({"asked": list(asked), "not_asked": [{"run": run, "why": why} for run, why in failed]}):
        return code
    n = len(asked)
    where = f" at {node}" if node else ""
    if n or not failed:
        screen.line(f"{n} run{'' if n == 1 else 's'} asked to continue in {lane_of(workflow, version)}{where}")
    for run, why in failed:
        screen.line(f"{run}: {why}")
    return code


NAMED_MAX = 6  # runs named in one line; -o json has all


@click.command("check", cls=Command)
@click.argument("module", metavar="MODULE[:NAME]")
@click.option("--against", default="", metavar="URL", help="Store with the runs to check [--store].")
@click.option("--lint", "lints", is_flag=True, help="Find mistakes in the source first (outlast lint).")
def check_command(module: str, against: str, lints: bool) -> None:
    """List the unfinished runs that new code would break.

    Checks the runs of every tenant against the code of MODULE. Nothing is changed and no run is taken. Exit code 0 if
    all runs can continue, 1 otherwise. With --lint the runs are checked only if the source has no mistake.
    """
    settings = settings_now()
    if against:
        settings = replace(settings, store=against)
    if lints:
        found = [*linted(split(module)[0], selected())]
        if any(each.findings for each in found):
            click.get_current_context().exit(show(Screen(settings), found))
    click.get_current_context().exit(asyncio.run(_check(settings, load_workflows(module))))


async def _check(settings: CliSettings, workflows: Sequence[Workflow[Any]]) -> int:
    async with operations(settings, workflows=workflows, use="read") as bound:
        found = await check(bound.store, workflows)
    screen = Screen(settings)
    if screen.data(view(found)):
        return RUN_FAILED if found.verdicts else OK
    for lane, state in found.lanes.items():
        screen.advice(f"{lane}: {state}")
    if found.elsewhere:
        elsewhere = ", ".join(f"{n} of {lane}" for lane, n in sorted(found.elsewhere.items()))
        screen.advice(f"not checked, because this code lacks the version: {elsewhere}")
    if found.verdicts:
        raise refusal(found, workflows)
    guests = "".join(f", {n} of them scheduled by {name}" for name, n in found.schedulers.items() if name != OWN)
    screen.line(f"{_runs(found.looked_at)} checked{guests}: all can continue with this code")
    return OK


def view(found: DeployReport) -> dict[str, Any]:
    """Return the report as plain data."""
    return {
        "all_go_on": not found.verdicts,
        "runs": found.looked_at,
        "stranded": list(found.stranded),
        "findings": [verdict._asdict() for verdict in found.verdicts],
        "elsewhere": found.elsewhere,
        "lanes": found.lanes,
        "schedulers": found.schedulers,
    }


def refusal(found: DeployReport, workflows: Sequence[Workflow[Any]]) -> WillNotContinue:
    """Return the error that names the stranded runs by reason, and the remedies."""
    groups: dict[tuple[str, str, str], list[StrandedRun]] = {}
    for verdict in found.verdicts:
        groups.setdefault((verdict.lane, verdict.node, verdict.why), []).append(verdict)
    lines = [
        f"{_named([v.run for v in group])} ({lane}, node {node}): {why.splitlines()[0]}"
        for (lane, node, why), group in groups.items()
    ]
    first = found.verdicts[0]
    newest = max((w for w in workflows if w.name == first.workflow), key=lambda w: w.version)
    keep = f"keep version {version_in(first.lane)} running until they have ended"
    if newest.version == version_in(first.lane):
        fix = f"take the edit back, or raise version= and {keep}"
    else:
        fix = f"{keep}; declare @….migrate(from_={version_in(first.lane)}); or, once it is deployed, move them: "
        fix += f"outlast versions move {first.workflow} {newest.version} {first.run} --at NODE"
    what = f"{_runs(len(found.stranded))} will NOT continue with this code: {_named(found.stranded)}"
    return WillNotContinue(what, "\n".join(lines), fix)


def _runs(n: int) -> str:
    return f"{n} run{'' if n == 1 else 's'}"


def _named(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - NAMED_MAX} more" if len(runs) > NAMED_MAX else ""
    return ", ".join(runs[:NAMED_MAX]) + more

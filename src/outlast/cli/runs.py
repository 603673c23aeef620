"""`outlast runs`: what each run waits for, since when, until when and then what; and the two verbs of an operator."""

from collections import Counter
from typing import Any, get_args

import click

from outlast.cli.acting import says, unsure, warn_unserved
from outlast.cli.desk.port import Desk, RunPage
from outlast.cli.effect_page import print_effects
from outlast.cli.event_data import history, told
from outlast.cli.failure import OK
from outlast.cli.run_page import short_json, show_run
from outlast.cli.screen import Screen
from outlast.cli.session import on_desk, reads_desk
from outlast.cli.settings import Group
from outlast.cli.text import ago, duration
from outlast.core.machine import TERMINAL, Choice, RunStatus
from outlast.core.overlay import WaitingKind
from outlast.runtime.words import ATTENTION


@click.group(cls=Group)
def runs() -> None:
    """List and look at runs; continue or cancel one."""


@runs.command("ls")
@click.option("--status", type=click.Choice([s.value for s in RunStatus]), help="Only these (the engine's status).")
@click.option("--workflow", default="", metavar="NAME", help="Only runs of this workflow.")
@click.option("--attention", is_flag=True, help="Only those a person must look at.")
@click.option("--waiting-for", type=click.Choice(get_args(WaitingKind)), help="Only those that wait for this.")
@click.option("--since", type=duration, metavar="DURATION", help="Only those started so recently (24h).")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="At most so many [50].")
@click.option("--cursor", default="", help="Go on where the last page ended.")
@reads_desk
async def ls(
    desk: Desk,
    screen: Screen,
    status: str | None,
    workflow: str,
    attention: bool,
    waiting_for: str | None,
    since: int | None,
    limit: int,
    cursor: str,
) -> int:
    """List runs, newest first."""
    page = await desk.runs(
        status=status or "",
        workflow=workflow,
        attention=attention,
        waiting_for=waiting_for or "",
        since=ago(since),
        cursor=cursor,
        limit=limit,
    )
    views = page.views
    if screen.listing("runs", views, cursor=page.cursor):
        return OK
    if not views:
        filtered = status or workflow or attention or waiting_for or since is not None or cursor
        screen.line("no such run" if filtered else "no run yet → outlast run MODULE:NAME key=value …")
        return OK
    columns = ["RUN", "WORKFLOW", "STATUS", "WAITING FOR", "SINCE", "LEFT"]
    table = [_row(screen, view) for view in views]
    if any(view["results"] for view in views):  # most workflows emit none
        columns.append("RESULTS")
        table = [(*row, str(view["results"])) for row, view in zip(table, views, strict=True)]
    screen.table(columns, table)
    for line in _footer(page):
        screen.advice(line)
    screen.further("runs", page.cursor)
    return OK


def _row(screen: Screen, view: dict[str, Any]) -> tuple[str, ...]:
    waits = view["waiting_for"]
    ending = next((w for w in sorted(waits, key=lambda w: w["until"] or "~") if w["until"]), None)
    if view["status"] in TERMINAL:
        since = view["ended_at"]
    else:
        since = min((w["since"] for w in waits if w["since"]), default=view["entered_at"])
    left = ""
    if ending is not None:
        left = f"{screen.left(ending['until'])} → {ending['then']}".replace(ATTENTION, "attention")
    waits_for = " · ".join([view["waiting_text"], *(f"{each['verb']} asked" for each in view["asked"])])
    return view["run"], view["workflow"], view["shown"], waits_for, screen.ago(since), left


def _footer(page: RunPage) -> list[str]:
    views, n = page.views, page.total if page.total is not None else len(page.views)
    parts = [f"{len(views)} of {n} runs" if n > len(views) else f"{n} run{'s' if n > 1 else ''}"]
    flagged = sum(1 for view in views if view["attention"])
    if flagged:
        parts.append(f"{flagged} need{'s' if flagged == 1 else ''} attention → outlast runs show RUN")
    asked = page.asked
    if asked:
        parts.append(f"{asked} approval{'s' if asked > 1 else ''} → outlast approvals ls")
    lines = [" · ".join(parts)]
    unserved = [v for v in views if not v["served"]]
    waiting = [v for v in unserved if v["run"] in page.due or any(w["kind"] == "worker" for w in v["waiting_for"])]
    stranded = Counter(v["lane"] for v in waiting)
    lines += [f"no worker serves {lane} ({n}) → outlast worker MODULE" for lane, n in stranded.items()]
    return lines


@runs.command("show")
@click.argument("run")
@reads_desk
async def show(desk: Desk, screen: Screen, run: str) -> int:
    """Show one run: its way, what it waits for, what a person may do, its effects and crashes."""
    return await show_run(desk, screen, run)


@runs.command("effects")
@click.argument("run")
@reads_desk
async def effects(desk: Desk, screen: Screen, run: str) -> int:
    """Show the ledger of a run: every effect on the world, and what became of it."""
    views = await desk.effects(run)
    if screen.listing("effects", views):
        return OK
    if not views:
        screen.line(f"{run} has no effect yet → outlast runs show {run}")
        return OK
    print_effects(screen, views)
    return OK


@runs.command("results")
@click.argument("run")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="Maximum number of rows [50].")
@click.option("--cursor", type=click.IntRange(0), default=0, metavar="N", help="Row after which to go on [0].")
@reads_desk
async def results(desk: Desk, screen: Screen, run: str, limit: int, cursor: int) -> int:
    """Show the rows that a run has emitted, in the order of their first emission."""
    page = await desk.results(run, after=cursor, limit=limit)
    further = str(page.further or "")
    if screen.listing("results", page.views, count=page.total, cursor=further):
        return OK
    if not page.total:
        screen.line(f"{run} has no result yet → outlast runs show {run}")
        return OK
    rows = [(str(v["ordinal"]), v["key"], v["kind"], screen.since(v["at"]), short_json(v["data"])) for v in page.views]
    screen.table(("N", "KEY", "KIND", "EMITTED", "DATA"), rows)
    screen.advice(f"{len(rows)} of {page.total} result{'s' if page.total > 1 else ''}")
    screen.further("results", further)
    return OK


@runs.command("events")
@click.argument("run")
@click.option("--after", type=int, default=0, metavar="N", help="Only events after this number.")
@click.option("--all", "everything", is_flag=True, help="Effects and decisions too, in order of time.")
@reads_desk
async def events(desk: Desk, screen: Screen, run: str, after: int, everything: bool) -> int:
    """Show the events of a run; with --all its whole history."""
    views = await desk.events(run, after=after)
    effects = await desk.effects(run) if everything else []
    approvals = await desk.approvals_of(run) if everything else []
    entries = history(views, effects, approvals, from_start=not after)
    if screen.listing("events", [entry._asdict() for entry in entries] if everything else views):
        return OK
    table = [(f"{e.n or ''}", screen.since(e.time), e.what, e.place, told(e.data)) for e in entries]
    screen.table(("N", "WHEN", "EVENT", "NODE", "DATA"), table)
    return OK


@runs.command(Choice.CONTINUE.value)
@click.argument("run")
@click.option("--reason", default="", help="For the history.")
@on_desk
async def go_on(desk: Desk, screen: Screen, run: str, reason: str) -> int:
    """Let a run that needs attention go on, in the same visit."""
    await desk.go_on(run, reason=reason)
    if not screen.data({"run": run, "by": await desk.caller()}):
        screen.line(f"{run} goes on{await says(desk)}")
    await warn_unserved(desk, screen, run)
    return OK


@runs.command("cancel")
@click.argument("run")
@click.option("--reason", required=True, help="For the history; people will read it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@on_desk
async def cancel(desk: Desk, screen: Screen, run: str, reason: str, yes: bool) -> int:
    """End a run. What it has done is undone first, the latest first; what has no undo stands."""
    await desk.glance(run)
    if not yes:
        for each in await desk.to_undo(run):
            screen.advice(f"  is undone: {each}")
        for each in await desk.standing(run):
            screen.advice(f"  is done, and stays done: {each}")
        if (code := await unsure(screen, f"cancel {run}?", "not cancelled")) is not None:
            return code
    await desk.cancel(run, reason=reason)
    if not screen.data({"run": run, "by": await desk.caller(), "reason": reason}):
        screen.line(f"{run} is asked to end{await says(desk)} → outlast runs show {run}")
    await warn_unserved(desk, screen, run)
    return OK

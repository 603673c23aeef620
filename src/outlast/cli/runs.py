"""`outlast runs`: what each run waits for, since when, until when and then what; and the two verbs of an operator."""

import asyncio
from collections import Counter
from collections.abc import Container
from typing import Any

import click

from outlast.cli.effect_page import print_effects
from outlast.cli.event_data import told
from outlast.cli.failure import OK, USAGE
from outlast.cli.run_page import show_run
from outlast.cli.screen import Screen
from outlast.cli.session import on_store
from outlast.cli.settings import Group
from outlast.core.machine import TERMINAL, ApprovalStatus, Choice, RunStatus
from outlast.core.rows import APPROVAL, RUN, is_due
from outlast.runtime.operations import Operations
from outlast.runtime.views import effect_view, event_view, run_view
from outlast.runtime.words import ATTENTION

KINDS = (
    "timer", "signal", "approval", "effect", "retry", "quiet", "slot", "worker", "child", "hold", "limit", "attention",
)  # fmt: skip


@click.group(cls=Group)
def runs() -> None:
    """List and look at runs; continue or cancel one."""


@runs.command("ls")
@click.option("--status", type=click.Choice([s.value for s in RunStatus]), help="Only these (the engine's status).")
@click.option("--workflow", default="", metavar="NAME", help="Only runs of this workflow.")
@click.option("--attention", is_flag=True, help="Only those a person must look at.")
@click.option("--waiting-for", type=click.Choice(KINDS), help="Only those that wait for this.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="At most so many [50].")
@click.option("--cursor", default="", help="Go on where the last page ended.")
@on_store
async def ls(
    ops: Operations,
    screen: Screen,
    status: str | None,
    workflow: str,
    attention: bool,
    waiting_for: str | None,
    limit: int,
    cursor: str,
) -> int:
    """List runs, newest first."""
    rows, further = await ops.runs(
        status=status or "",
        workflow=workflow,
        attention=attention,
        waiting_for=waiting_for or "",
        cursor=cursor,
        limit=limit,
    )
    serving = await ops.serving()
    asked = await ops.unheeded(rows)
    views = [{**run_view(row, serving), "asked": asked.get(row.run, [])} for row in rows]
    if screen.listing("runs", views, cursor=further):
        return OK
    if not views:
        filtered = status or workflow or attention or waiting_for or cursor
        screen.line("no such run" if filtered else "no run yet → outlast run MODULE:NAME key=value …")
        return OK
    screen.table(("RUN", "WORKFLOW", "STATUS", "WAITING FOR", "SINCE", "LEFT"), [_row(screen, view) for view in views])
    now = (await ops.store.now()).real
    due = {row.run for row in rows if not row.owner and is_due(row, now)}
    for line in _footer(views, await ops.counts(), further, due):
        screen.advice(line)
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


def _footer(
    views: list[dict[str, Any]], counts: dict[str, dict[str, int]], further: str, due: Container[str]
) -> list[str]:
    total = sum(counts[RUN.name].values())
    parts = [f"{len(views)} of {total} runs" if total > len(views) else f"{total} run{'s' if total > 1 else ''}"]
    flagged = sum(1 for view in views if view["attention"])
    if flagged:
        parts.append(f"{flagged} need{'s' if flagged == 1 else ''} attention → outlast runs show RUN")
    asked = counts[APPROVAL.name].get(ApprovalStatus.PENDING, 0)
    if asked:
        parts.append(f"{asked} approval{'s' if asked > 1 else ''} → outlast approvals ls")
    lines = [" · ".join(parts)]
    unserved = [v for v in views if not v["served"]]
    waiting = [v for v in unserved if v["run"] in due or any(w["kind"] == "worker" for w in v["waiting_for"])]
    stranded = Counter(v["lane"] for v in waiting)
    lines += [f"no worker serves {lane} ({n}) → outlast worker MODULE" for lane, n in stranded.items()]
    if further:
        lines.append(f"further runs → outlast runs ls --cursor {further}")
    return lines


@runs.command("show")
@click.argument("run")
@on_store
async def show(ops: Operations, screen: Screen, run: str) -> int:
    """Show one run: its way, what it waits for, what a person may do, its effects and crashes."""
    return await show_run(ops, screen, run)


@runs.command("effects")
@click.argument("run")
@on_store
async def effects(ops: Operations, screen: Screen, run: str) -> int:
    """Show the ledger of a run: every effect on the world, and what became of it."""
    now = await ops.store.now()
    rows = await ops.effects(run)
    known = await ops.evidence(run)
    views = [effect_view(e, now, [k for k in known if (k.visit, k.key) == (e.visit, e.key)]) for e in rows]
    if screen.listing("effects", views):
        return OK
    if not views:
        screen.line(f"{run} has no effect yet → outlast runs show {run}")
        return OK
    print_effects(screen, views)
    return OK


@runs.command("events")
@click.argument("run")
@click.option("--after", type=int, default=0, metavar="N", help="Only events after this number.")
@on_store
async def events(ops: Operations, screen: Screen, run: str, after: int) -> int:
    """Show the history of a run."""
    rows = [event for event in await ops.whole_history(run) if event.seq > after]
    if screen.listing("events", [event_view(event) for event in rows]):
        return OK
    table = []
    for event in rows:
        view = event_view(event)
        kind = event.type.rpartition(".")[2]
        when, place = screen.since(view["time"]), f"{event.node}#{event.visit}"
        table.append((str(event.seq), when, kind, place, told(view["data"])))
    screen.table(("N", "WHEN", "EVENT", "NODE", "DATA"), table)
    return OK


@runs.command(Choice.CONTINUE.value)
@click.argument("run")
@click.option("--reason", default="", help="For the history.")
@on_store
async def go_on(ops: Operations, screen: Screen, run: str, reason: str) -> int:
    """Let a run that needs attention go on, in the same visit."""
    await ops.go_on(run, reason=reason)
    if not screen.data({"run": run, "by": ops.actor.name}):
        screen.line(f"{run} goes on, says {ops.actor.name}")
    await warn_unserved(ops, screen, run)
    return OK


@runs.command("cancel")
@click.argument("run")
@click.option("--reason", required=True, help="For the history; people will read it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@on_store
async def cancel(ops: Operations, screen: Screen, run: str, reason: str, yes: bool) -> int:
    """End a run. What it has done is undone first, the latest first; what has no undo stands."""
    await ops.run(run)
    if not yes:
        for each in await ops.to_undo(run):
            screen.advice(f"  is undone: {each}")
        for each in await ops.standing(run):
            screen.advice(f"  is done, and stays done: {each}")
        answer = await asyncio.to_thread(_confirm, f"Cancel {run}?")
        if answer is None:
            screen.advice("not cancelled: nobody was there to ask → --yes")
            return USAGE
        if not answer:
            screen.line("not cancelled")
            return OK
    await ops.cancel(run, reason=reason)
    if not screen.data({"run": run, "by": ops.actor.name, "reason": reason}):
        screen.line(f"{run} is asked to end, says {ops.actor.name} → outlast runs show {run}")
    await warn_unserved(ops, screen, run)
    return OK


def _confirm(question: str) -> bool | None:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return None


async def warn_unserved(ops: Operations, screen: Screen, run: str) -> None:
    """Say so when no worker is there to do what was just asked for."""
    row = await ops.run(run)
    if row.status not in TERMINAL and row.lane not in await ops.serving():
        screen.advice(f"no worker serves {row.lane}; start one: outlast worker MODULE")

"""`outlast runs tail`: a run's events as they come, until it has ended; the exit code is its outcome's (RUN-7)."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import click

from outlast.cli.failure import OK, RUN_FAILED
from outlast.cli.screen import Screen
from outlast.cli.session import on_store
from outlast.cli.settings import Command
from outlast.cli.text import json_escaped
from outlast.core.events import EventType, iso
from outlast.core.machine import RunStatus
from outlast.core.rows import Event, Run, is_over
from outlast.runtime.operations import Operations
from outlast.runtime.views import ENDINGS, ending_of
from outlast.runtime.watch import until

PAGE = 200


@click.command("tail", cls=Command)
@click.argument("run")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only events after this number.")
@on_store
async def tail(ops: Operations, screen: Screen, run: str, after: int) -> int:
    """Follow a run: one line for each event as it comes, until the run has ended.

    With -o ndjson (or json) each line is the CloudEvent as it is stored and chained.
    """
    seen = after
    try:
        while (events := await _news(ops, run, seen)) is not None:
            for event in events:
                _print(screen, event)
                seen = event.seq
            sys.stdout.flush()
    except asyncio.CancelledError:
        screen.advice(f"\nstopped after event {seen}; go on with: outlast runs tail {run} --after {seen}")
        raise
    return await _ended(ops, screen, run)


async def _news(ops: Operations, run: str, after: int) -> tuple[Event, ...] | None:
    """The next events, once there are any; None once the run has ended and all of them were read."""

    async def look() -> tuple[tuple[Event, ...], Run] | None:
        row = await ops.run(run)  # read before the events: what ended it is among them then
        events = await ops.history(run, after=after, limit=PAGE)
        return (events, row) if events or is_over(row) else None

    found = await until(ops.store, look)
    assert found is not None
    return found[0] or None


def _print(screen: Screen, event: Event) -> None:
    if not screen.for_people:
        body = event.body.decode()
        click.echo(json_escaped(body) if sys.stdout.isatty() else body)
        return
    data = json.loads(event.body)["data"]
    kind = event.type.rpartition(".")[2]
    place = f"{event.node}#{event.visit}"
    screen.line(f"{iso(event.at)}  {event.seq:>3}  {kind:<11} {place:<16} {words(event.type, data)}".rstrip())


async def _ended(ops: Operations, screen: Screen, run: str) -> int:
    row = await ops.run(run)
    ending = ending_of(await ops.history(run, after=row.seq - 1))
    reason = f": {ending['reason']}" if ending and ending["reason"] else ""
    screen.advice(f"{run} {row.status.upper()}{reason}; nothing more will come")
    return OK if row.status is RunStatus.COMPLETED else RUN_FAILED


# --- what an event says -----------------------------------------------------------------------------
def _parked(data: dict[str, Any]) -> str:
    waits = data.get("waiting_for", [])
    each = [f"{w['kind']} {w['what']}" + (f" until {iso(w['until'])}" if w["until"] else "") for w in waits]
    return "waits for " + " and ".join(each)


def _flagged(data: dict[str, Any]) -> str:
    return f"needs a person: {', '.join(data['reasons'])}: {(data['detail'].splitlines() or [''])[0]}"


def _answers(data: dict[str, Any]) -> str:
    return ", ".join(f"{a['reason']}: {a['choice']} by {a['by']}" for a in data["answers"])


WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    EventType.STARTED: lambda data: f"by {data['by']}",
    EventType.CLAIMED: lambda data: f"by {data['worker']}",
    EventType.TAKEN_OVER: lambda data: f"by {data['worker']} from {data['from']}",
    EventType.CHECKPOINT: lambda data: f"saved; next is {data['next']}",
    EventType.PARKED: _parked,
    EventType.FLAGGED: _flagged,
    EventType.ANSWERED: _answers,
    EventType.HANDED_BACK: lambda data: str(data["why"]),
    EventType.ADMITTED: lambda data: f"slots {data['slots']}",
    EventType.TOLD: lambda data: str(data["text"]),
    EventType.DENIED: lambda data: f"{data['text']} (policy {data['policy_version']})",
    **{each: lambda data: str(data["reason"]) for each in ENDINGS},
}


def words(type_: str, data: dict[str, Any]) -> str:
    """What an event says, beyond when and where, in one line."""
    say = WORDS.get(type_)
    return say(data) if say is not None else ""

"""`outlast runs tail`: a run's events as they come, until it has ended; the exit code is its outcome's (RUN-7)."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import click

from outlast.cli.desk.port import Desk
from outlast.cli.failure import OK, RUN_FAILED
from outlast.cli.live import shown
from outlast.cli.screen import Screen
from outlast.cli.session import reads_desk
from outlast.cli.settings import Command
from outlast.cli.text import json_escaped
from outlast.core.events import EventType, iso
from outlast.core.machine import RunStatus
from outlast.runtime.views import ENDINGS


@click.command("tail", cls=Command)
@click.argument("run")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only events after this number.")
@reads_desk
async def tail(desk: Desk, screen: Screen, run: str, after: int) -> int:
    """Follow a run until it has ended: on a terminal one line for each node, in a pipe one for each event as it comes.

    With -o ndjson (or json) each line is the CloudEvent as it is stored and chained.
    """
    seen = after
    try:
        async with shown(desk, screen, run) as moved:
            async for text in desk.follow(run, after=after):
                seen = int(json.loads(text)["sequence"])
                if moved is not None:
                    moved()
                else:
                    print_event(screen, text)
    except asyncio.CancelledError:
        screen.advice("")  # the line that shows ^C ends
        screen.advice(f"stopped after event {seen}; go on with: outlast runs tail {run} --after {seen}")
        raise
    view = await desk.run(run)
    reason = f": {view['reason']}" if view.get("reason") else ""
    screen.advice(f"{run} {view['status'].upper()}{reason}; nothing more will come")
    return OK if view["status"] == RunStatus.COMPLETED else RUN_FAILED


def print_event(screen: Screen, text: str, *, err: bool = False) -> None:
    """One event on a line of its own: its stored text for programs, words for people."""
    if not screen.for_people:
        click.echo(json_escaped(text) if sys.stdout.isatty() else text)
        return
    event = json.loads(text)
    data, kind = event["data"], event["type"].rpartition(".")[2]
    place = f"{data['node']}#{data['visit']}"
    line = f"{event['time']}  {int(event['sequence']):>3}  {kind:<11} {place:<16} {words(event['type'], data)}".rstrip()
    if err:
        screen.advice(line)
    else:
        screen.line(line)


# --- what an event says -----------------------------------------------------------------------------
def _parked(data: dict[str, Any]) -> str:
    waits = data.get("waiting_for", [])
    each = [f"{w['kind']} {w['what']}" + (f" until {iso(w['until'])}" if w["until"] else "") for w in waits]
    return "waits for " + " and ".join(each)


def _flagged(data: dict[str, Any]) -> str:
    return f"needs a person: {', '.join(data['reasons'])}: {(data['detail'].splitlines() or [''])[0]}"


def _requeued(data: dict[str, Any]) -> str:
    if not data["held"]:
        return f"{data['from']} is gone"
    group = f"; from now on at most {data['group_max']} together" if data["group_max"] else ""
    return f"{data['from']} died, which held {data['held']} runs{group}"


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
    EventType.REQUEUED: _requeued,
    EventType.ADMITTED: lambda data: f"slots {data['slots']}",
    EventType.TOLD: lambda data: str(data["text"]),
    EventType.DENIED: lambda data: f"{data['text']} (policy {data['policy_version']})",
    **{each: lambda data: str(data["reason"]) for each in ENDINGS},
}


def words(type_: str, data: dict[str, Any]) -> str:
    """What an event says, beyond when and where, in one line."""
    say = WORDS.get(type_)
    return say(data) if say is not None else ""

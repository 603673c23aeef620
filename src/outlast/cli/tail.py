"""`outlast runs tail`: follow a run until it has ended, on a terminal or in a pipe (RUN-7)."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import click

from outlast.cli.exit_codes import OK, RUN_FAILED
from outlast.cli.run_page import data_of, is_held, way
from outlast.cli.screen import Screen
from outlast.cli.session import reads_client
from outlast.cli.settings import Command
from outlast.cli.text import inert, json_escaped, results_text
from outlast.core.events import ENDINGS, EventType, iso
from outlast.core.machine import TERMINAL, RunStatus
from outlast.models.effects import EffectRecord
from outlast.models.runs import CloudEvent, RunDetail, Waiting
from outlast.runtime.client import Client

EVERY_S: Final = 1.0


@asynccontextmanager
async def shown(client: Client, screen: Screen, run: str) -> AsyncIterator[Callable[[], None] | None]:
    """Keep the page of a run on the terminal up to date while the block runs. Give a function to call on each event.

    Give None if the output is no terminal, or with -o json and -q.
    """
    if not (screen.for_people and sys.stdout.isatty() and not screen.quiet):
        yield None
        return
    from rich.live import Live
    from rich.text import Text

    view = await client.run(run)
    topology = await client.topology(view.workflow, view.lane)
    moved = asyncio.Event()
    with Live(console=screen.console(), auto_refresh=False, transient=False) as live:

        async def draw() -> None:
            now = await client.run(run)
            effects = await client.effects(run)
            lines = page(screen, now, topology, effects[-1] if effects else None, tick=live_tick())
            live.update(Text("\n".join(inert(line) for line in lines)), refresh=True)

        ticks = 0

        def live_tick() -> int:
            nonlocal ticks
            ticks += 1
            return ticks

        async def keep() -> None:
            while True:
                moved.clear()
                screen.now_ms += await _since(client, clock)
                await draw()
                try:
                    async with asyncio.timeout(EVERY_S):
                        await moved.wait()
                except TimeoutError:
                    pass  # without an event, the elapsed times are redrawn

        clock = [await client.now()]
        task = asyncio.create_task(keep())
        try:
            yield moved.set
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await draw()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _since(client: Client, clock: list[datetime]) -> int:
    """Return the milliseconds since the previous call."""
    before, clock[0] = clock[0], await client.now()
    return max(0, (clock[0] - before) // timedelta(milliseconds=1))


SPIN: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def page(
    screen: Screen, view: RunDetail, topology: Mapping[str, Any] | None, last: EffectRecord | None, *, tick: int = 0
) -> list[str]:
    """Return the lines of a moving run: visits, nodes ahead, the wait, the last effect."""
    lines = [f"{view.run}  {view.workflow} v{view.lane.rpartition('@')[2]}  {view.shown}"]
    lines += [f"  {part}" for part in way(screen, view)]
    ended = view.status in TERMINAL
    if not ended:
        progress = view.progress
        done = f"{progress.here_done} of {progress.here_intended} effects" if progress.here_intended else ""
        if is_held(view):
            lines[-1] += f"  {SPIN[tick % len(SPIN)]} {view.owner}" + (f" · {done}" if done else "")
        elif done:
            lines[-1] += f"  {done}"
        lines += [f"  · {name}" for name in ahead(topology, view.node, {v.node for v in view.visits})]
        lines += waits(screen, view)
    if last is not None:
        lines.append(f"  last effect  {last.effect} {last.key}  {last.outcome}")
    if view.results:
        lines.append(f"  results      {view.results:,}")
    if ended and view.status != RunStatus.COMPLETED and view.reason:
        lines.append(f"  reason       {view.reason}")
    return lines


def waits(screen: Screen, view: RunDetail) -> list[str]:
    """Return the lines for the waits of a run, with the time left."""
    if is_held(view):
        return []
    if view.attention:
        each = view.attention[0]
        return [f"  needs you    {each.reason}: {(each.detail.splitlines() or [''])[0]} → outlast attention ls"]
    found = [f"  waiting for  {_wait(screen, each)}" for each in view.waiting_for] or [
        f"  waiting for  {view.waiting_text or 'a worker'}"
    ]
    return [f"{line} · no process is running" for line in found]


def _wait(screen: Screen, wait: Waiting) -> str:
    by = f" by {wait.who}" if wait.who else ""
    left = f" · {screen.left(wait.until)} left, then {wait.then}" if wait.until else ""
    return f"{wait.kind} {wait.what}{by}{left}"


def ahead(topology: Mapping[str, Any] | None, node: str, seen: set[str]) -> list[str]:
    """Return the reachable nodes that were not visited yet, the nearest first."""
    if topology is None:
        return []
    found, edge = list[str](), [node]
    while edge:
        to = [each for name in edge for each in topology["nodes"].get(name, {}).get("to", [])]
        edge = [name for name in dict.fromkeys(to) if name != node and name not in found]
        found += edge
    return [name for name in found if name not in seen]


@click.command("tail", cls=Command)
@click.argument("run")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only events after this number.")
@reads_client
async def tail(client: Client, screen: Screen, run: str, after: int) -> int:
    """Follow a run until it has ended.

    On a terminal each node has one line. In a pipe each event is one line.

    With -o ndjson (or json) each line is the exact CloudEvent. The exit code is that of the outcome.
    """
    seen = after
    try:
        async with shown(client, screen, run) as moved:
            async for text in client.follow(run, after=after):
                seen = CloudEvent.model_validate_json(text).number
                if moved is not None:
                    moved()
                else:
                    print_event(screen, text)
    except asyncio.CancelledError:
        screen.advice("")  # ends the line with ^C
        screen.advice(f"stopped after event {seen}; continue with: outlast runs tail {run} --after {seen}")
        raise
    view = await client.run(run)
    reason = f": {view.reason}" if view.reason else ""
    emitted = f", {results_text(view.results)}" if view.results else ""
    screen.advice(f"{run} {view.shown}{emitted}{reason}; no further event will come")
    return OK if view.status == RunStatus.COMPLETED else RUN_FAILED


def print_event(screen: Screen, text: str, *, err: bool = False) -> None:
    """Print one event on one line: its stored text for programs, words for people."""
    if not screen.for_people:
        click.echo(json_escaped(text) if sys.stdout.isatty() else text)
        return
    event = CloudEvent.model_validate_json(text)
    data, kind = data_of(event), event.type.rpartition(".")[2]
    place = f"{data['node']}#{data['visit']}"
    line = f"{event.time}  {event.number:>3}  {kind:<11} {place:<16} {words(event.type, data)}".rstrip()
    if err:
        screen.advice(line)
    else:
        screen.line(line)


# --- what an event says -----------------------------------------------------------------------------
def _parked(data: Mapping[str, Any]) -> str:
    waits = data.get("waiting_for", [])
    each = [f"{w['kind']} {w['what']}" + (f" until {iso(w['until'])}" if w["until"] else "") for w in waits]
    return "waits for " + " and ".join(each)


def _flagged(data: Mapping[str, Any]) -> str:
    return f"needs a person: {', '.join(data['reasons'])}: {(data['detail'].splitlines() or [''])[0]}"


def _requeued(data: Mapping[str, Any]) -> str:
    if not data["held"]:
        return f"{data['from']} is gone"
    group = f"; from now on at most {data['group_max']} together" if data["group_max"] else ""
    return f"{data['from']} died, which held {data['held']} runs{group}"


def _answers(data: Mapping[str, Any]) -> str:
    return ", ".join(f"{a['reason']}: {a['choice']} by {a['by']}" for a in data["answers"])


WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
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
    EventType.LOGGED: lambda data: str(data["text"]),
    EventType.DENIED: lambda data: f"{data['text']} (policy {data['policy_version']})",
    **{each: lambda data: str(data["reason"] or data.get("end", "")) for each in ENDINGS},
}


def words(type_: str, data: Mapping[str, Any]) -> str:
    """Return the data of an event as words, in one line."""
    say = WORDS.get(type_)
    return say(data) if say is not None else ""

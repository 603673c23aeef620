"""`outlast runs tail`: a run's events as they come, until it has ended; the exit code is its outcome's (RUN-7)."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import click

from outlast.cli.client import Client, View
from outlast.cli.exit_codes import OK, RUN_FAILED
from outlast.cli.run_page import is_walked, way
from outlast.cli.screen import Screen
from outlast.cli.session import reads_client
from outlast.cli.settings import Command
from outlast.cli.text import inert, json_escaped
from outlast.core.events import EventType, iso
from outlast.core.machine import TERMINAL, RunStatus
from outlast.runtime.views import ENDINGS

EVERY_S: Final = 1.0


@asynccontextmanager
async def shown(client: Client, screen: Screen, run: str) -> AsyncIterator[Callable[[], None] | None]:
    """Keep the page of a run on the terminal up to date; what is given is called when something has happened.

    None where nobody watches: a pipe, -o json, -q.
    """
    if not (screen.for_people and sys.stdout.isatty() and not screen.quiet):
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    view = await client.run(run)
    topology = await client.topology(view)
    console = Console(no_color=screen.no_color or None, highlight=False, emoji=False)
    moved = asyncio.Event()
    with Live(console=console, auto_refresh=False, transient=False) as live:

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
                    pass  # nothing happened: times are drawn anew

        clock = [await client.now_real()]
        task = asyncio.create_task(keep())
        try:
            yield moved.set
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await draw()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _since(client: Client, clock: list[int]) -> int:
    """Milliseconds since it was asked last."""
    before, clock[0] = clock[0], await client.now_real()
    return max(0, clock[0] - before)


SPIN: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def page(screen: Screen, view: View, topology: View | None, last: View | None, *, tick: int = 0) -> list[str]:
    """The lines: visits gone and the present one, nodes that may still come, the last effect, the wait."""
    lines = [f"{view['run']}  {view['workflow']} v{view['lane'].rpartition('@')[2]}  {view['shown']}"]
    lines += [f"  {part}" for part in way(screen, view)]
    ended = view["status"] in TERMINAL
    if not ended:
        progress = view["progress"]
        done = f"{progress['here_done']} of {progress['here_intended']} effects" if progress["here_intended"] else ""
        if is_walked(view):
            lines[-1] += f"  {SPIN[tick % len(SPIN)]} {view['owner']}" + (f" · {done}" if done else "")
        elif done:
            lines[-1] += f"  {done}"
        lines += [f"  · {name}" for name in ahead(topology, view["node"], {v["node"] for v in view["visits"]})]
        lines += waits(screen, view)
    if last is not None:
        lines.append(f"  last effect  {last['effect']} {last['key']}  {last['outcome']}")
    if ended and view["status"] != RunStatus.COMPLETED and view.get("reason"):
        lines.append(f"  reason       {view['reason']}")
    return lines


def waits(screen: Screen, view: View) -> list[str]:
    """Who or what it waits for, how long still, and that nothing runs meanwhile."""
    if is_walked(view):
        return []
    if view["attention"]:
        each = view["attention"][0]
        return [f"  needs you    {each['reason']}: {(each['detail'].splitlines() or [''])[0]} → outlast attention ls"]
    found = [f"  waiting for  {_wait(screen, each)}" for each in view["waiting_for"]] or [
        f"  waiting for  {view['waiting_text'] or 'a worker'}"
    ]
    return [f"{line} · no process is running" for line in found]


def _wait(screen: Screen, wait: dict[str, Any]) -> str:
    by = f" by {wait['who']}" if wait["who"] else ""
    left = f" · {screen.left(wait['until'])} left, then {wait['then']}" if wait["until"] else ""
    return f"{wait['kind']} {wait['what']}{by}{left}"


def ahead(topology: View | None, node: str, seen: set[str]) -> list[str]:
    """The nodes that can be reached from here and were not entered yet, the nearest first."""
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
    """Follow a run until it has ended: on a terminal one line for each node, in a pipe one for each event as it comes.

    With -o ndjson (or json) each line is the CloudEvent as it is stored and chained.
    """
    seen = after
    try:
        async with shown(client, screen, run) as moved:
            async for text in client.follow(run, after=after):
                seen = int(json.loads(text)["sequence"])
                if moved is not None:
                    moved()
                else:
                    print_event(screen, text)
    except asyncio.CancelledError:
        screen.advice("")  # the line that shows ^C ends
        screen.advice(f"stopped after event {seen}; go on with: outlast runs tail {run} --after {seen}")
        raise
    view = await client.run(run)
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
    EventType.LOGGED: lambda data: str(data["text"]),
    EventType.DENIED: lambda data: f"{data['text']} (policy {data['policy_version']})",
    **{each: lambda data: str(data["reason"]) for each in ENDINGS},
}


def words(type_: str, data: dict[str, Any]) -> str:
    """What an event says, beyond when and where, in one line."""
    say = WORDS.get(type_)
    return say(data) if say is not None else ""

"""`outlast runs tail`: follow a run until it has ended, on a terminal or in a pipe (RUN-7)."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from textwrap import wrap
from typing import Any, Final

import click

from outlast.cli.command_session import reads_client
from outlast.cli.exit_codes import OK, RUN_FAILED
from outlast.cli.global_options import Command
from outlast.cli.run_page import data_of, is_held, way
from outlast.cli.screen import Screen
from outlast.cli.text import inert, json_escaped, results_text
from outlast.core.events import ENDINGS, EventType, iso
from outlast.core.machine import TERMINAL, RunStatus
from outlast.core.maps import WAITED
from outlast.models.effects import EffectRecord
from outlast.models.runs import CloudEvent, RunDelta, RunDetail, Waiting
from outlast.runtime.client import Client

EVERY_S: Final = 1.0
TEXTS_SHOWN: Final = 6
TEXT_LINES: Final = 3
TEXT_KEPT: Final = 2_000


class StreamedTexts:
    """Texts that a run streams now: by node or call of the current visit, until the next event of that visit."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, int, str], tuple[tuple[int, int], str]] = {}

    def add(self, delta: RunDelta) -> None:
        """Append a piece. One of a later epoch or attempt begins its text again."""
        place, made = (delta.node, delta.visit, delta.key), (delta.epoch, delta.attempt)
        known, text = self._texts.pop(place, (made, ""))
        if made >= known:
            known, text = made, (text if made == known else "") + delta.text
        self._texts[place] = known, text[-TEXT_KEPT:]
        while len(self._texts) > TEXTS_SHOWN:
            del self._texts[next(iter(self._texts))]

    def end(self, visit: int) -> None:
        """Forget the texts of a visit, because the run has moved on."""
        self._texts = {place: text for place, text in self._texts.items() if place[1] != visit}

    def lines(self, columns: int) -> list[str]:
        """Return the last lines of each text, with the node or the key of the call above them."""
        found = []
        for (node, visit, key), (_, text) in self._texts.items():
            rows = [row for line in text.splitlines() for row in wrap(line, max(20, columns - 4))]
            found += [f"  {key or f'{node}#{visit}'}", *(f"    {row}" for row in rows[-TEXT_LINES:])]
        return found


class LivePage:
    """Page of a moving run on a terminal, drawn again after each update and each second."""

    def __init__(self, client: Client, screen: Screen, view: RunDetail, topology: Mapping[str, Any] | None) -> None:
        self._client = client
        self._screen = screen
        self._run = view.run
        self._topology = topology
        self._texts = StreamedTexts()
        self._lines: list[str] = []
        self._ticks = 0
        self._moved = True  # the rows have changed since they were read
        self._woken = asyncio.Event()

    def take(self, update: CloudEvent | RunDelta) -> None:
        """Take in an update, and draw soon."""
        if isinstance(update, RunDelta):
            self._texts.add(update)
        else:
            self._texts.end(data_of(update)["visit"])
            self._moved = True
        self._woken.set()

    async def read(self) -> None:
        """Read the run and make its lines."""
        self._moved = False
        now, effects = await self._client.run(self._run), await self._client.effects(self._run)
        self._ticks += 1
        self._lines = page(self._screen, now, self._topology, effects[-1] if effects else None, tick=self._ticks)

    def lines(self, columns: int) -> list[str]:
        """Return the lines of the page."""
        return [*self._lines, *self._texts.lines(columns)]

    async def keep(self, draw: Callable[[], None]) -> None:
        """Keep the page up to date until it is cancelled. `draw` puts its lines on the terminal."""
        clock = [await self._client.now()]
        while True:
            self._woken.clear()
            if self._moved:
                self._screen.now_ms += await _since(self._client, clock)
                await self.read()
            draw()
            try:
                async with asyncio.timeout(EVERY_S):
                    await self._woken.wait()
            except TimeoutError:
                self._moved = True  # without an event, the elapsed times are read and drawn again


@asynccontextmanager
async def shown(
    client: Client, screen: Screen, run: str
) -> AsyncIterator[Callable[[CloudEvent | RunDelta], None] | None]:
    """Keep the page of a run on the terminal up to date while the block runs. Give a function that takes each update.

    Give None if the output is no terminal, or with -o json and -q.
    """
    if not (screen.for_people and sys.stdout.isatty() and not screen.quiet):
        yield None
        return
    from rich.live import Live
    from rich.text import Text

    view = await client.run(run)
    live_page = LivePage(client, screen, view, await client.topology(view.workflow, view.lane))
    with Live(console=screen.console(), auto_refresh=False, transient=False) as live:

        def draw() -> None:
            lines = live_page.lines(live.console.width)
            live.update(Text("\n".join(inert(line) for line in lines)), refresh=True)

        task = asyncio.create_task(live_page.keep(draw))
        try:
            yield live_page.take
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await live_page.read()
            draw()
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
    if wait.kind == "child" and wait.who.startswith(WAITED):
        return f"map {wait.what}"
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
@click.option("--events-only", is_flag=True, help="Leave out the texts that the run streams.")
@reads_client
async def tail(client: Client, screen: Screen, run: str, after: int, events_only: bool) -> int:
    """Follow a run until it has ended, and show the texts that it streams.

    On a terminal each node has one line. In a pipe each event and each piece of text is one line.

    With -o ndjson (or json) a line is the exact CloudEvent, or a piece of text with the type "delta". The exit code
    is that of the outcome.
    """
    seen = after
    try:
        async with shown(client, screen, run) as take:
            updates = client.follow(run, after=after) if events_only else client.updates(run, after=after)
            async for update in updates:
                event = update if isinstance(update, RunDelta) else CloudEvent.model_validate_json(update)
                if isinstance(event, CloudEvent):
                    seen = event.number
                if take is not None:
                    take(event)
                else:
                    print_update(screen, update)
    except asyncio.CancelledError:
        screen.advice("")  # ends the line with ^C
        screen.advice(f"stopped after event {seen}; continue with: outlast runs tail {run} --after {seen}")
        raise
    view = await client.run(run)
    reason = f": {view.reason}" if view.reason else ""
    emitted = f", {results_text(view.results)}" if view.results else ""
    screen.advice(f"{run} {view.shown}{emitted}{reason}; no further event will come")
    return OK if view.status == RunStatus.COMPLETED else RUN_FAILED


def print_update(screen: Screen, update: str | RunDelta, *, err: bool = False) -> None:
    """Print one event or piece of text on one line: an event's stored text for programs, words for people."""
    if isinstance(update, RunDelta):
        if not screen.for_people:
            screen.json_line({"type": "delta", **update.model_dump()})
            return
        place = f"{update.node}#{update.visit}"
        line = f"{'':29}  {'text':<11} {place:<16} {' '.join(update.text.split())}".rstrip()
    elif not screen.for_people:
        click.echo(json_escaped(update) if sys.stdout.isatty() else update)
        return
    else:
        event = CloudEvent.model_validate_json(update)
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
    EventType.FORKED: lambda data: f"into {data['fork']} by {data['by']}, both go on: {data['reason']}",
    EventType.DENIED: lambda data: f"{data['text']} (policy {data['policy_version']})",
    **{each: lambda data: str(data["reason"] or data.get("end", "")) for each in ENDINGS},
}


def words(type_: str, data: Mapping[str, Any]) -> str:
    """Return the data of an event as words, in one line."""
    say = WORDS.get(type_)
    return say(data) if say is not None else ""

"""A run on a terminal while it moves: one line for each node, the last effect, and what it waits for."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from outlast.cli.desk.port import Desk, View
from outlast.cli.run_page import is_walked, way
from outlast.cli.screen import Screen
from outlast.cli.text import inert
from outlast.core.machine import TERMINAL, RunStatus

EVERY_S: Final = 1.0


@asynccontextmanager
async def shown(desk: Desk, screen: Screen, run: str) -> AsyncIterator[Callable[[], None] | None]:
    """Keep the page of a run on the terminal up to date; what is given is called when something has happened.

    None where nobody watches: a pipe, -o json, -q.
    """
    if not (screen.for_people and sys.stdout.isatty() and not screen.quiet):
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    view = await desk.run(run)
    topology = await desk.topology(view)
    console = Console(no_color=screen.no_color or None, highlight=False, emoji=False)
    moved = asyncio.Event()
    with Live(console=console, auto_refresh=False, transient=False) as live:

        async def draw() -> None:
            now = await desk.run(run)
            effects = await desk.effects(run)
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
                screen.now_ms += await _since(desk, clock)
                await draw()
                try:
                    async with asyncio.timeout(EVERY_S):
                        await moved.wait()
                except TimeoutError:
                    pass  # nothing happened: times are drawn anew

        clock = [await desk.now_real()]
        task = asyncio.create_task(keep())
        try:
            yield moved.set
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await draw()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _since(desk: Desk, clock: list[int]) -> int:
    """Milliseconds since it was asked last."""
    before, clock[0] = clock[0], await desk.now_real()
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

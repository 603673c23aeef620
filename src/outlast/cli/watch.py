"""`outlast runs ls --watch` and `outlast runs results --follow`: rows that are printed as they change."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from outlast.cli.exit_codes import OK
from outlast.cli.run_page import short_json
from outlast.cli.screen import Screen, json_of_model
from outlast.cli.text import inert
from outlast.core.machine import TERMINAL
from outlast.core.paging import pages
from outlast.models.runs import ResultRow, RunList
from outlast.runtime.client import Client

EVERY_S: Final = 1.0
"""Time between two reads. No notification reaches a command that only reads, so a store is polled like a service."""

Frame = tuple[list[str], list[tuple[str, ...]], list[str]]
"""Columns and rows of a table, and the lines below it."""


async def watch_runs(
    client: Client, screen: Screen, read: Callable[[], Awaitable[RunList]], frame: Callable[[RunList], Frame]
) -> int:
    """Print a list of runs again until Ctrl-C: each second on a terminal, else when a run has changed.

    For programs, json prints the list on one line, and ndjson the new and changed runs.
    """
    before: RunList | None = None
    clock = await client.now()
    with _redrawn(screen) as draw:
        while True:
            page = await read()
            former, clock = clock, await client.now()
            screen.now_ms += max(0, (clock - former) // timedelta(milliseconds=1))
            if draw is not None:
                draw(frame(page))
            elif page != before:
                _print_change(screen, page, before, frame)
            before = page
            await asyncio.sleep(EVERY_S)


@contextmanager
def _redrawn(screen: Screen) -> Iterator[Callable[[Frame], None] | None]:
    """Give a function that replaces the printed table; None if the output is no terminal, or for programs."""
    if not (screen.for_people and sys.stdout.isatty()):
        yield None
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=screen.console(), auto_refresh=False) as live:

        def draw(frame: Frame) -> None:
            columns, rows, notes = frame
            lines = [Text(inert(note), style="dim") for note in notes if not screen.quiet]
            live.update(Group(*([screen.rich_table(columns, rows)] if rows else []), *lines), refresh=True)

        yield draw


def _print_change(screen: Screen, page: RunList, before: RunList | None, frame: Callable[[RunList], Frame]) -> None:
    known = {run.run: run for run in before.runs} if before is not None else {}
    if screen.in_lines:
        for run in page.runs:
            if known.get(run.run) != run:
                screen.json_line(json_of_model(run))
        return
    if not screen.for_people:
        screen.json_line({"runs": [json_of_model(run) for run in page.runs], "cursor": page.next_cursor})
        return
    columns, rows, notes = frame(page)
    if before is not None:
        screen.line()
    if rows:
        screen.table(columns, rows)
    for note in notes:
        screen.advice(note)
    sys.stdout.flush()


async def follow_results(client: Client, screen: Screen, run: str, *, after: int) -> int:
    """Print the results of a run as they are emitted, one per line, until the run has ended."""
    while True:
        ended = (await client.run_summary(run)).status in TERMINAL  # read before the rows, which then are all
        async for page in pages(lambda cursor: client.results(run, after=int(cursor)), str(after)):
            for row in page.results:
                after = row.ordinal
                if screen.for_people:
                    screen.line(_result_line(row))
                else:
                    screen.json_line(json_of_model(row))
            sys.stdout.flush()
        if ended:
            return OK
        await asyncio.sleep(EVERY_S)


def _result_line(row: ResultRow) -> str:
    return f"{row.ordinal:>4}  {row.key}  {row.kind}  {short_json(row.data)}"

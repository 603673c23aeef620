"""Progress of a run, read over HTTP: `python -m examples.researcher.watch RUN` shows a bar for each topic.

All numbers are counted from the results and the events of the run when they are read, never from a process's memory.
It needs OUTLAST_URL, and OUTLAST_TOKEN if the service demands one.
"""

import argparse
import asyncio
from collections import Counter
from typing import Any

from outlast import Client, connect
from outlast.errors import Conflict
from outlast.models.runs import ResultRow, RunDetail

POLL_S = 0.4
PAGE = 500
FULL, EMPTY = "█", "░"
COUNT_TRIES = 20


class Watch:
    """Progress of one run. Each `poll` reads the results and events that are new."""

    def __init__(self, client: Client, run: str) -> None:
        self.client, self.run = client, run
        self.rows: dict[str, ResultRow] = {}
        self.topics: dict[str, int] = {}
        """Topic → number of its entries, in the order in which they were begun."""
        self.polls = 0
        self._events = self._ordinal = 0

    async def poll(self) -> RunDetail:
        """Return the run as it is now. Raises Conflict if its count of results differs from the rows."""
        for _ in range(COUNT_TRIES):
            before = await self.client.run(self.run)
            await self._read_rows()
            after = await self.client.run(self.run)
            if before.results == after.results:
                break
            if not before.results <= len(self.rows) <= after.results:
                break
        else:
            return after  # rows come too fast to compare at one instant, and were between both counts
        if not before.results <= len(self.rows) <= after.results:
            raise Conflict(f"{self.run} shows {after.results} results and has {len(self.rows)} rows")
        self.polls += 1
        await self._read_events()
        return after

    async def _read_rows(self) -> None:
        while True:
            page = await self.client.results(self.run, after=self._ordinal, limit=PAGE)
            for row in page.results:
                self.rows[row.key], self._ordinal = row, row.ordinal
            if len(page.results) < PAGE:
                return

    async def _read_events(self) -> None:
        while True:
            page = await self.client.events(self.run, after=self._events, limit=PAGE)
            for event in page.events:
                self._events = event.number
                found: Any = event.data if isinstance(event.data, dict) else {}
                if "entries" in found:
                    self.topics[found["topic"]] = found["entries"]
            if len(page.events) < PAGE:
                return

    def by_topic(self) -> Counter[str]:
        """Count the rows of each topic."""
        return Counter(str(row.data["kind"]) for row in self.rows.values())

    def line(self, width: int = 16) -> str:
        """Return the progress of the topic under way as text."""
        if not self.topics:
            return "surveys the site"
        topic, total = list(self.topics.items())[-1]
        done = self.by_topic()[topic]
        return f"{topic:<12} {bar(done, total, width)} {done:>4} of {total} entries · {len(self.rows):,} records"


def bar(done: int, total: int, width: int) -> str:
    """Return a bar of so many columns."""
    full = min(width, done * width // total) if total else 0
    return FULL * full + EMPTY * (width - full)


async def show(client: Client, run: str) -> RunDetail:
    """Show a bar for each topic until the run has ended, and return the run."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    watch, bars = Watch(client, run), dict[str, TaskID]()
    columns = (TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as shown:
        whole = shown.add_task("records", total=None)
        while True:
            detail = await watch.poll()
            counted = watch.by_topic()
            for topic, total in watch.topics.items():
                if topic not in bars:
                    bars[topic] = shown.add_task(topic, total=total)
                shown.update(bars[topic], completed=counted[topic])
            shown.update(whole, completed=len(watch.rows), total=sum(watch.topics.values()) or None)
            if detail.ended_at is not None:
                return detail
            await asyncio.sleep(POLL_S)


async def _main(run: str) -> None:
    async with connect() as client:
        detail = await show(client, run)
    print(f"{detail.shown} · {detail.results} records · {detail.reason}".rstrip(" ·"))


if __name__ == "__main__":
    cli = argparse.ArgumentParser(prog="researcher.watch", description=__doc__)
    cli.add_argument("run", help="id of the run")
    asyncio.run(_main(cli.parse_args().run))

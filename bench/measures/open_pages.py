"""The web UI: CPU and memory of a service whose pages are open, idle and then beside new runs.

An open page does what a browser does: it listens to the page's signals, and at each one it asks again for every region
that the page names, with the version that it has. The samples are written to standard error as they are taken.
"""

import asyncio
import html
import re
import sys
import time
from typing import Final, NamedTuple

import httpx2

from bench.engines import Setup
from bench.figures import Figures, Goal, Size, slope
from bench.load import stack
from bench.load.many_runs import EXECUTED, Counts, fill
from bench.usage import resident_tree, tree

REPEATS = 1
LIMIT_S = 5_400  # the full size takes an hour
KB, MB = 1_000, 1_000_000
PATHS: Final = ("/ui/", "/ui/approvals", "/ui/runs", "/ui/runs/refund-{n:06d}")
"""Open pages, in equal shares: the board, the approvals, the runs, and single runs."""
CORES, SETTLE_S, EVERY_S, IDLE_SHARE, RUNS_PER_S = 0.1, 5.0, 30.0, 1 / 3, 1.0
LIVE: Final = re.compile(r'hx-sse:connect="([^"]*)"')
REGION: Final = re.compile(r'hx-get="([^"]*)" hx-trigger="changed from:#live"')
GOALS = (
    Goal("pages", "open"),
    Goal("lost", "pages", gate=0),
    Goal("idle_cores", "cores", gate=CORES, digits=3),
    Goal("busy_cores", "cores", digits=3),
    Goal("busy_refreshes_per_s", "requests/s", digits=1),
    Goal("pages_mb", "MB", digits=1),
    Goal("idle_kb_per_h", "KB/h"),
    Goal("kb_per_h", "KB/h"),
)


class Sample(NamedTuple):
    """Totals of the service and its processes, at a time in seconds."""

    at: float
    cpu_s: float
    resident: int
    refreshes: int


class Pages:
    """Open pages of one service."""

    def __init__(self, client: httpx2.AsyncClient, count: int) -> None:
        self._client = client
        self.refreshes = 0
        self._open: set[int] = set()
        self._tasks = [asyncio.create_task(self._page(n)) for n in range(count)]

    async def opened(self) -> None:
        """Return when every page has refreshed its regions once."""
        while len(self._open) < len(self._tasks):
            assert not self.lost(), self._reason()
            await asyncio.sleep(0.1)

    def lost(self) -> int:
        """Return how many pages no longer listen."""
        return sum(task.done() for task in self._tasks)

    async def close(self) -> None:
        """Close every page."""
        if self.lost():
            print(f"lost: {self._reason()!r}", file=sys.stderr, flush=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _reason(self) -> BaseException | None:
        return next((task.exception() for task in self._tasks if task.done()), None)

    async def _page(self, n: int) -> None:
        page = await self._client.get(PATHS[n % len(PATHS)].format(n=n // len(PATHS) % EXECUTED))
        page.raise_for_status()
        (live,), regions = LIVE.findall(page.text), REGION.findall(page.text)
        assert len(regions) > 1, f"{page.url} refreshes only {regions}"
        tags = dict.fromkeys(map(html.unescape, regions), "")
        async with self._client.stream("GET", html.unescape(live)) as stream:
            stream.raise_for_status()
            async for line in stream.aiter_lines():
                if line == "event: changed":
                    for region in tags:
                        answer = await self._client.get(region, headers={"If-None-Match": tags[region]})
                        assert answer.status_code in (200, 204, 304), f"{region}: {answer.status_code} {answer.text}"
                        tags[region] = answer.headers.get("etag", tags[region])  # 204: the region stays as it is
                        self.refreshes += 1
                    self._open.add(n)


def measure(size: Size, setup: Setup) -> Figures:
    """Measure pages that are open for this long: a third of the time idle, then beside new runs."""
    runs, pages, seconds = size.of(100_000, 10_000, 30), size.of(300, 100, 4), size.of(3_600, 60)
    with setup.engine.place() as place:
        fill(place, Counts.of(runs)._replace(deliveries=0))
        with stack.serving_here(place.url, place.folder / "log.txt", stack.PAGES) as (url, pid):
            return asyncio.run(_open(url, pid, pages, seconds))


async def _open(url: str, pid: int, count: int, seconds: float) -> Figures:
    alone = resident_tree(pid)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        pages = Pages(client, count)
        await pages.opened()
        await asyncio.sleep(min(SETTLE_S, seconds))
        found = await _samples(pages, pid, seconds * IDLE_SHARE, [])
        idle = len(found)
        starts = asyncio.create_task(_start_runs(client))
        await _samples(pages, pid, seconds * (1 - IDLE_SHARE), found)
        starts.cancel()
        lost = pages.lost()
        await pages.close()
    quiet, busy = found[:idle], found[idle:]
    return {
        "pages": count,
        "lost": lost,
        "idle_cores": _rate(quiet, "cpu_s"),
        "busy_cores": _rate(busy, "cpu_s"),
        "busy_refreshes_per_s": _rate(busy, "refreshes"),
        "pages_mb": (quiet[0].resident - alone) / MB,
        "idle_kb_per_h": _growth(quiet),
        "kb_per_h": _growth(found),
    }


async def _samples(pages: Pages, pid: int, seconds: float, found: list[Sample]) -> list[Sample]:
    """Add samples for this many seconds, one at the beginning and one at the end."""
    began, every = time.monotonic(), min(EVERY_S, seconds / 4)
    for number in range(round(seconds / every) + 1):
        await asyncio.sleep(began + number * every - time.monotonic())
        now = tree(pid)
        found.append(Sample(now.wall_s, now.cpu_s, resident_tree(pid), pages.refreshes))
        at, cpu_s, resident, refreshes = found[-1]
        print(
            f"{at - found[0].at:6.0f} s  {cpu_s:8.2f} s of CPU  {resident // KB:8} KB  {refreshes:8} refreshes"
            f"  {pages.lost()} lost",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    return found


async def _start_runs(client: httpx2.AsyncClient) -> None:
    number = 0
    while True:
        body = {"input": {"order_id": f"B-{number}", "cents": 4_200}}
        (await client.post("/v1/workflows/bench-refund/runs", json=body)).raise_for_status()
        await asyncio.sleep(1 / RUNS_PER_S)
        number += 1


def _rate(found: list[Sample], column: str) -> float:
    first, last = found[0], found[-1]
    total: float = getattr(last, column) - getattr(first, column)
    return total / (last.at - first.at)


def _growth(found: list[Sample]) -> float:
    """Return KB per hour over the last half, because the first half fills caches."""
    return slope([(each.at, each.resident / KB) for each in found[len(found) // 2 :]])

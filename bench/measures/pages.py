"""The web UI: first byte of each page beside 100,000 runs, and the cost of 300 open pages."""

import asyncio
import time

import httpx2

from bench import bulk
from bench.engines import Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.load import stack
from bench.load.place import prepare
from bench.usage import resident_tree, tree

REPEATS = 1
MB = 1_000_000
PATHS = {
    "board": "/ui/",
    "approvals": "/ui/approvals",
    "runs": "/ui/runs",
    "runs_attention": "/ui/runs?attention=yes",
    "run": "/ui/runs/refund-000000",
    "timeline": "/ui/runs/refund-000000/timeline",
    "run_events": "/ui/runs/refund-000000/events",
    "run_actions": "/ui/runs/refund-000000/actions",
    "effects": "/ui/effects",
    "workflows": "/ui/workflows",
    "workflow": "/ui/workflows/bench-refund",
    "workers": "/ui/workers",
    "deliveries": "/ui/deliveries",
    "webhooks": "/ui/webhooks",
    "doctor": "/ui/doctor",
}
FIRST_BYTE_MS, CORES, SETTLE_S = 200, 0.1, 5.0
GOALS = (
    Goal("runs", ""),
    *(Goal(f"{name}_{share}_ms", "ms", *((FIRST_BYTE_MS,) if share == "p95" else ())) for name in PATHS
      for share in ("p50", "p95")),
    *(Goal(f"{name}_kb", "KB", gate=60, digits=1) for name in PATHS),
    Goal("pages", "open"),
    Goal("pages_idle_cores", "cores", gate=CORES, digits=3),
    Goal("pages_busy_cores", "cores", digits=3),
    Goal("pages_mb", "MB", digits=1),
    Goal("pages_grow_mb", "MB", digits=2),
)  # fmt: skip


def measure(size: Size, setup: Setup) -> Figures:
    """Measure a service whose runs wait for approvals. All runs but a few are copies that no worker executes."""
    count, pages = size.of(100_000, 10_000, 30), size.of(300, 100, 3)
    with setup.engine.place() as place:
        asyncio.run(prepare(place.url, 10))
        rows = asyncio.run(bulk.rows_of(place, "refund-000000"))
        bulk.insert(place, bulk.copies(rows, "refund-000000", bulk.names("copy", 0, count)))
        with stack.serving_here(place.url, place.folder / "log.txt") as (url, pid):
            found = asyncio.run(_load(url, size.of(40, 20, 2)))
            return {"runs": count, **found, **asyncio.run(_open(url, pid, pages, size.of(60.0, 20.0, 1.0)))}


async def _load(url: str, times: int) -> Figures:
    found: Figures = {}
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        for name, path in PATHS.items():
            took, size = [], 0
            for _ in range(times):
                before = time.perf_counter()
                answer = await client.get(path)
                took.append((time.perf_counter() - before) * 1_000)
                assert answer.status_code == 200, (path, answer.text)
                size = len(answer.content)
            found |= {f"{name}_p50_ms": percentile(took, 0.5), f"{name}_p95_ms": percentile(took, 0.95)}
            found[f"{name}_kb"] = size / 1_000
    return found


async def _open(url: str, pid: int, pages: int, seconds: float) -> Figures:
    """Keep pages of runs open that do what a browser does at each signal; measure them idle, then beside new runs."""
    alone = resident_tree(pid)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        tasks = [asyncio.create_task(_page(client)) for _ in range(pages)]
        await asyncio.sleep(SETTLE_S)
        before, resident = tree(pid), resident_tree(pid)
        await asyncio.sleep(seconds)
        idle = tree(pid).minus(before)
        before = tree(pid)
        for n in range(int(seconds)):
            await client.post("/v1/workflows/bench-refund/runs", json={"input": {"order_id": f"B-{n}", "cents": 4_200}})
            await asyncio.sleep(1)
        busy, grown = tree(pid).minus(before), resident_tree(pid) - resident
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "pages": pages,
        "pages_idle_cores": idle.cpu_s / idle.wall_s,
        "pages_busy_cores": busy.cpu_s / busy.wall_s,
        "pages_mb": (resident - alone) / MB,
        "pages_grow_mb": grown / MB,
    }


async def _page(client: httpx2.AsyncClient) -> None:
    regions = ["/ui/runs?region=runs", "/ui/nav?region=nav&at=/ui/runs"]
    tags = dict.fromkeys(regions, "")
    async with client.stream("GET", "/ui/live?of=runs") as stream:
        async for line in stream.aiter_lines():
            if line == "event: changed":
                for region in regions:
                    answer = await client.get(region, headers={"If-None-Match": tags[region]})
                    tags[region] = answer.headers.get("etag", "")

"""The web UI: first byte of each page beside 100,000 runs."""

import asyncio
import time

import httpx2

from bench.engines import Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.load import stack
from bench.load.many_runs import fill

REPEATS = 1
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
FIRST_BYTE_MS = 200
GOALS = (
    Goal("runs", ""),
    *(Goal(f"{name}_{share}_ms", "ms", *((FIRST_BYTE_MS,) if share == "p95" else ())) for name in PATHS
      for share in ("p50", "p95")),
    *(Goal(f"{name}_kb", "KB", gate=60, digits=1) for name in PATHS),
)  # fmt: skip


def measure(size: Size, setup: Setup) -> Figures:
    """Measure a service whose runs wait for approvals. All runs but a few are copies that no worker executes."""
    count = size.of(100_000, 10_000, 30)
    with setup.engine.place() as place:
        fill(place, count)
        with stack.serving_here(place.url, place.folder / "log.txt") as (url, _):
            return {"runs": count, **asyncio.run(_load(url, size.of(40, 20, 2)))}


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

"""The web UI: time and size of each page beside 100,000 runs, and of each page of a large run.

The time is that of the whole answer, which the service sends in one piece. A page whose address contains an id is found
by its link on another page.
"""

import asyncio
import html
import re
import time
from typing import Final

import httpx2

from bench.engines import Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.load import stack
from bench.load.many_runs import LARGE, UNCERTAIN, WAITING, Counts, fill

REPEATS = 1
LIMIT_S = 3_600  # filling an emulator of DynamoDB takes most of it
KB = 1_000
FIRST_BYTE_MS, PAGE_KB = 200, 60
RUN, BIG, FLAGGED = f"/ui/runs/{WAITING}", f"/ui/runs/{LARGE}", f"/ui/runs/{UNCERTAIN}"
NEXT = r'<a rel="next" href="([^"]*)"'
APPROVAL, EFFECT, WEBHOOK = (rf'href="(/ui/{each}/[^"]+)"' for each in ("approvals", "effects", "webhooks"))
LAST = r'href="([^"]*)">Last</a>'
PATHS: Final[dict[str, str | tuple[str, str]]] = {
    "board": "/ui/",
    "reason": "/ui/attention/effect_uncertain",
    "approvals": "/ui/approvals",
    "approvals_next": ("/ui/approvals", NEXT),
    "approvals_undecided": "/ui/approvals?show=undecided",
    "approvals_overdue": "/ui/approvals?show=overdue",
    "approvals_decided": "/ui/approvals?show=decided",
    "approvals_role": "/ui/approvals?show=undecided&role=finance",
    "approval": (f"/ui/approvals?show=all&run={WAITING}", APPROVAL),
    "runs": "/ui/runs",
    "runs_next": ("/ui/runs", NEXT),
    "runs_attention": "/ui/runs?attention=yes",
    "runs_status": "/ui/runs?status=waiting",
    "runs_waiting_for": "/ui/runs?waiting_for=approval",
    "runs_workflow": "/ui/runs?workflow=bench-payout",
    "runs_since": "/ui/runs?since=1h",
    "runs_search": "/ui/runs?q=copy00000042",
    "effects": "/ui/effects",
    "effects_all": "/ui/effects?every=true",
    "effects_activity": "/ui/effects?every=true&activity=pay_out",
    "effect": (f"{FLAGGED}/effects", EFFECT),
    "workflows": "/ui/workflows",
    "workflow": "/ui/workflows/bench-refund",
    "workflow_large": "/ui/workflows/bench-tour",
    "workers": "/ui/workers",
    "deliveries": "/ui/deliveries",
    "deliveries_dead": "/ui/deliveries?status=dead",
    "webhooks": "/ui/webhooks",
    "webhook": ("/ui/webhooks", WEBHOOK),
    "doctor": "/ui/doctor",
    "run": RUN,
    "run_flagged": FLAGGED,
    "large": BIG,
    "large_timeline": f"{BIG}/timeline",
    "large_timeline_zoomed": (f"{BIG}/timeline", r'id="zoom-4" href="([^"]*)"'),
    "large_effects": f"{BIG}/effects",
    "large_effects_last": (f"{BIG}/effects", LAST),
    "large_results": f"{BIG}/results",
    "large_results_last": (f"{BIG}/results", LAST),
    "large_events": f"{BIG}/events",
    "large_events_last": (f"{BIG}/events", LAST),
    "large_events_type": f"{BIG}/events?type=dev.outlast.workflow.checkpoint",
    "large_data": f"{BIG}/data",
    "large_checkpoints": f"{BIG}/checkpoints",
    "large_checkpoints_last": (f"{BIG}/checkpoints", LAST),
    "large_people": f"{BIG}/people",
    "large_actions": f"{BIG}/actions",
    "large_approval": (f"/ui/approvals?show=all&run={LARGE}", APPROVAL),
    "large_effect": (f"{BIG}/effects", EFFECT),
}
"""Address of each page; or the page on which a link of this form leads to it."""
COUNTS: Final = ("runs", "flagged", "overdue", "deliveries", "large_visits")
GOALS = (
    *(Goal(name, "") for name in COUNTS),
    Goal("longest_first_ms", "ms"),
    *(goal for name in PATHS for goal in (
        Goal(f"{name}_p50_ms", "ms"), Goal(f"{name}_p95_ms", "ms", gate=FIRST_BYTE_MS),
        Goal(f"{name}_kb", "KB", gate=PAGE_KB, digits=1),
    )),
)  # fmt: skip


def measure(size: Size, setup: Setup) -> Figures:
    """Measure one request at a time of a service whose runs wait. All runs but a few are copies."""
    counts = Counts.of(size.of(100_000, 10_000, 30))
    with setup.engine.place() as place:
        fill(place, counts)
        with stack.serving_here(place.url, place.folder / "log.txt", stack.PAGES) as (url, _):
            found = asyncio.run(_load(url, size.of(40, 40, 2)))
            return {**dict(zip(COUNTS, counts, strict=True)), **found}


async def _load(url: str, times: int) -> Figures:
    found: Figures = {"longest_first_ms": 0.0}
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        for name in PATHS:
            path = await _path(client, name)
            took, size = [], 0
            for _ in range(times):
                before = time.perf_counter()
                answer = await client.get(path)
                took.append((time.perf_counter() - before) * 1_000)
                assert answer.status_code == 200, (path, answer.text)
                size = len(answer.content)
            found["longest_first_ms"] = max(found["longest_first_ms"], took[0])
            found |= {f"{name}_p50_ms": percentile(took, 0.5), f"{name}_p95_ms": percentile(took, 0.95)}
            found[f"{name}_kb"] = size / KB
    return found


async def _path(client: httpx2.AsyncClient, name: str) -> str:
    """Return the address of a page; a list that has no such link has one page, and is that page."""
    given = PATHS[name]
    if isinstance(given, str):
        return given
    page, link = given
    answer = await client.get(page)
    found = re.search(link, answer.text)
    assert found or link in (NEXT, LAST), f"{page} has no link to {name}"
    return html.unescape(found[1]) if found else page

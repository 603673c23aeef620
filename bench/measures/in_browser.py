"""The web UI in Chromium: until a page can be used, until a change is seen, and until an approved run continues.

A page can be used when its script has run (`domContentLoadedEventEnd`) and its text is painted, whichever is later. It
is loaded at a quarter of the CPU's speed and 1.6 Mbit/s, with an empty cache. Other instants are the machine's clock,
which pages and this process share.
"""

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx2

from bench.engines import Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.load import stack
from bench.load.many_runs import LARGE, WAITING, Counts, fill
from bench.serving import TENANT, opened
from outlast.core.rows.run_rows import EVENT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REPEATS = 1
LIMIT_S = 3_600
PATHS: Final = {
    "board": "/ui/",
    "approvals": "/ui/approvals",
    "approval": "/ui/approvals/{approval}",
    "runs": "/ui/runs",
    "run": f"/ui/runs/{WAITING}",
    "timeline": f"/ui/runs/{WAITING}/timeline",
    "large_timeline": f"/ui/runs/{LARGE}/timeline",
    "start": "/ui/workflows/bench-refund",
}
CPU_SLOWDOWN, BYTES_PER_S = 4, 200_000
LATENCIES_MS: Final = {"near": 0, "far": 150}
USABLE_MS, SEEN_MS, CONTINUES_MS = 1_000, 500, 1_000
SEEN: Final = ("runs", "approval", "run")
PATIENCE_MS = 30_000
PHONE: Any = {"width": 360, "height": 740}
GOALS = (
    Goal("runs", ""),
    Goal("samples", ""),
    Goal("never_usable", "loads", gate=0),
    *(goal for name in PATHS for goal in (
        Goal(f"usable_{name}_near_p50_ms", "ms"), Goal(f"usable_{name}_near_p95_ms", "ms", gate=USABLE_MS),
        Goal(f"usable_{name}_far_p50_ms", "ms"), Goal(f"usable_{name}_far_p95_ms", "ms"),
    )),
    *(goal for name in SEEN for goal in (
        Goal(f"seen_{name}_p50_ms", "ms"), Goal(f"seen_{name}_p95_ms", "ms", gate=SEEN_MS),
    )),
    Goal("approve_to_next_node_p50_ms", "ms"),
    Goal("approve_to_next_node_p95_ms", "ms", gate=CONTINUES_MS),
    Goal("approve_to_shown_p50_ms", "ms"),
    Goal("approve_to_shown_p95_ms", "ms", gate=CONTINUES_MS),
)  # fmt: skip
USABLE: Final = """() => {
  const [page] = performance.getEntriesByType("navigation");
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  return page.domContentLoadedEventEnd && paint && Math.max(page.domContentLoadedEventEnd, paint.startTime);
}"""
WATCH: Final = """selector => {
  const text = () => document.querySelector(selector)?.textContent.trim() ?? "";
  const before = text();
  window.changedAt = 0;
  new MutationObserver(() => { if (!window.changedAt && text() !== before) window.changedAt = Date.now(); })
    .observe(document.body, {subtree: true, childList: true, characterData: true});
}"""
"""Script that sets `changedAt` to the instant at which the text of an element changes."""
CHANGED: Final = "() => window.changedAt"
PRESS: Final = """selector => {
  setTimeout(() => document.querySelector(selector).click(), 50);
  return Date.now() + 50;
}"""
"""Script that presses a button after it has returned, because an answer may be lost if the page leaves before."""


class Press(NamedTuple):
    """A press of the button Approve, and the instant at which an open page of the run showed the change."""

    run: str
    at_ms: float
    shown_ms: float


class Api:
    """Another client of the service, over HTTP."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http
        self._number = 0

    def start(self) -> str:
        """Start a refund and return its run."""
        self._number += 1
        body = {"input": {"order_id": f"C-{self._number}", "cents": 4_200}}
        return str(self._json(self._http.post("/v1/workflows/bench-refund/runs", json=body))["run"])

    def approval_of(self, run: str) -> str:
        """Return the approval that a run waits for. Raises TimeoutError."""
        until = time.monotonic() + PATIENCE_MS / 1_000
        while not (found := self._json(self._http.get("/v1/approvals", params={"run": run}))["approvals"]):
            if time.monotonic() > until:
                raise TimeoutError(f"run {run} has no approval after {PATIENCE_MS} ms")
            time.sleep(0.05)
        return str(found[0]["approval"])

    def approve(self, approval: str) -> None:
        """Approve."""
        path = f"/v1/approvals/{approval}"
        seen = {"If-Match": self._http.get(path).headers["ETag"]}
        self._json(self._http.post(f"{path}/decision", json={"decision": "approve", "reason": "a bench"}, headers=seen))

    def _json(self, answer: httpx2.Response) -> Any:
        assert answer.is_success, answer.text
        return answer.json()


def measure(size: Size, setup: Setup) -> Figures:
    """Measure each of the three with this many samples, beside other runs."""
    from tests.browsers import browser  # only a checkout has it, and the packages that it needs

    runs, samples = size.of(100_000, 10_000, 30), size.of(40, 10, 2)
    with setup.engine.place() as place:
        fill(place, Counts.of(runs)._replace(deliveries=0))
        with stack.serving_here(place.url, place.folder / "log.txt", stack.PAGES) as (url, _):
            with browser() as chromium, httpx2.Client(base_url=url, timeout=60) as http:
                found: Figures = {"runs": runs, "samples": samples}
                found |= _usable(chromium, url, Api(http), samples, slow=size is not Size.TINY)
                found |= _seen(chromium, url, Api(http), samples)
                presses = list(_presses(chromium, url, Api(http), samples))
            return found | asyncio.run(_continued(place.url, presses))


def _usable(chromium: "Browser", url: str, api: Api, samples: int, *, slow: bool) -> Figures:
    found: Figures = {"never_usable": 0}
    for name, path in PATHS.items():
        address = url + path.format(approval=api.approval_of(WAITING))
        for place, latency in LATENCIES_MS.items():
            took = [_load(chromium, address, latency, slow=slow) for _ in range(samples if slow else 1)]
            usable = [each for each in took if each is not None]
            found |= _shares(f"usable_{name}_{place}", usable)
            found["never_usable"] += len(took) - len(usable)
    return found


def _load(chromium: "Browser", address: str, latency: int, *, slow: bool) -> float | None:
    """Load a page in a new context, whose cache is empty, and return the time until it can be used.

    Return None if that takes longer than 30 s. Without `slow`, the CPU and the network are those of this machine.
    """
    from playwright.sync_api import TimeoutError as TooLate

    context = chromium.new_context(viewport=PHONE)
    page = context.new_page()
    if slow:
        wire = context.new_cdp_session(page)
        wire.send("Network.enable")
        speed = {"downloadThroughput": BYTES_PER_S, "uploadThroughput": BYTES_PER_S, "latency": latency}
        wire.send("Network.emulateNetworkConditions", {**speed, "offline": False})
        wire.send("Emulation.setCPUThrottlingRate", {"rate": CPU_SLOWDOWN})
    page.goto(address, wait_until="commit")
    took: float | None = None
    try:
        took = _until(page, USABLE)
    except TooLate:
        print(f"{address} cannot be used after {PATIENCE_MS} ms", file=sys.stderr, flush=True)
    context.close()
    return took


def _seen(chromium: "Browser", url: str, api: Api, samples: int) -> Figures:
    """Measure from the answer of a request that changed a row to the change of an open page."""
    found: Figures = {}
    page = chromium.new_page()
    for name in SEEN:
        took: list[float] = []
        for _ in range(samples):
            run = "" if name == "runs" else api.start()
            approval = api.approval_of(run) if run else ""
            _open(
                page, url + {"runs": "/ui/runs", "approval": f"/ui/approvals/{approval}"}.get(name, f"/ui/runs/{run}")
            )
            page.evaluate(WATCH, {"runs": "#news", "approval": "#moved"}.get(name, "#state"))
            if name == "runs":
                api.start()
            else:
                api.approve(approval)
            answered = time.time() * 1_000
            took.append(max(0.0, _until(page, CHANGED) - answered))
        found |= _shares(f"seen_{name}", took)
    page.close()
    return found


def _presses(chromium: "Browser", url: str, api: Api, samples: int) -> Iterator[Press]:
    """Approve on the page of an approval, while another page shows the run."""
    mine, other = chromium.new_page(), chromium.new_page()
    for _ in range(samples):
        run = api.start()
        _open(mine, f"{url}/ui/approvals/{api.approval_of(run)}")
        _open(other, f"{url}/ui/runs/{run}")
        other.evaluate(WATCH, "#state")
        pressed: float = mine.evaluate(PRESS, "#approve")
        yield Press(run, pressed, _until(other, CHANGED))
    mine.close()
    other.close()


def _until(page: "Page", script: str) -> float:
    """Return the value of a script once it is not 0. Raises Playwright's TimeoutError."""
    found: float = page.wait_for_function(script, polling=50, timeout=PATIENCE_MS).json_value()
    return found


def _open(page: "Page", address: str) -> None:
    """Open a page and wait until it is live, for a moment that differs each time."""
    page.goto(address)
    page.wait_for_selector("#live-state[data-state=live]", timeout=PATIENCE_MS)
    page.wait_for_timeout(random.uniform(300, 900))  # so that the least time between two signals is over


async def _continued(store_url: str, presses: list[Press]) -> Figures:
    """Return the times to the first event of the next node, and to the change of an open page."""
    began: list[float] = []
    async with opened(store_url) as store:
        for press in presses:
            events = await store.rows(EVENT, (TENANT, press.run))
            began.append(next(event.at for event in events if event.node == "pay") - press.at_ms)
    shown = [press.shown_ms - press.at_ms for press in presses]
    return {**_shares("approve_to_next_node", began), **_shares("approve_to_shown", shown)}


def _shares(name: str, took: list[float]) -> Figures:
    return {f"{name}_p50_ms": percentile(took, 0.5), f"{name}_p95_ms": percentile(took, 0.95)}

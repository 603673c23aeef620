"""One service from start to end: idle, with listeners, under load, and idle again."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from bench.engines import Place
from bench.figures import Figures, Goal, Size, percentile
from bench.load import asking, stack
from bench.load.asking import Asked, Plan
from bench.load.hearing import Audience, listening, shared_out
from bench.load.place import Target, all_ended, decision_to_next, last_events, prepare
from bench.serving import opened
from bench.usage import tree

MB = 1_000_000
IDLE_PER_S = 5
PARTS = 10  # parts of the time under load, with the memory after each
SAMPLED = 2_000  # number of decisions to sample
SETTLE_S = 5.0  # until requests in flight have ended
NEXT_GATE_MS, NEXT_AIM_MS = 5_000, 50
ASKED = (("decision", "decisions"), ("read", "reads"))
GOALS = (
    *(
        goal
        for by in ("wrk", "open")
        for one, many in ASKED
        for goal in (
            Goal(f"{by}_{many}_per_s", "/s"),
            Goal(f"{by}_{one}_p50_ms", "ms", digits=1),
            Goal(f"{by}_{one}_p99_ms", "ms", digits=1),
            Goal(f"{by}_{one}_max_ms", "ms", digits=1),
        )
    ),
    Goal("idle_decision_p50_ms", "ms", digits=1),
    Goal("idle_decision_p99_ms", "ms", digits=1),
    Goal("failed", "5xx, none", gate=0),
    Goal("refused", "4xx", gate=0),
    *(
        Goal(f"{when}_next_{share}_ms", "ms", *((NEXT_GATE_MS, NEXT_AIM_MS) if share == "p99" else ()))
        for when in ("idle", "loaded")
        for share in ("p50", "p99", "max")
    ),
    *(Goal(f"sse_{of}_{share}_ms", "ms") for of in ("run", "all") for share in ("p50", "p99", "max")),
    Goal("sse_streams", ""),
    Goal("sse_events", ""),
    Goal("sse_missed", "events", gate=0),
    Goal("sse_wrong", "out of order", gate=0),
    Goal("service_cores", "cores", digits=2),
    Goal("server_cores", "cores", digits=2),
    Goal("memory_mb", "MB", digits=1),
    Goal("stream_kb", "KB/stream", digits=1),
    *(Goal(f"memory_{part * 100 // PARTS:03d}_mb", "MB", digits=1) for part in range(PARTS + 1)),
    Goal("memory_grows_b", "B/request", digits=0),
    Goal("memory_after_mb", "MB", digits=1),
)  # fmt: skip


class Sizes(NamedTuple):
    """Sizes of the load: runs, listeners, rates and times."""

    idle: int
    wrk: Plan
    open: Plan
    """A quarter of the load: latency on a machine that is not full."""
    runs: int
    everything: int
    stay: int
    """Approvals without a decision, which wait beside the others."""
    settle_s: float = SETTLE_S

    @classmethod
    def of(cls, size: Size) -> "Sizes":
        """Return the sizes of a measurement."""
        if size is Size.TINY:
            return cls(4, Plan(25, 25, 1), Plan(25, 25, 1), 16, 4, 10, 0.3)
        return cls(
            size.of(100, 40), Plan(200, 300, size.of(185, 20)), Plan(50, 75, size.of(45, 10)), 480, 20,
            size.of(2_000, 500),
        )  # fmt: skip

    def targets(self) -> int:
        """Number of approvals to prepare."""
        return self.idle + self.wrk.targets() + self.open.targets() + self.stay


def measure(size: Size, place: Place, *, processes: int) -> Figures:
    """Measure all phases, with HTTP in this many processes."""
    sizes = Sizes.of(size)
    if size is not Size.TINY and not asking.wrk_is_here():
        sys.exit(asking.NO_WRK)
    targets = asyncio.run(prepare(place.url, sizes.targets()))
    _say(f"{len(targets)} approvals wait: the measurement begins")
    with stack.serving(place.url, place.folder / "log.txt", processes=processes) as service:
        found = _Session(place, service, sizes, targets).run()
    _say("measured")
    return found


class _Session:
    """The phases of one service, in order."""

    def __init__(self, place: Place, service: stack.Service, sizes: Sizes, targets: list[Target]) -> None:
        self._place = place
        self._service = service
        self._sizes = sizes
        a, b, c = sizes.idle, sizes.wrk.targets(), sizes.open.targets()
        self._idle, self._by_wrk = targets[:a], targets[a : a + b]
        self._by_open = targets[a + b : a + b + c]
        self._targets = targets
        self._found: Figures = {}

    def run(self) -> Figures:
        """Run the phases and return the figures."""
        plan = Plan(IDLE_PER_S, 0, max(1, self._sizes.idle // IDLE_PER_S))
        idle, _ = asking.open_loop(self._place.folder, self._service, plan, self._idle)
        self._found |= {"idle_decision_p50_ms": idle.p50_ms, "idle_decision_p99_ms": idle.p99_ms}
        asyncio.run(self._ended())
        self._first = asyncio.run(_now(self._place.url, self._targets))
        alone = self._service.resident()
        self._found["memory_mb"] = alone / MB
        decided = [*self._by_wrk[: self._sizes.wrk.decisions * self._sizes.wrk.seconds], *self._by_open]
        runs = shared_out(decided, self._sizes.runs, self._sizes.everything)
        with listening(self._place.folder, self._service, runs) as audience:
            time.sleep(self._sizes.settle_s)
            self._found["stream_kb"] = (self._service.resident() - alone) / len(runs) / 1_000
            self._found["sse_streams"] = len(runs)
            asked = self._load(audience)
        time.sleep(self._sizes.settle_s)
        self._found["memory_after_mb"] = self._service.resident() / MB
        asked.append(idle)
        self._found["failed"] = sum(each.failed for each in asked)
        self._found["refused"] = sum(each.refused for each in asked)
        asyncio.run(self._next())
        return self._found

    def _load(self, audience: Audience) -> list[Asked]:
        sizes, folder = self._sizes, self._place.folder
        before, server, begun = tree(self._service.pid), tree(self._place.server), time.monotonic()
        with _sampled(self._service.resident, sizes.wrk.seconds) as samples:
            drive = asking.by_wrk if asking.wrk_is_here() else asking.open_loop
            by_wrk = drive(folder, self._service, sizes.wrk, self._by_wrk)
        took = time.monotonic() - begun
        self._found["service_cores"] = tree(self._service.pid).minus(before).cpu_s / took
        self._found["server_cores"] = tree(self._place.server).minus(server).cpu_s / took
        self._memory(samples, sum(each.requests for each in by_wrk))
        by_open = asking.open_loop(folder, self._service, sizes.open, self._by_open)
        for by, asked in (("wrk", by_wrk), ("open", by_open)):
            for (one, many), each in zip(ASKED, asked, strict=True):
                self._found[f"{by}_{many}_per_s"] = each.per_s
                self._found |= {f"{by}_{one}_{name}": getattr(each, name) for name in ("p50_ms", "p99_ms", "max_ms")}
        asyncio.run(self._ended())
        told = folder / "told.json"
        told.write_text(json.dumps({"first": self._first, "last": asyncio.run(_now(self._place.url, self._targets))}))
        heard = audience.check(told)
        if heard["wrong"]:
            _say(f"wrong: {heard['wrong']}")
        self._found |= {name: value for name, value in heard.items() if name.startswith("sse_")}
        return [*by_wrk, *by_open]

    def _memory(self, samples: Sequence[int], requests: int) -> None:
        """Record memory at each tenth of the time, and its growth from the third tenth on, when buffers are full."""
        for part in range(PARTS + 1):
            at = samples[min(part * len(samples) // PARTS, len(samples) - 1)]
            self._found[f"memory_{part * 100 // PARTS:03d}_mb"] = at / MB
        early = samples[len(samples) * 3 // PARTS]
        self._found["memory_grows_b"] = (samples[-1] - early) / (requests * 0.7)

    async def _ended(self) -> None:
        """Return when every decided run has ended. wrk drops requests in flight at its end."""
        async with opened(self._place.url) as store:
            await asyncio.sleep(self._sizes.settle_s / 5)
            await all_ended(store)

    async def _next(self) -> None:
        async with opened(self._place.url) as store:
            for when, targets in (("idle", self._idle), ("loaded", self._by_wrk)):
                some = targets[:: max(1, len(targets) // SAMPLED)]
                took = await decision_to_next(store, some)
                self._found[f"{when}_next_p50_ms"] = percentile(took, 0.5)
                self._found[f"{when}_next_p99_ms"] = percentile(took, 0.99)
                self._found[f"{when}_next_max_ms"] = max(took)


async def _now(url: str, targets: list[Target]) -> dict[str, int]:
    async with opened(url) as store:
        return await last_events(store, targets)


@contextmanager
def _sampled(look: Callable[[], int], seconds: float) -> Iterator[list[int]]:
    """Collect the results of the function repeatedly while the block runs."""
    found, end = [look()], threading.Event()

    def sample() -> None:
        while not end.wait(min(1.0, seconds / 20)):
            found.append(look())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        end.set()
        thread.join()


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)

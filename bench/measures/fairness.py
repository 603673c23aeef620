"""A backlog of one tenant (20,000 due runs or undelivered events), and the latency of another tenant beside it."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from bench.engines import Place, Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.flows import short
from bench.load.receiver import Accepts, receiving, subscribe
from bench.load.stack import dispatching
from bench.serving import ACTOR, STARTS, opened, worker_process
from outlast.core.events import EventType
from outlast.core.rows.run_rows import EVENT, RUN
from outlast.engine import commands
from outlast.store.port import Store
from outlast.store.queries import CountBy

REPEATS = 1
PLACES = 100  # the worker's default concurrency
EVERY_S = 0.05  # pause between two starts of the other tenant
MET = 20  # its first runs, before the worker knows the other tenant; reported separately
CALL_MS = 500
FLOODS, OTHER = "floods", "other"
LOOK_S = 0.05
PATIENCE_S = 600
KINDS = {"busy": 0, "calls": CALL_MS}
"""Duration of the one call of each run: zero, so that the worker's CPU is scarce, or long, so that its capacity is."""
SPANS = ("first", "end")
TIMES_AIM = 2
GOALS = (
    *(
        goal
        for kind in KINDS
        for span in SPANS
        for goal in (
            *(Goal(f"{kind}_{when}_{span}_{p}_ms", "ms") for when in ("alone", "beside") for p in ("p50", "p99")),
            Goal(f"{kind}_{span}_p99_times", "×", aim=TIMES_AIM, digits=1),
        )
    ),
    *(Goal(f"{kind}_{when}_met_ms", "ms") for kind in KINDS for when in ("alone", "beside")),
    *(Goal(f"told_{when}_{p}_ms", "ms") for when in ("alone", "beside") for p in ("p50", "p99")),
    Goal("told_p99_times", "×", aim=TIMES_AIM, digits=1),
    *(Goal(f"{kind}_left", "runs") for kind in KINDS),
    Goal("told_left", "events"),
    Goal("backlog", ""),
)  # fmt: skip


def measure(size: Size, setup: Setup) -> Figures:
    """Measure the other tenant alone, then beside the backlog, on separate stores.

    Some of the backlog must be left at the end, otherwise the other tenant was alone for a while.
    """
    backlog, runs = size.of(20_000, 5_000, 40), size.of(200, 50, 3)
    found: Figures = {"backlog": backlog}
    for kind, ms in KINDS.items():
        for when, before in (("alone", 0), ("beside", backlog)):
            with setup.engine.place() as place:
                asyncio.run(_flood(place.url, before, ms))
                with worker_process(place.url, short, concurrency=PLACES):
                    spans, left = asyncio.run(_walked(place.url, MET + runs, ms))
            for span, took in zip(SPANS, spans, strict=True):
                found |= _shares(f"{kind}_{when}_{span}", took[MET:])
            found[f"{kind}_{when}_met_ms"] = max(spans[0][:MET])
            found[f"{kind}_left"] = left
    for when, before in (("alone", 0), ("beside", backlog)):
        with setup.engine.place() as place, _hearing(place) as heard:
            asyncio.run(_flood(place.url, before, 0))
            with dispatching(place.url, place.folder / "dispatcher.txt"):
                found |= _shares(f"told_{when}", asyncio.run(_told(place.url, runs, heard)))
        found["told_left"] = before - heard.flood
    for name in [*(f"{kind}_{span}" for kind in KINDS for span in SPANS), "told"]:
        what, _, span = name.partition("_")
        alone, beside = ("_".join(filter(None, (what, when, span, "p99_ms"))) for when in ("alone", "beside"))
        found[f"{name}_p99_times"] = found[beside] / max(found[alone], 1)
    return found


def _shares(name: str, took: list[float]) -> Figures:
    return {f"{name}_p50_ms": percentile(took, 0.5), f"{name}_p99_ms": percentile(took, 0.99)}


async def _flood(url: str, runs: int, ms: int) -> None:
    """Start due runs of one tenant without a worker."""
    async with opened(url) as store:
        for at in range(0, runs, STARTS):
            await asyncio.gather(*(_start(store, FLOODS, n, ms) for n in range(at, min(at + STARTS, runs))))


async def _start(store: Store, tenant: str, n: int, ms: int) -> None:
    await commands.start(store, short, {"loops": ms}, tenant=tenant, actor=ACTOR, run=f"r{n}")


async def _starts(store: Store, runs: int, ms: int) -> None:
    """Start runs one after the other at fixed times, however slow earlier ones are."""
    begun, under_way = time.monotonic(), set[asyncio.Task[None]]()
    for n in range(runs):
        await asyncio.sleep(max(0.0, begun + n * EVERY_S - time.monotonic()))
        task = asyncio.create_task(_start(store, OTHER, n, ms))
        under_way.add(task)
    await asyncio.gather(*under_way)


async def _walked(url: str, runs: int, ms: int) -> tuple[tuple[list[float], list[float]], int]:
    """Return ms from the start of each of the other tenant's runs to its first execution and to its end.

    Also returns how many runs of the flood have not ended.
    """
    async with opened(url) as store:
        await _starts(store, runs, ms)
        async with asyncio.timeout(PATIENCE_S):
            while (await store.query(CountBy(RUN, OTHER, "status"))).get("completed", 0) < runs:  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(LOOK_S)
        status = await store.query(CountBy(RUN, FLOODS, "status"))
        first, end = list[float](), list[float]()
        for n in range(runs):
            run = await store.load(RUN, (OTHER, f"r{n}"))
            assert run is not None
            events = await store.rows(EVENT, (OTHER, f"r{n}"))
            claimed = next(e.at for e in events if e.type == EventType.CLAIMED)
            first.append(claimed - run.created_at)
            end.append(run.ended_at - run.created_at)
    return (first, end), sum(status.values()) - status.get("completed", 0)


class _Heard:
    """Delays of the other tenant's events at its receiver, and the number of events of the flood."""

    def __init__(self) -> None:
        self.took: dict[str, float] = {}
        self.flood = 0

    def handler(self) -> type[Accepts]:
        """Return a receiver that records the events."""

        heard = self

        class Notes(Accepts):
            def got(self, body: bytes) -> None:
                now = time.time() * 1_000
                if self.path.endswith(FLOODS):
                    heard.flood += 1
                else:
                    event = json.loads(body)
                    at = datetime.fromisoformat(event["time"]).timestamp() * 1_000
                    heard.took.setdefault(event["subject"], now - at)

        return Notes


@contextmanager
def _hearing(place: Place) -> Iterator[_Heard]:
    """Run a receiver for both tenants, with a subscription of each."""
    heard = _Heard()
    with receiving(heard.handler()) as url:
        for tenant in (FLOODS, OTHER):
            asyncio.run(subscribe(place.url, tenant, url + tenant))
        yield heard


async def _told(url: str, runs: int, heard: _Heard) -> list[float]:
    """Return ms from the start of each of the other tenant's runs to the arrival of its event."""
    async with opened(url) as store, asyncio.timeout(PATIENCE_S):
        await _starts(store, runs, 0)
        while len(heard.took) < runs:  # noqa: ASYNC110 - in threads
            await asyncio.sleep(LOOK_S)
    return list(heard.took.values())

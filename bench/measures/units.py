"""What AWS bills on DynamoDB for one effectful step, a wait, a takeover, and an idle worker for an hour."""

import asyncio
from datetime import timedelta
from typing import Any, Literal

from bench.dynamodb import Bill, Meter, metered
from bench.engines import Setup
from bench.figures import Figures, Goal, Size
from bench.flows import Count, holding, long_effectful
from bench.serving import TENANT, opened, served, start_runs, worker, worker_process
from outlast import Context, Workflow
from outlast.core.durations import SECOND, Liveness
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.store.port import Store

STORES = ("dynamodb",)
REPEATS = 1
WORK = ("step", "wait", "takeover", "idle_hour")
GOALS = (
    *(
        Goal(f"{work}_{name}", name.replace("_", " "), digits=0 if work == "idle_hour" else 1)
        for work in WORK
        for name in Bill._fields
    ),
    Goal("control_per_s", "transactions/s"),
    Goal("kept_bytes", "B"),
)
TINY = Liveness(heartbeat_window=600, heartbeat_every=200)
SHORT = Liveness(heartbeat_window=3 * SECOND, heartbeat_every=1 * SECOND)
HOUR_S = 3600
SETTLE_S = 2
LOOK_S = 0.05
A_WHILE = timedelta(seconds=1)  # long enough to park
resting = Workflow("bench-resting", state=Count)
looping = Workflow("bench-looping", state=Count)


@resting.node(start=True, max_visits=10_000)
async def rest(ctx: Context[Count]) -> Literal["rest"] | None:
    """Wait once per visit. The run is parked."""
    await ctx.sleep(A_WHILE)
    ctx.state.n += 1
    return "rest" if ctx.state.n < ctx.state.loops else None


@looping.node(start=True, max_visits=10_000)
async def loop(ctx: Context[Count]) -> Literal["loop"] | None:
    """Do nothing once per visit."""
    ctx.state.n += 1
    return "loop" if ctx.state.n < ctx.state.loops else None


def measure(size: Size, setup: Setup) -> Figures:
    """Measure each kind of work in this process."""
    with setup.engine.place() as place, metered(TENANT) as meter:
        control = setup.engine.control(place, size.of(200, 50, 5) / 100)
        found = asyncio.run(_measure(place.url, meter, size))
        kept = setup.engine.kept(place)
    figures = {f"{work}_{name}": value for work, bill in found.items() for name, value in bill._asdict().items()}
    return {**figures, "control_per_s": control, "kept_bytes": kept}


async def _measure(url: str, meter: Meter, size: Size) -> dict[str, Bill]:
    loops, waits, idle_s, held = size.of(50, 20, 2), size.of(20, 5, 1), size.of(60, 20, 1), size.of(10, 5, 1)
    async with opened(url) as store:
        step = await _each(store, meter, long_effectful, loops)
        visit = await _each(store, meter, looping, loops)
        wait = (await _each(store, meter, resting, waits)).minus(visit)
        async with served(store, looping):
            await asyncio.sleep(min(SETTLE_S, idle_s))
            meter.reset()
            await asyncio.sleep(idle_s)
            idle = meter.total.times(HOUR_S / idle_s)
        takeover = await _taken_over(url, store, meter, held, TINY if size is Size.TINY else SHORT)
    return {"step": step, "wait": wait, "takeover": takeover, "idle_hour": idle}


async def _each(store: Store, meter: Meter, workflow: Workflow[Any], loops: int) -> Bill:
    """Return the bill of one visit: the difference of two runs, of which one has more visits."""
    bills = []
    for more in (0, loops):
        async with served(store, workflow):
            meter.reset()
            (run,) = await start_runs(store, workflow, 1, prefix=f"{workflow.name}-{more}-", loops=1 + more)
            looks = 1
            while not is_over(await _row(store, run)):
                looks += 1
                await asyncio.sleep(LOOK_S)
        spent = meter.of_runs
        meter.reset()
        await _row(store, run)
        bills.append(spent.minus(meter.of_runs.times(looks)))  # the looks are not part of the work
    return bills[1].minus(bills[0]).times(1 / loops)


async def _row(store: Store, run: str) -> Run:
    row = await store.load(RUN, (TENANT, run))
    assert row is not None
    return row


async def _taken_over(url: str, store: Store, meter: Meter, held: int, live: Liveness) -> Bill:
    """Kill a worker that holds runs in code of their node, and return the bill of each claim by another worker."""
    await start_runs(store, holding, held, loops=1)
    with worker_process(url, holding, live, held) as first:
        for _ in range(held):
            first.line()
        first.kill()
    second = worker(store, holding, live, held)
    task = asyncio.create_task(second.run())
    meter.reset()
    while second.held < held:  # noqa: ASYNC110 - it is the worker of this process
        await asyncio.sleep(0.01)
    bill = meter.of_runs
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return bill.times(1 / held)

"""`python -m bench.guests [N]`: what it costs to let another engine schedule runs, without the cost of that engine.

The engine is that of `tests/guests.py`, in this process. Each figure is beside that of this package's workers, over
a SQLite file: the time from a signal to the next call of the run, and the time of a step if each slice is one node.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel

import outlast
from outlast import Context, Workflow, lookup
from outlast.clocks import SystemClock
from outlast.runtime.local_worker import Serving, worker_of
from outlast.runtime.operations import Operations
from tests.guests import FakeEngine

STEPS = 10
CALLED: dict[str, float] = {}


class Loop(BaseModel):
    name: str
    n: int = 0


class Word(BaseModel):
    text: str = ""


@lookup(name="stamp")
async def stamp(name: str) -> str:
    CALLED[name] = time.perf_counter()
    return name


loops = Workflow("loop", state=Loop)


@loops.node(start=True)
async def wait(ctx: Context[Loop]) -> Literal["step"]:
    await ctx.receive("go", Word)
    await ctx.do(stamp, ctx.state.name)
    return "step"


@loops.node(max_visits=STEPS)
async def step(ctx: Context[Loop]) -> Literal["step"] | None:
    ctx.state.n += 1
    return "step" if ctx.state.n < STEPS else None


async def measure(title: str, scheduler: str, n: int, *, nodes: int | None = None) -> None:
    """Print the median time from a signal to the next call, and from there to the end by step."""
    engine = FakeEngine(SystemClock(), nodes=nodes)
    guest = engine.guest() if scheduler != "outlast" else None
    with tempfile.TemporaryDirectory() as folder:
        async with outlast.connect(f"sqlite:{Path(folder) / 'o.db'}", workflows=[loops]) as client:
            assert isinstance(client, Operations)
            store = client.store
            serving = Serving(store, lambda: worker_of(store, [loops], guest=guest))
            task = asyncio.create_task(serving.run())
            woken, steps = [], []
            for i in range(n):
                run = await client.start(loops, Loop(name=f"{title}{i}"), scheduler=scheduler)

                async def rests(name: str = run.id) -> bool | None:
                    return (await client.run_summary(name)).status == "waiting" or None

                await client.until(rests, within_s=60)
                begun = time.perf_counter()
                await client.signal(run.id, "go", {})
                await client.ended(run.id, within_s=60)
                called = CALLED[f"{title}{i}"]
                woken.append((called - begun) * 1000)
                steps.append((time.perf_counter() - called) * 1000 / STEPS)
            serving.drain()
            await task
    print(f"{title:28} signal to call {median(woken):6.1f} ms (worst {max(woken):.0f})   step {median(steps):6.2f} ms")


async def main(n: int) -> None:
    await measure("own workers", "outlast", n)
    await measure("guest, whole slices", "temporal", n)
    await measure("guest, one node per slice", "temporal", n, nodes=1)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))

"""`scripts/bench map [--store NAME] [--children N] [--at-most N] [--kill SECONDS]`: one map of very many children.

A worker process executes a run that maps over the inputs, first undisturbed, then killed every few seconds with SIGKILL
and started again. A reader samples the row of the parent and counts the rows of its ledger. Printed for each play: the
time, the deaths, the CPU of all worker processes per child, the largest row of the parent, the most rows in its ledger,
the children by status, and the number of their keys. It fails if the ends of the two plays differ. The first line has
the CPU per run of the same workflow, started by a client, for comparison.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from pydantic import BaseModel

from bench.engines import engine_of
from bench.serving import ACTOR, CONCURRENCY, TENANT, opened, start_runs
from outlast import Context, Workflow
from outlast.clocks import SystemClock, chance, process_id
from outlast.core.commit import bytes_of
from outlast.core.durations import Liveness
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_rows import EVENT, RUN, Run
from outlast.engine import commands
from outlast.engine.worker import WorkerProcess
from outlast.errors import OutlastError
from outlast.store.port import Store
from outlast.upkeep.fsck import Fsck

PARENT = "map"
LIVE = Liveness(heartbeat_window=1_500, heartbeat_every=500)
ROW_MAX = 1_024
"""Bytes that the row of the parent may have at any time."""


class Inputs(BaseModel):
    """State of the parent."""

    count: int
    at_most: int
    completed: int = 0
    sum: int = 0


class One(BaseModel):
    """State of a child."""

    n: int = 0
    loops: int = 0


child = Workflow("bench-map-child", state=One)
parent = Workflow("bench-map", state=Inputs)


@child.node(start=True)
async def returns(ctx: Context[One]) -> None:
    ctx.state.loops = 1


@parent.node(start=True)
async def maps(ctx: Context[Inputs]) -> None:
    state = ctx.state
    done = await ctx.map(child, {f"c{n}": One(n=n) for n in range(state.count)}, at_most=state.at_most)
    state.completed = len(done.completed)
    async for _, value in done:
        state.sum += value.n


# --- the worker process -------------------------------------------------------------------------------------
async def work(url: str) -> None:
    """Serve all runs until this process is ended."""
    async with opened(url) as store:
        serving = WorkerProcess(
            store,
            [parent, child],
            worker=process_id("w"),
            clock=SystemClock(),
            chance=chance,
            live=LIVE,
            concurrency=CONCURRENCY,
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.drain)
        await serving.run()


class Workers:
    """One worker process at a time, and the CPU of all of them."""

    def __init__(self, url: str, module: str = "bench.map") -> None:
        self._url, self._module = url, module
        self.cpu = 0.0
        self.deaths = 0
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", self._module, "--work", self._url])

    def kill(self) -> None:
        """Kill the worker, and start the next one."""
        self.end(signal.SIGKILL)
        self.deaths += 1
        self._start()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the worker and add its CPU."""
        self._process.send_signal(how)
        _, _, used = os.wait4(self._process.pid, 0)
        self._process.returncode = 0
        self.cpu += used.ru_utime + used.ru_stime


# --- the measuring process ----------------------------------------------------------------------------------
async def plain(url: str, count: int) -> float:
    """Return the CPU ms per run of the child's workflow, started by a client, without that of an idle process."""
    async with opened(url) as store:
        idle = Workers(url)
        await asyncio.sleep(3)
        idle.end()
        cpu = time.process_time()
        await start_runs(store, child, count, n=1)
        starts = time.process_time() - cpu
        workers = Workers(url)
        while any(run.ended_at == 0 for run in await every(store, RUN)):  # noqa: ASYNC110 - another process ends them
            await asyncio.sleep(1)
        workers.end()
    return 1_000 * (starts + workers.cpu - idle.cpu) / count


async def play(url: str, given: Inputs, kill_s: float) -> dict[str, Any]:
    """Execute the map to its end, with a death each `kill_s` seconds; 0: none."""
    async with opened(url) as store:
        await commands.start(store, parent, given.model_dump(), tenant=TENANT, actor=ACTOR, run=PARENT)
        workers, began, largest, ledger = Workers(url), time.monotonic(), 0, 0
        killed = began
        while True:
            await asyncio.sleep(0.05)
            with suppress(OutlastError):  # the file may be busy
                row = await store.load(RUN, (TENANT, PARENT))
                assert row is not None
                largest = max(largest, bytes_of(row))
                ledger = max(ledger, len(await store.rows(EFFECT, (TENANT, PARENT))))
                if row.ended_at:
                    break
            if kill_s and time.monotonic() - killed >= kill_s:
                workers.kill()
                killed = time.monotonic()
        took = time.monotonic() - began
        workers.end()
        runs = [run for run in await every(store, RUN) if run.parent]
        report = await Fsck(store).look()
        end = await store.load(RUN, (TENANT, PARENT))
        assert end is not None
        last = await store.load(EVENT, (TENANT, PARENT, end.seq))
        assert last is not None
        return {
            "s": round(took, 1),
            "deaths": workers.deaths,
            "cpu_ms_per_child": round(1_000 * workers.cpu / given.count, 2),
            "row_bytes_max": largest,
            "ledger_rows_max": ledger,
            "fsck_findings": len(report.findings),
            "end": {
                "status": end.status.value,
                "outcome": last.data().get("outcome"),
                "children": dict(Counter(run.status.value for run in runs)),
                "keys": len({run.called_as for run in runs}),
            },
        }


async def every(store: Store, kind: AnyKind) -> list[Run]:
    """Return all rows of runs."""
    found: list[Row] = []
    after: Key = ()
    while page := await store.rows(kind, (TENANT,), after=after, limit=1_000):
        found += page
        after = key_of(kind, page[-1])
    return [row for row in found if isinstance(row, Run)]


def main() -> None:
    """Measure, or serve the runs in a process of the measurement."""
    parser = argparse.ArgumentParser(prog="scripts/bench map", description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--children", type=int, default=10_000)
    parser.add_argument("--at-most", type=int, default=50)
    parser.add_argument("--kill", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(given.work))
        return
    engine, inputs = engine_of(given.store), Inputs(count=given.children, at_most=given.at_most)
    with engine.place() as place:
        print(json.dumps({"plain_cpu_ms_per_run": round(asyncio.run(plain(place.url, given.children)), 2)}), flush=True)
    ends = []
    for kill_s in (0.0, given.kill):
        with engine.place() as place:
            found = asyncio.run(play(place.url, inputs, kill_s))
        print(json.dumps({"load": os.getloadavg()[0], **found}), flush=True)
        ends.append(found["end"])
        assert found["row_bytes_max"] < ROW_MAX, "the row of the parent has grown"
    assert ends[0] == ends[1], "the ends differ"


if __name__ == "__main__":
    main()

"""One workload on one peer: `python -P -m bench.peers.run MODULE WORK quick|full`, in the peer's environment.

It prints its figures as JSON. Uses the standard library only, besides the peer's own packages.
"""

import asyncio
import json
import os
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.peers import HOLD_AT, SERVERS, STEPS_FILE, Job, Peer, seen
from bench.usage import resident, tree

Figures = dict[str, float]
AT_ONCE = 50  # starts
MEGA = 1_000_000


def cpu() -> float:
    """Return CPU seconds of this process and of the servers."""
    return time.process_time() + sum(tree(int(pid)).cpu_s for pid in os.environ[SERVERS].split())


def written() -> int:
    """Return bytes written by this process and the servers."""
    return sum(tree(pid).written for pid in (os.getpid(), *map(int, os.environ[SERVERS].split())))


def noted() -> list[list[str]]:
    """Return run, number, process and time of each step of both processes."""
    return [line.split() for line in Path(os.environ[STEPS_FILE]).read_text().splitlines()]


async def start(peer: Peer, runs: Iterable[str], job: Job) -> None:
    """Start runs, several at once."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(run: str) -> None:
        async with free:
            await peer.start(run, job)

    await asyncio.gather(*map(one, runs))


async def until_seen(count: int, n: int) -> None:
    """Return when this many runs have executed step `n`."""
    while sum(number == n for _, number, _ in seen) < count:  # noqa: ASYNC110 - peers run in other threads
        await asyncio.sleep(0.05)


async def warm(peer: Peer) -> None:
    """Execute a few runs, then forget them."""
    runs = [f"warm{n}" for n in range(10)]
    await start(peer, runs, {"steps": 10, "size": 0, "wait": 0})
    for run in runs:
        await peer.result(run)
    seen.clear()


async def w1(peer: Peer, full: bool) -> Figures:
    """Measure from the first step to the last, three runs one after the other."""
    steps, gaps, rates = 100, [], []
    for number in range(3):
        seen.clear()
        await peer.start(f"alone{number}", {"steps": steps, "size": 0, "wait": 0})
        await peer.result(f"alone{number}")
        times = [at for _, _, at in seen]
        rates.append((steps - 1) / (times[-1] - times[0]))
        gaps += [(after - before) * 1_000 for before, after in pairwise(times)]
    return {"per_s": median(rates), "p50_ms": median(gaps), "p99_ms": sorted(gaps)[int(len(gaps) * 0.99)]}


async def w2(peer: Peer, full: bool) -> Figures:
    """Measure from the first start to the last step, and the CPU until the last result."""
    runs, before, begun = [f"many{n}" for n in range(1_000 if full else 100)], cpu(), time.monotonic()
    await start(peer, runs, {"steps": 10, "size": 0, "wait": 0})
    for run in runs:
        await peer.result(run)
    steps = len(runs) * 10
    return {"per_s": steps / (max(at for _, _, at in seen) - begun), "cpu_ms": (cpu() - before) / steps * 1_000}


async def w3(peer: Peer, full: bool) -> Figures:
    """Measure memory and CPU beside waiting runs, then resume some, one after the other."""
    runs, before = [f"waits{n}" for n in range(1_000 if full else 100)], resident()
    await start(peer, runs, {"steps": 1, "size": 0, "wait": 1})
    await until_seen(len(runs), 0)
    await asyncio.sleep(2)
    memory, used = resident() - before, cpu()
    await asyncio.sleep(5)
    idle, waited = (cpu() - used) / 5, []
    for run in runs[:50]:
        at = time.monotonic()
        await peer.resume(run)
        await peer.result(run)
        waited.append(next(when - at for name, n, when in reversed(seen) if (name, n) == (run, 1)) * 1_000)
    waited.sort()
    return {
        "memory_kb": memory / len(runs) / 1_024,
        "idle_percent": idle * 100,
        "resume_p50_ms": median(waited),
        "resume_p99_ms": waited[int(len(waited) * 0.99)],
    }


async def w4(peer: Peer, full: bool) -> Figures:
    """Hold all runs in the sixth step until the kill; as the second process, finish them."""
    runs, job = [f"held{n}" for n in range(500 if full else 50)], Job(steps=10, size=0, wait=0)
    begun = time.monotonic()
    await start(peer, runs, job)
    if HOLD_AT in os.environ:
        await until_seen(len(runs), int(os.environ[HOLD_AT]))
        print(json.dumps({}), flush=True)
        await asyncio.sleep(3_600)
    for run in runs:
        await peer.result(run)
    lines = noted()
    first: dict[str, float] = {}
    for run, _, _, at in (line for line in lines if line[2] == str(os.getpid())):
        first.setdefault(run, float(at))
    made = [(run, n) for run, n, *_ in lines]
    return {
        "resumed_s": max(first.values()) - begun,
        "done_s": max(at for _, _, at in seen) - begun,
        "repeated": float(len(made) - len(set(made))) / len(runs),
    }


async def w5(peer: Peer, full: bool) -> Figures:
    """Measure time and written bytes of steps over a large state."""
    steps, before = 20, written()
    await peer.start("large", {"steps": steps, "size": MEGA, "wait": 0})
    await peer.result("large")
    took = seen[-1][2] - seen[0][2]
    return {"ms": took / (steps - 1) * 1_000, "written_mb": (written() - before) / MEGA}


async def main(module: str, work: str, size: str) -> None:
    """Measure one workload."""
    peer: Peer = import_module(f"bench.peers.{module}").PEER
    try:
        await peer.open()
        if work != "w4":
            await warm(peer)
        print(json.dumps(await globals()[work](peer, size == "full")), flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # some peers leave threads or servers that do not end
    with suppress(TimeoutError):
        await asyncio.wait_for(peer.close(), 10)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Trees of runs in real processes that are killed at random: `python -m tests.chaos.killed_trees --kills 60`.

Each tree is a tour with three legs, child runs that book a place each. Some legs fail, and some tours fail after their
legs began, so that children are cancelled and bookings are taken back. Two workers serve one store and are killed with
SIGKILL. The receiver is a file, in which a line is one executed request. No line may be there twice, every run must
end, every booking of a run that did not complete must be taken back, and fsck must find nothing.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import outlast
from outlast import ChildFailed, Context, DidNotHappen, Fail, Happened, Unknown, activity, this_call, workflow
from outlast.core.durations import Liveness
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.runtime.operations import Operations
from outlast.upkeep.fsck import Fsck
from tests.measured import unmeasured

LIVE: Final = Liveness(
    heartbeat_window=900, heartbeat_every=300, attempt_timeout=1_000, start_budget=1_000, settle_margin=1_000
)
RECORD: Final = "TREES_RECORD"
WORKERS: Final = 2
BETWEEN_S: Final = (0.1, 0.6)
"""Shortest and longest time between two kills."""
GIVE_UP_S: Final = 180
"""Time limit. Only a failing campaign reaches it."""


# --- the receiver: a file --------------------------------------------------------------------------
def _act(what: str) -> str:
    key = this_call().idempotency_key
    with Path(os.environ[RECORD]).open("a", encoding="utf-8") as record:
        record.write(f"{what} {key}\n")  # one write in append mode
    return key


def _lines(record: Path) -> list[str]:
    return record.read_text(encoding="utf-8").splitlines()


def _find() -> Happened[str] | DidNotHappen | Unknown:
    key = this_call().idempotency_key
    done = any(line.split()[-1] == key for line in _lines(Path(os.environ[RECORD])))
    return Happened(key) if done else DidNotHappen()


@activity(key="book/{town}", name="tree-book")
async def book(town: str) -> str:
    return _act("book")


@book.reconcile
async def was_booked(town: str) -> Happened[str] | DidNotHappen | Unknown:
    return _find()


async def was_freed(done: str, town: str) -> Happened[str] | DidNotHappen | Unknown:
    return _find()


@book.undo(reconcile=was_freed)
async def free(done: str, town: str) -> None:
    _act("free")


# --- the trees ---------------------------------------------------------------------------------------
@workflow(name="tree-leg")
async def leg(ctx: Context, town: str) -> str:
    await ctx.do(book, town)
    await ctx.sleep("300ms")
    if town == "rome":
        raise Fail("full")
    return town


@workflow(name="tree-tour", when_empty="complete")
async def tour(ctx: Context, number: int) -> list[str]:
    await ctx.do(book, "guide")
    towns = ["oslo", "wien", "rome" if number % 3 == 0 else "bern"]
    legs = [await ctx.start(leg, leg.arguments(each), key=each, no_undo="a leg that is done is used") for each in towns]
    if number % 4 == 0:
        await ctx.sleep("100ms")
        raise Fail("called off")
    seen: list[str] = []
    for each in legs:
        try:
            seen.append(await each.result())
        except ChildFailed as failed:
            seen.append(failed.detail)
    return seen


# --- the campaign -------------------------------------------------------------------------------------
class Campaign(NamedTuple):
    """A finished campaign: the sentences that were broken, the runs, the kills, and the seconds."""

    wrong: list[str]
    runs: int
    kills: int
    seconds: float


async def _serve(url: str) -> None:
    async with outlast.connect(url) as client, client.worker([tour, leg], live=LIVE):
        await asyncio.Event().wait()


async def _worker(url: str, record: Path) -> asyncio.subprocess.Process:
    program = (sys.executable, "-m", "tests.chaos.killed_trees", "--serve", url)
    return await asyncio.create_subprocess_exec(*program, env={**os.environ, RECORD: str(record)})


async def play(folder: Path, *, trees: int, kills: int, seed: int) -> Campaign:
    """Play trees with so many kills, and judge the end."""
    url, dice, began = f"sqlite:{folder / 'o.db'}", random.Random(seed), time.monotonic()
    record = folder / "record"
    record.touch()
    killed = 0
    async with outlast.connect(url, workflows=[tour, leg]) as client:
        assert isinstance(client, Operations)
        workers = [await _worker(url, record) for _ in range(WORKERS)]
        try:
            for number in range(trees):
                await client.start(tour, tour.arguments(number=number), key=f"tour-{number}", run_id=f"tour-{number}")

            async def left() -> list[Run]:
                return [run for run in await client.store.rows(RUN, (client.tenant,)) if not is_over(run)]

            while (await left() or killed < kills) and time.monotonic() < began + GIVE_UP_S:
                await asyncio.sleep(dice.uniform(*BETWEEN_S))
                if killed < kills:
                    at = dice.randrange(WORKERS)
                    workers[at].send_signal(signal.SIGKILL)
                    await workers[at].wait()
                    workers[at] = await _worker(url, record)
                    killed += 1
        finally:
            for each in workers:
                each.kill()
                await each.wait()
        return Campaign(await _judge(client, record), await _count(client), killed, time.monotonic() - began)


async def _runs(client: Operations) -> list[Run]:
    return [*await client.store.rows(RUN, (client.tenant,))]


async def _count(client: Operations) -> int:
    return len(await _runs(client))


async def _judge(client: Operations, record: Path) -> list[str]:
    runs = {run.run: run for run in await _runs(client)}
    wrong = [
        f"{run.run} has not ended: {run.status.value} {run.attention}" for run in runs.values() if not is_over(run)
    ]
    lines = Counter(await asyncio.to_thread(_lines, record))
    wrong += [f"executed {n} times: {line}" for line, n in lines.items() if n > 1]
    for run in runs.values():
        if run.parent and runs[run.parent].ended_at < run.ended_at:
            wrong.append(f"{run.run} ended after its parent")
        for effect in await client.effects(run.run):
            kept = effect.status == "done" and not effect.key.startswith("undo/")
            if effect.effect == "tree-book" and kept and run.status.value != "completed":
                wrong.append(f"{run.run} {effect.key} is booked, and the run is {run.status.value}")
    tours = [run for run in runs.values() if not run.parent]
    started = sum([len((await client.tree(run.run)).children) for run in tours])
    if started != len(runs) - len(tours):
        wrong.append(f"{started} children in trees, {len(runs) - len(tours)} runs")
    kinds = Counter(line.split()[0] for line in lines)
    wrong += unmeasured(trees=len(tours), children=started, bookings=kinds["book"], undos=kinds["free"])
    wrong += [str(each) for each in (await Fsck(client.store, chain=True).look()).findings]
    return wrong


def main() -> int:
    """Play one campaign, or serve. Returns 1 if a sentence is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.killed_trees", description=__doc__)
    parser.add_argument("--trees", type=int, default=40, metavar="N", help="number of trees [40]")
    parser.add_argument("--kills", type=int, default=60, metavar="N", help="number of kills [60]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the times of the kills [1]")
    parser.add_argument("--serve", metavar="STORE", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(_serve(asked.serve))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        end = asyncio.run(play(Path(folder), trees=asked.trees, kills=asked.kills, seed=asked.seed))
    summary = f"{end.runs} runs, {end.kills} kills, {len(end.wrong)} sentences broken, {end.seconds:.0f} s"
    sys.stdout.write("".join(f"{line}\n" for line in (*end.wrong, summary)))
    return 1 if end.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

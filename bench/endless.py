"""`scripts/bench endless [--store NAME] [--visits N] [--history N] [--loop call|all]`: one run of very many visits.

A worker process executes one run that calls an activity in each visit, and kills itself at each 10,000th one. At
10,000, 30,000, 100,000, 300,000 and 1,000,000 visits this prints the pages of the store with its free list (PostgreSQL:
bytes after a VACUUM), the worker's CPU per visit since the mark before, and the times of a claim's reads, of `explain`
and of `fsck`, with its findings. At the end it prints the rows of each kind.

`--loop all` also emits a result, reads a signal with an id, asks for an approval and runs a child in each visit.
"""

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import asyncpg
from pydantic import BaseModel

from bench import postgres
from bench.engines import Place, engine_of
from bench.serving import TENANT, opened, worker
from outlast import Context, Workflow, activity, person, resend
from outlast.core.approvals import Actor, PersonDecision
from outlast.core.durations import Liveness
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_rows import APPROVAL
from outlast.core.rows.run_rows import RUN
from outlast.engine import commands
from outlast.errors import OutlastError
from outlast.runtime.operations import Operations
from outlast.store.port import Store
from outlast.upkeep.fsck import Fsck

RUN_ID = "endless"
MARKS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
CRASH_EVERY = 10_000
LIVE = Liveness(heartbeat_window=3_000, heartbeat_every=1_000)
FOLDER = "BENCH_ENDLESS_FOLDER"
HISTORY = "BENCH_ENDLESS_HISTORY"
TIMED = 5  # repeats of each timed read; the fastest counts


class Count(BaseModel):
    """State of the measured run."""

    visits: int
    n: int = 0


class Word(BaseModel):
    """Payload of a signal."""

    n: int


@activity(
    key="write/{n}",
    no_undo="a bench changes nothing",
    name="bench-endless-write",
    if_uncertain=resend(remembered_for="30d"),
)
async def write(n: int) -> int:
    """Make an effect whose receiver is this process."""
    return n


def declared(history: int) -> dict[str, Workflow[Any]]:
    """Return the measured workflows, by the name of the loop."""
    call = Workflow("bench-endless-call", state=Count, history=history)
    every = Workflow("bench-endless-all", state=Count, history=history, results="purge", dedupe_for="10s")
    child = Workflow("bench-endless-child", state=Count)

    @child.node(start=True)
    async def once(ctx: Context[Count]) -> None:
        ctx.state.n = await ctx.do(write, 1)

    @call.node(start=True)
    async def turn(ctx: Context[Count]) -> Literal["turn"] | None:
        ctx.state.n = await ctx.do(write, ctx.state.n) + 1
        _at(ctx.state.n)
        return "turn" if ctx.state.n < ctx.state.visits else None

    @every.node(start=True)
    async def round_(ctx: Context[Count]) -> Literal["round_"] | None:
        n = ctx.state.n + 1
        await ctx.emit({"n": n}, key=f"n/{n}")
        await ctx.receive("word", Word)
        decision = await ctx.approval(write.plan(n), summary="write it", by=person("ann"), within="1h")
        assert decision.approved
        await ctx.do(write, n)
        await ctx.run(child, Count(visits=1), key=f"child/{n}", no_undo="a bench changes nothing")
        ctx.state.n = n
        return "round_" if n < ctx.state.visits else None

    return {"call": call.validate(), "all": every.validate(), "child": child.validate()}


def _at(n: int) -> None:
    """Report the CPU of this process, and kill it at each 10,000th visit, once."""
    if n % CRASH_EVERY:
        return
    marker = Path(os.environ[FOLDER]) / f"crash-{n}"
    if not marker.exists():
        marker.write_text(str(time.process_time()))  # outlast: ignore[OL301] it reports to the process that measures
        os.kill(os.getpid(), signal.SIGKILL)  # outlast: ignore[OL301] it plays the crash of the worker


# --- the worker process -------------------------------------------------------------------------------------
async def work(url: str, loop: str) -> None:
    """Serve the run until it has ended."""
    flows = declared(int(os.environ[HISTORY]))
    async with opened(url) as store:
        serving = worker(store, flows[loop], live=LIVE)
        served = [asyncio.create_task(serving.run())]
        if loop == "all":
            beside = worker(store, flows["child"], live=LIVE)
            served += [asyncio.create_task(beside.run()), asyncio.create_task(_answer(store))]
        while (run := await store.load(RUN, (TENANT, RUN_ID))) is None or not run.ended_at:  # noqa: ASYNC110 - polls
            await asyncio.sleep(0.2)
        for each in served[2:]:
            each.cancel()
        serving.drain()
        await served[0]
    (Path(os.environ[FOLDER]) / "ended").write_text(str(time.process_time()))


async def _answer(store: Store) -> None:
    """Send a signal for each visit, and approve what the run asks."""
    sent = 0
    while True:
        with suppress(OutlastError):
            run = await store.load(RUN, (TENANT, RUN_ID))
            if run is not None and run.visit > sent:
                sent += 1
                payload = {"n": sent}
                await commands.signal(
                    store, tenant=TENANT, run=RUN_ID, name="word", payload=payload, actor="bench", signal_id=f"w-{sent}"
                )
            page = await store.page(APPROVAL, TENANT, {"status": ApprovalStatus.PENDING.value}, limit=10)
            for approval in page.rows:
                choice = PersonDecision("approve", "it is a bench")
                await commands.decide_approval(store, TENANT, approval.id, Actor("ann"), choice, lambda run: None)
        await asyncio.sleep(0.002)


# --- the measuring process ----------------------------------------------------------------------------------
def measure(store: str, visits: int, history: int, loop: str) -> None:
    """Execute the run to its end and print the figures at each mark."""
    flow = declared(history)[loop]
    with engine_of(store).place() as place:
        env = {**os.environ, FOLDER: str(place.folder), HISTORY: str(history)}
        asyncio.run(_start(place.url, flow, visits))
        marks = [mark for mark in MARKS if mark < visits] if loop == "call" else []
        crashes, cpu, since, began = 0, 0.0, 0, time.monotonic()
        while True:
            command = [sys.executable, "-m", "bench.endless", "--work", place.url, "--loop", loop]
            code = subprocess.run(command, env=env, check=False).returncode
            killed = code == -signal.SIGKILL
            if code and not killed:
                raise SystemExit(f"the worker ended with {code}")
            crashes += killed
            at = crashes * CRASH_EVERY
            marker = place.folder / (f"crash-{at}" if killed else "ended")
            cpu += float(marker.read_text())
            if not killed or at in marks:
                at = at if killed else visits
                used = cpu / max(1, at - since) * 1e6
                print(json.dumps(_figures(place, at, used, crashes, time.monotonic() - began)), flush=True)
                cpu, since = 0.0, at
            if not killed:
                print(json.dumps({"rows": asyncio.run(_rows(place.url))}), flush=True)
                return


async def _start(url: str, flow: Workflow[Any], visits: int) -> None:
    async with opened(url) as store:
        given = {"visits": visits}
        await commands.start(store, flow, given, tenant=TENANT, actor="bench", run=RUN_ID)


def _figures(place: Place, at: int, cpu_us: float, crashes: int, took: float) -> dict[str, object]:
    size = _pages(place) if place.url.startswith("sqlite:") else {"bytes": postgres.run(place.url, _vacuumed)}
    times = asyncio.run(_times(place.url))
    return {"visits": at, **size, "cpu_us_per_visit": round(cpu_us), "crashes": crashes, "s": round(took), **times}


def _pages(place: Place) -> dict[str, int]:
    """Return the pages of the file, those of its free list included."""
    db = sqlite3.connect(Path(place.url.removeprefix("sqlite:")))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (pages,), (free,) = db.execute("PRAGMA page_count").fetchone(), db.execute("PRAGMA freelist_count").fetchone()
    db.close()
    return {"pages": pages, "free": free}


async def _vacuumed(db: "asyncpg.Connection[Any]") -> int:
    """Return the bytes of all tables and indexes after a VACUUM, as autovacuum makes it."""
    await db.execute("VACUUM")
    return int(await db.fetchval("SELECT pg_database_size(current_database())"))


async def _times(url: str) -> dict[str, object]:
    async with opened(url) as store:
        ops = Operations(store, tenant=TENANT, actor=Actor("bench"), workflows={})
        reads, explained = [], []
        for _ in range(TIMED):
            began = time.perf_counter()
            (rows,) = await store.run_rows([(TENANT, RUN_ID)])
            reads.append(1_000 * (time.perf_counter() - began))
            began = time.perf_counter()
            await ops.explain(RUN_ID)
            explained.append(1_000 * (time.perf_counter() - began))
        assert rows is not None
        began = time.perf_counter()
        report = await Fsck(store, chain=True).look()
        return {
            "claim_ms": round(min(reads), 2),
            "explain_ms": round(min(explained), 2),
            "fsck_s": round(time.perf_counter() - began, 2),
            "fsck_findings": len(report.findings),
            "events": report.events,
            "effects": report.effects,
        }


async def _rows(url: str) -> dict[str, int]:
    """Count the rows of each kind that belong to runs."""
    found: Counter[str] = Counter()
    async with opened(url) as store:
        for kind in KINDS:
            if kind.row._fields[1] != "run":
                continue
            after: tuple[str | int, ...] = ()
            while page := await store.rows(kind, (TENANT,), after=after, limit=1_000):
                found[kind.name] += len(page)
                after = page[-1][: kind.key]
    return dict(found)


def main() -> None:
    """Measure, or serve the run in a process of the measurement."""
    parser = argparse.ArgumentParser(prog="scripts/bench endless", description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--visits", type=int, default=10_000)
    parser.add_argument("--history", type=int, default=1_000)
    parser.add_argument("--loop", choices=("call", "all"), default="call")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(given.work, given.loop))
    else:
        measure(given.store, given.visits, given.history, given.loop)


if __name__ == "__main__":
    main()

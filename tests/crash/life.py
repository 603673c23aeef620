"""One life of one process, in a child that may be killed: open the store, act or work until nothing is due, close.

Runs in a fork of the zygote. Its clock is handed in; its death is asked for by a cell.
"""

import asyncio
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from outlast.core import points
from outlast.core.commit import Commit, Instant, Mapping
from outlast.core.rows import RUN, Run, is_over
from outlast.engine.worker import WorkerProcess
from outlast.errors import Conflict, NotFound
from outlast.flow.workflow import Workflow
from outlast.runtime.operations import Operations
from outlast.runtime.port import Actor
from outlast.store import writer
from outlast.store.sqlite import SqliteStore, open_without_sync
from tests.crash import mutants, world

TENANT, RUN_ID = "acme", "r1"
STUCK_S = 45  # a life this long hangs: the alarm ends it, which is a failure by its status
LOOK_S = 0.004
BOOTED = 1_000_000  # an arbitrary moment of the boot clock
WORKER = re.compile(r"\b(?:w|s)-\d+\b")  # ids differ from life to life, the place does not


class StoryClock:
    """The machine's clocks from an instant that the parent chose; what it writes into the file passes at once."""

    def __init__(self, at: int, jumps: str) -> None:
        self._at = at
        self._born = time.monotonic_ns()
        self._jumps = os.open(jumps, os.O_RDONLY | os.O_CREAT, 0o600) if jumps else -1
        self._jumped = self._read()

    def _read(self) -> int:
        return int(os.pread(self._jumps, 32, 0) or b"0") if self._jumps >= 0 else 0

    def _passed(self) -> int:
        return (time.monotonic_ns() - self._born) // 1_000_000 + self._read() - self._jumped

    def wall(self) -> int:
        return self._at + self._passed()

    def boot(self) -> int:
        return BOOTED + self._passed()

    mono = boot

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)


class Trace:
    """The hook: counts what was reached, and ends or stops the process at its cell."""

    def __init__(self, cell: dict[str, Any] | None, run: str) -> None:
        self.seen: list[tuple[str, str, int]] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._cell = (cell["point"], cell["label"], cell["nth"]) if cell else None
        self._act = cell["act"] if cell else ""
        self._run = run
        self._claims: list[str] = []

    def __call__(self, point: str, labels: Sequence[str] = ()) -> None:
        names = [label for label in labels if label != "take"]
        if point == "store.batch:before":
            self._claims = []
        elif point.startswith("store.batch"):
            names += self._claims
        for name in names or ([""] if not labels else []):
            self.reached(point, WORKER.sub("worker", name))

    def claiming(self, label: str) -> None:
        """A take is about to move a run: only now it has a label of its own."""
        self.reached("store.batch:before", label)
        self._claims.append(label)

    def reached(self, point: str, label: str) -> None:
        self._counts[point, label] += 1
        here = (point, label, self._counts[point, label])
        self.seen.append(here)
        if here != self._cell:
            return
        if self._act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def live(ask: dict[str, Any], workflows: Sequence[Workflow[Any]], prepare: Callable[[Trace], None]) -> dict[str, Any]:
    """The whole life; answers what was reached and what came of it."""
    signal.alarm(STUCK_S)
    os.environ.update(ask["env"])
    trace = Trace(ask["cell"], RUN_ID)
    points.hook = trace
    world.places.reached = trace.reached
    prepare(trace)
    if ask["alone"]:
        writer.BATCH_MAX = 1  # type: ignore[misc]  # each logical commit is a transaction of its own
    if ask["mutant"]:
        mutants.MUTANTS[ask["mutant"]]()
    answer = asyncio.run(_live(ask, workflows, trace))
    return {"answer": answer, "seen": trace.seen}


async def _live(ask: dict[str, Any], workflows: Sequence[Workflow[Any]], trace: Trace) -> str:
    clock = StoryClock(ask["at"], ask["jumps"])
    store = await open_without_sync(Path(ask["db"]), writer=f"s-{ask['n']}", clock=clock)
    try:
        if ask["do"] == "work":
            return await _work(ask, store, clock, workflows, trace)
        return await _command(ask, store, workflows)
    finally:
        await store.close()


async def _work(
    ask: dict[str, Any], store: SqliteStore, clock: StoryClock, workflows: Sequence[Workflow[Any]], trace: Trace
) -> str:
    _name_claims(store, trace)
    worker = WorkerProcess(
        store, workflows, worker=f"w-{ask['n']}", clock=clock, chance=lambda: 0.5, threads=ask["threads"]
    )
    serving = asyncio.create_task(worker.run())
    while not serving.done() and not await _idle(store, worker):
        await asyncio.wait([serving], timeout=LOOK_S)
    worker.drain()
    await serving
    return "idle"


def _name_claims(store: SqliteStore, trace: Trace) -> None:
    take = store.take

    async def named(lanes: Sequence[str], n: int, step: Any, *, owners: Sequence[str] = ()) -> tuple[Run, ...]:
        def telling(run: Run, now: Instant, mapping: Mapping) -> Commit | None:
            commit: Commit | None = step(run, now, mapping)
            if commit is not None:
                trace.claiming(commit.label)
            return commit

        return await take(lanes, n, telling, owners=owners)

    store.take = named  # type: ignore[method-assign]


async def _idle(store: SqliteStore, worker: WorkerProcess) -> bool:
    """Is nothing left to do now: over, or given back and not due?"""
    run = await store.load(RUN, (TENANT, RUN_ID))
    assert isinstance(run, Run)
    now = await store.now()
    rests = run.owner == "" and (run.due_at is None or run.due_at > now.real)
    return worker.held == 0 and (is_over(run) or rests)


async def _command(ask: dict[str, Any], store: SqliteStore, workflows: Sequence[Workflow[Any]]) -> str:
    given = ask["args"]
    operations = Operations(
        store, tenant=TENANT, actor=Actor(ask.get("actor", "ann")), workflows={w.name: w for w in workflows}
    )
    try:
        match ask["do"]:
            case "slots":
                await operations.set_slots(1)
            case "start":
                await operations.start(given["workflow"], given["input"], run_id=RUN_ID, idempotency_key="once")
            case "post":
                for name, payload, signal_id in given["signals"]:
                    await operations.signal(RUN_ID, name, payload, signal_id=signal_id)
            case "approve":
                await operations.approve(given["approval"], reason="in order")
            case "reject":
                await operations.reject(given["approval"], reason="too much")
            case "cancel":
                await operations.cancel(RUN_ID, reason="changed my mind")
            case "resolve":
                await operations.resolve_effect(
                    RUN_ID, given["key"], given["verb"], reason="looked", response=given["response"]
                )
            case other:
                raise AssertionError(other)
    except (Conflict, NotFound) as refused:
        return f"refused: {refused.what}"
    return "accepted"

"""One process of a scenario, in a child that may be killed: open the store, act or work until nothing is due, close.

The parent sets the clock, so 96 hours can pass between two processes. The parent also chooses the crash point.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from outlast.clocks import SystemClock
from outlast.core import crash_points
from outlast.core.approvals import Actor
from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Instant, Mapping
from outlast.core.durations import Liveness
from outlast.core.machine import Choice, Reason
from outlast.core.rows.run_rows import RUN, Run, is_due, is_over
from outlast.engine.worker import WorkerProcess
from outlast.errors import Conflict, NotFound
from outlast.flow.calls import Call, current_call, executing_node
from outlast.flow.workflow import Workflow
from outlast.runtime.operations import Operations
from outlast.store.port import Store
from outlast.store.queries import ROWS_MAX
from outlast.store.sqlite import writer
from outlast.store.sqlite.store import open_without_sync
from outlast.testing.crash_values import RUN_ID, TENANT, CrashHook
from outlast.testing.loading import load_function

Prepare = Callable[[CrashHook, dict[str, Any]], None]

STUCK_S: Final = 45  # an alarm ends a process that hangs, and its exit status is the failure
LOOK_S: Final = 0.004
BOOTED: Final = 1_000_000  # an arbitrary moment of the boot clock
WAITED_MAX_MS: Final = 20  # real duration of a wait between two attempts


class ChildClock(Clock):
    """The machine's clocks, from a time that the parent chose. Times in the file `jumps` pass at once."""

    def __init__(self, at: int, jumps: str) -> None:
        self._at = at
        self._real = SystemClock()
        self._born = self._real.mono()
        self._jumps = os.open(jumps, os.O_RDONLY | os.O_CREAT, 0o600) if jumps else -1
        self._jumped = self._read()

    def _read(self) -> int:
        return int(os.pread(self._jumps, 32, 0) or b"0") if self._jumps >= 0 else 0

    def _passed(self) -> int:
        return self._real.mono() - self._born + self._read() - self._jumped

    @override
    def wall(self) -> int:
        return self._at + self._passed()

    @override
    def boot(self) -> int:
        return BOOTED + self._passed()

    mono = boot

    async def sleep(self, ms: int) -> None:
        """Sleep. Waits between attempts are cut short; the worker's own pauses are not."""
        await asyncio.sleep(min(ms, WAITED_MAX_MS) / 1000 if executing_node.get() else ms / 1000)


def run_child(ask: dict[str, Any], workflows: Sequence[Workflow[Any]], prepare: Prepare, report: int) -> dict[str, Any]:
    """Run the process, and return the crash points it passed and its answer. `report` survives a kill."""
    signal.alarm(STUCK_S)
    os.environ.update(ask["env"])
    trace = CrashHook(ask["point"], report)
    crash_points.hook = trace
    prepare(trace, ask)
    if ask["one_commit_each"]:
        writer.BATCH_MAX = 1  # type: ignore[misc]  # one commit in each transaction
    answer = asyncio.run(_live(ask, workflows, trace))
    return {"answer": answer, "seen": trace.seen}


async def _live(ask: dict[str, Any], workflows: Sequence[Workflow[Any]], trace: CrashHook) -> Any:
    if ask["do"] == "replay":
        return await _replay(ask["args"], workflows)
    clock = ChildClock(ask["at"], ask["jumps"])
    open_store = load_function(ask["opener"]) if "opener" in ask else _open_file
    store: Store = await open_store(ask, f"s-{ask['n']}", clock, trace)
    try:
        if ask["do"] == "work":
            return await _work(ask, store, clock, workflows)
        return await _command(ask, store, workflows)
    finally:
        await store.close()


async def _open_file(ask: dict[str, Any], writer_id: str, clock: ChildClock, trace: CrashHook) -> Store:
    store = await open_without_sync(Path(ask["db"]), writer=writer_id, clock=clock)
    name_claims(store, trace)
    return store


async def _work(ask: dict[str, Any], store: Store, clock: ChildClock, workflows: Sequence[Workflow[Any]]) -> str:
    answer = None
    if "serve" in ask:
        workflows, answer = load_function(ask["serve"])(workflows, ask)
    worker = WorkerProcess(
        store,
        workflows,
        worker=f"w-{ask['n']}",
        clock=clock,
        chance=lambda: 0.5,
        live=Liveness(**ask["live"]),
        threads=ask["threads"],
    )
    if answer is not None:
        answer(worker, store, clock)
    serving = asyncio.create_task(worker.run())
    while not serving.done() and not await _idle(store, worker):
        await asyncio.wait([serving], timeout=LOOK_S)
    worker.drain()
    await serving
    return "idle"


def name_claims(store: Store, trace: CrashHook) -> None:
    """Let the store report the label of each claim to the hook."""
    take = store.take

    async def named(lanes: Sequence[str], n: int, step: Any, **more: Any) -> tuple[Run, ...]:
        def traced(run: Run, now: Instant, mapping: Mapping) -> Commit | None:
            commit: Commit | None = step(run, now, mapping)
            if commit is not None:
                trace.claiming(commit.label)
            return commit

        return await take(lanes, n, traced, **more)

    store.take = named  # type: ignore[method-assign]


async def _idle(store: Store, worker: WorkerProcess) -> bool:
    """True if nothing is left to do now: each run has ended, or is released and not due."""
    if worker.held > 0:  # cheaper than a read of the store
        return False
    runs = await store.rows(RUN, (TENANT,))
    assert 0 < len(runs) < ROWS_MAX, "a crash test has a small tree"
    now = await store.now()
    rest = all(is_over(run) or (run.owner == "" and not is_due(run, now.real)) for run in runs)
    return worker.held == 0 and rest


async def _command(ask: dict[str, Any], store: Store, workflows: Sequence[Workflow[Any]]) -> str:
    given = ask["args"]
    operations = Operations(
        store, tenant=TENANT, actor=Actor(given.get("actor", "ann")), workflows={w.name: w for w in workflows}
    )
    try:
        await _speak(operations, ask["do"], given)
    except (Conflict, NotFound) as refused:
        return f"refused: {refused.what}"
    return "accepted"


async def _speak(operations: Operations, verb: str, given: dict[str, Any]) -> None:
    run = given.get("run", RUN_ID)
    match verb:
        case "slots":
            await operations.set_slots(given["n"])
        case "start":
            await operations.start_run(given["workflow"], given["input"], run_id=RUN_ID, key="once")
        case "post":
            for name, payload, signal_id in given["signals"]:
                await operations.signal(run, name, payload, signal_id=signal_id)
        case "approve":
            alternative = given.get("alternative", 0)
            await operations.approve(given["approval"], reason=given.get("reason", "in order"), alternative=alternative)
        case "reject":
            again = given.get("again", False)
            await operations.reject(given["approval"], reason=given.get("reason", "too much"), again=again)
        case "cancel":
            await operations.cancel(run, reason=given.get("reason", "changed my mind"))
        case "answer":
            reason, choice = Reason(given["attention"]), Choice(given["choice"])
            if choice is Choice.RAISE:
                await operations.raise_budget(run, **given["more"], reason=given["reason"])
            else:
                await operations.answer(run, choice, reason=reason, text=given["reason"], key=given["key"])
        case "resolve":
            await operations.resolve_effect(
                run, given["key"], given["verb"], reason="looked", response=given["response"]
            )
        case other:
            raise AssertionError(other)


async def _replay(given: dict[str, Any], workflows: Sequence[Workflow[Any]]) -> Any:
    """Call an activity while the receivers replay their record, so that nothing is executed.

    Returns `{"response": …}`, or `{"why": …}` if a receiver has no record of the call.
    """
    activity = next(each for each in workflows if each.name == given["workflow"]).activity(given["activity"])
    args, kwargs = activity.load_args(given["arguments"].encode())
    at = datetime.fromtimestamp(given["at"] / 1000, UTC)
    current_call.set(Call(given["key"], given["idempotency_key"], TENANT, given["run"], 1, at))
    try:
        value = await activity(*args, **kwargs)
    except Exception as error:  # the author's code may raise any error if a receiver has no record
        return {"why": f"{type(error).__name__}: {error}"}
    return {"response": activity.response_codec.dump(value).decode()}

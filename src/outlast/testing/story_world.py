"""The world of one story: virtual time, a store in memory, a worker that may die, and receivers that answer as told.

A process is an event loop with a worker on it. To die is to run no callback any more and to write nothing: its tasks
are cancelled while the store and the receivers refuse it. Receivers and the store outlive it, as they would.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from pydantic_core import to_jsonable_python
from typing_extensions import override

from outlast.clocks import FIRST_INSTANT
from outlast.core.commit import Chain, Commit, Done
from outlast.core.durations import FAR, SECOND, Liveness
from outlast.core.effect_steps import DidNotHappen, Happened, Unknown
from outlast.core.keys import ADMISSION
from outlast.core.machine import ENDED, RunStatus
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.engine.attempts import ActivityCaller, CallAttempt, PendingCall
from outlast.engine.lease import closed
from outlast.engine.thread_pool import DaemonPool
from outlast.engine.worker import WorkerProcess
from outlast.flow.outcomes import NotSent, Perhaps, Refused, RetryLater
from outlast.flow.workflow import Workflow
from outlast.store.memory import MemoryCore, MemoryStore
from outlast.testing.crash_values import CheckFailed

T = TypeVar("T")
TENANT: Final = "story"
RUN_ID: Final = "run"
LIVE: Final = Liveness(heartbeat_window=FAR, heartbeat_every=FAR // 3, loop_stall_max=FAR, breaker_after=0, runs_kept=0)
"""A lease without end, because a story lets a worker die by itself. Calls keep their durations."""
TURNS_MAX: Final = 100_000  # of the loop at one instant: more means that something spins
LAST_TURNS: Final = 2_000  # of the loop of a dead process, until its tasks have noticed it
ROUNDS_MAX: Final = 1_000
CANCELS_MAX: Final = 5

AnswerKind = Literal["executes", "refuses", "lost", "unknown", "late", "later", "unsent", "fails"]


class WorldAnswer(NamedTuple):
    """Answer of the world to one request. `value` is the response of a call that is executed."""

    kind: AnswerKind = "executes"
    value: Any = None


class WorldCall(NamedTuple):
    """A request that reaches the world: of an activity, an undo, a lookup, or a reconcile function."""

    what: Literal["call", "undo", "lookup", "reconcile"]
    activity: str
    key: str
    arguments: dict[str, Any]
    callee: Any
    label: str
    """The key by which an answer is given: that of the call, with the question for a reconcile."""


class Execution(NamedTuple):
    """A request that a receiver executed, at this real time (ms)."""

    what: str
    activity: str
    key: str
    idempotency_key: str
    arguments: dict[str, Any]
    response: Any
    at: int


class Oracle(Protocol):
    """The source of all that a story does not determine."""

    def answer(self, call: WorldCall) -> WorldAnswer:
        """Return the answer of the world to a request. Called once for each request."""


class Killed(BaseException):
    """The process has died at this place."""


class StoryTime:
    """Virtual time of a story (ms), and what is due in the world outside of any process."""

    def __init__(self) -> None:
        self.now = 0
        self._order = count()
        self._due: list[tuple[int, int, Callable[[], None]]] = []

    def later(self, ms: int, do: Callable[[], None]) -> None:
        """Call `do` after this time, whether or not a process lives."""
        heappush(self._due, (self.now + ms, next(self._order), do))

    def next(self) -> int | None:
        """Return the instant at which something is due, or None."""
        return self._due[0][0] if self._due else None

    def fire(self) -> None:
        """Do all that is due."""
        while self._due and self._due[0][0] <= self.now:
            heappop(self._due)[2]()

    # --- as a clock ----------------------------------------------------------------------------
    def wall(self) -> int:
        """Return the time in milliseconds since 1970."""
        return FIRST_INSTANT + self.now

    boot = wall
    mono = wall

    async def sleep(self, ms: int) -> None:
        """Sleep in the event loop of the caller."""
        await asyncio.sleep(max(ms, 0) / SECOND)


class StoryLoop(asyncio.BaseEventLoop):
    """Event loop without selector, threads or real time: it runs what is ready, and its time is that of the story."""

    def __init__(self, time: StoryTime) -> None:
        super().__init__()
        self._clock_resolution = 0.0002
        self._time = time
        self.dead = False
        self.set_exception_handler(lambda loop, context: None)  # the engine's rows tell; a dead task tells nothing

    @override
    def time(self) -> float:
        return self._time.now / SECOND

    def _write_to_self(self) -> None:
        """Do nothing: nothing waits for a selector."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer leaves the heap at its time."""

    def next(self) -> int | None:
        """Return the instant (ms) of the next timer, or None."""
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            heappop(timers)._scheduled = False
        return -int(-timers[0]._when * SECOND // 1) if timers else None

    def run_ready(self, most: int = TURNS_MAX) -> None:
        """Run callbacks, and timers that are due, until none is left or the process has died.

        Raises CheckFailed after so many callbacks at one instant.
        """
        ready: Any = self._ready  # type: ignore[attr-defined]
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        asyncio._set_running_loop(self)
        try:
            for _ in range(most):
                if self.dead:
                    return
                if not ready:
                    at = self.next()
                    if at is None or at > self._time.now:
                        return
                    timer = heappop(self._scheduled)  # type: ignore[attr-defined]
                    timer._scheduled = False
                    ready.append(timer)
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
            raise CheckFailed("the code of a node spins: it never waits for anything")
        finally:
            asyncio._set_running_loop(None)
            asyncio._set_running_loop(before)

    def end(self) -> None:
        """Let each task begin, cancel them, let them notice it, and close the loop.

        A task that has not started holds coroutines that Python would call never awaited.
        """
        self.dead = False
        with suppress(CheckFailed):
            self.run_ready(LAST_TURNS)
        for _ in range(CANCELS_MAX):
            tasks = asyncio.all_tasks(self)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            with suppress(CheckFailed):
                self.run_ready(LAST_TURNS)
        for task in asyncio.all_tasks(self):  # the author's code swallows its cancellation
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.dead = True
        self.close()


class _ProcessStore(MemoryStore):
    """The store as one process sees it."""

    def __init__(self, world: "StoryWorld", process: "StoryProcess", writer: str) -> None:
        super().__init__(world.core, writer)
        self._world = world
        self._process = process

    @override
    def _land(self, commit: Commit, chain: Chain | None) -> Done:
        self._process.point("commit:before", commit.label)
        done = super()._land(commit, chain)
        self._process.point("commit:after", commit.label)
        return done


class _WorldCaller(ActivityCaller):
    """A caller whose requests the world answers."""

    def __init__(self, world: "StoryWorld", process: "StoryProcess") -> None:
        super().__init__(world.time, DaemonPool(1))
        self._world = world
        self._process = process

    @override
    async def _look_up(self, attempt: CallAttempt, call: PendingCall) -> Any:
        if attempt.callee.name == ADMISSION:  # the engine's own record of a decision
            return await attempt.callee.fn(*attempt.args, **attempt.kwargs)
        return await self._ask("lookup", attempt)

    @override
    async def _run(self, attempt: CallAttempt) -> Any:
        if attempt.callee.name == ADMISSION:
            return await attempt.callee.fn(*attempt.args, **attempt.kwargs)
        self._process.point("call:before", attempt.label)
        self._check(attempt.permit)
        if attempt.sending is not None:
            attempt.sending.started()
        return await self._ask("call", attempt)

    @override
    async def as_call(self, attempt: CallAttempt, fn: Any, evidence: Any = ()) -> Any:
        self._process.point("call:before", attempt.label)
        return self._world.asked(attempt)

    async def _ask(self, what: Literal["call", "lookup"], attempt: CallAttempt) -> Any:
        async with asyncio.timeout(attempt.timeout_ms / SECOND):
            value = await self._world.request(self._process, what, attempt)
        self._process.point("call:after", attempt.label)
        return value


class StoryProcess:
    """One worker process, until it dies."""

    def __init__(self, world: "StoryWorld", number: int) -> None:
        self._world = world
        self.id: Final = f"w-{number}"
        self.dead = False
        self.loop: Final = StoryLoop(world.time)
        self.store: Final = _ProcessStore(world, self, f"writer-{number}")
        self.worker: Final = self.within(lambda: self._worker(world))
        self.do(self.worker.open())

    def _worker(self, world: "StoryWorld") -> WorkerProcess:
        worker = WorkerProcess(
            self.store,
            [world.workflow],
            worker=self.id,
            clock=world.time,
            chance=lambda: 0.5,
            live=LIVE,
            concurrency=2,
            threads=False,
        )
        executors = worker._executors
        executors.services = executors.services._replace(caller=_WorldCaller(world, self))
        return worker

    def within(self, make: Callable[[], T]) -> T:
        """Call a function as code of this process does: with its loop as the running one."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        asyncio._set_running_loop(self.loop)
        try:
            return make()
        finally:
            asyncio._set_running_loop(None)
            asyncio._set_running_loop(before)

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine, and everything else that can run now."""
        task = self.within(lambda: self.loop.create_task(work))
        self.loop.run_ready()
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is not None and not isinstance(error, Killed):
                raise error

    def point(self, name: str, label: str) -> None:
        """Pass a place at which the process may die. Raises Killed if it does, or is dead."""
        if self.dead:
            raise Killed
        if self._world.dies_here(name, label):
            self.die()
            raise Killed

    def die(self) -> None:
        """Run no further callback, write nothing and send nothing from here on."""
        self.dead = self.loop.dead = True

    def end(self) -> None:
        """End what is left of it."""
        self.die()
        self.loop.end()


class StoryWorld:
    """Everything around one run: what an author's code cannot tell from the real thing."""

    def __init__(self, workflow: Workflow[Any], oracle: Oracle) -> None:
        self.time: Final = StoryTime()
        self.core: Final = MemoryCore(self.time)
        self.people: Final = MemoryStore(self.core, "people")
        self.workflow: Final = workflow
        self.oracle: Final = oracle
        self.executions: Final[list[Execution]] = []
        self.under_way: Final[dict[str, int]] = {}  # requests that have not arrived, by idempotency key
        self.process: StoryProcess | None = None
        self.processes = 0
        self.countdown = 0  # points until the process dies; 0: it lives
        self.died_at: list[str] = []
        self.stopped: BaseException | None = None  # raised by the oracle within a callback
        self._dead: list[str] = []
        self._responses: dict[str, Any] = {}

    # --- the run ---------------------------------------------------------------------------------
    @property
    def run(self) -> Run | None:
        """The row of the run; None before its start."""
        return self.core.rows.get(RUN, (TENANT, RUN_ID))

    def act(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out an act of a person or a program on the store, which waits for nothing."""
        try:
            work.send(None)
        except StopIteration as end:
            answer: T = end.value
            return answer
        work.close()
        raise CheckFailed("an act on the store waits")

    def settle(self) -> None:
        """Let everything run that can run now."""
        for _ in range(ROUNDS_MAX):
            self.time.fire()
            self._step()
            if self.stopped is not None:
                raise self.stopped
            if not self._is_due():
                return
        raise CheckFailed("the run does not come to rest")

    def _is_due(self) -> bool:
        run, process = self.run, self.process
        if run is None or run.owner == ENDED:
            return False
        if process is None or process.dead:
            return run.owner != "" or self._due_at(run) <= self.time.wall()
        return run.owner == "" and self._due_at(run) <= self.time.wall()

    def _due_at(self, run: Run) -> int:
        return FAR * 100 if run.due_at is None else run.due_at

    def _step(self) -> None:
        process = self.process
        if process is not None and process.dead:
            self._bury(process)
            process = None
        if process is None:
            if not self._is_due():
                return
            self.processes += 1
            try:
                process = self.process = StoryProcess(self, self.processes)
            except Killed:
                return
        process.loop.run_ready()
        if not process.dead and self._is_due_for(process):
            owners: dict[str, int | None] = dict.fromkeys(self._dead, 1)
            process.do(process.worker._claims.take(owners) if owners else process.worker._claims.take())
            self._dead = [each for each in self._dead if self._owns(each)]

    def _is_due_for(self, process: StoryProcess) -> bool:
        run = self.run
        if run is None or run.owner in (ENDED, process.id):
            return False
        return bool(run.owner) or self._due_at(run) <= self.time.wall()

    def _owns(self, worker: str) -> bool:
        run = self.run
        return run is not None and run.owner == worker

    def _bury(self, process: StoryProcess) -> None:
        """End what is left of a dead process, and close its row, as another worker does once its lease expires."""
        process.end()
        self.process = None
        row = self.core.rows.get(WORKER, (STORE, process.id))
        if isinstance(row, Worker):
            self.act(self.people.commit(closed(row, 1 if self._owns(process.id) else 0)))
        if self._owns(process.id):
            self._dead.append(process.id)

    def advance(self, ms: int) -> None:
        """Let time pass, and everything run that becomes due in it."""
        end = self.time.now + ms
        self.settle()
        while (at := self.next()) is not None and at <= end:
            self.time.now = max(self.time.now, at)
            self.settle()
        self.time.now = end
        self.settle()

    def next(self) -> int | None:
        """Return the next instant at which something happens by itself, or None."""
        run = self.run
        found = [self.time.next()]
        if self.process is not None:
            found.append(self.process.loop.next())
        if run is not None and run.owner == "" and run.due_at is not None:
            found.append(run.due_at - FIRST_INSTANT)
        return min((at for at in found if at is not None), default=None)

    def close(self) -> None:
        """End the process and forget the world."""
        if self.process is not None:
            self.process.end()
            self.process = None

    # --- crashes -------------------------------------------------------------------------------------
    def dies_here(self, name: str, label: str) -> bool:
        """Count a crash point; True if the process dies at it."""
        if self.countdown == 0 or self.stopped is not None:
            return self.stopped is not None
        self.countdown -= 1
        if self.countdown == 0:
            self.died_at.append(f"{name} {label}")
            return True
        return False

    # --- receivers -------------------------------------------------------------------------------------
    def _answer_of(self, process: StoryProcess, call: WorldCall) -> WorldAnswer:
        try:
            return self.oracle.answer(call)
        except BaseException as stop:  # Hypothesis ends an example by raising, and the engine would swallow it
            self.stopped = stop
            process.die()
            raise Killed from None

    async def request(self, process: StoryProcess, what: Literal["call", "lookup"], attempt: CallAttempt) -> Any:
        """Receive one request and answer it."""
        call = call_of(what, attempt)
        answer = self._answer_of(process, call)
        kind = answer.kind
        if kind == "refuses" and attempt.idempotency_key in self._responses:
            kind = "executes"  # a receiver that has executed a call does not say that it refused it
        if kind == "refuses":
            raise Refused("refuses", "the receiver says no")
        if kind == "later":
            raise RetryLater("the receiver is busy")
        if kind == "unsent":
            raise NotSent("connection refused")
        if kind in ("unknown", "fails"):
            raise Perhaps("502")
        if what == "lookup":
            return answer.value
        if kind == "late":
            return await self._late(process, call, attempt, answer)
        response = self._execute(call, attempt, answer)
        process.point("call:inside", attempt.label)
        if kind == "lost":
            raise Perhaps("the connection broke before the answer")
        return response

    async def _late(self, process: StoryProcess, call: WorldCall, attempt: CallAttempt, answer: WorldAnswer) -> Any:
        """Let the request arrive after half of its timeout, also if the process dies until then."""
        key = attempt.idempotency_key
        reply = process.loop.create_future()
        self.under_way[key] = self.under_way.get(key, 0) + 1

        def arrive() -> None:
            self.under_way[key] -= 1
            response = self._execute(call, attempt, answer)
            if not reply.done() and not process.loop.is_closed():
                reply.set_result(response)

        self.time.later(max(attempt.timeout_ms // 2, 1), arrive)
        process.point("call:flight", attempt.label)
        return await reply

    def _execute(self, call: WorldCall, attempt: CallAttempt, answer: WorldAnswer) -> Any:
        key = attempt.idempotency_key
        if attempt.callee.mode == "resend" and key in self._responses:
            return self._responses[key]  # its receiver deduplicates
        self._responses[key] = answer.value
        self.executions.append(
            Execution(call.what, call.activity, call.key, key, call.arguments, answer.value, self.time.wall())
        )
        return answer.value

    def asked(self, attempt: CallAttempt) -> Any:
        """Answer a reconcile function: by the record, unless the receiver cannot tell now."""
        process = self.process
        assert process is not None
        call = call_of("call", attempt)
        call = call._replace(what="reconcile", label=f"{call.label}?")
        if self._answer_of(process, call).kind != "executes":
            return Unknown("the receiver cannot tell now")
        return self.truth(attempt.idempotency_key)

    def truth(self, idempotency_key: str) -> Happened[Any] | DidNotHappen:
        """Return what the record says about a call."""
        if idempotency_key in self._responses:
            return Happened(self._responses[idempotency_key])
        return DidNotHappen()

    def is_over(self) -> bool:
        """Return True if the run has ended."""
        run = self.run
        return run is not None and run.status in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


def call_of(what: Literal["call", "lookup"], attempt: CallAttempt) -> WorldCall:
    """Return the request of an attempt, as the world sees it."""
    callee = attempt.callee
    undoes = what == "call" and not hasattr(callee, "kind")
    arguments = {} if undoes or what == "lookup" else _named(callee, attempt)
    kind: Any = "undo" if undoes else what
    return WorldCall(kind, callee.name, attempt.key, arguments, callee, attempt.key)


def _named(callee: Any, attempt: CallAttempt) -> dict[str, Any]:
    given = {**dict(zip(callee._signature.parameters, attempt.args, strict=False)), **attempt.kwargs}
    named: dict[str, Any] = to_jsonable_python(given, fallback=str)
    return named

"""One attempt of a call: the last-instant check, the author's function under its timeout, and how it ended."""

import asyncio
import contextvars
import inspect
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic_core import to_jsonable_python

from outlast.core.clock import Clock
from outlast.core.ledger import TOO_LATE
from outlast.core.limits import UNSENT_MAX
from outlast.core.points import point
from outlast.engine.call_outcome import Answered, Maybe, Outcome, Unsent, judge
from outlast.engine.lease import Permit
from outlast.engine.user_code import as_exception
from outlast.flow.activity import Activity
from outlast.flow.callee import Callee
from outlast.flow.calls import Call, LateAnswer, current_call, stated_id
from outlast.flow.outcomes import NotSent
from outlast.telemetry.redact import redact, secrets_in
from outlast.telemetry.traces import Traces

UNSENT_MIN: Final = 4
GRACE_S: Final = 0.05
TURNS: Final = 8  # of the loop, which a client needs to write its request; long ones if the loop is busy
SLOW_S: Final = 0.1


class SendWindow:
    """Bound of the unsent intents of one worker."""

    def __init__(self) -> None:
        self._inside = 0
        self._most: float = UNSENT_MIN
        self._halved_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> "Sending":
        """Wait for a place, in the order of the calls of this method."""
        if self._inside < self._most and not self._waiting:
            self._inside += 1
            return Sending(self)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._let_in(-1)
            raise
        return Sending(self)

    def left(self, landed_at: float, *, ended: bool) -> None:
        """Free the place of an intent that was durable at `landed_at`, 0: never. `ended`: its call has ended.

        Intents that were durable before the window was halved do not halve it again.
        """
        now = asyncio.get_running_loop().time()
        if landed_at and now - landed_at <= SLOW_S:
            self._most = min(self._most + (1 if ended else 1 / self._most), UNSENT_MAX)
        elif landed_at > self._halved_at:
            self._most, self._halved_at = max(self._most / 2, UNSENT_MIN), now
        self._let_in(-1)

    def _let_in(self, change: int) -> None:
        self._inside += change
        while self._waiting and self._inside < self._most:
            turn = self._waiting.popleft()
            if not turn.done():
                self._inside += 1
                turn.set_result(None)


class Sending:
    """Place of one intent in the window, until it is left."""

    __slots__ = ("_landed_at", "_timer", "_turns", "_window")

    def __init__(self, window: SendWindow) -> None:
        self._window: SendWindow | None = window
        self._landed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._turns = TURNS

    def landed(self) -> None:
        """Note that the intent is durable now."""
        self._landed_at = asyncio.get_running_loop().time()

    def begun(self) -> None:
        """Leave GRACE_S from now, because the activity's function begins."""
        if self._window is not None:
            self._timer = asyncio.get_running_loop().call_later(GRACE_S, self._turn)

    def _turn(self) -> None:
        self._turns -= 1
        if self._turns > 0 and self._window is not None:
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            self.leave(ended=False)

    def leave(self, *, ended: bool = True) -> None:
        """Free the place. A second time changes nothing."""
        window, self._window = self._window, None
        if window is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        window.left(self._landed_at, ended=ended)


class DaemonPool:
    """Runs functions in daemon threads: a call that hangs is abandoned, never waited for at exit (S-4)."""

    def __init__(self, size: int) -> None:
        self.seats = asyncio.Semaphore(size)
        self._size = size
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = 0  # threads that wait for work, less the work that waits for a thread
        self._threads = 0
        self._lock = threading.Lock()

    def submit(self, fn: Callable[[], Any]) -> "Future[Any]":
        """Run `fn` in a thread, in the caller's context. Cancelling the future succeeds only until it begins."""
        future: Future[Any] = Future()
        context = contextvars.copy_context()
        with self._lock:
            self._idle -= 1
            self._start()
        self._work.put((future, lambda: context.run(fn)))
        return future

    def abandon(self) -> None:
        """A thread outlived its call's timeout: it is given up, and another takes its place if one is needed."""
        with self._lock:
            self._size += 1
            self._start()

    def _start(self) -> None:
        if self._idle < 0 and self._threads < self._size:
            self._threads += 1
            self._idle += 1
            threading.Thread(target=self._serve, name="outlast-activity", daemon=True).start()

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, fn = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn())
                except StopIteration as error:  # which no asyncio future can carry
                    future.set_exception(RuntimeError(f"StopIteration: {error}"))
                except BaseException as error:  # it belongs to the caller, who awaits the future
                    future.set_exception(error)
            with self._lock:
                self._idle += 1


class CallAttempt(NamedTuple):
    """What to call, as whom, for how long, and with which permit (None: a lookup needs none)."""

    callee: Callee
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    idempotency_key: str
    tenant: str
    run_id: str
    number: int
    timeout_ms: int
    permit: Permit | None
    label: str
    connection: Any = None  # the open transaction it writes in, if it has one
    sending: Sending | None = None  # its place in the window, if its intent is durable and it is not yet sent


class _TooLate(Exception):
    """The last-instant check said no."""


class ActivityCaller:
    """Makes attempts; one for a worker."""

    def __init__(self, clock: Clock, pool: DaemonPool, traces: Traces | None = None) -> None:
        self._clock = clock
        self._pool = pool
        self._traces = traces
        self.under_way: dict[asyncio.Task[Any], asyncio.Timeout] = {}  # by the task that awaits the call
        self.seats = pool.seats  # one is held by a write of a plain function from before its intent on

    async def attempt(self, attempt: CallAttempt) -> Outcome:
        """Make one attempt of a write and judge how it ended; never raises but for cancellation.

        Runs in a task of its own: the context variable it sets is seen by this call alone.
        """
        call = self._call(attempt)
        current_call.set(call)
        if self._traces is None:
            outcome = await self._outcome(attempt)
        else:
            with self._span(attempt) as span:
                outcome = await self._outcome(attempt)
                if span is not None:
                    self._traces.judged(span, outcome)
        if isinstance(outcome, Answered | Maybe) and (external_id := stated_id(call)):
            return outcome._replace(external_id=external_id)
        return outcome

    async def _outcome(self, attempt: CallAttempt) -> Outcome:
        try:
            return Answered(await self._run(attempt))
        except _TooLate as late:
            return Unsent(TOO_LATE, str(late))
        except Abandoned as error:
            return Maybe("timeout", str(error), abandoned=True)
        except BaseException as raised:  # whatever the author's function raised is judged, not raised
            outcome = judge(as_exception(raised), self._clock.wall())
            return outcome._replace(detail=redact(outcome.detail, _secrets(attempt)))  # it is stored, and shown

    async def inside(self, attempt: CallAttempt) -> Answered:
        """Make an attempt whose writes a transaction holds back: raises what it raised, TimeoutError after its time."""
        call = self._call(attempt)
        current_call.set(call)
        with self._span(attempt):
            return Answered(await self._run(attempt), stated_id(call))

    async def look_up(self, attempt: CallAttempt) -> Any:
        """Run a lookup and answer its value; raises what it raised, TimeoutError after its timeout."""
        current_call.set(self._call(attempt))
        if self._traces is None:
            return await self._run(attempt)
        with self._span(attempt):
            return await self._run(attempt)

    def _span(self, attempt: CallAttempt, *, asks: bool = False) -> AbstractContextManager[Any]:
        """The span of a call, where somebody wants spans."""
        if self._traces is None:
            return nullcontext()
        callee = attempt.callee
        ids = (attempt.tenant, attempt.run_id, callee.name, attempt.key, attempt.number)
        paid = isinstance(callee, Activity) and callee.durable
        return self._traces.call(*ids, model=paid, asks=asks, secrets=lambda: _secrets(attempt))

    async def as_call(
        self, attempt: CallAttempt, fn: Callable[..., Awaitable[Any]], evidence: Sequence[LateAnswer] = ()
    ) -> Any:
        """Run the reconcile of a call with what `this_call()` answers for it; `evidence` is all there is of it."""
        task = asyncio.current_task()
        assert task is not None
        token = current_call.set(replace(self._call(attempt), reconciling=True, evidence=tuple(evidence)))
        try:
            with self._span(attempt, asks=True):
                async with asyncio.timeout(attempt.timeout_ms / 1000) as self.under_way[task]:
                    return await fn(*attempt.args, **attempt.kwargs)
        finally:
            self.under_way.pop(task, None)
            current_call.reset(token)

    async def _run(self, attempt: CallAttempt) -> Any:
        callee = attempt.callee
        point("call:before", (attempt.label,))
        if callee.is_async:
            self._check(attempt.permit)
            if attempt.sending is not None:
                attempt.sending.begun()
            task = asyncio.current_task()
            assert task is not None
            try:
                async with asyncio.timeout(attempt.timeout_ms / 1000) as self.under_way[task]:
                    value = await callee.fn(*attempt.args, **attempt.kwargs)
            finally:
                self.under_way.pop(task, None)
        elif attempt.permit is None:
            async with self.seats:
                value = await self._in_thread(attempt)
        else:
            value = await self._in_thread(attempt)
        point("call:after", (attempt.label,))
        return value

    async def _in_thread(self, attempt: CallAttempt) -> Any:
        loop = asyncio.get_running_loop()

        def send() -> Any:
            self._check(attempt.permit)
            if attempt.sending is not None:
                loop.call_soon_threadsafe(attempt.sending.begun)
            try:
                return attempt.callee.fn(*attempt.args, **attempt.kwargs)
            except BaseException as error:  # here, since no signal handler runs in this thread
                raise as_exception(error)  # noqa: B904 - it names its cause

        begun = self._pool.submit(send)
        future = asyncio.wrap_future(begun)
        done, _ = await asyncio.wait([future], timeout=attempt.timeout_ms / 1000)
        if not done and begun.cancel():
            raise NotSent("no thread was free for it")
        if not done:
            self._pool.abandon()
            raise Abandoned(f"the thread still runs after {attempt.timeout_ms / 1000:g} s")
        return future.result()

    def _check(self, permit: Permit | None) -> None:
        if permit is not None and (why := permit.refusal(self._clock)):
            raise _TooLate(why)

    def _call(self, attempt: CallAttempt) -> Call:
        ends = self._clock.wall() + attempt.timeout_ms
        ends_mono = self._clock.mono() + attempt.timeout_ms
        return Call(
            key=attempt.key,
            idempotency_key=attempt.idempotency_key,
            tenant=attempt.tenant,
            run_id=attempt.run_id,
            attempt=attempt.number,
            deadline=datetime.fromtimestamp(ends / 1000, UTC),
            _connection=attempt.connection,
            _left=lambda: (ends_mono - self._clock.mono()) / 1000,
        )


def _secrets(attempt: CallAttempt) -> frozenset[str]:
    """What it was given under the name of a secret."""
    names = inspect.signature(attempt.callee.fn).parameters
    given = {**dict(zip(names, attempt.args, strict=False)), **attempt.kwargs}
    return secrets_in(to_jsonable_python(given, fallback=str))


class Abandoned(TimeoutError):
    """A thread that outlived its timeout: it may still send, so nothing but a person can settle it."""

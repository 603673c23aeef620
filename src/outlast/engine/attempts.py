"""One attempt of a call: the last check, the author's function with its timeout, and its outcome.

Functions without `async` run in daemon threads; a caller holds one of `seats` before its intent is durable. The send
window bounds the intents of a worker that are durable and not yet sent, because each of them becomes a question to a
person if the worker dies. It halves while calls take long to start, because the event loop is busy, and grows otherwise
(decision 0041).
"""

import asyncio
import contextvars
import inspect
import math
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic_core import to_jsonable_python

from outlast.core.clock_port import Clock
from outlast.core.crash_points import point
from outlast.core.effect_steps import Answered, Maybe, Outcome, Unsent
from outlast.core.effect_verbs import TOO_LATE
from outlast.core.limits import UNSENT_MAX
from outlast.core.usage import Used
from outlast.engine.call_errors import CallErrors
from outlast.engine.call_outcome import judge
from outlast.engine.lease import Permit
from outlast.engine.local_limits import NO_THREAD, NoPlace
from outlast.engine.user_code import as_exception
from outlast.flow.activity import Activity
from outlast.flow.calls import Call, LateAnswer, asked_model, current_call, stated_id, tool_call, usage_of
from outlast.flow.functions import GENERATORS, NeverAwaited, never_awaited
from outlast.flow.options import Callee
from outlast.telemetry.redact import redact, secrets_in
from outlast.telemetry.traces import Traces

UNSENT_MIN: Final = 4
GRACE_S: Final = 0.05
TURNS: Final = 8  # turns of the loop that a client needs to write its request
SLOW_S: Final = 0.1
ROUNDING_S: Final = 1e-6  # a timer of the loop may fire so much too early
LATE_S: Final = 0.01  # between two looks, so that one finds all timeouts that end together


class SendWindow:
    """Bound of the unsent intents of one worker."""

    def __init__(self) -> None:
        self._inside = 0
        self._most: float = UNSENT_MIN
        self._halved_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._begun: deque[tuple[float, Sending]] = deque()  # places by the time at which they are left
        self._timer: asyncio.TimerHandle | None = None  # for the first of them
        self._context = contextvars.Context()  # of the timer, which would keep the node that has set it

    def enter_now(self) -> "Sending | None":
        """Return a place if one is free and none waits for it."""
        if self._inside >= self._most or self._waiting:
            return None
        self._inside += 1
        return Sending(self)

    async def enter(self) -> "Sending":
        """Wait for a place, in the order of the calls of this method."""
        if (free := self.enter_now()) is not None:
            return free
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
        """Free the place of an intent that was durable at `landed_at`; 0 if it never was.

        `ended`: its call has ended. Intents that were durable before the window was halved do not halve it again.
        """
        now = asyncio.get_running_loop().time()
        if landed_at and now - landed_at <= SLOW_S:
            self._most = min(self._most + (1 if ended else 1 / self._most), UNSENT_MAX)
        elif landed_at > self._halved_at:
            self._most, self._halved_at = max(self._most / 2, UNSENT_MIN), now
        self._let_in(-1)

    def begun(self, place: "Sending") -> None:
        """Free a place GRACE_S and some turns of the loop from now. One timer serves all places."""
        loop = asyncio.get_running_loop()
        at = loop.time() + GRACE_S
        self._begun.append((at, place))
        if self._timer is None:
            self._timer = loop.call_at(at, self._look, context=self._context)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() + ROUNDING_S
        due: list[Sending] = []
        while self._begun and (self._begun[0][0] <= latest or self._begun[0][1].is_left):
            due.append(self._begun.popleft()[1])
        self._timer = loop.call_at(self._begun[0][0], self._look, context=self._context) if self._begun else None
        if due := [place for place in due if not place.is_left]:
            self._turn(due, TURNS)

    def _turn(self, due: "Sequence[Sending]", turns: int) -> None:
        if turns > 1:
            asyncio.get_running_loop().call_soon(self._turn, due, turns - 1)
            return
        for place in due:
            place.leave(ended=False)

    def _let_in(self, change: int) -> None:
        self._inside += change
        while self._waiting and self._inside < self._most:
            turn = self._waiting.popleft()
            if not turn.done():
                self._inside += 1
                turn.set_result(None)


class Sending:
    """Place of one intent in the window, until it is left."""

    __slots__ = ("_landed_at", "_window")

    def __init__(self, window: SendWindow) -> None:
        self._window: SendWindow | None = window
        self._landed_at = 0.0

    @property
    def is_left(self) -> bool:
        """Return True if the place is free again."""
        return self._window is None

    def landed(self) -> None:
        """Note that the intent is durable now."""
        self._landed_at = asyncio.get_running_loop().time()

    def begun(self) -> None:
        """Leave the window GRACE_S from now, because the activity's function begins."""
        if self._window is not None:
            self._window.begun(self)

    def leave(self, *, ended: bool = True) -> None:
        """Free the place. A second call has no effect."""
        window, self._window = self._window, None
        if window is not None:
            window.left(self._landed_at, ended=ended)


class CallTimeout:
    """Timeout of one call, and the task that it cancels."""

    __slots__ = ("_cancels", "_timeouts", "ends", "fired", "lookup", "task")

    def __init__(self, timeouts: "CallTimeouts", task: asyncio.Task[Any], ends: float) -> None:
        self._timeouts: CallTimeouts | None = timeouts
        self._cancels = task.cancelling()
        self.task = task
        self.ends = ends
        self.fired = False
        self.lookup: InlineLookup | None = None
        """The lookup that runs in `task`, if it is one."""

    def abandon(self, error: Exception) -> bool:
        """Close a lookup that ignored the end of its timeout; its task continues with `error`. False for others."""
        if self.lookup is None:
            return False
        if self.lookup.abandoned is None:
            self.lookup.abandoned = error
            self.task.cancel()
        return True

    def stop(self) -> bool:
        """End the timeout. Returns True if it has cancelled the call, and nothing else has."""
        timeouts, self._timeouts = self._timeouts, None
        if timeouts is None:
            return False
        timeouts.under_way.pop(self, None)
        if self.lookup is not None and self.lookup.abandoned is not None:
            self.task.uncancel()
        return self.fired and self.task.uncancel() <= self._cancels


class CallTimeouts:
    """Timeouts of the calls of one worker, with one timer for all. They are up to 10 ms late and never early."""

    def __init__(self) -> None:
        self.under_way: dict[CallTimeout, None] = {}  # in the order of their starts
        self._timer: asyncio.TimerHandle | None = None
        self._context = contextvars.Context()  # of the timer, which would keep the node that has set it
        self._looks_at = math.inf

    def start(self, seconds: float) -> CallTimeout:
        """Start a timeout for the current task."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        limit = CallTimeout(self, task, loop.time() + seconds)
        self.under_way[limit] = None
        if limit.ends < self._looks_at:
            self._look_at(limit.ends, loop)
        return limit

    def _look_at(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = at
        self._timer = loop.call_at(at, self._look, context=self._context)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() + ROUNDING_S
        for limit in self.under_way:
            if limit.ends <= latest and not limit.fired:
                limit.fired = True
                limit.task.cancel()
        self._timer, self._looks_at = None, math.inf
        if ends := [limit.ends for limit in self.under_way if not limit.fired]:
            self._look_at(max(min(ends), latest + LATE_S), loop)


class DaemonPool:
    """Pool of daemon threads. A call that hangs is abandoned; the process exits without it (S-4)."""

    def __init__(self, size: int) -> None:
        self.seats = asyncio.Semaphore(size)
        self._size = size
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = 0  # idle threads minus queued functions
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    @property
    def threads(self) -> Sequence[threading.Thread]:
        """Return the threads that were started, also those that a call has outlived."""
        return self._threads

    def submit(self, fn: Callable[[], Any], context: contextvars.Context) -> "Future[Any]":
        """Run `fn` in a thread, in this context. The future can be cancelled only until it begins.

        Raises NoPlace if there is no thread and none can be started.
        """
        future: Future[Any] = Future()
        with self._lock:
            self._idle -= 1
            self._start()
        self._work.put((future, lambda: context.run(fn)))
        return future

    def abandon(self) -> None:
        """Give up a thread that outlived its call's timeout, and allow another one."""
        with self._lock:
            self._size += 1
            self._start()

    def _start(self) -> None:
        if self._idle < 0 and len(self._threads) < self._size:
            thread = threading.Thread(target=self._serve, name=f"outlast-activity_{len(self._threads)}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no memory or id for a thread: one that ends its work takes this, too
                if not self._threads:
                    self._idle += 1
                    raise NoPlace(NO_THREAD) from error
                return
            self._threads.append(thread)
            self._idle += 1

    def close(self) -> None:
        """Let all idle threads end."""
        for _ in self._threads:
            self._work.put(None)

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, fn = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn())
                except StopIteration as error:  # because no asyncio future can carry it
                    future.set_exception(RuntimeError(f"StopIteration: {error}"))
                except BaseException as error:  # the caller awaits the future and gets it
                    future.set_exception(error)
            with self._lock:
                self._idle += 1


class CallAttempt(NamedTuple):
    """One attempt of a call: its function and arguments, identity, timeout and permit (None for a lookup)."""

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
    stream: Callable[[str, str, int], None]  # sends a text of a call of this key and attempt
    used: list[Used]  # receives what the function reports with `this_call().used`
    connection: Any = None  # connection of the open transaction, if it has one
    sending: Sending | None = None  # its place in the send window, until it is sent


class InlineLookup:
    """The coroutine of a lookup in a separate context, run by the task that awaits it (decision 0068)."""

    __slots__ = ("_coroutine", "_run", "abandoned")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> None:
        self._coroutine = coroutine
        self._run = context.run
        self.abandoned: Exception | None = None
        """If set, the next cancellation closes the coroutine and raises this error."""

    def __await__(self) -> Generator[Any, None, Any]:
        run, send = self._run, self._coroutine.send
        thrown: BaseException | None = None
        while True:
            try:
                awaited = run(send, None) if thrown is None else run(self._coroutine.throw, thrown)
            except StopIteration as end:
                return end.value
            try:
                if type(awaited) is asyncio.Future or not isinstance(awaited, asyncio.Future):
                    yield awaited
                else:
                    yield from self._ended(awaited)
                thrown = None
            except GeneratorExit:  # its task is collected
                self._close()
                raise
            except BaseException as error:  # passed on to the function, which may handle it
                if self.abandoned is not None:
                    self._close()
                    raise self.abandoned from error
                thrown = error

    def _ended(self, awaited: asyncio.Future[Any]) -> Generator[Any, None, None]:
        """Wait for a task or a gather, which can ignore the cancellation of this task."""
        awaited._asyncio_future_blocking = False  # because this task waits for another future
        while not awaited.done():
            try:
                yield from asyncio.wait([awaited]).__await__()
            except asyncio.CancelledError:
                if self.abandoned is not None or not awaited.cancel():
                    raise

    def _close(self) -> None:
        try:
            self._coroutine.close()
        except BaseException:  # as it ignored its cancellation, it may ignore this
            pass


class PendingCall:
    """The call of an attempt, built when the author's code first asks for it."""

    __slots__ = ("_attempt", "_clock", "_ends", "made")

    def __init__(self, attempt: CallAttempt, clock: Clock) -> None:
        self._attempt = attempt
        self._clock = clock
        self._ends = clock.mono() + attempt.timeout_ms
        self.made: Call | None = None

    def call(self) -> Call:
        """Return the call: the same one each time."""
        if self.made is None:
            attempt, clock, mono_ends = self._attempt, self._clock, self._ends
            ends = clock.wall() + mono_ends - clock.mono()
            self.made = Call(
                key=attempt.key,
                idempotency_key=attempt.idempotency_key,
                tenant=attempt.tenant,
                run_id=attempt.run_id,
                attempt=attempt.number,
                deadline=datetime.fromtimestamp(ends / 1000, UTC),
                _connection=attempt.connection,
                _left=lambda: (mono_ends - clock.mono()) / 1000,  # not `self`: no cycle for the garbage collector
                _used=attempt.used,
                _stream=attempt.stream,
            )
        return self.made


class _TooLate(Exception):
    """The last check refused the call."""


class ActivityCaller:
    """Caller of activities and lookups, one for each worker."""

    def __init__(
        self, clock: Clock, pool: DaemonPool, traces: Traces | None = None, errors: CallErrors | None = None
    ) -> None:
        self._clock = clock
        self._pool = pool
        self._traces = traces
        self._errors = errors
        self._timeouts = CallTimeouts()
        self.seats = pool.seats  # an activity without `async` holds one from before its intent

    async def attempt(self, attempt: CallAttempt) -> Outcome:
        """Make one attempt of an activity and return its outcome.

        Raises only cancellation.

        Must run in a separate task, because it sets a context variable for this call.
        """
        call = PendingCall(attempt, self._clock)
        current_call.set(call)
        if self._traces is None:
            outcome = await self._outcome(attempt)
        else:
            with self._span(attempt) as span:
                outcome = await self._outcome(attempt)
                if span is not None:
                    self._traces.judged(span, outcome)
                    self._traces.asked(span, *_asked(call))
        if call.made is not None and (external_id := stated_id(call.made)) and isinstance(outcome, Answered | Maybe):
            return outcome._replace(external_id=external_id)
        return outcome

    async def _outcome(self, attempt: CallAttempt) -> Outcome:
        try:
            return Answered(await self._run(attempt))
        except _TooLate as late:
            return Unsent(TOO_LATE, str(late))
        except Abandoned as error:
            return Maybe("timeout", str(error), abandoned=True)
        except NeverAwaited as error:  # its code before the return may have acted
            return Maybe("never_awaited", str(error), abandoned=True)
        except BaseException as raised:  # judged, not raised: an error of the author's function
            outcome = judge(as_exception(raised), self._clock.wall())
            if self._errors is not None and isinstance(outcome, Maybe):
                self._errors.keep((attempt.tenant, attempt.run_id, attempt.key), raised, _secrets(attempt))
            # because the detail is stored and shown
            return outcome._replace(detail=redact(outcome.detail, _secrets(attempt)))

    async def inside(self, attempt: CallAttempt) -> Answered:
        """Make an attempt in a transaction. Raises the error of the function, TimeoutError after its timeout."""
        call = PendingCall(attempt, self._clock)
        current_call.set(call)
        with self._span(attempt):
            value = await self._run(attempt)
            return Answered(value, stated_id(call.made) if call.made is not None else "")

    async def look_up(self, attempt: CallAttempt) -> Any:
        """Return the value of a lookup. Raises the error of the function, TimeoutError after its timeout.

        The function runs in a separate context, and an `async def` in the current task.
        """
        call = PendingCall(attempt, self._clock)
        if self._traces is None:
            return await self._look_up(attempt, call)
        with self._span(attempt) as span:
            try:
                return await self._look_up(attempt, call)
            finally:
                if span is not None:
                    self._traces.asked(span, *_asked(call))

    async def _look_up(self, attempt: CallAttempt, call: PendingCall) -> Any:
        point("call:before", (attempt.label,))
        context = contextvars.copy_context()
        context.run(current_call.set, call)
        if attempt.callee.is_async:
            limit = self._timeouts.start(attempt.timeout_ms / 1000)
            limit.lookup = InlineLookup(attempt.callee.fn(*attempt.args, **attempt.kwargs), context)
            value = await _within(limit, limit.lookup)
        else:
            async with self.seats:
                value = await self._in_thread(attempt, context)
        if hasattr(value, "__await__") or type(value) in GENERATORS:
            raise never_awaited(value, attempt.callee.fn)
        point("call:after", (attempt.label,))
        return value

    def _span(self, attempt: CallAttempt, *, asks: bool = False) -> AbstractContextManager[Any]:
        """Return a span for a call, or an empty context if tracing is off."""
        if self._traces is None:
            return nullcontext()
        callee = attempt.callee
        ids = (attempt.tenant, attempt.run_id, callee.name, attempt.key, attempt.number)
        paid = isinstance(callee, Activity) and callee.durable
        named = tool_call.get()
        return self._traces.call(*ids, model=paid, asks=asks, tool_call=named, secrets=lambda: _secrets(attempt))

    async def as_call(
        self, attempt: CallAttempt, fn: Callable[..., Awaitable[Any]], evidence: Sequence[LateAnswer] = ()
    ) -> Any:
        """Run a reconcile in the context of a call: `this_call()` returns it with all its evidence."""
        call = PendingCall(attempt, self._clock).call()
        token = current_call.set(replace(call, reconciling=True, evidence=tuple(evidence)))
        try:
            with self._span(attempt, asks=True):
                return await self._limited(fn, attempt)
        finally:
            current_call.reset(token)

    def overdue(self, since_s: float) -> dict[asyncio.Task[Any], CallTimeout]:
        """Return the timeouts that ended `since_s` ago, by task, of calls that still run."""
        latest = asyncio.get_running_loop().time() - since_s
        return {limit.task: limit for limit in self._timeouts.under_way if limit.ends < latest}

    async def _limited(self, fn: Callable[..., Awaitable[Any]], attempt: CallAttempt) -> Any:
        """Call a function of the author. Raises its error, TimeoutError after the timeout of the attempt."""
        limit = self._timeouts.start(attempt.timeout_ms / 1000)
        return await _within(limit, fn(*attempt.args, **attempt.kwargs))

    async def _run(self, attempt: CallAttempt) -> Any:
        callee = attempt.callee
        point("call:before", (attempt.label,))
        if callee.is_async:
            self._check(attempt.permit)
            if attempt.sending is not None:
                attempt.sending.begun()
            value = await self._limited(callee.fn, attempt)
        else:
            value = await self._in_thread(attempt, contextvars.copy_context())
        if hasattr(value, "__await__") or type(value) in GENERATORS:
            raise never_awaited(value, callee.fn)
        point("call:after", (attempt.label,))
        return value

    async def _in_thread(self, attempt: CallAttempt, context: contextvars.Context) -> Any:
        loop = asyncio.get_running_loop()

        def send() -> Any:
            self._check(attempt.permit)
            if attempt.sending is not None:
                loop.call_soon_threadsafe(attempt.sending.begun)
            try:
                return attempt.callee.fn(*attempt.args, **attempt.kwargs)
            except BaseException as error:  # wrapped here, because no signal handler runs in this thread
                raise as_exception(error)  # noqa: B904 - it names its cause

        begun = self._pool.submit(send, context)
        future = asyncio.wrap_future(begun)
        done, _ = await asyncio.wait([future], timeout=attempt.timeout_ms / 1000)
        if not done and begun.cancel():
            raise NoPlace("no thread was free for it")
        if not done:
            self._pool.abandon()
            raise Abandoned(f"the thread still runs after {attempt.timeout_ms / 1000:g} s")
        return future.result()

    def _check(self, permit: Permit | None) -> None:
        if permit is not None and (why := permit.refusal(self._clock)):
            raise _TooLate(why)


async def _within(limit: CallTimeout, call: Awaitable[Any]) -> Any:
    """Await a call of the author. Raises its error, TimeoutError if the timeout has cancelled it."""
    try:
        return await call
    except asyncio.CancelledError as error:
        if limit.stop():
            raise TimeoutError from error
        raise
    finally:
        limit.stop()


def _asked(call: PendingCall) -> tuple[str, tuple[Used, ...]]:
    """Return the model that a call has asked, and what it has used so far."""
    return (asked_model(call.made), usage_of(call.made)) if call.made is not None else ("", ())


def _secrets(attempt: CallAttempt) -> frozenset[str]:
    """Return the arguments that are passed under the name of a secret."""
    names = inspect.signature(attempt.callee.fn).parameters
    given = {**dict(zip(names, attempt.args, strict=False)), **attempt.kwargs}
    return secrets_in(to_jsonable_python(given, fallback=str))


class Endless(TimeoutError):
    """A lookup ignored the end of its timeout, and is not made again."""


class Abandoned(TimeoutError):
    """A thread outlived its timeout. It may still send, so only a person can settle the effect."""

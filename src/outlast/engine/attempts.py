"""One attempt of a call: the last check, the author's function with its timeout, and its outcome.

Theory of operation. An outcome is a statement about the receiver, made from what the function did here. It must never
say "not sent" of a call that may have been sent. Faults, and why it does not:

1. *The lease ends between the intent and the call.* `_check` reads the clocks in the thread that is about to call,
   after the last wait for a thread. Only then is the outcome `Unsent` (`TOO_LATE`).
2. *A thread outlives its timeout.* No thread can be stopped, and it may still send. The outcome is `Maybe`,
   abandoned: only a person settles it. The pool gets another thread (`thread_pool`).
3. *A function waits for a thread until its timeout.* Its future is cancelled before it began, which proves that
   nothing was sent (`NoPlace`).
4. *A coroutine swallows its cancellation.* `overruns` leaves it behind later; until then it occupies its place.
5. *A function returned before its work has run*, as a coroutine or a generator. Its code before the return may have
   acted, so the outcome is `Maybe`, abandoned.
6. *An error names a secret argument.* Its text is redacted here, because the detail is stored and shown.
"""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from outlast.core.clock_port import Clock
from outlast.core.crash_points import point
from outlast.core.effect_steps import Answered, Maybe, Outcome, Unsent
from outlast.core.effect_verbs import TOO_LATE
from outlast.core.usage import Used
from outlast.engine.call_errors import CallErrors
from outlast.engine.call_outcome import judge
from outlast.engine.call_timeouts import CallTimeout, CallTimeouts, InlineLookup
from outlast.engine.lease import Permit
from outlast.engine.local_limits import NoPlace
from outlast.engine.send_window import Sending
from outlast.engine.thread_pool import DaemonPool
from outlast.engine.user_code import as_exception
from outlast.flow.activity import Activity
from outlast.flow.calls import Call, LateAnswer, asked_model, current_call, stated_id, tool_call, usage_of
from outlast.flow.functions import GENERATORS, NeverAwaited, never_awaited
from outlast.flow.options import Callee
from outlast.telemetry.redact import redact, secrets_in
from outlast.telemetry.traces import Traces


class Abandoned(TimeoutError):
    """A thread outlived its timeout. It may still send, so only a person can settle the effect."""


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
                attempt.sending.started()
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
                loop.call_soon_threadsafe(attempt.sending.started)
            try:
                return attempt.callee.fn(*attempt.args, **attempt.kwargs)
            except BaseException as error:  # wrapped here, because no signal handler runs in this thread
                raise as_exception(error)  # noqa: B904 - it names its cause

        job = self._pool.submit(send, context)
        future = asyncio.wrap_future(job)
        done, _ = await asyncio.wait([future], timeout=attempt.timeout_ms / 1000)
        if not done and job.cancel():
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

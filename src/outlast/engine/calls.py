"""One attempt of a call: the last-instant check, the author's function under its timeout, and how it ended."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from outlast.core.clock import Clock
from outlast.core.ledger import TOO_LATE
from outlast.core.points import point
from outlast.engine.lease import Permit
from outlast.engine.outcome import Answered, Maybe, Outcome, Unsent, judge
from outlast.engine.pool import DaemonPool
from outlast.engine.send_window import Sending
from outlast.engine.user_code import as_exception
from outlast.flow.activity import Activity
from outlast.flow.callee import Callee
from outlast.flow.calls import Call, LateAnswer, current_call, stated_id
from outlast.flow.outcomes import NotSent
from outlast.telemetry.redact import redact, secrets_in
from outlast.telemetry.traces import Traces


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
        paid = isinstance(callee, Activity) and callee.paid
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

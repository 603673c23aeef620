"""The handle of one run: wait for its result, follow its events, act on it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel

from outlast.core.argument_checks import Arguments
from outlast.core.codec import codec_of, plain_json
from outlast.core.durations import DAY, SECOND, Duration, span, timedelta_of
from outlast.core.machine import RunStatus
from outlast.errors import InvalidInput, NotStorable, RunCancelled, RunFailed, WaitTimeout
from outlast.models.runs import CloudEvent, EndedRun, RunDelta, RunDetail, RunSummary

T = TypeVar("T")
Timeout = Duration | float
"""A `timedelta`, text such as "10m", or seconds."""


TIMEOUT_S_MAX: Final = 36_500 * DAY / SECOND


def seconds_of(timeout: Timeout | None) -> float | None:
    """Return a timeout in seconds; None for no limit. Raises InvalidInput."""
    if timeout is None:
        return None
    given = timeout if isinstance(timeout, float | int) else timedelta_of("timeout", timeout).total_seconds()
    Arguments("timeout", of_call=True).amount("timeout", given, 0, TIMEOUT_S_MAX)
    return given


def plain_payload(payload: object) -> Mapping[str, Any]:
    """Return a payload as plain JSON members: of a model, a mapping, a dataclass. Raises NotStorable, InvalidInput."""
    try:
        if isinstance(payload, BaseModel):
            codec = codec_of(type(payload))
            codec.dump(payload)  # names a part of another class, which would be sent without fields
            # a model that refuses its computed fields would never take the signal, and its run would wait on
            plain = plain_json(payload, by_alias=True, exclude_computed=codec.leaves_out)
        else:
            plain = plain_json(payload, by_alias=True)
    except NotStorable as error:
        raise NotStorable("the payload of a signal cannot be stored", error.why, "send a model or a dict") from error
    if not isinstance(plain, dict):
        raise InvalidInput(
            "the payload of a signal has no fields",
            f"it is a {type(payload).__name__}, and `ctx.receive` reads it as a model",
            'send a model or a dict, e.g. {"value": …}',
        )
    return plain


class RunClient(Protocol):
    """The methods of `Client` that a handle calls. They are described there."""

    async def run(self, run: str) -> RunDetail: ...
    async def run_summary(self, run: str) -> RunSummary: ...
    async def run_end(self, run: str, *, within_s: float | None = None) -> EndedRun | None: ...
    async def _seen(self, run: str) -> RunSummary | None: ...
    def follow(self, run: str, *, after: int = 0) -> AsyncGenerator[str]: ...
    def updates(self, run: str, *, after: int = 0) -> AsyncGenerator[str | RunDelta]: ...
    async def signal(self, run: str, name: str, payload: Mapping[str, Any], *, signal_id: str = "") -> bool: ...
    async def cancel(self, run: str, *, reason: str, idempotency_key: str = "") -> None: ...


class RunHandle(Generic[T]):
    """One run, as `client.start` and `client.get` return it. `T` is the type of its outcome.

    A handle holds no connection and no state of the run: each method asks the client. `id` is the run's id, `workflow`
    the name of its workflow ('' if `client.get` was given an id alone). `created` is False if an earlier call with the
    same key had started the run.
    """

    def __init__(
        self,
        client: RunClient,
        id: str,  # noqa: A002 - the word of the attribute
        *,
        workflow: str = "",
        created: bool = True,
        decode: Callable[[Any], T] | None = None,
    ) -> None:
        """Call `client.start` or `client.get` instead. `decode` makes the outcome of its JSON."""
        self.client: Final = client
        self.id: Final = id
        self.workflow: Final = workflow
        self.created: Final = created
        self._decode = decode

    async def status(self) -> RunSummary:
        """Return the run as lists show it: status, node, waits, attention. Raises NotFound."""
        return await self.client.run_summary(self.id)

    async def detail(self) -> RunDetail:
        """Return the run with visits, counts and progress; with its outcome, once it has ended. Raises NotFound."""
        return await self.client.run(self.id)

    async def result(self, timeout: Timeout | None = None) -> T:
        """Wait until the run has ended and return its outcome, in the type that the workflow declares.

        Waiting goes on while the run waits for a person, an approval or a worker. `timeout` limits it: a `timedelta`,
        text such as "10m", or seconds; None waits without a limit. The run is not affected by the end of the wait.

        Raises RunFailed, RunCancelled, NotFound, NotStorable (the outcome does not fit the type), and WaitTimeout,
        which names what the run waits for.
        """
        within_s = seconds_of(timeout)
        end = await self.client.run_end(self.id, within_s=within_s)
        if end is None:
            raise _not_ended(self.id, await self.client._seen(self.id), within_s or 0.0)
        if end.status is RunStatus.COMPLETED:
            outcome: T = end.outcome if self._decode is None else self._decode(end.outcome)
            return outcome
        raise _no_result(self.id, end)

    async def events(self, *, after: int = 0) -> AsyncGenerator[CloudEvent, None]:
        """Yield the events of the run, live, until it has ended. `after`: the number of the last event not wanted."""
        async with aclosing(self.client.follow(self.id, after=after)) as texts:
            async for text in texts:
                yield CloudEvent.model_validate_json(text)

    async def updates(self, *, after: int = 0) -> AsyncGenerator[CloudEvent | RunDelta]:
        """Yield as `events`, and each text that the run streams (`ctx.stream`) as it comes.

        `after` is that of `events`. Texts are sent once and not stored: a reader that lags or is disconnected loses
        some. The answer that they lead to is in the run.
        """
        async with aclosing(self.client.updates(self.id, after=after)) as updates:
            async for each in updates:
                yield each if isinstance(each, RunDelta) else CloudEvent.model_validate_json(each)

    async def signal(self, name: str, payload: BaseModel | Mapping[str, Any] | object, *, signal_id: str = "") -> bool:
        """Send a signal, which `ctx.receive` of this `name` reads.

        `payload` is a model, a mapping, or another value with fields. Signals of one `signal_id` are delivered once;
        the return value is False for a repetition. Raises NotFound, Conflict (the run has ended), InvalidInput,
        NotStorable.
        """
        return await self.client.signal(self.id, name, plain_payload(payload), signal_id=signal_id)

    async def cancel(self, reason: str, *, idempotency_key: str = "") -> None:
        """Request the cancellation of the run. A worker undoes its effects before it ends.

        `reason` is kept in the history. Calls with the same `idempotency_key` are one request. Raises NotFound,
        Conflict (the run has ended), InvalidInput.
        """
        await self.client.cancel(self.id, reason=reason, idempotency_key=idempotency_key)

    def __repr__(self) -> str:
        return f"<run {self.id}{f' of {self.workflow}' if self.workflow else ''}>"


def _not_ended(run_id: str, run: RunSummary | None, within_s: float) -> WaitTimeout:
    why, fix = "its state could not be read in time", f"wait again, or look at it: outlast explain {run_id}"
    if run is not None:
        why = f"{run.shown}: {run.waiting_text}"
    if run is not None and not run.served:
        unserved = f"no worker serves {run.lane}"
        why += "" if unserved in why else f"; {unserved}"
        fix = "start a worker: outlast worker MODULE; or, in this process: async with client.worker([…])"
    return WaitTimeout(f"run {run_id} has not ended after {span(round(within_s * SECOND))}", why, fix)


def _no_result(run: str, end: EndedRun) -> RunFailed:
    kept = f"\nnot undone: {', '.join(end.not_undone)}" if end.not_undone else ""
    why, fix = f"{end.reason}{kept}", f"look at it: outlast explain {run}; to try again, start a run with a new key"
    if end.status is RunStatus.CANCELLED:
        return RunCancelled(f"run {run} was cancelled", why, fix, run=run, reason=end.reason)
    return RunFailed(f"run {run} has failed", why, fix, run=run, reason=end.reason)

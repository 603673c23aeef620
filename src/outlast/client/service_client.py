"""The client of a service, over HTTP."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

import httpx2
from typing_extensions import override

from outlast.client.event_frames import BrokenStream
from outlast.client.parts import move_each
from outlast.client.service_connection import LOST, REPEATS_S, UNSENT, ServiceConnection
from outlast.client.service_webhooks import ServiceWebhooks
from outlast.clocks import SystemClock, new_id
from outlast.core.attention import check_many
from outlast.core.compensation import NO_UNDO
from outlast.core.durations import SECOND, Liveness
from outlast.core.events import ENDINGS
from outlast.core.machine import TERMINAL, EffectStatus, Reason, RunStatus
from outlast.core.paging import pages
from outlast.core.start_details import StartOptions, check_details
from outlast.errors import Busy, InvalidInput, NotFound, Unavailable
from outlast.flow.workflow import Workflow
from outlast.models import exact_instant
from outlast.models.approvals import ApprovalSummary
from outlast.models.attention import AnsweredRuns, AnswerList, RunAttention
from outlast.models.effects import EffectRecord
from outlast.models.runs import (
    CloudEvent,
    EndedRun,
    RunDelta,
    RunStarted,
    RunSummary,
)
from outlast.models.service import (
    WorkflowDetail,
)
from outlast.operations import OPERATIONS
from outlast.operations.approval_operations import (
    DECIDE_APPROVAL,
    DecideApproval,
)
from outlast.operations.attention_operations import (
    RESOLVE_ATTENTION,
    RESOLVE_ATTENTION_OF_MANY,
    ResolveAttention,
    ResolveAttentionOfMany,
)
from outlast.operations.declaration import OperationRequest
from outlast.operations.effect_operations import RESOLVE_EFFECT, ResolveEffect
from outlast.operations.handlers import handlers_of, handles
from outlast.operations.run_operations import (
    GetWorkflow,
    StartRun,
)
from outlast.runtime.client import Client, Given, end_of

T = TypeVar("T")
R = TypeVar("R")
POLL_S: Final = (0.1, 1.0)
"""First and longest interval of polls. A service announces the end of a run, but no other change."""
PAGE: Final = 1_000
LOOK_S: Final = 0.5
"""Time for one read of a run whose wait has a shorter timeout, or at the end of it."""
BACK_OFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
log: Final = logging.getLogger("outlast.client")


class StreamOutage:
    """Attempts to reopen a stream, which last until the connection's timeout without a sign of the service.

    A stream that only opens is no sign, because any peer can open and end one.
    """

    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection
        self._clock = SystemClock()
        self._opened = self._reported = False
        self._since: int | None = None
        self._failures = 0

    def received(self, *, opened: bool) -> None:
        """Note that the stream was opened, or that it has brought an event, a text or a comment."""
        self._opened = True
        if not opened:
            self._since, self._failures, self._reported = None, 0, False

    def noticed(self) -> None:
        """Note that the stream has ended."""
        self._since = self._clock.mono() if self._since is None else self._since

    def answered(self) -> None:
        """Note another answer of the service. The next attempt still waits longer than the last."""
        self._since = None

    def may_last(self, error: Exception) -> bool:
        """Return True if a further attempt may be made after an error."""
        assert self._since is not None
        most_s = self._connection.timeout_s
        if not self._opened and isinstance(error, UNSENT):
            most_s = self._connection.unsent_s
        elif not self._opened and (not isinstance(error, LOST) or self._failures >= len(REPEATS_S)):
            return False
        return (self._clock.mono() - self._since) / SECOND + self._pause_s < most_s

    def is_news(self) -> bool:
        """Return True once for an outage of a stream that was open."""
        first, self._reported = self._opened and not self._reported, self._reported or self._opened
        return first

    @property
    def _pause_s(self) -> float:
        return BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)]

    def wait_s(self) -> float:
        """Return the wait before the next attempt."""
        pause_s = self._pause_s
        self._failures += 1
        return pause_s


class ServiceClient(Client):
    """Client of one service. `lost` is called with a message when a stream breaks off and is reopened."""

    me = "you"
    has_code = False
    scheduler = ""

    def __init__(self, connection: ServiceConnection, lost: Callable[[str], None] = log.warning) -> None:
        self.connection = connection
        self._lost = lost
        self._clock = SystemClock()
        self._webhooks = ServiceWebhooks(connection)

    @property
    @override
    def webhooks(self) -> ServiceWebhooks:
        return self._webhooks

    @override
    async def _call(self, request: OperationRequest[R]) -> R:
        handler = COMPOSED.get(type(request))
        if handler is None:
            return await self.connection.call(request)
        answer: R = await handler(self, request)
        return answer

    @override
    async def _release(self) -> None:
        await self.connection.close()

    @override
    async def now(self) -> datetime:
        return exact_instant(self._clock.wall())

    @override
    async def until(self, read: Callable[[], Awaitable[T | None]], *, within_s: float | None = None) -> T | None:
        wait_s, longest_s = POLL_S
        try:
            async with asyncio.timeout(within_s):
                while (found := await read()) is None:
                    await asyncio.sleep(wait_s)
                    wait_s = min(wait_s * 1.2, longest_s)
                return found
        except TimeoutError:
            return None

    # --- runs ----------------------------------------------------------------------------------
    @override
    def worker(
        self,
        workflows: Sequence[Workflow[Any, Any, Any]],
        *,
        concurrency: int = 100,
        name: str = "",
        live: Liveness | None = None,
    ) -> AbstractAsyncContextManager[None]:
        raise InvalidInput(
            "a worker needs the store itself",
            f"{self.connection.base} is a service, and a worker writes to its store",
            'connect to the store, e.g. outlast.connect("postgresql://…"); or start outlast worker where the store is',
        )

    @override
    async def _start_run(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        given: Given,
        options: StartOptions,
    ) -> RunStarted:
        check_details(options.details)
        name = workflow if isinstance(workflow, str) else workflow.name
        try:
            data = given if isinstance(given, dict) else json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidInput("the input is not JSON", str(error), "correct it") from error
        start = StartRun(
            name,
            data,
            run_id=options.run_id or new_id(f"{name[:4]}_"),  # chosen here, so that a repeated request is the same run
            key=options.key,
            details=options.details,
            scheduler=options.scheduler or None,
        )
        return await self._call(start)

    @override
    async def ended(self, run: str, *, within_s: float | None = None) -> bool:
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(None if within_s is None else max(within_s, LOOK_S)) as waiting:
                if (await self.run_summary(run)).status in TERMINAL:
                    return True
                if within_s is not None:
                    waiting.reschedule(started + within_s)
                return await self._ends(run)
        except TimeoutError:
            if not waiting.expired():
                raise
            return False

    async def _ends(self, run: str) -> bool:
        try:
            async with aclosing(self.updates(run)) as updates:
                async for _ in updates:
                    pass
            return True
        except Busy:  # too many streams of this tenant: poll instead
            return await super().ended(run)

    @override
    async def run_end(self, run: str, *, within_s: float | None = None) -> EndedRun | None:
        clock = asyncio.get_running_loop().time
        end_s = None if within_s is None else clock() + within_s
        if not await self.ended(run, within_s=within_s):
            return None
        try:
            async with asyncio.timeout_at(None if end_s is None else max(end_s, clock() + LOOK_S)) as reading:
                return end_of(await self.run(run))
        except TimeoutError:
            if not reading.expired():
                raise
            return None

    @override
    async def _seen(self, run: str) -> RunSummary | None:
        try:
            async with asyncio.timeout(LOOK_S):
                return await self.run_summary(run)
        except (TimeoutError, Unavailable):
            return None

    @override
    async def follow(self, run: str, *, after: int = 0) -> AsyncGenerator[str]:
        async with aclosing(self.updates(run, after=after)) as updates:
            async for each in updates:
                if isinstance(each, str):
                    yield each

    async def _one_stream(
        self, run: str, after: int, outage: StreamOutage
    ) -> AsyncGenerator[tuple[int, str | RunDelta, bool]]:
        """Yield number and text of each event of one stream, and True with the last; a delta has the number 0."""
        async with aclosing(self.connection.updates(run, after)) as stream:
            async for number, update in stream:
                outage.received(opened=update is None)
                ended = number > 0 and CloudEvent.model_validate_json(str(update)).type in ENDINGS
                if update:
                    yield number, update, ended
                if ended:
                    return

    async def _rest(self, run: str, after: int) -> AsyncGenerator[str]:
        """Yield the further events of a run that has ended. Its stream may have ended before they were recorded."""
        more = True
        while more:
            page = await self.events(run, after=after)
            for event in page.events:
                if event.id != f"{run}/{after + 1}":
                    raise self.connection.away(BrokenStream("a page of events is not the next one of this run"))
                yield event.model_dump_json()
                after += 1
            more = bool(page.events) and not page.ended

    @override
    async def updates(self, run: str, *, after: int = 0) -> AsyncGenerator[str | RunDelta]:
        outage = StreamOutage(self.connection)
        while True:
            ended, over, news, gone = False, False, False, None
            try:
                async with aclosing(self._one_stream(run, after, outage)) as found:
                    async for number, update, last in found:
                        after, news, ended = number or after, news or number > 0, last
                        yield update
                if ended:
                    return
                outage.noticed()
                over = not news and (await self.run_summary(run)).status in TERMINAL
                outage.answered()
            except (httpx2.HTTPError, TimeoutError, Unavailable, Busy) as error:
                gone = error
            if gone is not None:
                outage.noticed()
                if not outage.may_last(gone):
                    raise gone if isinstance(gone, Busy) else self.connection.away(gone) from gone
                if outage.is_news():
                    self._lost(f"the stream broke off after event {after}; reconnecting")
            if over:
                break
            await asyncio.sleep(outage.wait_s())
        async with aclosing(self._rest(run, after)) as rest:
            async for text in rest:
                yield text

    @override
    async def to_undo(self, run: str) -> Sequence[str]:
        done = await self._done(run)
        return [f"{e.effect} {e.key}" for e in done if e.undo and not e.undo.startswith(NO_UNDO)]

    @override
    async def not_undone(self, run: str) -> Sequence[str]:
        kept = [e for e in await self._done(run) if not e.undo or e.undo.startswith(NO_UNDO)]
        return [f"{e.effect} {e.key}" + (f": {e.undo.removeprefix(NO_UNDO)}" if e.undo else "") for e in kept]

    async def _done(self, run: str) -> Sequence[EffectRecord]:
        return [e for e in reversed(await self.effects(run)) if e.status == EffectStatus.DONE and e.run == run]

    # --- effects -------------------------------------------------------------------------------
    @override
    async def effect(self, run: str, key: str, *, visit: int | None = None) -> EffectRecord:
        alike = [e for e in await self.effects(run) if e.key == key and visit in (None, e.visit)]
        if not alike:
            raise NotFound(
                f"run {run} has no effect {key}" + (f" in visit {visit}" if visit is not None else ""),
                "use the key that the ledger shows",
                f"outlast runs effects {run}",
            )
        return next((e for e in alike if e.status == EffectStatus.UNCERTAIN), alike[-1])

    # --- approvals -----------------------------------------------------------------------------
    # --- attention -----------------------------------------------------------------------------
    @override
    async def attention_of(self, run: str) -> Sequence[RunAttention]:
        summary = await self.run_summary(run)
        if not summary.attention:
            return []
        async for page in pages(partial(self.attention, workflow=summary.workflow)):
            if found := [item for item in page.attention if isinstance(item, RunAttention) and item.run == run]:
                return found
        return []

    # --- the store -----------------------------------------------------------------------------
    @override
    async def input_schema(self, workflow: str) -> Mapping[str, Any]:
        found = await self._workflow(workflow)
        return found.input_schema if found is not None else {}

    @override
    async def topology(self, workflow: str, lane: str) -> Mapping[str, Any] | None:
        found = await self._workflow(workflow)
        return found.topology if found is not None and found.lane == lane else None

    async def _workflow(self, name: str) -> WorkflowDetail | None:
        try:
            return await self._call(GetWorkflow(name))
        except NotFound:
            return None

    @override
    async def unfinished(self, workflow: str, lane: str, *, limit: int = 0) -> Sequence[str]:
        found: dict[str, None] = {}
        for status in set(RunStatus) - TERMINAL:
            async for page in pages(partial(self.runs, status=status, workflow=workflow, limit=PAGE)):
                found |= dict.fromkeys(each.run for each in page.runs if each.lane == lane)
                if 0 < limit <= len(found):
                    return list(found)[:limit]
        return list(found)

    @override
    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str = "", reason: str
    ) -> AnsweredRuns:
        return await move_each(lambda run: self.move_run(run, workflow, version, node=node, reason=reason), runs)

    # --- operations of several requests --------------------------------------------------------
    @handles(DECIDE_APPROVAL)
    async def _decide(self, request: DecideApproval) -> ApprovalSummary:
        """Decide at the present version unless the caller names the one that was shown."""
        version = request.version or (await self.approval(request.approval)).version
        return await self.connection.call(replace(request, version=version))

    @handles(RESOLVE_EFFECT)
    async def _resolve_effect(self, request: ResolveEffect) -> None:
        """Find the visit of the effect, which its id has."""
        if not request.reason.strip():
            raise InvalidInput(
                "the service asks for a reason", "people will read it in the run's history", "say --reason …"
            )
        effect = await self.effect(request.run, request.key, visit=request.visit)
        found = replace(request, run=effect.run, visit=effect.visit)
        if request.answer != "happened":
            found = replace(found, external_id="", response=None)
        await self.connection.call(found)

    @handles(RESOLVE_ATTENTION)
    async def _resolve_attention(self, request: ResolveAttention) -> Reason:
        """Find the reason that the answer is for, because the response has the run only."""
        entries = (await self.run_summary(request.run)).attention
        await self.connection.respond(RESOLVE_ATTENTION, request)
        offered = [Reason(each.reason) for each in entries if request.choice in each.choices]
        return request.reason or next(iter(offered), Reason.EXCEPTION)

    @handles(RESOLVE_ATTENTION_OF_MANY)
    async def _resolve_attention_of_many(self, request: ResolveAttentionOfMany) -> AnswerList:
        check_many(len(request.runs), request.reason, request.choice)
        return await self.connection.call(request)


COMPOSED: Final = handlers_of(ServiceClient, [each for each in OPERATIONS if each.is_composed])
"""Operations that need more than their request. Every other one is sent as it is."""

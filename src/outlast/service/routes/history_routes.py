"""Routes for the history of runs: events as pages or streams, checkpoints, timeline, effects, results."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.durations import SECOND
from outlast.core.events import EventType
from outlast.core.rows.run_rows import Event, Run, is_over
from outlast.errors import BadRequest, Forbidden, InvalidInput, TooManyFailures, Unauthenticated, Unverifiable
from outlast.models import instant
from outlast.models.runs import Checkpoint, CheckpointList, EventList
from outlast.operations.run_operations import (
    LIST_CHECKPOINTS,
    LIST_EVENTS,
    ListCheckpoints,
)
from outlast.runtime.operations import Operations
from outlast.service.cursors import link_to_next
from outlast.service.declared_routes import DeclaredRouter, ServedCall
from outlast.service.event_stream import EventListener, EventStream, frame, notice, wants_stream
from outlast.service.identity import Principal, permit
from outlast.service.request_parts import Limit, RunId
from outlast.service.service_state import Ops, ServiceState, State

RECHECK_S: Final = 30.0
"""Time for which a stream may outlast the revocation of its credential, a role, or an issuer's key."""


Authenticate = Callable[[ServiceState, Request], Awaitable[Principal]]


async def by_header(state: ServiceState, request: Request) -> Principal:
    """Return the caller that the header Authorization names, as of now. Raises as `Authenticator.authenticate`."""
    client = request.client.host if request.client else ""
    return await state.authenticator.authenticate(request.headers.get("authorization", ""), client)


async def credential_ended(
    state: ServiceState, request: Request, operation: str = "", authenticate: Authenticate = by_header
) -> None:
    """Return once the credential of this request has expired or no longer permits the operation, by default its own."""
    principal: Principal = request.state.principal
    operation = operation or request.scope["route"].operation_id
    while await _allowed(state, request, principal, operation, authenticate):
        left_ms = principal.until_ms - state.clock.wall() if principal.until_ms else RECHECK_S * SECOND
        await asyncio.sleep(max(0.0, min(RECHECK_S, left_ms / SECOND)))


async def _allowed(
    state: ServiceState, request: Request, principal: Principal, operation: str, authenticate: Authenticate
) -> bool:
    if principal.until_ms and state.clock.wall() >= principal.until_ms:
        return False
    try:
        now = await authenticate(state, request)
        permit(now, operation)
    except (Unauthenticated, Forbidden):
        return False
    except (Unverifiable, TooManyFailures):
        return True  # not known to be revoked, and not expired
    return (now.tenant, now.name) == (principal.tenant, principal.name)


router = DeclaredRouter()
After = Annotated[int, Query(ge=0, le=2**53, description="Only items after this number.")]
Accept = Annotated[str | None, Header(max_length=1_000, include_in_schema=False)]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=100, description="In a stream: continue after this event.")
]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "A page, or a stream."},
    204: {"description": "Stream without further events: the run has ended and `Last-Event-ID` is its last event."},
}
PAGE = 500


@router.get(
    "/runs/{run}/events",
    operation_id="list_events",
    response_model=EventList,
    responses=STREAM,
    summary=LIST_EVENTS.summary,
    tags=[LIST_EVENTS.tag],
)
async def list_events(
    state: State,
    ops: Ops,
    run: RunId,
    request: Request,
    response: Response,
    after: After = 0,
    limit: Limit = 200,
    of_type: Annotated[
        str,
        Query(
            alias="type",
            max_length=100,
            description="Only this type; with `*` at its end, all that begin so.",
            examples=["dev.outlast.run.attention"],
        ),
    ] = "",
    accept: Accept = None,
    last: LastEventId = None,
) -> Any:
    """List events, oldest first. With `Accept: text/event-stream`, stream them until the run has ended.

    In the stream, `id` is the number of the event, and `Last-Event-ID` continues after it. An event `gap` is in
    place of those that were purged because the run keeps a window of its history. A heartbeat is sent every 15 s. When
    the credential expires, the stream ends with an event `credential`.
    """
    if wants_stream(accept):
        if of_type:
            raise InvalidInput("a stream has events of every type", "type selects those of a page", "leave type out")
        return await _stream(state, ops, request, await ops.run_row(run), _number(last, after))
    found = await ops.events(run, after=after, limit=limit, of_type=of_type)
    if found.next_cursor:
        link_to_next(request, response, after=found.next_cursor)
    return found


async def _stream(state: ServiceState, ops: Operations, request: Request, row: Run, after: int) -> Response:
    if after > row.seq and not is_over(row):  # e.g. the store was restored; silence would look like "no events"
        why = f"run {row.run} has {row.seq} events"
        raise BadRequest("Last-Event-ID does not belong to this stream", why, "start without it", refusal="bad_header")
    if is_over(row) and after >= row.seq:  # because an EventSource would reconnect every second after an empty 200
        return Response(status_code=204)
    listener = await state.broadcaster.listen(ops.tenant, row.run, *caller_of(request))
    frames = _of_run(ops, row.run, after, listener)
    return EventStream(
        frames, listener, leave=state.broadcaster.leave, expired=lambda: credential_ended(state, request)
    )


async def _of_run(ops: Operations, run: str, sent: int, listener: EventListener) -> AsyncIterator[bytes]:
    """Yield the existing events, then new ones, each once and in order."""
    while page := await ops.history(run, after=sent, limit=PAGE):
        yield b"".join(_from_floor(run, page, sent))
        sent = page[-1].seq
    row = await ops.run_row(run)
    if is_over(row) and sent >= row.seq:
        return
    while items := await listener.received():
        yield b"".join(data for seq, data in items if seq == 0 or seq > sent)
        sent = max(sent, *(seq for seq, _ in items))


def _from_floor(run: str, page: Sequence[Event], sent: int) -> Iterator[bytes]:
    """Yield events after a number, and a gap where those in between were purged behind the window of the run."""
    for event in page:
        if event.seq > sent + 1:
            yield notice("gap", {"why": f"the events before {event.seq} were purged", "read": f"/v1/runs/{run}"})
        yield frame(event, str(event.seq))
        sent = event.seq


@router.get(
    "/events",
    operation_id="stream_events",
    response_class=Response,
    summary="Events of all runs",
    tags=[LIST_EVENTS.tag],
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream_events(
    state: State, ops: Ops, request: Request, accept: Accept = None, last: LastEventId = None
) -> Response:
    """Stream the events of all runs of the tenant from now on. Requires `Accept: text/event-stream`.

    `Last-Event-ID` continues after an event of the last two minutes. If the events since then are no longer known, the
    first event is `gap`: read `GET /v1/runs`, and the events of the runs that matter.
    """
    if not wants_stream(accept):
        raise BadRequest(
            "this operation only answers with a stream",
            "it has no pages",
            "send Accept: text/event-stream",
            refusal="not_acceptable",
        )
    listener, missed = await state.broadcaster.listen_to_all(ops.tenant, last or "", *caller_of(request))
    frames = _of_all(missed, listener)
    return EventStream(
        frames, listener, leave=state.broadcaster.leave, expired=lambda: credential_ended(state, request)
    )


async def _of_all(missed: list[bytes] | None, listener: EventListener) -> AsyncIterator[bytes]:
    if missed is None:
        yield notice("gap", {"why": "the events since the last one are no longer known", "read": "/v1/runs"})
    if missed:
        yield b"".join(missed)
    while items := await listener.received():
        yield b"".join(data for _, data in items)


def _number(last: str | None, after: int) -> int:
    """Return the number of the event to continue after. Raises BadRequest if `Last-Event-ID` is not a number."""
    if not last:
        return after
    if not (last.isascii() and last.isdigit() and len(last) <= 15):
        raise BadRequest("Last-Event-ID does not belong to this stream", "ids are numbers", refusal="bad_header")
    return int(last)


def caller_of(request: Request) -> tuple[str, str]:
    """Return the name and the address of the caller."""
    return request.state.principal.name, request.client.host if request.client else ""


@router.answers(LIST_CHECKPOINTS)
async def list_checkpoints(call: ServedCall[ListCheckpoints]) -> CheckpointList:
    """List completed nodes, oldest first. After a crash, the run continues after the last one."""
    return CheckpointList(checkpoints=checkpoints_of(await call.ops.history(call.asked.run)))


def checkpoints_of(events: Iterable[Event]) -> list[Checkpoint]:
    """Return the checkpoints among the events of a run."""
    found = []
    for event in events:
        if event.type == EventType.CHECKPOINT:
            data = event.data()
            found.append(
                Checkpoint(
                    seq=event.seq,
                    node=data["completed"],
                    visit=event.visit - 1,
                    at=instant(event.at),
                    next=data["next"],
                )
            )
    return found

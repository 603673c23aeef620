"""Parts of every page: scripts, style sheet, the counts of the header, and the stream of refresh signals."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.machine import ApprovalStatus
from outlast.core.rows.run_rows import is_over
from outlast.service.event_stream import EventListener, EventStream
from outlast.service.routes.history_routes import caller_of, credential_ended
from outlast.service.service_state import Ops, State
from outlast.ui.live import PRESENT, signals
from outlast.ui.page_route import PageRoute
from outlast.ui.rendering import asset, packed, render, stamp
from outlast.ui.sessions import principal_of

router = APIRouter(prefix="/ui", route_class=PageRoute)
static = APIRouter(prefix="/ui/static")


@static.get("/{digest}/{name}", include_in_schema=False)
async def get_asset(request: Request, digest: str, name: str) -> Response:
    """Return a script or the style sheet. They are the same for all callers, and a changed file has another address.

    They contain no secrets, so they are compressed. Pages are not: their size would tell of their form tokens.
    """
    data, media_type, _ = asset(name)
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        data, headers["Content-Encoding"] = packed(name), "gzip"
    return Response(data, 200, headers, media_type)


@router.get("/nav", operation_id="ui:get_summary")
async def nav(ops: Ops, request: Request, at: Annotated[str, Query(max_length=2_000)] = "") -> Response:
    """Show the header's links with their counts, for the page `at`."""
    counts = await ops.summary()
    return await render(request, "nav.html", title="", versions={"nav": stamp(counts.version)}, counts=counts, here=at)


Of = Annotated[str, Query(max_length=120, pattern=r"^((run|approval):[A-Za-z0-9._-]+|approvals|attention|runs)$")]


@router.get("/live", operation_id="ui:stream_events")
async def live(state: State, ops: Ops, request: Request, of: Of = "runs") -> Response:
    """Stream refresh signals of a page: `changed`, and `ended` once nothing can change any more.

    While a page of an approval has its stream, the caller is present there.
    """
    await state.store.now()  # a page that connects says "live", so the store must answer
    kind, _, run = of.partition(":")
    approval = ""
    if kind == "approval":
        asked = await ops.approval_row(run)
        approval, run = asked.id if asked.status is ApprovalStatus.PENDING else "", asked.run
    if kind in ("run", "approval"):
        await ops.run_row(run)  # before a place is taken, because it raises NotFound
        listener = await state.broadcaster.listen(ops.tenant, run, *caller_of(request))
        with state.broadcaster.kept(listener):
            if is_over(await ops.run_row(run)):  # read again, because it may have ended since
                listener.end()
    else:
        listener, _ = await state.broadcaster.listen_to_all(ops.tenant, "", *caller_of(request))
    ends: list[Callable[[], None]] = [lambda: state.broadcaster.leave(listener)]
    if kind in ("approval", "approvals"):
        ends.append(state.presence.watch(ops.tenant, lambda: listener.push(0, PRESENT)))
    if approval:
        ends.append(state.presence.open(ops.tenant, approval, request.state.principal.name))

    def leave(_: EventListener) -> None:
        for end in ends:
            end()

    return EventStream(
        signals(listener, kind, lambda: state.summary_version(ops), lambda: len(state.broadcaster)),
        listener,
        leave=leave,
        expired=lambda: credential_ended(state, request, "stream_events", principal_of),
    )

"""The buyer's inbox: suppliers post their bids here, and each becomes a signal to its run."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outlast.errors import Conflict, NotFound, StoreError

from .letters import Bid, bid_signal

BODY_BYTES_MAX = 16 * 1024
"""A bid is a few hundred bytes; whatever is larger is no bid."""

RETRY_AFTER_S = 1

Posted: TypeAlias = Literal["accepted", "ended", "unknown", "conflict", "unavailable"]
"""What became of a signal: taken (now or earlier, under the same id) · the run has ended · there is no such run ·
this id came with another bid before · the store cannot be reached, nothing is known to be kept."""

Signal: TypeAlias = Callable[[str, str, dict[str, Any], str], Awaitable[Posted]]
"""Posts a signal: (run id, signal name, payload, signal id)."""

_ANSWERS: dict[Posted, tuple[int, str]] = {
    "accepted": (202, "taken"),
    "ended": (410, "this negotiation has ended"),
    "unknown": (404, "there is no such negotiation"),
    "conflict": (409, "this bid id came with another bid before"),
    "unavailable": (503, "not kept, send it again"),
}


def posting(leave: Callable[..., Awaitable[Any]]) -> Signal:
    """Return a function that sends bids with `signal` of a runtime or of its operations, and maps their errors."""

    async def post(run_id: str, name: str, payload: dict[str, Any], signal_id: str) -> Posted:
        try:
            await leave(run_id, name, payload, signal_id=signal_id)
        except NotFound:
            return "unknown"
        except Conflict:
            return "ended"
        except StoreError:
            return "unavailable"
        return "accepted"

    return post


def inbox_app(signal: Signal) -> Starlette:
    """The inbox over any way of posting a signal. The bid's id is the signal's id: sent twice, it is taken once.

    A bid is only acknowledged when `signal` has said so; OSError and TimeoutError from it are answered 503.
    """

    async def take(request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return JSONResponse({"detail": f"a bid has at most {BODY_BYTES_MAX} bytes"}, 413)
        try:
            bid = Bid.model_validate_json(body)
        except ValidationError as refused:
            return JSONResponse({"detail": "this is no bid", "problems": _problems(refused)}, 422)
        said = bid.model_dump(mode="json", exclude_unset=True)  # a field added later makes no old bid another one
        try:
            posted = await signal(request.path_params["run"], bid_signal(bid.cycle, bid.round), said, bid.bid_id)
        except OSError:  # TimeoutError and ConnectionError are OSErrors: the store is away
            posted = "unavailable"
        status, detail = _ANSWERS[posted]
        headers = {"Retry-After": f"{RETRY_AFTER_S}"} if status == 503 else {}
        return JSONResponse({"detail": detail, "bid_id": bid.bid_id}, status, headers)

    return Starlette(routes=[Route("/runs/{run}/bids", take, methods=["POST"])])


def answer_to(inbox: str, run_id: str) -> str:
    """Where the bids of a run go, on the inbox at this address."""
    return f"{inbox.rstrip('/')}/runs/{run_id}/bids"


async def _body(request: Request) -> bytes | None:
    """The body, or None as soon as it is too long: a sender cannot make the inbox hold more."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_BYTES_MAX:
                return None
    except ClientDisconnect:
        return b""
    return bytes(body)


def _problems(refused: ValidationError) -> list[str]:
    return [f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in refused.errors(include_url=False)]

"""The buyer's inbox: an ASGI app that turns each bid a supplier posts into a signal to its run."""

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
"""Largest accepted body. A bid has a few hundred bytes."""

RETRY_AFTER_S = 1

Posted: TypeAlias = Literal["accepted", "ended", "unknown", "conflict", "unavailable"]
"""Result of posting a signal.

`accepted`: stored, now or earlier with the same id. `ended`: the run has ended. `unknown`: the run does not exist.
`conflict`: the id was used for another bid. `unavailable`: the store cannot be reached, so the bid may not be stored.
"""

Signal: TypeAlias = Callable[[str, str, dict[str, Any], str], Awaitable[Posted]]
"""Function that posts a signal: (run id, signal name, payload, signal id)."""

_ANSWERS: dict[Posted, tuple[int, str]] = {
    "accepted": (202, "taken"),
    "ended": (410, "this negotiation has ended"),
    "unknown": (404, "there is no such negotiation"),
    "conflict": (409, "this bid id came with another bid before"),
    "unavailable": (503, "not kept, send it again"),
}


def posting(send: Callable[..., Awaitable[Any]]) -> Signal:
    """Return a Signal that calls `signal` of a runtime or of its operations, and translates its errors."""

    async def post(run_id: str, name: str, payload: dict[str, Any], signal_id: str) -> Posted:
        try:
            await send(run_id, name, payload, signal_id=signal_id)
        except NotFound:
            return "unknown"
        except Conflict:
            return "ended"
        except StoreError:
            return "unavailable"
        return "accepted"

    return post


def inbox_app(signal: Signal) -> Starlette:
    """Return the inbox as an ASGI app that posts each bid with `signal`.

    The bid's id is the signal's id, so a bid that is sent twice is accepted once. A bid is acknowledged only after
    `signal` has returned. If it raises OSError or TimeoutError, the answer is 503.
    """

    async def take(request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return JSONResponse({"detail": f"a bid has at most {BODY_BYTES_MAX} bytes"}, 413)
        try:
            bid = Bid.model_validate_json(body)
        except ValidationError as refused:
            return JSONResponse({"detail": "this is no bid", "problems": _problems(refused)}, 422)
        said = bid.model_dump(mode="json", exclude_unset=True)
        try:
            posted = await signal(request.path_params["run"], bid_signal(bid.cycle, bid.round), said, bid.bid_id)
        except OSError:  # TimeoutError and ConnectionError are OSErrors
            posted = "unavailable"
        status, detail = _ANSWERS[posted]
        headers = {"Retry-After": f"{RETRY_AFTER_S}"} if status == 503 else {}
        return JSONResponse({"detail": detail, "bid_id": bid.bid_id}, status, headers)

    return Starlette(routes=[Route("/runs/{run}/bids", take, methods=["POST"])])


def answer_to(inbox: str, run_id: str) -> str:
    """Return the address for the bids of a run, on the inbox at this address."""
    return f"{inbox.rstrip('/')}/runs/{run_id}/bids"


async def _body(request: Request) -> bytes | None:
    """Return the body, or None if it is too long. At most one chunk beyond the limit is held in memory."""
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

"""The suppliers' mailboxes over HTTP: every request is recorded first, then handed to its supplier's desk."""

import contextlib
import hashlib
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..letters import Feedback, Invitation
from ..record import KINDS, Kind, read, summary
from .behaviour import Scenario
from .desk import BROKEN_OFF, LETTERS, Desk, Letter, Reply
from .journal import Journal
from .post import Post

NO_LINGER = struct.pack("ii", 1, 0)
"""Closing a socket with this option sends a reset instead of a goodbye."""


def market_app(scenario: Scenario, record: Path) -> ASGIApp:
    """The market of a scenario, recording to a file. An existing record restores its state."""
    journal = Journal(record)
    desks: dict[str, Desk] = {}

    @contextlib.asynccontextmanager
    async def open_for_business(_: Starlette) -> AsyncIterator[None]:
        post = Post(journal)
        desks.update({name: Desk(name, behaviour, journal, post) for name, behaviour in scenario.suppliers.items()})
        before = read(journal.path)
        for desk in desks.values():
            desk.remember(before)
        yield
        await post.close()
        journal.close()

    async def take(request: Request) -> Response:
        return await _take(request, desks, journal)

    async def recall(request: Request) -> Response:
        desk = desks.get(request.path_params["supplier"])
        return _answer(desk.recall(request.path_params["key"])) if desk else _answer(_nobody(request))

    async def counts(request: Request) -> Response:
        totals = summary(read(journal.path), request.query_params.get("run"))
        return JSONResponse({kind: count.model_dump() for kind, count in totals.items()})

    routes = [
        Route("/suppliers/{supplier}/requests/{key:path}", recall, methods=["GET"]),
        Route("/suppliers/{supplier}/{kind}", take, methods=["POST"]),
        Route("/record", counts, methods=["GET"]),
    ]
    return _breakable(Starlette(routes=routes, lifespan=open_for_business))


async def _take(request: Request, desks: dict[str, Desk], journal: Journal) -> Response:
    supplier, kind = request.path_params["supplier"], _kind(request.path_params["kind"])
    if kind is None:
        return JSONResponse({"detail": f"a supplier takes {', '.join(KINDS)}"}, 404)
    body = await request.body()
    letter, wrong = _letter(kind, body)
    arrival = journal.arrived(
        supplier=supplier,
        kind=kind,
        key=request.headers.get("Idempotency-Key", ""),
        sha256=hashlib.sha256(body).hexdigest(),
        size=len(body),
        run_id=letter.run_id if letter else "",
        round_number=letter.round if isinstance(letter, Invitation | Feedback) else 0,
    )
    desk = desks.get(supplier)
    if desk is None:
        reply = _nobody(request)
    elif not arrival.key:
        reply = Reply(400, {"detail": "a request needs an Idempotency-Key"})
    elif letter is None:
        reply = Reply(422, {"detail": wrong})
    else:
        reply = await desk.handle(arrival, letter)
    journal.answered(arrival, reply.status, deduped=reply.deduped)
    if reply.status == BROKEN_OFF:
        request.scope["negotiation.break"]()
    return _answer(reply)


def _kind(name: str) -> Kind | None:
    return next((kind for kind in KINDS if kind == name), None)


def _letter(kind: Kind, body: bytes) -> tuple[Letter | None, str]:
    try:
        return LETTERS[kind].model_validate_json(body), ""
    except ValidationError as refused:
        return None, "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in refused.errors())


def _nobody(request: Request) -> Reply:
    return Reply(404, {"detail": f"there is no supplier {request.path_params['supplier']!r} here"})


def _answer(reply: Reply) -> Response:
    return JSONResponse(reply.body, reply.status or 500, reply.headers)


def _breakable(app: ASGIApp) -> ASGIApp:
    """Lets a handler break the connection as a dying peer does, by the transport that uvicorn keeps behind `send`."""

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        def break_off() -> None:
            transport = getattr(getattr(send, "__self__", None), "transport", None)
            assert transport is not None, "the market must be served by uvicorn to break connections"
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            transport.abort()

        await app({**scope, "negotiation.break": break_off}, receive, send)

    return outer

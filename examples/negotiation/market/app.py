"""The suppliers' mailboxes over HTTP. Each request is recorded, then handled by its supplier."""

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
from .bid_sender import BidSender
from .journal import Journal
from .simulated_supplier import BROKEN_OFF, LETTERS, Letter, Reply, SimulatedSupplier

NO_LINGER = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with which closing a socket sends a reset."""


def market_app(scenario: Scenario, record: Path) -> ASGIApp:
    """Return the market of a scenario. If the record exists, the market continues from it."""
    journal = Journal(record)
    suppliers: dict[str, SimulatedSupplier] = {}

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sender = BidSender(journal)
        for name, behaviour in scenario.suppliers.items():
            suppliers[name] = SimulatedSupplier(name, behaviour, journal, sender)
        before = read(journal.path)
        for supplier in suppliers.values():
            supplier.restore(before)
        yield
        await sender.close()
        journal.close()

    async def take(request: Request) -> Response:
        return await _take(request, suppliers, journal)

    async def recall(request: Request) -> Response:
        supplier = suppliers.get(request.path_params["supplier"])
        return _answer(supplier.recall(request.path_params["key"]) if supplier else _unknown(request))

    async def counts(request: Request) -> Response:
        totals = summary(read(journal.path), request.query_params.get("run"))
        return JSONResponse({kind: count.model_dump() for kind, count in totals.items()})

    routes = [
        Route("/suppliers/{supplier}/requests/{key:path}", recall, methods=["GET"]),
        Route("/suppliers/{supplier}/{kind}", take, methods=["POST"]),
        Route("/record", counts, methods=["GET"]),
    ]
    return _breakable(Starlette(routes=routes, lifespan=lifespan))


async def _take(request: Request, suppliers: dict[str, SimulatedSupplier], journal: Journal) -> Response:
    name, kind = request.path_params["supplier"], _kind(request.path_params["kind"])
    if kind is None:
        return JSONResponse({"detail": f"a supplier takes {', '.join(KINDS)}"}, 404)
    body = await request.body()
    letter, wrong = _letter(kind, body)
    arrival = journal.arrived(
        supplier=name,
        kind=kind,
        key=request.headers.get("Idempotency-Key", ""),
        sha256=hashlib.sha256(body).hexdigest(),
        size=len(body),
        run_id=letter.run_id if letter else "",
        round_number=letter.round if isinstance(letter, Invitation | Feedback) else 0,
    )
    supplier = suppliers.get(name)
    if supplier is None:
        reply = _unknown(request)
    elif not arrival.key:
        reply = Reply(400, {"detail": "a request needs an Idempotency-Key"})
    elif letter is None:
        reply = Reply(422, {"detail": wrong})
    else:
        reply = await supplier.handle(arrival, letter)
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


def _unknown(request: Request) -> Reply:
    return Reply(404, {"detail": f"there is no supplier {request.path_params['supplier']!r} here"})


def _answer(reply: Reply) -> Response:
    return JSONResponse(reply.body, reply.status or 500, reply.headers)


def _breakable(app: ASGIApp) -> ASGIApp:
    """Let a handler reset the connection, through the transport that uvicorn keeps behind `send`."""

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        def break_off() -> None:
            transport = getattr(getattr(send, "__self__", None), "transport", None)
            assert transport is not None, "the market must be served by uvicorn to break connections"
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            transport.abort()

        await app({**scope, "negotiation.break": break_off}, receive, send)

    return outer

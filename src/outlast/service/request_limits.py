"""Limits on the head and body of each request, and the middleware that applies them (S17, S31)."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outlast.clocks import new_id
from outlast.core.limits import KIB
from outlast.errors import BadRequest, OutlastError
from outlast.service import problems
from outlast.service.event_stream import HEAD_ONLY
from outlast.service.problems import ProblemError
from outlast.service.strict_json import check_shape, read_json

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
CLOSE: Final = {"Connection": "close"}
"""Headers of an answer to a body that was not read to its end. Its rest must not be parsed as a request."""


@dataclass(frozen=True)
class Bounds:
    """Limits of one request, in bytes, counts and seconds."""

    body_bytes: int = KIB * KIB
    body_s: float = 30.0
    head_s: float = 30.0
    header_bytes: int = 16 * KIB
    headers: int = 100
    url_bytes: int = 8 * KIB


async def read_body(request: Request, bounds: Bounds, *, form: bool = False) -> int:
    """Read the body within its limits, keep it for `request.body()`, and return its size. `form`: not JSON but a form.

    Raises BadRequest, or ProblemError if the connection has to be closed because the body was not read to its end.
    """
    try:
        body = await _whole(request, bounds)
    except BadRequest as error:
        raise ProblemError(error, more={}, headers=CLOSE) from None
    request._body = body  # where Starlette itself caches a body
    if body:
        _check_media_type(request.headers.get("content-type", ""), FORM if form else JSON)
        if not form:
            check_shape(body)
    return len(body)


def parse_body(request: Request) -> None:
    """Parse the body that was read and cache the value for `request.json()`. Raises BadRequest."""
    if body := request._body:
        request._json = _parsed(body)


def parsed_body(request: Request) -> Any:
    """Return the parsed body, or None without a parsed body."""
    return getattr(request, "_json", None)


async def _whole(request: Request, bounds: Bounds) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > bounds.body_bytes:
        raise _too_large(bounds)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(bounds.body_s):
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > bounds.body_bytes:
                    raise _too_large(bounds)
    except TimeoutError:
        why = f"the limit is {bounds.body_s:g} s"
        raise BadRequest("the body arrived too slowly", why, "send it faster", refusal="too_slow") from None
    except ClientDisconnect:
        raise BadRequest("the body ended early", refusal="too_slow") from None
    return b"".join(chunks)


def _parsed(body: bytes) -> Any:
    try:
        return read_json(body)
    except JSONDecodeError as error:
        why = f"character {error.pos + 1}: {error.msg}"
    except UnicodeDecodeError as error:
        why = f"byte {error.start + 1} is not UTF-8"
    except (ValueError, RecursionError) as error:
        why = str(error)
    raise BadRequest("the body is not JSON", why, "send JSON in UTF-8", refusal="not_json")


def _check_media_type(value: str, wanted: str) -> None:
    name = value.partition(";")[0].strip().lower()
    if name != wanted:
        why = f"its type is {name[:100]}" if name else "it has no Content-Type"
        what = "the body must be JSON" if wanted == JSON else "the body must be a form"
        raise BadRequest(what, why, f"Content-Type: {wanted}", refusal="media_type")


def _too_large(bounds: Bounds) -> BadRequest:
    return BadRequest(
        "the body is too large",
        f"at most {bounds.body_bytes:,} bytes",
        "store large values elsewhere (file, object store) and send their URL",
        refusal="body_too_large",
    )


log: Final = logging.getLogger("outlast.service")
TRACED: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")  # a request id that a proxy may set
UNSAFE: Final = re.compile(rb"%2f|%5c|%00|%2e|\\|//|/\.{1,2}(/|$)", re.IGNORECASE)  # path traversal, plain or encoded
ONCE: Final = frozenset((b"host", b"authorization", b"content-type", b"idempotency-key", b"if-match"))
"""Fields that a request may have only once, because this service and a proxy could each read a different one."""
SAFE: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


Shown = Callable[[Request, OutlastError, Response], Awaitable[Response]]
"""Function that returns the answer to a request that failed, given the problem."""


async def as_problem(request: Request, error: OutlastError, problem: Response) -> Response:
    """Return the problem, because no page shows the error."""
    return problem


class RequestLimitsMiddleware:
    """Middleware that sets a request id, checks the head, and answers every error with a problem.

    Bodies are read later (`read_body`), when the caller is known.
    """

    def __init__(self, app: ASGIApp, bounds: Bounds, stopping: Callable[[], bool], shown: Shown = as_problem) -> None:
        """`stopping` returns True when the service stops. A request cancelled then is answered `cut_off`.

        `shown` returns the answer to send instead of the problem.
        """
        self._app = app
        self._bounds = bounds
        self._stopping = stopping
        self._shown = shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request. Refuse WebSockets and pass other protocols on."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        head = scope["method"] == "HEAD"
        if head:
            scope = _as_get(scope)
        scope["outlast.request_id"] = request_id
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                present = {name.lower() for name, _ in message.get("headers", [])}
                extra = [pair for pair in SAFE if pair[0] not in present]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode()), *extra]
            elif head:
                message["body"] = b""
            await send(message)

        try:
            self._check_head(scope)
            await self._app(scope, receive, sending)
        except OutlastError as error:
            await (await self._answer(error, request_id, scope))(scope, receive, sending)
        except asyncio.CancelledError:
            if self._stopping() and not started:  # otherwise the canceller answers
                await (await self._answer(problems.cut_off(), request_id, scope))(scope, receive, sending)
            raise
        except Exception as error:  # any other error is a fault: the caller gets its id, the log the traceback
            log.error("request %s failed", request_id, exc_info=error)
            if started:
                raise
            await (await self._answer(problems.fault(), request_id, scope))(scope, receive, sending)

    async def _answer(self, error: OutlastError, request_id: str, scope: Scope) -> Response:
        return await self._shown(Request(scope), error, problems.answer(error, request_id, scope=scope))

    def _check_head(self, scope: Scope) -> None:
        bounds = self._bounds
        path = scope.get("raw_path") or scope["path"].encode()  # because not every ASGI server sets it
        if len(path) + len(scope["query_string"]) > bounds.url_bytes:
            raise BadRequest("the URL is too long", f"at most {bounds.url_bytes:,} bytes", refusal="url_too_long")
        headers = scope["headers"]
        if len(headers) > bounds.headers or sum(len(k) + len(v) for k, v in headers) > bounds.header_bytes:
            why = f"at most {bounds.headers} headers with {bounds.header_bytes:,} bytes together"
            raise BadRequest("the headers are too large", why, refusal="headers_too_large")
        _check_fields(headers, scope.get("http_version", ""))
        if UNSAFE.search(path) or "\0" in scope["path"]:
            raise BadRequest(
                "the URL path is invalid",
                "ids contain only letters, digits, dots, dashes and underscores",
                "use the id exactly as the service returned it",
                refusal="bad_path",
            )


def _check_fields(headers: list[tuple[bytes, bytes]], version: str) -> None:
    """Raise BadRequest for header fields that two HTTP implementations could interpret differently."""
    names = [name for name, _ in headers]
    twice = next((name for name in names if name in ONCE and names.count(name) > 1), None)
    if twice is not None:
        raise _ambiguous(f"the header {twice.decode().title()} appears more than once", "send it once")
    if version == "1.1" and b"host" not in names:
        raise _ambiguous("HTTP/1.1 requires the header Host", "send the header Host")
    encodings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if encodings and (encodings != [b"chunked"] or version == "1.0"):
        raise _ambiguous("Transfer-Encoding must be chunked, and only in HTTP/1.1", "send a Content-Length")


def _ambiguous(why: str, fix: str) -> BadRequest:
    return BadRequest("the head of the request is ambiguous", why, fix, refusal="ambiguous_head")


def _as_get(scope: Scope) -> Scope:
    """Return the scope of the GET that answers a HEAD (RFC 9110), without Accept because a stream never ends."""
    headers = [pair for pair in scope["headers"] if pair[0] != b"accept"]
    return {**scope, "method": "GET", "headers": headers, HEAD_ONLY: True}


def _request_id(scope: Scope) -> str:
    given = _header(scope, b"x-request-id").decode("latin-1")
    return given if TRACED.fullmatch(given) else new_id("req_")


def _header(scope: Scope, name: bytes) -> bytes:
    value: Any = next((v for k, v in scope["headers"] if k == name), b"")
    return bytes(value)

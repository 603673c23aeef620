"""The body of a request: read whole within its limits, looked over, and parsed once, when it is its turn (S17)."""

import asyncio
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from outlast.core.limits import KIB
from outlast.errors import BadRequest
from outlast.service.depth import check_shape
from outlast.service.problems import Refused
from outlast.service.strict import read_json

CLOSE: Final = {"Connection": "close"}
"""For answers to a body that was not read to its end: what is left of it must not be taken for a request."""


@dataclass(frozen=True)
class Bounds:
    """The limits of one request; bytes, counts and seconds."""

    body_bytes: int = KIB * KIB
    body_s: float = 30.0
    head_s: float = 30.0
    header_bytes: int = 16 * KIB
    headers: int = 100
    url_bytes: int = 8 * KIB


async def read_body(request: Request, bounds: Bounds) -> int:
    """Read it within its limits; `body()` of the request answers it from here on. Answers how many bytes it has.

    Raises BadRequest, or Refused with one: nothing more can be read of this connection.
    """
    try:
        body = await _whole(request, bounds)
    except BadRequest as error:
        raise Refused(error, more={}, headers=CLOSE) from None
    request._body = body  # what Starlette keeps there itself once a body was read
    if body:
        _check_media_type(request.headers.get("content-type", ""))
        check_shape(body)
    return len(body)


def parse_body(request: Request) -> None:
    """Parse what was read; `json()` of the request answers it from here on, and nothing parses it again. Raises
    BadRequest."""
    if body := request._body:
        request._json = _parsed(body)


def given(request: Request) -> Any:
    """What the body says, once it was parsed; None where there is none, or none that can be used."""
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
        why = f"it has to be there within {bounds.body_s:g} s"
        raise BadRequest("the body came too slowly", why, "send it at once", refusal="too_slow") from None
    except ClientDisconnect:
        raise BadRequest("the body ended early", refusal="too_slow") from None
    return b"".join(chunks)


def _parsed(body: bytes) -> Any:
    try:
        return read_json(body)
    except JSONDecodeError as error:
        why = f"character {error.pos + 1}: {error.msg}"
    except UnicodeDecodeError as error:
        why = f"byte {error.start + 1} is no UTF-8"
    except (ValueError, RecursionError) as error:
        why = str(error)
    raise BadRequest("the body is not JSON", why, "send JSON in UTF-8", refusal="not_json")


def _check_media_type(value: str) -> None:
    name = value.partition(";")[0].strip().lower()
    if name != "application/json":
        why = f"it says {name[:100]}" if name else "it says nothing of its type"
        raise BadRequest("a body has to be JSON", why, "Content-Type: application/json", refusal="media_type")


def _too_large(bounds: Bounds) -> BadRequest:
    return BadRequest(
        "the body is too large",
        f"at most {bounds.body_bytes:,} bytes",
        "keep large values elsewhere (file, object store) and send their address",
        refusal="body_too_large",
    )

"""Asked twice, done once: the stored answer of an `Idempotency-Key`, in a row of the store, for a week.

What a key stands for is the caller, the operation, its address and its body. Only what was done is stored: a refusal
wrote nothing, so the key is free again. A process that dies with a request under way leaves it `in flight`; after
`IN_FLIGHT` it is looked at anew, and what it had done is met by its own guard (the run's key, the signal's id, the
version in `If-Match`).
"""

import json
import re
import zlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from outlast.core.codec import canonical, digest
from outlast.core.commit import Commit, Put
from outlast.core.durations import SECOND
from outlast.core.limits import IDEMPOTENCY_KEY_CHARS_MAX, ROW_BYTES_MAX
from outlast.core.rows import REQUEST
from outlast.core.rows import Request as Row
from outlast.errors import BadRequest, KeyRefused, NotStorable, Stale, StoreError
from outlast.service.identity import Principal
from outlast.service.request_limits import given
from outlast.store.port import Store

IN_FLIGHT: Final = 60 * SECOND
"""How long a request may be under way before another one of the same key is let through."""
FREE: Final = -1
"""`status` of a key whose request was refused: it stands for nothing."""
KEPT: Final = ("location", "etag", "content-type", "content-location")
KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{IDEMPOTENCY_KEY_CHARS_MAX}}}")
DONE: Final = range(200, 400)
NO_STORE: Final = "no-store"
"""`Cache-Control` of an answer with a secret that is kept nowhere, here neither."""
SECRET: Final = "secret"
"""Where it stands: empty in a replayed answer."""
BODY_BYTES_MAX: Final = ROW_BYTES_MAX // 2
Inner = Callable[[Request], Coroutine[Any, Any, Response]]


async def once(
    store: Store, principal: Principal, operation: str, key: str, request: Request, inner: Inner
) -> Response:
    """The answer of `inner`, or the one it gave to this very request before. Raises BadRequest, KeyRefused."""
    if not KEY.fullmatch(key):
        why = f"1 to {IDEMPOTENCY_KEY_CHARS_MAX} visible ASCII characters"
        raise BadRequest("this Idempotency-Key cannot be used", why, "e.g. a UUID", refusal="key_malformed")
    stamp = digest(operation, request.url.path, request.url.query, _same(given(request)))
    name = digest(principal.name, key)
    now = (await store.now()).business
    row = Row(principal.tenant, name, 1, principal.name, operation, stamp, 0, "", b"", now)
    try:
        await store.commit(Commit((Put(REQUEST, row, 0),), label=f"{operation} begin"))
    except Stale:
        before = await store.load(REQUEST, (principal.tenant, name))
        if not isinstance(before, Row):  # forgotten in between
            raise _in_flight() from None
        if (stored := _stored(before, stamp, now)) is not None:
            return stored
        row = row._replace(version=before.version + 1)
        try:
            await store.commit(Commit((Put(REQUEST, row, before.version),), label=f"{operation} begin"))
        except Stale:
            raise _in_flight() from None
    return await _do(store, row, request, inner)


async def _do(store: Store, row: Row, request: Request, inner: Inner) -> Response:
    try:
        response = await inner(request)
    except StoreError as error:
        if error.landed is False:
            await _leave(store, row._replace(status=FREE))
        raise  # perhaps it was done: the key stays taken for as long as a dead process's
    except Exception:  # whatever was refused wrote nothing, and the caller is told why
        await _leave(store, row._replace(status=FREE))
        raise
    if response.status_code not in DONE:
        await _leave(store, row._replace(status=FREE))
        return response
    kept = {name: value for name, value in response.headers.items() if name in KEPT}
    body = zlib.compress(_without_secret(response))
    if len(body) > BODY_BYTES_MAX:
        body = b""  # a replay says where the rest can be read
        kept.pop("content-type", None)
    done = row._replace(status=response.status_code, headers=json.dumps(kept), body=body)
    await _leave(store, done)
    return response


def _without_secret(response: Response) -> bytes:
    body = bytes(response.body)
    return body if response.headers.get("cache-control") != NO_STORE else canonical({**json.loads(body), SECRET: ""})


async def _leave(store: Store, row: Row) -> None:
    try:
        await store.commit(
            Commit((Put(REQUEST, row._replace(version=row.version + 1), row.version),), label="answered")
        )
    except StoreError:
        pass  # another process took the key over, or the store is away: the caller's answer is true all the same


def _stored(before: Row, stamp: str, now: int) -> Response | None:
    """The answer that was given before; None where the request may be done now. Raises KeyRefused."""
    if before.status == FREE:
        return None
    if before.digest != stamp:
        raise KeyRefused(
            "this Idempotency-Key stands for another request",
            "the same key means the same request, so operation, address and body must be the same",
            "use a new key",
            refusal="other_request",
        )
    if before.status == 0:
        if now < before.at + IN_FLIGHT:
            raise _in_flight()
        return None
    body = zlib.decompress(before.body) if before.body else b""
    return Response(body, before.status, {**json.loads(before.headers), "Idempotent-Replayed": "true"})


def _in_flight() -> KeyRefused:
    return KeyRefused(
        "a request of this Idempotency-Key is under way",
        f"it has not been answered yet; one whose process died is looked at anew after {IN_FLIGHT // SECOND} s",
        "ask again in a second",
        refusal="in_flight",
    )


def _same(body: Any) -> bytes:
    """What makes two bodies the same: their JSON, not their white space."""
    try:
        return canonical(body)
    except NotStorable:  # it will be refused by whatever would store it
        return canonical(repr(body))

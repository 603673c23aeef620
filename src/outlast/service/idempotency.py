"""Idempotency keys: the answer to a request is stored for a week and returned to a repetition.

A key belongs to one caller, operation, URL and body. Only answers to executed requests are stored. A refused request
changed nothing, so its key becomes free. If the process dies during a request, the key stays in flight for `IN_FLIGHT`.
A repetition after that is executed again, also beside a first request that is still running. It has no second effect,
because the commit of an act holds its identity (`core/acts.py`, decision 0120), and it answers as the first one did.
"""

import json
import zlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from outlast.core.acts import as_canonical, check_idempotency_key
from outlast.core.codec import canonical, digest
from outlast.core.commit import Commit, Put
from outlast.core.durations import SECOND
from outlast.core.limits import ROW_BYTES_MAX
from outlast.core.rows.columns import decoded
from outlast.core.rows.store_rows import REQUEST
from outlast.core.rows.store_rows import Request as Row
from outlast.errors import KeyRefused, Stale, StoreError
from outlast.service.identity import Principal
from outlast.service.request_limits import parsed_body
from outlast.store.port import Store

IN_FLIGHT: Final = 60 * SECOND
"""Time for which a request may be in progress before another one with the same key is executed."""
FREE: Final = -1
"""Value of `status` for a key whose request was refused. The key may be used again."""
KEPT: Final = ("location", "etag", "content-type", "content-location")
DONE: Final = range(200, 400)
NO_STORE: Final = "no-store"
"""Value of `Cache-Control` in an answer with a secret, which is never stored."""
SECRET: Final = "secret"
"""Field with the secret. It is empty in a replayed answer."""
BODY_BYTES_MAX: Final = ROW_BYTES_MAX // 2
Inner = Callable[[Request], Coroutine[Any, Any, Response]]


async def once(
    store: Store, principal: Principal, operation: str, key: str, request: Request, inner: Inner
) -> Response:
    """Return the answer of `inner`, or its stored answer to the same request. Raises BadRequest, KeyRefused."""
    check_idempotency_key(key)
    stamp = digest(operation, request.url.path, request.url.query, as_canonical(parsed_body(request)))
    name = digest(principal.name, key)
    now = (await store.now()).business
    row = Row(principal.tenant, name, 1, principal.name, operation, stamp, 0, "", b"", now)
    try:
        await store.commit(Commit((Put(REQUEST, row, 0),), label=f"{operation} begin"))
    except Stale:
        before = await store.load(REQUEST, (principal.tenant, name))
        if not isinstance(before, Row):  # purged since
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
        raise  # it may have been executed, so the key stays in flight as if the process had died
    except Exception:  # a refused request changed nothing, so its key is free
        await _leave(store, row._replace(status=FREE))
        raise
    if response.status_code not in DONE:
        await _leave(store, row._replace(status=FREE))
        return response
    kept = {name: value for name, value in response.headers.items() if name in KEPT}
    body = zlib.compress(_without_secret(response))
    if len(body) > BODY_BYTES_MAX:
        body = b""  # a replay only has the headers, such as Location
        kept.pop("content-type", None)
    done = row._replace(status=response.status_code, headers=json.dumps(kept), body=body)
    await _leave(store, done)
    return response


def _without_secret(response: Response) -> bytes:
    body = bytes(response.body)
    if response.headers.get("cache-control") != NO_STORE or SECRET not in (found := json.loads(body)):
        return body
    return canonical({**found, SECRET: ""})


async def _leave(store: Store, row: Row) -> None:
    try:
        await store.commit(
            Commit((Put(REQUEST, row._replace(version=row.version + 1), row.version),), label="answered")
        )
    except StoreError:
        pass  # the key was taken over or the store is unavailable; the answer is still correct


def _stored(before: Row, stamp: str, now: int) -> Response | None:
    """Return the stored answer, or None if the request may be executed. Raises KeyRefused."""
    if before.status == FREE:
        return None
    if before.digest != stamp:
        raise KeyRefused(
            "this Idempotency-Key was used for another request",
            "a repeated key requires the same operation, URL and body",
            "use a new key",
            refusal="other_request",
        )
    if before.status == 0:
        if now < before.at + IN_FLIGHT:
            raise _in_flight()
        return None
    body = zlib.decompress(before.body) if before.body else b""
    return Response(
        body,
        before.status,
        {**decoded(before.headers, "the headers of a stored answer"), "Idempotent-Replayed": "true"},
    )


def _in_flight() -> KeyRefused:
    return KeyRefused(
        "a request with this Idempotency-Key is in progress",
        f"it has not been answered yet; if its process died, the key is free after {IN_FLIGHT // SECOND} s",
        "send it again in a second",
        refusal="in_flight",
    )

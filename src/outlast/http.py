"""httpx2 clients for activities that add an Idempotency-Key, limit the time, and check the status of each write.

    http = outlast.http.AsyncClient(base_url="https://shop.example")

    @activity(key="order/{sku}", no_undo="…")
    async def order(sku: str) -> Order:
        response = await http.post("/orders", json={"sku": sku})      # 422 refuses, 429 waits, 503 is uncertain
        return Order.model_validate_json(response.content)

They are the classes of httpx2 with three additions, which follow from `this_call()`:

- During a call, no part of a request may take longer than the time that is left for the call. Without time left,
  no request is sent.
- A write (any method but GET, HEAD, OPTIONS, TRACE) of an activity, outside its reconcile, carries `Idempotency-Key`
  unless it already has one. Send one write per activity, because two would have the same key.
- An answer to such a write with a status other than 2xx raises `httpx2.HTTPStatusError`, which the engine interprets.
  Other answers are returned as httpx2 returns them. Pass them to `checked` for the same check.

Outside of calls they behave like the classes of httpx2.
"""

from typing import Any, Final

import httpx2
from httpx2 import USE_CLIENT_DEFAULT

from outlast.flow.calls import Call, call_under_way
from outlast.flow.outcomes import NotSent

__all__ = ["AsyncClient", "Client", "checked"]

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
KEY: Final = "Idempotency-Key"
TEXT_CHARS: Final = 500  # beginning of the body of a failed answer, kept in the ledger
# The body is read in part only, because the status is the answer even if the body is slow or endless.
TEXT_CHUNKS: Final = 4
CHUNK_WAIT_S: Final = 1.0
# Requests end this long before the call does, because the thread of a `def` activity must end by itself. A thread that
# outlasts its call may still send, and only a person can settle that.
MARGIN_MAX_S: Final = 1.0
MARGIN_SHARE: Final = 0.1


def checked(response: httpx2.Response) -> httpx2.Response:
    """Return the `response` if its status is 2xx. Raises httpx2.HTTPStatusError, which the engine interprets.

    Unlike `raise_for_status()`, the error contains the beginning of the body and no query string.
    """
    if response.is_success:
        return response
    try:
        text = response.text
    except httpx2.ResponseNotRead:  # a stream, whose body is not awaited
        text = ""
    raise _failure(response, text)


class AsyncClient(httpx2.AsyncClient):
    """`httpx2.AsyncClient` for activities, with the same parameters. Use one per process, closed at its end."""

    async def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        auth: Any = USE_CLIENT_DEFAULT,
        follow_redirects: Any = USE_CLIENT_DEFAULT,
    ) -> httpx2.Response:
        """Send a `request`; `stream`, `auth` and `follow_redirects` are those of httpx2.

        Raises HTTPStatusError for a write without a 2xx answer, NotSent if the call has no time left, and the errors of
        httpx2.
        """
        check = _prepare(request)
        response = await super().send(request, stream=True, auth=auth, follow_redirects=follow_redirects)
        try:
            if check and not response.is_success:
                raise _failure(response, await _beginning(response))
            if not stream:
                await response.aread()
        except BaseException:  # includes cancellation, because the connection must be returned
            await response.aclose()
            raise
        return response


class Client(httpx2.Client):
    """`httpx2.Client` for activities that are plain `def`, with the same parameters."""

    def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        auth: Any = USE_CLIENT_DEFAULT,
        follow_redirects: Any = USE_CLIENT_DEFAULT,
    ) -> httpx2.Response:
        """Send a `request` by the rules of `AsyncClient.send`, also for `stream`, `auth` and `follow_redirects`."""
        check = _prepare(request)
        response = super().send(request, stream=True, auth=auth, follow_redirects=follow_redirects)
        try:
            if check and not response.is_success:
                raise _failure(response, _beginning_sync(response))
            if not stream:
                response.read()
        except BaseException:  # includes cancellation, because the connection must be returned
            response.close()
            raise
        return response


def _prepare(request: httpx2.Request) -> bool:
    """Limit the time of the request and add its key. Return True if the status of its answer must be checked."""
    call = call_under_way()
    if call is None:
        return False
    _bound(request, call)
    if request.method in SAFE or call.reconciling:
        return False
    if call.idempotency_key and KEY not in request.headers:
        request.headers[KEY] = call.idempotency_key
    return True


def _bound(request: httpx2.Request, call: Call) -> None:
    left = call.seconds_left()
    if left <= 0:
        raise NotSent(f"the call {call.key} had no time left before {request.method} {request.url.path} was sent")
    most = left - min(MARGIN_MAX_S, left * MARGIN_SHARE)
    given = request.extensions.get("timeout", {})
    waits = {name: given.get(name) for name in ("connect", "read", "write", "pool")}
    bounded = {name: most if wait is None else min(wait, most) for name, wait in waits.items()}
    if most != float("inf"):
        request.extensions = {**request.extensions, "timeout": bounded}


def _failure(response: httpx2.Response, text: str) -> httpx2.HTTPStatusError:
    request = response.request
    # The query and the like may be secret, and the text goes to the ledger.
    where = request.url.copy_with(query=None, fragment=None, userinfo=b"")
    text_part = f": {' '.join(text.split())[:TEXT_CHARS]}" if text.strip() else ""
    message = f"{response.status_code} {response.reason_phrase} for {request.method} {where}{text_part}"
    return httpx2.HTTPStatusError(message, request=request, response=response)


def _readable(response: httpx2.Response) -> bool:
    """Return True if the body is uncompressed text or JSON. Also limit the wait for each of its chunks."""
    kind = response.headers.get("Content-Type", "")
    if response.headers.get("Content-Encoding") or not ("json" in kind or kind.startswith("text/plain")):
        return False
    timeout = response.request.extensions.get("timeout")
    if isinstance(timeout, dict):
        timeout["read"] = CHUNK_WAIT_S
    return True


async def _beginning(response: httpx2.Response) -> str:
    found = b""
    if _readable(response):
        try:
            chunks = 0
            async for chunk in response.aiter_raw():
                found, chunks = found + chunk[: 4 * TEXT_CHARS], chunks + 1
                if chunks == TEXT_CHUNKS or len(found) >= TEXT_CHARS:
                    break
        except httpx2.TransportError:  # the status suffices
            pass
    return found.decode(errors="replace")


def _beginning_sync(response: httpx2.Response) -> str:
    found = b""
    if _readable(response):
        try:
            chunks = 0
            for chunk in response.iter_raw():
                found, chunks = found + chunk[: 4 * TEXT_CHARS], chunks + 1
                if chunks == TEXT_CHUNKS or len(found) >= TEXT_CHARS:
                    break
        except httpx2.TransportError:  # the status suffices
            pass
    return found.decode(errors="replace")

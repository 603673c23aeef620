"""httpx2's clients for activities: each write carries its Idempotency-Key, ends before the call does, and is judged.

    http = outlast.http.AsyncClient(base_url="https://shop.example")

    @activity(key="order/{sku}", no_undo="…")
    async def order(sku: str) -> Order:
        response = await http.post("/orders", json={"sku": sku})      # 422 is a refusal, 429 waits, 503 is a doubt
        return Order.model_validate_json(response.content)

They are httpx2's own classes with three additions, all of which follow from `this_call()`:

- Inside any call, no part of a request takes longer than the call has left, and none begins once it has nothing left.
- A request that may change something (any method but GET, HEAD, OPTIONS, TRACE), made by an activity and not by its
  reconcile, carries `Idempotency-Key`, unless it has one already. One such request for each activity: two would have
  the same key.
- The answer to such a request is judged: any status but 2xx raises `httpx2.HTTPStatusError`, which the engine
  understands. All other answers are given as httpx2 gives them; `checked` judges them too.

Outside of a call they are httpx2's clients and nothing else.
"""

from typing import Any, Final

import httpx2
from httpx2 import USE_CLIENT_DEFAULT

from outlast.flow.calls import Call, current_call
from outlast.flow.outcomes import NotSent

__all__ = ["AsyncClient", "Client", "checked"]

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
KEY: Final = "Idempotency-Key"
TEXT_CHARS: Final = 500  # of a failed answer's body, for the people who read the ledger
# A status is an answer, however slow or endless the body behind it.
TEXT_CHUNKS: Final = 4
CHUNK_WAIT_S: Final = 1.0
# What is left of the call's time, less this: the thread of a `def` activity should end by itself, since one that is
# left behind may still send, and only a person can settle that.
MARGIN_MAX_S: Final = 1.0
MARGIN_SHARE: Final = 0.1


def checked(response: httpx2.Response) -> httpx2.Response:
    """The response, if its status is 2xx. Raises httpx2.HTTPStatusError, which the engine judges, for any other.

    As `raise_for_status()`, but it keeps the beginning of the body, and nothing of the query, in the error's text.
    """
    if response.is_success:
        return response
    try:
        text = response.text
    except httpx2.ResponseNotRead:  # a stream: what it says is not waited for
        text = ""
    raise _failure(response, text)


class AsyncClient(httpx2.AsyncClient):
    """`httpx2.AsyncClient` for activities; takes what that takes. One for a process, closed when it ends."""

    async def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        auth: Any = USE_CLIENT_DEFAULT,
        follow_redirects: Any = USE_CLIENT_DEFAULT,
    ) -> httpx2.Response:
        """Send it. Raises what httpx2 raises, HTTPStatusError for a write that was not answered with 2xx, NotSent when
        the call's time is over."""
        judged = _prepare(request)
        response = await super().send(request, stream=True, auth=auth, follow_redirects=follow_redirects)
        try:
            if judged and not response.is_success:
                raise _failure(response, await _beginning(response))
            if not stream:
                await response.aread()
        except BaseException:  # whatever ends it, a cancellation too: the connection is given back
            await response.aclose()
            raise
        return response


class Client(httpx2.Client):
    """`httpx2.Client` for activities that are plain `def`; takes what that takes."""

    def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        auth: Any = USE_CLIENT_DEFAULT,
        follow_redirects: Any = USE_CLIENT_DEFAULT,
    ) -> httpx2.Response:
        """As `AsyncClient.send`."""
        judged = _prepare(request)
        response = super().send(request, stream=True, auth=auth, follow_redirects=follow_redirects)
        try:
            if judged and not response.is_success:
                raise _failure(response, _beginning_now(response))
            if not stream:
                response.read()
        except BaseException:  # whatever ends it, a cancellation too: the connection is given back
            response.close()
            raise
        return response


def _prepare(request: httpx2.Request) -> bool:
    """Bound the request by the call it belongs to, and give it its key. Is its answer to be judged?"""
    call = current_call.get()
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
        raise NotSent(f"the time of the call {call.key} was over before {request.method} {request.url.path} was sent")
    most = left - min(MARGIN_MAX_S, left * MARGIN_SHARE)
    given = request.extensions.get("timeout", {})
    waits = {name: given.get(name) for name in ("connect", "read", "write", "pool")}
    bounded = {name: most if wait is None else min(wait, most) for name, wait in waits.items()}
    if most != float("inf"):
        request.extensions = {**request.extensions, "timeout": bounded}


def _failure(response: httpx2.Response, text: str) -> httpx2.HTTPStatusError:
    request = response.request
    where = request.url.copy_with(query=None, fragment=None, userinfo=b"")  # what may be secret stays out of the ledger
    said = f": {' '.join(text.split())[:TEXT_CHARS]}" if text.strip() else ""
    message = f"{response.status_code} {response.reason_phrase} for {request.method} {where}{said}"
    return httpx2.HTTPStatusError(message, request=request, response=response)


def _readable(response: httpx2.Response) -> bool:
    """Is there text in its body that can be read without unpacking it? And: let no part of it take long."""
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
        except httpx2.TransportError:  # the status stands without it
            pass
    return found.decode(errors="replace")


def _beginning_now(response: httpx2.Response) -> str:
    found = b""
    if _readable(response):
        try:
            chunks = 0
            for chunk in response.iter_raw():
                found, chunks = found + chunk[: 4 * TEXT_CHARS], chunks + 1
                if chunks == TEXT_CHUNKS or len(found) >= TEXT_CHARS:
                    break
        except httpx2.TransportError:  # the status stands without it
            pass
    return found.decode(errors="replace")

"""httpx2 clients for activities that add an Idempotency-Key, limit the time, and check the status of each write.

    http = outlast.http.AsyncClient(base_url="https://shop.example")

    @activity(key="order/{sku}", no_undo="…")
    async def order(sku: str) -> Order:
        response = await http.post("/orders", json={"sku": sku})      # 422 refuses, 429 waits, 503 is uncertain
        return Order.model_validate_json(response.content)

They are the classes of httpx2 with these additions, which follow from `this_call()`:

- During a call, no part of a request may take longer than the time that is left for the call. Without time left,
  no request is sent.
- A write (any method but GET, HEAD, OPTIONS, TRACE) of an activity, outside its reconcile, carries `Idempotency-Key`
  unless it already has one. Send one write per activity, because two would have the same key.
- An answer to such a write with a status other than 2xx raises `httpx2.HTTPStatusError`, which the engine interprets.
  Other answers are returned as httpx2 returns them. Pass them to `checked` for the same check.

Outside of calls they behave like the classes of httpx2.

If a model or a page chooses the address, give the client `transport=PublicOnly()`.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import httpx2
from httpx2 import USE_CLIENT_DEFAULT
from typing_extensions import override

from outlast.core.addresses import AddressPolicy, NotAllowed, allowed_addresses
from outlast.core.argument_checks import Arguments
from outlast.flow.calls import Call, call_under_way
from outlast.flow.outcomes import NotSent, Perhaps, Refused

__all__ = ["AsyncClient", "Client", "PublicOnly", "checked"]

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
    """`httpx2.AsyncClient` for activities, with the same parameters. Use one per process.

    Any number of event loops may use it, at once or one after the other. Each has connections, which are closed when
    the loop ends as `asyncio.run` ends it, or when the loop closes the client. A `transport` or `mounts` of yours is
    used as it is.
    """

    @override
    def _init_transport(self, *args: Any, **kwargs: Any) -> httpx2.AsyncBaseTransport:
        if kwargs.get("transport") is not None:
            return super()._init_transport(*args, **kwargs)
        return _PerLoop(partial(super()._init_transport, *args, **kwargs))

    @override
    def _init_proxy_transport(self, *args: Any, **kwargs: Any) -> httpx2.AsyncBaseTransport:
        return _PerLoop(partial(super()._init_proxy_transport, *args, **kwargs))

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


class _PerLoop(httpx2.AsyncBaseTransport):
    """A transport for each event loop, because a connection ends with its loop.

    A client at the top of a module outlives the loop of a worker or of a test. Its next loop would take a connection
    of the ended one and fail with "Event loop is closed" in the middle of a call, which is then uncertain.
    """

    def __init__(self, make: Callable[[], httpx2.AsyncBaseTransport]) -> None:
        self._make: Final = make
        self._unused: httpx2.AsyncBaseTransport | None = make()  # at once, because it checks the client's parameters
        self._of: Final[dict[asyncio.AbstractEventLoop, _Opened]] = {}

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        opened = self._of.get(asyncio.get_running_loop()) or await self._open(asyncio.get_running_loop())
        return await opened.transport.handle_async_request(request)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> "_Opened":
        for ended in [each for each in self._of if each.is_closed()]:  # without the end that `asyncio.run` gives it
            self._of.pop(ended, None)
        transport, self._unused = self._unused or self._make(), None
        opened = self._of[loop] = _Opened(transport, self._until_the_end(loop, transport))
        await anext(opened.life)
        return opened

    async def _until_the_end(
        self, loop: asyncio.AbstractEventLoop, transport: httpx2.AsyncBaseTransport
    ) -> AsyncGenerator[None]:
        """Close the transport when the loop ends: a loop closes its asynchronous generators before itself."""
        try:
            yield
        finally:
            self._of.pop(loop, None)
            await transport.aclose()

    @override
    async def aclose(self) -> None:
        """Close the connections of the running loop. Those of other loops are closed with their loops."""
        if opened := self._of.get(asyncio.get_running_loop()):
            await opened.life.aclose()


class _Opened(NamedTuple):
    """The transport of one loop, and the generator that closes it."""

    transport: httpx2.AsyncBaseTransport
    life: AsyncGenerator[None]


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
    read = _Beginning()
    with suppress(httpx2.TransportError):  # the status suffices
        if _readable(response):
            async for chunk in response.aiter_raw():
                if read.suffices_with(chunk):
                    break
    return read.text


def _beginning_sync(response: httpx2.Response) -> str:
    read = _Beginning()
    with suppress(httpx2.TransportError):  # the status suffices
        if _readable(response):
            for chunk in response.iter_raw():
                if read.suffices_with(chunk):
                    break
    return read.text


class _Beginning:
    """The beginning of a body, long enough for an error."""

    def __init__(self) -> None:
        self._found = b""
        self._chunks = 0

    def suffices_with(self, chunk: bytes) -> bool:
        """Add a chunk. Return True if no further one is needed."""
        self._found += chunk[: 4 * TEXT_CHARS]
        self._chunks += 1
        return self._chunks == TEXT_CHUNKS or len(self._found) >= TEXT_CHARS

    @property
    def text(self) -> str:
        """The text of the chunks."""
        return self._found.decode(errors="replace")


# --- addresses that a model chooses ---------------------------------------------------------------
SENT: Final = "outlast_sent"
"""Extension of a request that has been sent; httpx2 copies it to the request of a redirect."""
NOT_ALLOWED: Final = "address_not_allowed"
CONNECTIONS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=0)
"""A connection serves one request: one kept for another name of the same address would skip the check of its name."""


class PublicOnly(httpx2.AsyncBaseTransport, httpx2.BaseTransport):
    """Transport for addresses that a model or a page chooses: `AsyncClient(transport=PublicOnly())`, also of `Client`.

    Requests go only to addresses on the internet: not to this machine, private or link-local networks, however the
    address is written. Each redirect is checked. The connection goes to an address that was checked, so a name that
    resolves differently later changes nothing. No proxy is used. Another address raises Refused with the code
    `address_not_allowed`, or Perhaps if it is that of a redirect.

    - `allow`: further networks, such as "10.1.0.0/16".
    - `verify`: that of httpx2's clients, which ignore theirs with a transport.

    Raises InvalidInput if `allow` is not of networks.
    """

    def __init__(self, *, allow: Iterable[str] = (), verify: Any = True) -> None:
        allow = Arguments("PublicOnly", of_call=True).members(
            "allow", allow, str, 'list networks: allow=["10.1.0.0/16"]'
        )
        self._reach: Final = AddressPolicy.of(networks=allow)
        self._verify: Final = verify

    @cached_property
    def _async(self) -> httpx2.AsyncHTTPTransport:
        return httpx2.AsyncHTTPTransport(verify=self._verify, limits=CONNECTIONS)

    @cached_property
    def _sync(self) -> httpx2.HTTPTransport:
        return httpx2.HTTPTransport(verify=self._verify, limits=CONNECTIONS)

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        try:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        *others, last = self._pinned(request, found)
        for each in others:
            try:
                return await self._async.handle_async_request(each)
            except httpx2.ConnectError:
                pass  # the next address may accept a connection
        return await self._async.handle_async_request(last)

    @override
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        try:
            found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        *others, last = self._pinned(request, found)
        for each in others:
            try:
                return self._sync.handle_request(each)
            except httpx2.ConnectError:
                pass  # the next address may accept a connection
        return self._sync.handle_request(last)

    def _pinned(self, request: httpx2.Request, found: Sequence[tuple[Any, ...]]) -> list[httpx2.Request]:
        """Return the request to each address of its host; the header Host and TLS keep the name."""
        url, is_redirect = request.url, SENT in request.extensions
        request.extensions = {**request.extensions, SENT: True}
        try:
            addresses = allowed_addresses(url.host, [str(entry[4][0]) for entry in found], self._reach)
        except NotAllowed as error:
            if is_redirect:
                raise Perhaps(f"a redirect was not followed: {error}") from error
            raise Refused(NOT_ALLOWED, str(error)) from error
        name = {"sni_hostname": url.raw_host.decode("ascii").strip("[]")}
        return [
            httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, **name},
            )
            for address in addresses
        ]

    @override
    async def aclose(self) -> None:
        await self._async.aclose()

    @override
    def close(self) -> None:
        self._sync.close()

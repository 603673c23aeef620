"""HTTP client of the outbox: one POST to a checked address, and the notification of an operator (S22, S25).

A delivery follows no redirect, uses no proxy, keeps no cookie, has one deadline and reads a bounded answer. It uses
httpx2's transport without its client, which would follow, decode and remember.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import httpx2

from outlast.core.addresses import AddressPolicy, NotAllowed
from outlast.core.clock_port import Clock
from outlast.core.durations import DELIVERY_RETRY_AFTER_MAX, DELIVERY_TIMEOUT, SECOND, asked_wait
from outlast.core.events import iso
from outlast.core.limits import ANSWER_BYTES_MAX, ANSWER_CHARS_MAX
from outlast.core.machine import CHOICES, RULES
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import Run
from outlast.core.webhooks.deliveries import LATER, Attempt
from outlast.errors import InvalidInput
from outlast.outbox.address import Resolver, UrlParts, check_parts, check_text, checked_addresses, port_of

GONE: Final = 410
TOO_MANY: Final = 429
MAY_PASS: Final = frozenset({408, 409, 425, TOO_MANY})  # client errors that may be temporary
HONOURS_RETRY_AFTER: Final = frozenset({TOO_MANY, 503})
CONNECTIONS: Final = 20
IDLE_S: Final = 30.0  # idle time after which a connection is closed
BODY_S: Final = 1.0  # for the body, after the status has arrived


class DeliveryClient:
    """Connections to one receiver. Other receivers do not wait for them."""

    def __init__(
        self,
        reach: AddressPolicy,
        resolve: Resolver,
        clock: Clock,
        *,
        tls: ssl.SSLContext | bool = True,
        timeout_ms: int = DELIVERY_TIMEOUT,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`tls`: the trusted certificates. `timeout_ms`: for a delivery up to the head of the answer, the lookup
        included; BODY_S more for the body. `ended`: called after the connections are closed.
        """
        self._reach = reach
        self._resolve = resolve
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._ended = ended
        limits = httpx2.Limits(max_connections=CONNECTIONS, keepalive_expiry=IDLE_S)
        self._transport = httpx2.AsyncHTTPTransport(verify=tls, limits=limits)

    async def close(self) -> None:
        """Close the connections and call `ended`."""
        await self._transport.aclose()
        self._ended()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        """Send and return the result. Never raises for errors of the receiver, the network or the name server."""
        started = self._clock.mono()
        try:
            async with asyncio.timeout(self._timeout_ms / SECOND):
                response = await self._answer(url, headers, body)
            beginning = await _beginning(response)
            attempt = judged(response.status_code, response.headers, beginning, self._clock.wall())
        except TimeoutError:
            attempt = Attempt(0, "", f"no answer within {self._timeout_ms / SECOND:g} s", 0)
        except NotAllowed as error:
            attempt = Attempt(0, "", f"not sent: {error}", 0)
        except InvalidInput as error:
            attempt = Attempt(0, "", f"not sent: {error.what}: {error.why}", 0)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            attempt = Attempt(0, "", f"{type(error).__name__}: {error}".rstrip(": "), 0)
        return attempt._replace(took_ms=self._clock.mono() - started)

    async def _answer(self, url: str, headers: Mapping[str, str], body: bytes) -> httpx2.Response:
        """Return the head of the answer from the first address that accepts a connection."""
        check_text(url)
        target = httpx2.URL(url)
        parts = check_parts(
            UrlParts(
                target.scheme,
                target.host,
                port_of(target.scheme, target.port),
                bool(target.userinfo),
                bool(target.fragment),
            ),
            self._reach,
        )
        addresses = await checked_addresses(parts.host, parts.port, self._resolve, self._reach)
        for n, address in enumerate(addresses, 1):
            try:
                return await self._post_to(address, target, headers, body)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if n == len(addresses):
                    raise
        raise AssertionError("unreachable: a host without an address is an error")

    async def _post_to(
        self, address: str, target: httpx2.URL, headers: Mapping[str, str], body: bytes
    ) -> httpx2.Response:
        request = httpx2.Request(
            "POST",
            target.copy_with(host=address),  # connect to the checked address; Host and TLS keep the name
            headers={"host": target.netloc.decode("ascii"), "user-agent": "outlast", "accept": "*/*", **headers},
            content=body,
            extensions={"sni_hostname": target.raw_host.decode("ascii").strip("[]")},
        )
        return await self._transport.handle_async_request(request)


def judged(code: int, headers: Mapping[str, str], body: str, wall: int) -> Attempt:
    """Return the outcome of an attempt that was answered. `body`: its beginning; `wall`: now, by this machine."""
    if 200 <= code < 300:
        return Attempt(code, body, "", 0)
    wait = 0
    if code in HONOURS_RETRY_AFTER:
        retry_after, date = headers.get("retry-after", ""), headers.get("date", "")
        wait = asked_wait(retry_after, date, wall, DELIVERY_RETRY_AFTER_MAX)
    if code == TOO_MANY:
        wait = max(wait, LATER)
    return Attempt(
        code,
        body,
        f"answered {code}" + (", and redirects are not followed" if 300 <= code < 400 else ""),
        0,
        retry_after_ms=wait,
        definite=400 <= code < 500 and code not in MAY_PASS,
        gone=code == GONE,
    )


def start_of(body: bytes) -> str:
    """Return the first ANSWER_CHARS_MAX characters of an answer."""
    text = body[: 4 * ANSWER_CHARS_MAX].decode("utf-8", "replace").replace("\0", "\ufffd")
    return text[:ANSWER_CHARS_MAX]


async def _beginning(response: httpx2.Response) -> str:
    """Return the first bytes of an answer as sent, not decoded; the rest is not read."""
    read = bytearray()
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in response.stream:
                read += chunk
                if len(read) >= ANSWER_BYTES_MAX:
                    break
    except (httpx2.HTTPError, TimeoutError):
        pass  # the status has arrived and decides whether the event was accepted
    finally:
        await response.aclose()
    return start_of(bytes(read))


TIMEOUT_S: Final = 5.0
DETAIL_CHARS: Final = 500  # of the first line; the store has the full text


class HttpNotifier:
    """Client that POSTs JSON to an operator's endpoint when a run needs a person, once, best effort (GATE-5).

    No retry, signature or redirect; only the status of the answer is read.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url
        self._timeout_s = timeout_s

    async def notify(self, run: Run, reasons: Sequence[Attention]) -> None:
        """Send the notification. Raises any error that prevented a 2xx answer; the engine logs and counts it."""
        async with (
            asyncio.timeout(self._timeout_s),
            httpx2.AsyncClient(timeout=self._timeout_s) as client,
            client.stream("POST", self._url, json=notice(run, reasons)) as response,
        ):
            if not response.is_success:  # `raise_for_status` repeats the URL, which may contain a secret
                raise OSError(f"its receiver answered {response.status_code}")


def notice(run: Run, reasons: Sequence[Attention]) -> dict[str, Any]:
    """Return the JSON body of a notification."""
    return {
        "run": run.run,
        "workflow": run.workflow,
        "tenant": run.tenant,
        "node": run.node,
        "reasons": [
            {
                "reason": a.reason.value,
                "trigger": a.trigger,
                "key": a.key,
                "detail": (a.detail.splitlines() or [""])[0][:DETAIL_CHARS],
                "since": iso(a.since),
                "choices": [choice.value for choice in CHOICES[a.reason]],
                "if_ignored": RULES[a.reason].if_ignored,
            }
            for a in reasons
        ],
    }

"""Address policy of deliveries: only public addresses, unless an operator allows others (OUT-6, S20–S22).

A name is resolved once for each delivery. All its addresses are checked, and the connection goes to a checked one, so a
name that resolves differently later cannot redirect the delivery.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from outlast.core.addresses import AddressPolicy, allowed_addresses
from outlast.core.durations import DELIVERY_DNS_TIMEOUT, SECOND
from outlast.core.limits import URL_CHARS_MAX
from outlast.errors import InvalidInput

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Return the addresses of a name as text. Raises OSError."""

PORTS: Final = frozenset({443, 8443})
PLAIN_PORTS: Final = frozenset({80, 8080})


class UrlParts(NamedTuple):
    """Parts of a webhook's URL that decide whether and where a request may be sent."""

    scheme: str
    host: str
    port: int
    userinfo: bool
    fragment: bool


def checked_url(url: str, reach: AddressPolicy) -> UrlParts:
    """Return the parts of a subscription's URL. Raises InvalidInput with every problem of its form.

    The dispatcher repeats `check_parts` with its HTTP client's reading of the URL, because a URL that two parsers read
    differently must not lead past the check.
    """
    check_text(url)
    try:
        split = urlsplit(url)
        userinfo = split.netloc.rpartition("@")[0]
        parts = UrlParts(
            split.scheme, split.hostname or "", port_of(split.scheme, split.port), bool(userinfo), bool(split.fragment)
        )
    except ValueError:  # its text repeats parts of the URL, which may be secret
        raise InvalidInput(
            "this is not a webhook URL", "its host or port cannot be read", "e.g. https://example.com/hooks"
        ) from None
    return check_parts(parts, reach)


def check_text(url: str) -> None:
    """Raise InvalidInput if a URL is too long or has characters that are not printed."""
    if len(url) > URL_CHARS_MAX or not url.isprintable() or any(map(str.isspace, url)):
        raise InvalidInput("this is not a webhook URL", f"at most {URL_CHARS_MAX} printable characters, no spaces")


def check_parts(parts: UrlParts, reach: AddressPolicy) -> UrlParts:
    """Return the parts if a request to them is allowed. Raises InvalidInput with every problem."""
    problems: list[str] = []
    if parts.scheme not in ("https", "http") or not parts.host:
        problems.append("it must begin with https:// and name a host")
    elif parts.scheme == "http" and not reach.plain:
        problems.append("it must begin with https:// (plain HTTP requires the setting webhooks.allow_http)")
    if parts.userinfo:
        problems.append("it must contain no user and no password, because requests are signed instead")
    if parts.fragment:
        problems.append("it must not contain a #fragment, which is never sent")
    ports = PORTS | (PLAIN_PORTS if reach.plain else frozenset())
    if not reach.any_port and parts.port not in ports:
        allowed = ", ".join(map(str, sorted(ports)))
        problems.append(f"its port must be one of {allowed} (any other requires the setting webhooks.allow_private)")
    if problems:
        raise InvalidInput(
            "this webhook URL is not allowed",
            problems=[("url", text) for text in problems],
            fix="e.g. https://example.com/hooks",
        )
    return parts


def port_of(scheme: str, port: int | None) -> int:
    """Return the port of a URL, or the default port of its scheme."""
    if port is not None:
        return port
    return 443 if scheme == "https" else 80


async def checked_addresses(host: str, port: int, resolve: Resolver, reach: AddressPolicy) -> tuple[str, ...]:
    """Resolve a host and return its addresses if all are allowed. Raises NotAllowed, OSError."""
    try:
        async with asyncio.timeout(DELIVERY_DNS_TIMEOUT / SECOND):
            found = await resolve(host, port)
    except TimeoutError:
        raise OSError(
            f"no name server returned the address of {host} within {DELIVERY_DNS_TIMEOUT / SECOND:g} s"
        ) from None
    return allowed_addresses(host, found, reach)


class SystemResolver:
    """The system's resolver in its own threads, because a silent name server must not block other lookups."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="outlast-dns")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _look_up, host, port)

    def close(self) -> None:
        """Stop the threads without waiting for a pending lookup."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]

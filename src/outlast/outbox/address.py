"""Address policy of deliveries: only public addresses, unless an operator allows others (OUT-6, S20–S22).

A name is resolved once for each delivery. All its addresses are checked, and the connection goes to a checked one, so a
name that resolves differently later cannot redirect the delivery.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from outlast.core.durations import DELIVERY_DNS_TIMEOUT, SECOND
from outlast.core.limits import URL_CHARS_MAX
from outlast.errors import InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Return the addresses of a name as text. Raises OSError."""

PRIVATE: Final = tuple(
    ip_network(text) for text in ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)
"""Networks of webhooks.allow_private: this machine and private ones. Link-local is excluded, because clouds serve
secrets there.
"""
PORTS: Final = frozenset({443, 8443})
PLAIN_PORTS: Final = frozenset({80, 8080})

# IPv6 addresses that contain an IPv4 address, because a packet to them may be routed there.
_NAT64: Final = ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ip_network("::/96")
_TRANSLATED: Final = ip_network("::ffff:0:0:0/96")
# Not covered by every version of `ipaddress`: relays and tunnels to unchecked addresses, services of a network
# (192.0.0.192 is a cloud's metadata), and IPv6 ranges that are not assigned to hosts.
_NEVER: Final = tuple(
    ip_network(text)
    for text in (
        "192.0.0.0/24",
        "192.88.99.0/24",
        "2001::/23",
        "3fff::/20",
        "64:ff9b:1::/48",
        "fec0::/10",
        "4000::/2",
        "8000::/1",
    )
)


class NotAllowed(Exception):
    """A delivery may not go to this address; the message says why."""


class AddressPolicy(NamedTuple):
    """Addresses that an operator allows besides HTTPS on the internet."""

    networks: tuple[Network, ...] = ()
    plain: bool = False  # also allow http://
    any_port: bool = False

    @classmethod
    def of(cls, *, private: bool = False, plain: bool = False, networks: Iterable[str] = ()) -> "AddressPolicy":
        """Build a policy from settings. `private`: also private networks, at any port. Raises InvalidInput."""
        found: list[Network] = []
        for text in networks:
            try:
                found.append(ip_network(text))
            except ValueError as error:
                raise InvalidInput(f"{text!r} is not a network", str(error), "e.g. 10.1.0.0/16") from error
        return cls((*found, *(PRIVATE if private else ())), plain, any_port=private)


PUBLIC: Final = AddressPolicy()


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
    except ValueError as error:
        raise InvalidInput("this is not a webhook URL", str(error), "e.g. https://example.com/hooks") from error
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
            "this webhook URL is not allowed", problems=[("url", text) for text in problems],
            fix="e.g. https://example.com/hooks",
        )  # fmt: skip
    return parts


def port_of(scheme: str, port: int | None) -> int:
    """Return the port of a URL, or the default port of its scheme."""
    if port is not None:
        return port
    return 443 if scheme == "https" else 80


def refusal(address: Address, reach: AddressPolicy) -> str:
    """Return why nothing may be sent to this address; '' if it is allowed."""
    for each in (address, *_carried(address)):
        if any(each in network for network in reach.networks):
            continue
        if not each.is_global or each.is_multicast or any(each in network for network in _NEVER):
            return f"{address} is not an address on the internet"
    return ""


def _carried(address: Address) -> Iterable[Address]:
    """Return the IPv4 addresses that an IPv6 address contains."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if any(address in network for network in (_NAT64, _COMPATIBLE, _TRANSLATED)):
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()


async def checked_addresses(host: str, port: int, resolve: Resolver, reach: AddressPolicy) -> tuple[str, ...]:
    """Resolve a host and return its addresses if all are allowed. Raises NotAllowed, OSError."""
    try:
        async with asyncio.timeout(DELIVERY_DNS_TIMEOUT / SECOND):
            found = await resolve(host, port)
    except TimeoutError:
        raise OSError(
            f"no name server returned the address of {host} within {DELIVERY_DNS_TIMEOUT / SECOND:g} s"
        ) from None
    if not found:
        raise OSError(f"{host} has no address")
    addresses = [ip_address(text.partition("%")[0]) for text in dict.fromkeys(found)]
    for address in addresses:
        if why := refusal(address, reach):
            raise NotAllowed(f"{host}: {why}")
    return tuple(map(str, addresses))


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

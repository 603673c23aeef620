"""Addresses that requests may reach: public ones, and those that an operator or author allows (OUT-6, S20–S22)."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from outlast.errors import InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

PRIVATE: Final = tuple(
    ip_network(text) for text in ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)
"""Networks of webhooks.allow_private: this machine and private ones. Link-local is excluded, because clouds serve
secrets there.
"""

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
    """A request may not go to this address; the message says why."""


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


def allowed_addresses(host: str, found: Sequence[str], reach: AddressPolicy) -> tuple[str, ...]:
    """Return the addresses `found` for a host, each once, if all are allowed. Raises NotAllowed, OSError for none."""
    if not found:
        raise OSError(f"{host} has no address")
    addresses = [ip_address(text.partition("%")[0]) for text in dict.fromkeys(found)]
    for address in addresses:
        if why := refusal(address, reach):
            raise NotAllowed(f"{host}: {why}")
    return tuple(map(str, addresses))

"""How many credentials of an address proved nothing, and for how long nothing more of it is looked at (S12)."""

import ipaddress
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from outlast.core.clock import Clock
from outlast.errors import TooManyFailures

MOST: Final = 20
WITHIN_MS: Final = 60_000
LOCK_MS: Final = 60_000
LOCK_MAX_MS: Final = 900_000
ADDRESSES_MAX: Final = 10_000
SUBNET: Final = 64  # whoever has one address of IPv6 has as many as he likes of its /64


@dataclass
class _Record:
    since: int
    count: int = 0
    locks: int = 0
    locked_until: int = 0


class Failures:
    """Counts by address; forgets the one heard of longest ago where there are too many."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def check(self, client: str) -> None:
        """Return where this address may try. Raises TooManyFailures: it is locked out, longer each time."""
        record = self._records.get(place(client))
        left = record.locked_until - self._clock.boot() if record else 0
        if left > 0:
            raise TooManyFailures(
                "too many credentials from this address proved nothing",
                f"{MOST} within {WITHIN_MS // 1000} s",
                "mend the caller, and wait",
                retry_after_s=math.ceil(left / 1000),
            )

    def note(self, client: str) -> None:
        """One more that proved nothing."""
        now, where = self._clock.boot(), place(client)
        record = self._records.setdefault(where, _Record(now))
        self._records.move_to_end(where)
        if now - record.since >= WITHIN_MS:
            if now - record.since >= LOCK_MAX_MS:
                record.locks = 0
            record.since, record.count = now, 0
        record.count += 1
        if record.count >= MOST:
            record.locked_until = now + min(LOCK_MS << record.locks, LOCK_MAX_MS)
            record.locks += 1
            record.since, record.count = record.locked_until, 0
        while len(self._records) > ADDRESSES_MAX:
            self._records.popitem(last=False)


def place(client: str) -> str:
    """Return the group of addresses that counts as one: of version 6 a /64."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, SUBNET), strict=False))
    return client

"""To whom a worker gives its last places: where it serves several tenants, not to those who hold their share (S35)."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from outlast.core.budget import MINUTE
from outlast.core.clock import Clock

KEPT: Final = 10  # of so many places one is kept; of fewer none
REMEMBERED: Final = 10 * MINUTE  # since a tenant's last run was walked here

Key = tuple[str, str]


class Capacity:
    """Of one worker. Who serves one tenant only keeps nothing back; places that are held are never taken away."""

    def __init__(self, count: int, clock: Clock) -> None:
        self._count = count
        self._kept = count // KEPT
        self._clock = clock
        self._walked: dict[str, int] = {}  # when a run of each tenant was last held here

    def walks(self, tenant: str) -> None:
        """A run of this tenant is held from now on."""
        self._walked[tenant] = self._clock.mono()

    def among(self, held: Iterable[Key]) -> "FreeSlots":
        """What is free beside these runs."""
        since = self._clock.mono() - REMEMBERED
        self._walked = {tenant: at for tenant, at in self._walked.items() if at >= since}
        share = self._count // (len(self._walked) + 1)
        return FreeSlots(held, self._count, self._kept if len(self._walked) > 1 else 0, share)


class FreeSlots:
    """The free places of one take, as its step gives them away; asked about a run again, it answers the same."""

    def __init__(self, held: Iterable[Key], count: int, kept: int, share: int) -> None:
        self.held = Counter(tenant for tenant, _ in held)
        self.refused = False  # somebody has to wait for a place though there is one
        self._free = count - self.held.total()
        self._kept, self._share = kept, share
        self._given: set[Key] = set()
        self._holds = Counter(self.held)

    def has(self, key: Key) -> bool:
        """May this run have a place?"""
        if key in self._given:
            return True
        if self._free - len(self._given) <= self._kept and self._holds[key[0]] >= self._share:
            self.refused = True
            return False
        self._given.add(key)
        self._holds[key[0]] += 1
        return True

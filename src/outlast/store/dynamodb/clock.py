"""The clock of one process of a DynamoDB store, compared with the service's by its answers (S-4, REC-6).

No condition of DynamoDB can compare with the service's time, so each process tells its own: the machine's boot-time
clock, from the wall clock at the start. A step of the wall clock moves nothing. The `Date` of each answer shows whether
the process is within CLOCK_DIFFERENCE_MAX of the service, and so within CLOCK_SKEW of every other process.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from outlast.core.clock_port import Clock
from outlast.core.durations import CLOCK_DIFFERENCE_MAX, CLOCK_SKEW, SECOND
from outlast.errors import StoreUnusable, Unavailable
from outlast.store.store_clock import StoreClock

Bounds = tuple[int, int]
"""Lowest and highest difference in ms of the service's clock minus this process's."""
HOW_TO_SET: Final = "synchronize this machine's clock (chrony, systemd-timesyncd)"


class CheckedClock:
    """The clock of one process. `refusal` says why it must not write now."""

    def __init__(self, clock: Clock, *, checked: bool) -> None:
        """If not `checked`, all processes share `clock`, as in a simulation."""
        self.skew = CLOCK_SKEW if checked else 0
        self.store_clock = StoreClock(clock)
        self._wall = clock.wall
        self._difference: Callable[[], Bounds | None] = lambda: None
        self._checked = checked
        if checked:
            self.store_clock.anchor(None, 0)

    def compare(self, difference: Callable[[], Bounds | None]) -> None:
        """Check this clock, `store_clock.real`, by `difference`: its bounds as the latest answers show them."""
        if self._checked:
            self._difference = difference

    def check_at_opening(self, url: str) -> None:
        """Raise StoreUnusable unless the answers so far show that this clock is right."""
        bounds = self._difference()
        if self._checked and (bounds is None or not _are_right(bounds)):
            found = complaint(bounds)
            raise StoreUnusable(found.what, f"{found.why} ({url})", f"{found.fix}, then start again")

    def refusal(self) -> Unavailable | None:
        """Return the error of a process that must not write, because its clock is not known to be right; else None.

        If the wall clock is right by now, time continues by it, and the next answer confirms it.
        """
        bounds = self._difference()
        if bounds is None or _are_right(bounds):
            return None
        ahead = self.store_clock.real() - self._wall()
        if _are_right((bounds[0] + ahead, bounds[1] + ahead)):
            self.store_clock.follow_wall()
        found = complaint(bounds)
        return Unavailable(found.what, f"{found.why}; this process writes nothing, and its lease ends", found.fix)

    def facts(self) -> dict[str, str | int]:
        """Return how far this clock is ahead of the service's, and how well that is known, for `outlast doctor`."""
        bounds = self._difference()
        if bounds is None:
            return {}
        low, high = bounds
        return {"clock_ahead_ms": -(low + high) // 2, "clock_known_ms": (high - low + 1) // 2}


def _are_right(bounds: Bounds) -> bool:
    """True if a clock is certainly within CLOCK_DIFFERENCE_MAX of the service's."""
    return bounds[0] >= -CLOCK_DIFFERENCE_MAX and bounds[1] <= CLOCK_DIFFERENCE_MAX


class Complaint(NamedTuple):
    """Parts of an error about a clock."""

    what: str
    why: str
    fix: str


def complaint(bounds: Bounds | None) -> Complaint:
    """Return what is wrong with a clock that is not known to be right."""
    limit = f"the clocks of a store's processes may differ from DynamoDB's by {CLOCK_DIFFERENCE_MAX / SECOND:g} s"
    if bounds is None:
        return Complaint(
            "this machine's clock cannot be compared with DynamoDB's",
            f"its answers have no Date header, and {limit}",
            "remove the proxy that drops the header",
        )
    low, high = bounds
    if low > CLOCK_DIFFERENCE_MAX or high < -CLOCK_DIFFERENCE_MAX:
        off = low if low > 0 else -high
        way = "behind" if low > 0 else "ahead of"
        return Complaint(f"this machine's clock is {off / SECOND:.1f} s or more {way} DynamoDB's", limit, HOW_TO_SET)
    return Complaint(
        "this machine's clock is not known to be right",
        f"by the answers of DynamoDB it is {-high / SECOND:.1f} to {-low / SECOND:.1f} s ahead, and {limit}",
        f"{HOW_TO_SET}, and use a network whose answers take less than a second",
    )

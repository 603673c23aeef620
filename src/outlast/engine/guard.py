"""The check at the last instant before a call is sent: may this process still act under its intent? (S-4)"""

from typing import NamedTuple

from outlast.core.budget import CLOCK_DISAGREEMENT_MAX
from outlast.core.clock import Clock


class ClockReading(NamedTuple):
    """The three local clocks at one moment, in ms."""

    boot: int
    wall: int
    mono: int


def read(clock: Clock) -> ClockReading:
    """All three at once."""
    return ClockReading(clock.boot(), clock.wall(), clock.mono())


class Lease:
    """What this process knows of its worker's lease: good until a moment of the boot clock."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.good_until_boot = 0
        self.lost = False

    def renewed(self, submitted: ClockReading, lease_until: int, now_real: int) -> None:
        """The store accepted a renewal that was submitted at `submitted`."""
        self.good_until_boot = submitted.boot + (lease_until - now_real)

    def holds(self, clock: Clock) -> bool:
        """May this worker still hold runs, as far as this process knows?"""
        return not self.lost and clock.boot() < self.good_until_boot


class Permit(NamedTuple):
    """The right to send one attempt: from its intent to `not_after`, on this process's clocks."""

    submitted: ClockReading
    until_boot: int
    lease: Lease

    def refusal(self, clock: Clock) -> str:
        """Why the call must not be sent now; '' if it may. A frozen machine's monotonic clock stood still, so the
        three clocks must have advanced alike since the intent was submitted."""
        now = read(clock)
        if now.boot >= self.until_boot:
            return "the intent's last moment to send has passed"
        if not self.lease.holds(clock):
            return "this worker's lease has run out"
        spans = (now.boot - self.submitted.boot, now.wall - self.submitted.wall, now.mono - self.submitted.mono)
        if max(spans) - min(spans) > CLOCK_DISAGREEMENT_MAX:
            return "this machine's clocks have not advanced alike since the intent"
        return ""


def permit(submitted: ClockReading, not_after: int, now_real: int, lease: Lease) -> Permit:
    """The permit of an intent that the store accepted at `now_real` (its clock), to be sent before `not_after`."""
    return Permit(submitted, submitted.boot + (not_after - now_real), lease)

"""The clocks a process reads, as an interface: time is handed in, never fetched."""

from typing import Protocol


class Clock(Protocol):
    """Four readings and one wait. All in milliseconds."""

    def wall(self) -> int:
        """Real time since 1970; may jump when an operator or NTP sets it."""

    def boot(self) -> int:
        """Time since boot, counting the time the machine was suspended."""

    def mono(self) -> int:
        """Time that never goes backwards, and may stand still while the machine is frozen."""

    async def sleep(self, ms: int) -> None:
        """Return after `ms` of this clock's time."""

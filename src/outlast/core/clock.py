"""The clocks a process reads, as an interface: time is handed in, never fetched."""

from typing import Protocol, runtime_checkable


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


@runtime_checkable
class BootClock(Clock, Protocol):
    """Optional capability: a clock whose `boot` all processes of one machine share until it boots again."""

    def boot_id(self) -> str:
        """Return a name of this boot of the machine; '' if the system has none."""

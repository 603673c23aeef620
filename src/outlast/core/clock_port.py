"""Interface of the clocks that a process reads; time is passed in as an argument."""

from typing import Protocol, runtime_checkable


class Clock(Protocol):
    """Clocks of one process; all times in milliseconds."""

    def wall(self) -> int:
        """Real time since 1970; may jump when an operator or NTP sets it."""

    def boot(self) -> int:
        """Time since boot, counting the time the machine was suspended."""

    def mono(self) -> int:
        """Monotonic time; it may stop while the machine is suspended."""

    async def sleep(self, ms: int) -> None:
        """Return after `ms` of this clock's time."""


@runtime_checkable
class BootClock(Clock, Protocol):
    """Optional capability: a clock whose `boot` all processes of one machine share until it boots again."""

    def boot_id(self) -> str:
        """Return a name of this boot of the machine; '' if the system has none."""

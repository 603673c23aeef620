"""The store's time: a boot-time clock that never goes backwards, and the mapping of business time."""

import json
from threading import Lock
from typing import Final, NamedTuple

from outlast.core.clock_port import BootClock, Clock
from outlast.core.commit import IDENTITY, Mapping
from outlast.core.rows.store_rows import STORE, Meta
from outlast.errors import Corrupt, Rejected
from outlast.store.bounds import ANCHOR_KEY, MAPPING_KEY

MAPPING_ROW: Final = (STORE, MAPPING_KEY)
ANCHOR_ROW: Final = (STORE, ANCHOR_KEY)


class Anchor(NamedTuple):
    """Link between real time and a machine's boot-time clock. Steps of the wall clock do not move it.

    `ahead` is how far business time has followed the wall clock ahead of real time. It only grows.
    """

    boot_id: str
    boot: int
    real: int
    ahead: int = 0


def anchored(last: Anchor | None, boot_id: str, boot: int, wall: int, seen: int) -> Anchor:
    """Return the anchor of this boot.

    After another boot, real time continues by the wall clock but never goes backwards. `seen` is the latest real
    instant that rows of the store are known to hold.
    """
    if last is None:
        return Anchor(boot_id, boot, max(wall, seen))
    if last.boot_id == boot_id:
        return last
    return Anchor(boot_id, boot, max(wall - last.ahead, last.real, seen), last.ahead)


def anchor_of(row: Meta | None) -> Anchor | None:
    """Return the anchor in a meta row, or None without a row.

    Raises Corrupt.
    """
    if row is None:
        return None
    try:
        return Anchor(**json.loads(row.value))
    except (ValueError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def anchor_row(anchor: Anchor, version: int) -> Meta:
    """Return the meta row of an anchor."""
    return Meta(*ANCHOR_ROW, version, json.dumps(anchor._asdict()))


class StoreClock:
    """Real time of the store in milliseconds, which never goes backwards.

    With an anchor it follows the boot-time clock. Without one it follows the wall clock, and pauses while that is
    behind.
    """

    def __init__(self, clock: Clock | None) -> None:
        """`clock` is the machine's or a simulation's, or None if a server tells the time with every answer."""
        self.boot_id = clock.boot_id() if isinstance(clock, BootClock) else ""
        self._clock = clock
        self._anchor: Anchor | None = None
        self._last = 0
        self._lock = Lock()

    def anchor(self, last: Anchor | None, seen: int) -> Anchor | None:
        """Follow the boot-time clock and return the anchor of this boot.

        Return None if the machine cannot identify its boot.
        """
        if not self.boot_id or self._clock is None:
            return None
        found = anchored(last, self.boot_id, self._clock.boot(), self._clock.wall(), seen)
        with self._lock:
            self._anchor, self._last = found, 0
        return found

    def follow_wall(self) -> None:
        """Continue by the wall clock from now on. Time pauses while it is ahead of the wall clock."""
        if self._clock is not None and self._anchor is not None:
            with self._lock:
                self._anchor = Anchor(self.boot_id, self._clock.boot(), self._clock.wall())

    def step(self, anchor: Anchor | None) -> int:
        """Return how far the wall clock is ahead of the time that business time follows, or negative."""
        if anchor is None or self._anchor is None or self._clock is None:
            return 0
        return self._clock.wall() - anchor.ahead - self.real()

    def real(self) -> int:
        """Return the present time, never earlier than any time returned before."""
        return self.at_least(0)

    def at_least(self, server_ms: int) -> int:
        """Return the present time after a server told its time, never earlier than before."""
        with self._lock:
            self._last = max(self._last, self._now(server_ms))
            return self._last

    def _now(self, server_ms: int) -> int:
        if self._clock is None:
            return server_ms
        if self._anchor is None:
            return self._clock.wall()
        return self._anchor.real + self._clock.boot() - self._anchor.boot


def mapping_of(row: Meta | None) -> Mapping:
    """Return the clock mapping in a meta row, or the identity without a row.

    Raises Corrupt.
    """
    if row is None:
        return IDENTITY
    try:
        value = json.loads(row.value)
        return Mapping(row.version, int(value["base_real"]), int(value["base_business"]), float(value["rate"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def mapping_row(mapping: Mapping) -> Meta:
    """Return the meta row of a clock mapping."""
    value = {"base_real": mapping.base_real, "base_business": mapping.base_business, "rate": mapping.rate}
    return Meta(*MAPPING_ROW, mapping.version, json.dumps(value))


def successor(old: Mapping, wanted: Mapping, real: int) -> Mapping:
    """Return the mapping to store after `old`.

    Raises Rejected if business time would go backwards or stop.
    """
    if not wanted.rate > 0:
        raise Rejected(f"the rate of business time is {wanted.rate}, but must be positive")
    if wanted.business(real) < old.business(real):
        raise Rejected("business time would go backwards", fix="begin the new mapping at the present business instant")
    return wanted._replace(version=old.version + 1)

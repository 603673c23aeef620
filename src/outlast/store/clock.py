"""The store's time: a machine's boot-time clock from an anchor, never backwards, and the mapping of business time."""

import json
from threading import Lock
from typing import Final, NamedTuple

from outlast.core.clock import BootClock, Clock
from outlast.core.commit import IDENTITY, Mapping
from outlast.core.rows import STORE, Meta, Row
from outlast.errors import Corrupt, Rejected
from outlast.store.bounds import ANCHOR_KEY, MAPPING_KEY

MAPPING_ROW: Final = (STORE, MAPPING_KEY)
ANCHOR_ROW: Final = (STORE, ANCHOR_KEY)


class Anchor(NamedTuple):
    """Where real time is tied to a machine's boot-time clock, so that no step of the wall clock moves it.

    `ahead`: how far the wall clock is ahead of real time, as business time follows it. It only grows.
    """

    boot_id: str
    boot: int
    real: int
    ahead: int = 0


def anchored(last: Anchor | None, boot_id: str, boot: int, wall: int, seen: int) -> Anchor:
    """Return the anchor of this boot. After another boot real time goes on by the wall clock, but never backwards.

    `seen`: the latest real instant that the store's rows are known to hold.
    """
    if last is None:
        return Anchor(boot_id, boot, max(wall, seen))
    if last.boot_id == boot_id:
        return last
    return Anchor(boot_id, boot, max(wall - last.ahead, last.real, seen), last.ahead)


def anchor_of(row: Row | None) -> Anchor | None:
    """Return the anchor that a meta row holds; None if there is none. Raises Corrupt."""
    if row is None:
        return None
    assert isinstance(row, Meta)
    try:
        return Anchor(**json.loads(row.value))
    except (ValueError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def anchor_row(anchor: Anchor, version: int) -> Meta:
    """Return the meta row that holds an anchor."""
    return Meta(*ANCHOR_ROW, version, json.dumps(anchor._asdict()))


class StoreClock:
    """Real store time in milliseconds, never earlier than any answer before.

    Anchored, it goes on by the boot-time clock. Else it follows the wall clock, and stops while that is behind.
    """

    def __init__(self, clock: Clock | None) -> None:
        """`clock`: the machine's, or the one of a simulation; None where a server tells the time with every answer."""
        self.boot_id = clock.boot_id() if isinstance(clock, BootClock) else ""
        self._clock = clock
        self._anchor: Anchor | None = None
        self._last = 0
        self._lock = Lock()

    def anchor(self, last: Anchor | None, seen: int) -> Anchor | None:
        """Go on by the boot-time clock. Return the anchor of this boot; None if this machine cannot name its boot."""
        if not self.boot_id or self._clock is None:
            return None
        found = anchored(last, self.boot_id, self._clock.boot(), self._clock.wall(), seen)
        with self._lock:
            self._anchor, self._last = found, 0
        return found

    def step(self, anchor: Anchor | None) -> int:
        """Return how far the wall clock is ahead of the time that business time follows; negative: behind it."""
        if anchor is None or self._anchor is None or self._clock is None:
            return 0
        return self._clock.wall() - anchor.ahead - self.real()

    def real(self) -> int:
        """Now, never earlier than any answer before."""
        return self.heard(0)

    def heard(self, server_ms: int) -> int:
        """Now, where a server has just told its time; never earlier than any answer before."""
        with self._lock:
            self._last = max(self._last, self._now(server_ms))
            return self._last

    def _now(self, server_ms: int) -> int:
        if self._clock is None:
            return server_ms
        if self._anchor is None:
            return self._clock.wall()
        return self._anchor.real + self._clock.boot() - self._anchor.boot


def mapping_of(row: Row | None) -> Mapping:
    """The mapping a meta row holds; 1:1 where none was ever set."""
    if row is None:
        return IDENTITY
    assert isinstance(row, Meta)
    try:
        value = json.loads(row.value)
        return Mapping(row.version, int(value["base_real"]), int(value["base_business"]), float(value["rate"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def mapping_row(mapping: Mapping) -> Meta:
    """The meta row that holds a mapping."""
    value = {"base_real": mapping.base_real, "base_business": mapping.base_business, "rate": mapping.rate}
    return Meta(*MAPPING_ROW, mapping.version, json.dumps(value))


def successor(old: Mapping, wanted: Mapping, real: int) -> Mapping:
    """The mapping to store after `old`. Raises Rejected when business time would run backwards or stand still."""
    if not wanted.rate > 0:
        raise Rejected(f"business time at rate {wanted.rate}: it must go forward")
    if wanted.business(real) < old.business(real):
        raise Rejected("business time would run backwards", fix="begin the new mapping at the present business instant")
    return wanted._replace(version=old.version + 1)

"""The store's time: the machine's clock, never backwards within the process, and the mapping of business time."""

import json
from threading import Lock
from typing import Final

from outlast.core.clock import Clock
from outlast.core.commit import IDENTITY, Mapping
from outlast.core.rows import STORE, Meta, Row
from outlast.errors import Corrupt, Rejected
from outlast.store.bounds import MAPPING_KEY

MAPPING_ROW: Final = (STORE, MAPPING_KEY)


class Ticker:
    """Real store time in milliseconds; a wall clock that is set back stands still here until it has caught up.

    `clock`: the machine's, or the one of a simulation; None where a server tells the time with every answer.
    """

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._last = 0
        self._lock = Lock()

    def real(self) -> int:
        """Now, never earlier than any answer before."""
        return self.heard(0)

    def heard(self, server_ms: int) -> int:
        """Now, where a server has just told its time; never earlier than any answer before."""
        with self._lock:
            self._last = max(self._last, self._clock.wall() if self._clock is not None else server_ms)
            return self._last


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

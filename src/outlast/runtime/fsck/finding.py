"""What a check is given, and what it answers: rows in, findings out."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from outlast.core.commit import Mapping
from outlast.core.rows import Effect, Event, Key, Kind, Row, Run, Value, key_of
from outlast.store.port import RunRows


class Finding(NamedTuple):
    """One row that breaks one invariant: which check says so, the row's kind and key, and what is wrong."""

    check: str
    kind: str
    key: Key
    text: str


class OneRun(NamedTuple):
    """Everything the checks of one run look at, as of one snapshot of its rows."""

    rows: RunRows
    history: tuple[Event, ...] | None = None  # all its events, in order; None: not read
    mapping: Mapping | None = None  # of the clocks; None: not known
    generation: int | None = None  # of the store; None: not known
    values: tuple[Value, ...] | None = None  # the large parts of its states; None: not read
    chain: bool = False  # hashes and digests are to be computed anew

    @property
    def run(self) -> Run:
        """Its row."""
        return self.rows.run

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Its own effects, of every scope."""
        own = tuple(effect for effect in self.rows.shared if effect.by_run == self.run.run)
        return (*self.rows.effects, *own)


Broken: TypeAlias = Iterator[tuple[Kind, Key, str]]
Check: TypeAlias = Callable[[OneRun], Broken]


def broken(kind: Kind, row: Row, text: str) -> tuple[Kind, Key, str]:
    """A row that breaks the invariant, and how."""
    return kind, key_of(kind, row), text

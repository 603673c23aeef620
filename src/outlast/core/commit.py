"""Commits: rows that land together or not at all, and the conditions under which they land.

A `Put` names the version that it replaces; 0 means that no row may exist. The store checks conditions under its lock,
by its own clock (S-4), against the rows as earlier commits of the same batch leave them (S-7).
"""

from collections.abc import Iterable
from math import floor
from typing import Any, Final, Literal, NamedTuple

from outlast.core.limits import ITEM_BYTES, PORTION_BYTES, PORTION_ROWS_MAX, WRITER_ITEMS_MAX
from outlast.core.machine import ENDED
from outlast.core.rows.all_kinds import KINDS, R, Row
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN, Message, Run
from outlast.core.rows.store_rows import WRITER


class Put(NamedTuple):
    """Write `row` if the stored row has version `replaces`; 0: if no row exists."""

    kind: AnyKind
    row: Row
    replaces: int


class AppendMessage(NamedTuple):
    """Append a message to a run's inbox (S-1).

    The store assigns its number (inbox_seq + 1) and its time, and makes the run due unless a worker owns it. The run's
    version stays. Refused as Ended if the run has ended, as Stale ("missing") if it does not exist; in a commit of the
    holder of another run as Stale ("version"), because only a commit about a run of its holder says that it is lost.
    """

    message: Message


class Wake(NamedTuple):
    """Make an unowned, unfinished run due now without changing its version (S-6)."""

    tenant: str
    run: str


class Drop(NamedTuple):
    """Delete the mark of an unpublished event after all cursors include it. A missing mark is no error."""

    tenant: str
    run: str
    seq: int


class Erase(NamedTuple):
    """Delete a row of a thread of LangGraph, of the start of a fork, of a counted child of a map, or of a text.

    A missing row is no error. No later commit of the same batch may write the row. The version of its GraphThread
    ensures this, the token of the fork, the end of the child, or that each writer of a text has read its row.
    """

    kind: AnyKind
    key: Key
    size: int = 0
    """Bytes of its texts and blobs, if these may be more than ITEM_BYTES: DynamoDB deletes its further items, too."""


class Expect(NamedTuple):
    """Condition: the row at `key` has this version; 0: it does not exist."""

    kind: AnyKind
    key: Key
    version: int


class When(NamedTuple):
    """Condition: the store's clock has reached `at`; with reached=False, it has not."""

    at: int
    reached: bool
    clock: Literal["real", "business"]
    why: str  # reason in the Stale that it raises


class Fence(NamedTuple):
    """Condition: the claim is still in force, with the same epoch, owner and visit (S-2, S-15).

    `inbox_seq`: no message has arrived since the inbox was read (S-1). `mapping`: version of the clock mapping by which
    the commit's instants were converted (S-4). `version`: the run's row has not changed, because a caller may tell the
    holder of a fork through it (S-28).
    """

    tenant: str
    run: str
    epoch: int
    visit: int
    inbox_seq: int | None = None
    mapping: int | None = None
    version: int | None = None


class Chain:
    """Commits of one holder in submission order (S-7).

    When one commit fails, the store breaks the chain and refuses the later ones. The holder continues with a new Chain.
    """

    __slots__ = ("broken",)

    def __init__(self) -> None:
        self.broken = False


class Commit(NamedTuple):
    """Result of a verb, landed by a store as a whole."""

    writes: tuple[Put | AppendMessage | Wake | Drop | Erase, ...]
    fence: Fence | None = None
    expects: tuple[Expect, ...] = ()
    whens: tuple[When, ...] = ()
    label: str = ""  # "run verb key": names the crash point of this commit


def actions_of(commit: Commit, large_items: int = 0) -> int:
    """Return the number of actions of the DynamoDB transaction that lands a commit (decision 0083).

    Each item is one action, if it is written, only checked, or both. An event counts with the mark that it gets if its
    tenant is subscribed, and a claim with the lock of a takeover. `large_items`: further items of large rows.
    """
    items: set[tuple[str, Key]] = set()
    more = 1 + large_items  # 1: the receipt
    for n, write in enumerate(commit.writes):
        if isinstance(write, Put):
            kind, row, replaces = write
            key = key_of(kind, row)
            items.add((kind.name, key))
            if kind is EVENT:
                items.add((UNPUBLISHED.name, key))
            elif kind is WRITER:
                more += WRITER_ITEMS_MAX
            elif isinstance(row, Run) and replaces and commit.fence is None and row.owner not in ("", ENDED):
                more += 1
        elif isinstance(write, AppendMessage):
            items |= {(MESSAGE.name, (n,)), (RUN.name, write.message[:2])}
        elif isinstance(write, Wake):
            items.add((RUN.name, (write.tenant, write.run)))
        elif isinstance(write, Erase):
            items.add((write.kind.name, write.key))
            more += further_items(write.size)
        else:
            items.add((UNPUBLISHED.name, (write.tenant, write.run, write.seq)))
    items |= {(expect.kind.name, expect.key) for expect in commit.expects}
    if commit.fence is not None:
        items.add((RUN.name, (commit.fence.tenant, commit.fence.run)))
    return len(items) + more


def further_items(size: int) -> int:
    """Return the maximum number of further items of a row on DynamoDB. `size`: bytes of its texts and blobs."""
    return -(-size // ITEM_BYTES) if size > ITEM_BYTES else 0


def in_portions(
    puts: Iterable[Put], rows_max: int = PORTION_ROWS_MAX, bytes_max: int = PORTION_BYTES
) -> list[tuple[Put, ...]]:
    """Split writes into portions, each small enough for a commit of several. Returns [] for none."""
    portions: list[list[Put]] = []
    left = 0
    for put in puts:
        size = bytes_of(put.row)
        if not portions or len(portions[-1]) == rows_max or left < size:
            portions.append([])
            left = bytes_max
        portions[-1].append(put)
        left -= size
    return [tuple(portion) for portion in portions]


def bytes_of(row: Row) -> int:
    """Return the bytes of the text and blobs of a row."""
    columns = (column.encode() if isinstance(column, str) else column for column in row)
    return sum(len(column) for column in columns if isinstance(column, bytes))


class Instant(NamedTuple):
    """Time of the store: real time, and business time by the clock mapping of version `mapping`."""

    real: int
    business: int
    mapping: int


class Done(NamedTuple):
    """Receipt of a landed commit: the run's inbox_seq after it (0 if it names no run) and the store's time."""

    inbox_seq: int
    now: Instant


class Mapping(NamedTuple):
    """Business time = base_business + (real - base_real) × rate; 1:1 in production, never backwards."""

    version: int
    base_real: int
    base_business: int
    rate: float

    def business(self, real: int) -> int:
        """Return the business time at an instant of real time."""
        return self.base_business + floor((real - self.base_real) * self.rate)

    def real(self, business: int) -> int:
        """Return the first real instant at which business time is at least `business`."""
        real = self.base_real + floor((business - self.base_business) / self.rate)
        while self.business(real) < business:
            real += 1
        return real

    def at(self, real: int) -> Instant:
        """Return both times at an instant of real time."""
        business = self.base_business + floor((real - self.base_real) * self.rate)  # as `business`, in one call
        return Instant(real, business, self.version)


IDENTITY: Final = Mapping(version=0, base_real=0, base_business=0, rate=1.0)

EMPTY: Final = b"{}"
"""The payload of a message that carries no data."""


def append_to_inbox(
    tenant: str, run: str, kind: str, name: str, actor: str, payload: bytes = EMPTY, signal_id: str = ""
) -> AppendMessage:
    """Return the write that appends a message to a run's inbox; the store numbers and stamps it."""
    return AppendMessage(Message(tenant, run, 0, kind, name, payload, signal_id, actor, 0))


_PLACES: Final[dict[type[Any], dict[str, int]]] = {
    kind.row: {name: place for place, name in enumerate(kind.row._fields)} for kind in KINDS
}


def changed(row: R, **values: object) -> R:
    """Return the row with these values: `row._replace`, in one call of Python."""
    columns = [*row]
    places = _PLACES[type(row)]
    for name, value in values.items():
        columns[places[name]] = value
    return tuple.__new__(type(row), columns)

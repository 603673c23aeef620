"""A commit: rows that land whole or not at all, with the conditions under which they may.

A `Put` names the version it replaces (0: must not exist). Conditions are judged by the store under its
lock, against rows as earlier commits of the same batch leave them (S-7), by the store's own clock (S-4).
"""

from math import floor
from typing import Final, Literal, NamedTuple

from outlast.core.rows import Key, Kind, Message, Row

WRITES_MAX: Final = 100  # rows in one commit; the bound of DynamoDB's transaction, kept by every store


class Put(NamedTuple):
    """Write `row`, if the row there now has version `replaces`; 0: if there is none."""

    kind: Kind
    row: Row
    replaces: int


class AppendMessage(NamedTuple):
    """Leave a message: the store numbers it (mail + 1), stamps it, and makes the run due if nobody owns it (S-1).

    Spends no version. Refused as Ended when the run is over, as Stale ("missing") when there is none.
    """

    message: Message


class Wake(NamedTuple):
    """Make an unowned, unfinished run due now, spending no version (S-6)."""

    tenant: str
    run: str


class Drop(NamedTuple):
    """Forget an untold event, once every cursor that it concerns knows of it; one that is not there is no mistake."""

    tenant: str
    run: str
    seq: int


class Expect(NamedTuple):
    """Land only if the row at `key` has this version; 0: only if there is none."""

    kind: Kind
    key: Key
    version: int


class When(NamedTuple):
    """Land only if the store's clock has reached `at` (or, reached=False, has not)."""

    at: int
    reached: bool
    clock: Literal["real", "business"]
    why: str  # the reason a Stale carries


class Fence(NamedTuple):
    """Land only while this claim of the run stands: same epoch, same owner, same visit (S-2, S-15).

    `inbox_seq`: land only if no message has come since it was read (S-1). `mapping`: the version of the clock
    mapping that instants of this commit were converted with (S-4).
    """

    tenant: str
    run: str
    epoch: int
    visit: int
    inbox_seq: int | None = None
    mapping: int | None = None


class Chain:
    """Commits of one holder in submission order: once one is not done, the rest is refused until it has heard (S-7).

    The holder opens the next chain by making a new object; the batcher breaks the one it was given.
    """

    __slots__ = ("broken",)

    def __init__(self) -> None:
        self.broken = False


class Commit(NamedTuple):
    """What a verb returns and a store lands."""

    writes: tuple[Put | AppendMessage | Wake | Drop, ...]
    fence: Fence | None = None
    expects: tuple[Expect, ...] = ()
    whens: tuple[When, ...] = ()
    label: str = ""  # "run verb key": what a crash cell is numbered by


class Instant(NamedTuple):
    """The store's time: real, and business time mapped from it; `mapping` is the version of that mapping."""

    real: int
    business: int
    mapping: int


class Done(NamedTuple):
    """A commit landed: the run's mail after it (0 if it named none), and the store's time under the lock."""

    inbox_seq: int
    now: Instant


class Mapping(NamedTuple):
    """Business time = base_business + (real - base_real) × rate; 1:1 in production, never backwards."""

    version: int
    base_real: int
    base_business: int
    rate: float

    def business(self, real: int) -> int:
        """The business instant at a real one."""
        return self.base_business + floor((real - self.base_real) * self.rate)

    def real(self, business: int) -> int:
        """The first real instant at which the business clock shows at least `business`."""
        real = self.base_real + floor((business - self.base_business) / self.rate)
        while self.business(real) < business:
            real += 1
        return real

    def at(self, real: int) -> Instant:
        """Both times at a real instant."""
        return Instant(real, self.business(real), self.version)


IDENTITY: Final = Mapping(version=0, base_real=0, base_business=0, rate=1.0)

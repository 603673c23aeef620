"""The whole storage interface: one way to write, one way to take, and a few ways to read.

A store knows keys, versions and six columns (version, epoch, owner, inbox_seq, due_at, lane); it knows no status
and no verb. Every refused write answers "did it land?": Stale and Rejected: no; Unavailable: no; Uncertain: perhaps.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from outlast.core.commit import Chain, Commit, Done, Instant, Mapping
from outlast.core.outgoing import Cursor
from outlast.core.rows import (
    APPROVAL,
    EFFECT,
    EVIDENCE,
    KINDS,
    MEMO,
    MESSAGE,
    RUN,
    TOKEN,
    WAIT,
    Approval,
    Effect,
    Event,
    Evidence,
    Key,
    Kind,
    Memo,
    Message,
    Row,
    Run,
    Wait,
)
from outlast.errors import Corrupt, StoreReplaced
from outlast.store.fair_queueing import NONE_HELD, HeldCounts

R = TypeVar("R", bound=Row)
Step = Callable[[Run, Instant, Mapping], Commit | None]
"""A pure move of one due run, spoken under the store's lock: the commit that takes it, or None.

A step that declines a row must be given rows it can accept next time, or move their due_at.
"""


class RunRows(NamedTuple):
    """All rows of one run that a holder needs, read in one snapshot."""

    run: Run
    last: Event  # the newest event that carries a snapshot
    effects: tuple[Effect, ...]
    memos: tuple[Memo, ...]
    waits: tuple[Wait, ...]
    approvals: tuple[Approval, ...]
    messages: tuple[Message, ...]
    evidence: tuple[Evidence, ...]
    now: Instant
    shared: tuple[Effect, ...] = ()  # of scope `tenant`: those that a usage row of this run names, whosever they are


class Page(NamedTuple):
    """Rows for people, newest first, and the opaque cursor of the next page ('' at the end)."""

    rows: tuple[Row, ...]
    cursor: str


class Store(Protocol):
    """What every store promises; `tests.conformance` is the exam."""

    url: str
    writer: str  # this process's writer id

    def submit(self, commit: Commit, *, chain: Chain | None = None, linger: bool = False) -> "asyncio.Future[Done]":
        """Hand a commit to the batcher, in order. `linger`: nobody awaits it yet, it may wait 10 ms for company.

        The future raises Stale (`reason` one of version, epoch, inbox_seq, mapping, chain, missing, when's why),
        Ended, Rejected, Unavailable or Uncertain, nothing else. Bounds are checked here, before it is queued.
        """

    async def commit(self, commit: Commit, *, chain: Chain | None = None) -> Done:
        """submit and wait."""

    def hasten(self) -> None:
        """Somebody now awaits a commit that lingers: what was submitted by this loop is landed without company."""

    async def urgent(self, commit: Commit) -> Done:
        """A worker's renewal: ahead of the queue, in a transaction of its own. Callable from any thread's loop."""

    def urgent_sync(self, commit: Commit) -> Done:
        """The same for a thread without a loop, the heartbeat's for instance: returns when it has landed."""

    async def take(
        self, lanes: Sequence[str], n: int, step: Step, *, owners: Sequence[str] = (), held: HeldCounts = NONE_HELD
    ) -> tuple[Run, ...]:
        """Move at most `n` runs of these lanes by `step`: the due ones, or, where `owners` are named, the runs they
        own. No run is taken twice, whoever else is taking. Answers the rows as left.

        Oldest due first; where more are due than `n`, each tenant in turn (`store/fair_queueing.py`), those first of whom the
        taker holds fewest."""

    async def load(self, kind: Kind, key: Key) -> Row | None:
        """One row; strongly consistent."""

    async def load_many(self, kind: Kind, keys: Sequence[Key]) -> tuple[Row | None, ...]:
        """The rows at these keys, in their order, None where there is none; strongly consistent."""

    async def rows(self, kind: Kind, prefix: Key, *, after: Key = (), limit: int = 10_000) -> tuple[Row, ...]:
        """Rows whose key begins with `prefix`, in key order, from after the key `after`; strongly consistent."""

    async def in_order(self, kind: Kind, prefix: Key, *, after: int = 0, limit: int = 10_000) -> tuple[Row, ...]:
        """As `rows`, in the order of the rows' `ordinal`, from after an ordinal."""

    async def count(self, kind: Kind, prefixes: Sequence[Key]) -> tuple[int, ...]:
        """Count the rows under each of these prefixes, all of one length; strongly consistent, in one snapshot."""

    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        """All rows of each of these runs, each run in one snapshot."""

    async def page(
        self, kind: Kind, tenant: str, where: dict[str, str | int], *, cursor: str = "", limit: int = 50
    ) -> Page:
        """For people: rows of a tenant whose columns equal `where`, newest first (by created_at or asked_at)."""

    async def tally(self, kind: Kind, tenant: str, column: str) -> dict[str, int]:
        """How many rows of a tenant there are for each value of a column (status, for instance)."""

    async def owing(self, tenant: str, subscription: str, n: int) -> tuple[Cursor, ...]:
        """At most `n` cursors of a subscription that owe something, those with the earliest due_at first, whether it
        has come or not; strongly consistent. A commit messages an event as untold (core/outgoing.py) where OUTLETS lists
        its tenant, in the transaction that writes the event."""

    async def census(self, kind: Kind, columns: Sequence[str], *, filled: str = "") -> dict[tuple[str, ...], int]:
        """How many rows of all tenants there are for each value of these columns; `filled`: only those in which this
        column is not ''. For people; reads every row of the kind."""

    async def next_due(self, lanes: Sequence[str]) -> int | None:
        """The earliest due_at of these lanes, real; None when nothing will fall due."""

    async def queued(self, tenant: str, limit: int) -> tuple[Run, ...]:
        """Runs that wait for a slot, oldest first; '*' = of all tenants."""

    async def owned(self, owner: str) -> tuple[Run, ...]:
        """The runs a worker owns."""

    async def moving(self, tenant: str, since: int, limit: int) -> tuple[Run, ...]:
        """Runs of a tenant that a worker owns now, and those that have ended at or after `since` (business time),
        newest end first; each once, at most `limit` of either."""

    async def now(self) -> Instant:
        """The store's time."""

    async def set_mapping(self, mapping: Mapping, rearm: Callable[[Run, Mapping], int | None]) -> Mapping:
        """Replace the clock mapping and, in the same transaction, the due_at of every unowned unfinished run by
        `rearm(run, mapping)`, spending no version; one that is due already stays so. Never backwards: the new mapping
        starts at the present business instant or later. Answers the mapping as stored, with its new version."""

    def mapping(self) -> Mapping:
        """The clock mapping as this process last saw it."""

    def facts(self) -> dict[str, str | int]:
        """What `doctor` shows of this store: its versions and its durability settings."""

    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` in the subscriber's event loop when a run may have become due, here or in another process
        (SQLite: within 20 ms). Answers the function that ends the subscription."""

    async def purge(self, before: int, n: int) -> int:
        """Forget at most `n` runs that ended before a business instant, and all their rows but tokens; at most `n`
        effects that a tenant's runs share, once they have been kept for `keep_ms` since they were settled, by the
        store's clock, and no run that they concern is left (S-18); and the receipts of writers that began before it
        and are closed (a missing receipt proves nothing, S-9). Answers how many runs."""

    async def forget(self, n: int) -> int:
        """Forget, by the store's clock, what nobody needs to ask for: at most `n` answers to requests that have been
        kept for ANSWERS_KEPT, the oldest first, and at most `n` rows of workers that are closed, whose lease ran out
        WORKERS_KEPT ago, and who own no run. Answers how many rows."""

    async def migrate(self) -> None:
        """Bring the schema to this version, one numbered step after the other."""

    async def close(self) -> None:
        """Land what was submitted, then let go of every resource."""


class EndedByItself(Exception):
    """The author's code has ended the transaction that it was given. `stands`: what it wrote may be committed."""

    def __init__(self, *, stands: bool) -> None:
        super().__init__("the activity has ended the transaction itself: it has to leave that to the engine")
        self.stands = stands


class Transaction(Protocol):
    """An open transaction on the database of the store, for authors' rows and ours; of the loop that opened it."""

    @property
    def connection(self) -> Any:
        """What authors write through: the driver's own."""
        ...

    async def land(self, commits: Sequence[Commit]) -> Done:
        """Judge these commits in order under the locks of their rows, and COMMIT them with all that was written.

        Raises Stale or Ended with the transaction still open, so that it may be tried with others; Unavailable
        (nothing landed), Uncertain, EndedByItself, and what the database says of the author's rows (nothing landed).
        """

    def is_passing(self, error: BaseException) -> bool:
        """Is it an error of the database that the same transaction may not meet again?"""


@runtime_checkable
class Transactions(Protocol):
    """What a store can do besides whose database holds tables of authors too."""

    def transaction(self, timeout_ms: int, *, serializable: bool = False) -> "AbstractAsyncContextManager[Transaction]":
        """Begin one in the caller's loop, that the server ends by itself after `timeout_ms` without a word; rolled
        back where it did not `land`. Raises Unavailable."""


@runtime_checkable
class Telling(Protocol):
    """What a store can do besides that lands its commits itself: tell what they moved, without anybody's looking."""

    def on_moved(self, hear: "Moved") -> Callable[[], None]:
        """Call `hear` in the subscriber's event loop for each run of which a commit or a take of this very process has
        landed. Of other processes nothing is told. Answers the function that ends the subscription."""


@runtime_checkable
class OnFile(Protocol):
    """Optional capability: a store in one file, which can be copied, moved, deleted or replaced."""

    def lost(self) -> StoreReplaced | None:
        """Compare the file's name with the file that was opened. Return why that one is gone; None if it is there."""

    async def adopt_file(self, *, moved: bool = False) -> None:
        """Make the present file the store's own, after a recovery or, if `moved`, without one.

        Raises Conflict if the file was not moved but copied, StoreUnusable for a backup that is said to be moved.
        """


@runtime_checkable
class AnchoredClock(Protocol):
    """Optional capability: a store whose time goes on by the boot-time clock, whatever the wall clock is set to."""

    async def clock_step(self) -> int:
        """Return how far this machine's wall clock is ahead of business time, in ms; negative: behind it."""

    async def follow_clock(self, rearm: Callable[[Run, Mapping], int | None]) -> int:
        """Let business time skip forward by a step of CLOCK_STEP or more, as `set_mapping`. Return it; 0 if none."""


async def clock_step(store: Store) -> int:
    """Return how far the wall clock is off business time; 0 if a server tells the store's time."""
    return await store.clock_step() if isinstance(store, AnchoredClock) else 0


def lost(store: Store) -> StoreReplaced | None:
    """Return why the file of a store is gone; None if it is there, or the store is in no file."""
    return store.lost() if isinstance(store, OnFile) else None


Moved = Callable[[str, str, int], None]
"""Tenant, run, and the number of the run's last event; 0 where the run itself has not moved: a message was left."""

# Kinds of rows that belong to a run and are deleted with it. Tokens outlive it (S-18).
OF_A_RUN: Final = tuple(kind for kind in KINDS if kind is RUN or (kind.row._fields[1] == "run" and kind is not TOKEN))
OF_A_HOLDER: Final = (EFFECT, MEMO, WAIT, APPROVAL, MESSAGE, EVIDENCE)  # in the order of RunRows


def gather_rows(
    run: Run, last: Event | None, rest: Sequence[Sequence[Row]], now: Instant, shared: Sequence[Row] = ()
) -> RunRows:
    """A run's rows as one value; `rest` in the order of the fields. Raises Corrupt for a run without a snapshot."""
    if last is None:
        raise Corrupt(f"run {run.run}: no event carries a snapshot")
    effects, memos, waits, approvals, messages, evidence = map(tuple, rest)
    return RunRows(run, last, effects, memos, waits, approvals, messages, evidence, now, tuple(shared))  # type: ignore[arg-type]

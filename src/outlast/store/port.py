"""The interface of every store: one way to write, one way to take runs, and the reads.

A store interprets six columns of a run: version, epoch, owner, inbox_seq, due_at and lane. Statuses and verbs mean
nothing to it. Each error of a write says whether the write landed: it did not if Stale, Ended, Rejected or Unavailable
is raised, and it may have if Uncertain is raised.

The port is an internal seam between the engine and the stores of this package. Nothing outside may rely on it: it
changes with any release, and queries are added without notice. There will be no fourth database, because each query is
written once more for each of them: in SQL, in Python over rows in memory, and as a plan of DynamoDB.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from outlast.core.commit import Chain, Commit, Done, Instant, Mapping
from outlast.core.limits import COUNT_MAX
from outlast.core.rows.all_kinds import KINDS, R, Row
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, EVIDENCE, MEMO, WAIT, Approval, Effect, Evidence, Memo, Wait
from outlast.core.rows.map_rows import MAP_KINDS
from outlast.core.rows.row_kind import Key, Kind
from outlast.core.rows.run_rows import MESSAGE, RUN, TOKEN, Event, Message, Run
from outlast.core.state.delta_packets import Delta
from outlast.errors import Conflict, Corrupt, StoreReplaced
from outlast.store.fair_queueing import NONE_HELD, HeldCounts
from outlast.store.queries import ROWS_MAX, Load, LoadMany, Newest, Page, Query, Under

T = TypeVar("T")
Step = Callable[[Run, Instant, Mapping], Commit | None]
"""Pure function called with one due run under the store's lock. Returns the commit that takes the run, or None.

If a step declines a run, the next take offers the run again. Move its due_at, or have the step accept it later.
"""


class RunRows(NamedTuple):
    """All rows of one run that its holder needs, read in one snapshot."""

    run: Run
    last: Event  # the newest event that carries a snapshot
    effects: tuple[Effect, ...]
    memos: tuple[Memo, ...]
    waits: tuple[Wait, ...]
    approvals: tuple[Approval, ...]
    messages: tuple[Message, ...]
    evidence: tuple[Evidence, ...]
    now: Instant
    shared: tuple[Effect, ...] = ()  # shared by the tenant, named by the usage rows of this run


class Store(Protocol):
    """Protocol of all stores. `Maintenance` and the protocols below it are capabilities that a store may add.

    `commit`, `load`, `load_many`, `rows` and `page` are written here. A store implements the others. The conformance
    suite is in `tests/conformance` of the source repository.
    """

    url: str
    writer: str  # unique per opened store
    count_max: int = COUNT_MAX
    """Rows of a kind that a summary reads at most. Flagged runs are counted without reading them."""
    skew: int = 0
    """Ms by which the clocks of two processes of this store may differ (S-4). 0 if one clock tells the store's time.

    It widens each comparison of an instant that one process wrote with the clock of another (docs/operating.md).
    """

    def submit(self, commit: Commit, *, chain: Chain | None = None, linger: bool = False) -> "asyncio.Future[Done]":
        """Queue a commit for the next batch, in order of submission.

        The bounds of the commit are checked before it is queued. Set `linger` if no caller waits for the result yet:
        the commit may then wait up to 10 ms for others.

        The future raises Stale, Ended, Rejected, Unavailable or Uncertain, and nothing else. The `reason` of Stale is
        version, epoch, inbox_seq, mapping, chain, missing, lock (a recovery lock of DynamoDB), or the `why` of a
        condition.
        """

    def hasten(self) -> None:
        """Land lingering commits of this event loop without further delay."""

    def urgent_sync(self, commit: Commit) -> Done:
        """Land a commit ahead of the queue, in its own transaction, and block until it has landed.

        Renews leases from a thread without an event loop.
        """

    async def take(
        self, lanes: Sequence[str], n: int, step: Step, *, owners: Sequence[str] = (), held: HeldCounts = NONE_HELD
    ) -> tuple[Run, ...]:
        """Apply `step` to at most `n` due runs of these lanes and return the rows after the move.

        If `owners` are given, offer the runs that they own instead. No run is taken twice, even if several writers take
        at once.

        The oldest due runs come first. If more than `n` are due, tenants take turns, and a tenant of whom the taker
        holds fewer runs goes first (`store/fair_queueing.py`).
        """

    async def query(self, query: Query[T]) -> T:
        """Return the answer of a query. Strongly consistent.

        DynamoDB finds rows of many runs by indexes that lag: a list may miss rows of the last moments. No row in an
        answer is outdated.

        Raises InvalidInput for an unknown column or a cursor of another list, Corrupt, Unavailable.
        """

    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        """Return all rows of each run, each run in one snapshot."""

    async def now(self) -> Instant:
        """Return the store's present real and business time."""

    def mapping(self) -> Mapping:
        """Return the clock mapping that this process saw last."""

    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` in the current event loop when a run may have become due. Return the function that unsubscribes.

        Changes by other processes count, too. SQLite notices them within 20 ms.
        """

    async def close(self) -> None:
        """Land all submitted commits, then release every resource."""

    # --- in terms of the methods above ---------------------------------------------------
    async def commit(self, commit: Commit, *, chain: Chain | None = None) -> Done:
        """Submit a commit and wait for its result."""
        return await self.submit(commit, chain=chain)

    async def load(self, kind: Kind[R], key: Key) -> R | None:
        """Return one row, or None."""
        return await self.query(Load(kind, key))

    async def load_many(self, kind: Kind[R], keys: Sequence[Key], *, listed: bool = False) -> tuple[R | None, ...]:
        """Return the rows at these keys in the order given, with None for missing rows.

        `listed`: a row that cannot be read is replaced as in a list. Else it raises Corrupt.
        """
        return await self.query(LoadMany(kind, tuple(keys), listed))

    async def rows(
        self, kind: Kind[R], prefix: Key, *, after: Key = (), limit: int = ROWS_MAX, listed: bool = False
    ) -> tuple[R, ...]:
        """Return rows whose key begins with `prefix`, in key order, starting after the key `after`.

        `listed`: as in `load_many`.
        """
        return await self.query(Under(kind, prefix, after, limit, listed))

    async def page(
        self, kind: Kind[R], tenant: str, where: dict[str, str | int], *, cursor: str = "", limit: int = 50
    ) -> Page[R]:
        """Return one page of a tenant's rows whose columns equal `where`, newest first.

        The order is by the time column of the kind, for example created_at or asked_at.
        """
        return await self.query(Newest(kind, tenant, tuple(where.items()), cursor, limit))


class TransactionEnded(Exception):
    """The author's code ended the transaction it was given. Its writes are lost unless `may_be_committed`."""

    def __init__(self, *, may_be_committed: bool) -> None:
        super().__init__("the activity ended the transaction, which only the engine may end")
        self.may_be_committed = may_be_committed


class Transaction(Protocol):
    """Open transaction on the store's database, used in the event loop that opened it.

    Rows of the author and rows of the store are written together.
    """

    @property
    def connection(self) -> Any:
        """The driver's connection, through which authors write."""
        ...

    async def land(self, commits: Sequence[Commit]) -> Done:
        """Judge commits in order under row locks, and COMMIT them with the author's writes.

        Raises Stale or Ended and leaves the transaction open, so that other commits may be tried. Raises Unavailable or
        a database error about the author's rows if nothing landed. Raises Uncertain and EndedByItself.
        """

    def is_passing(self, error: BaseException) -> bool:
        """Return True if the same transaction may succeed when it is repeated after this error."""


@runtime_checkable
class Maintenance(Protocol):
    """Capability: change the clock mapping, delete expired rows, and report the settings."""

    async def set_mapping(self, mapping: Mapping, rearm: Callable[[Run, Mapping], int | None]) -> Mapping:
        """Replace the clock mapping and return it with its new version.

        In the same transaction, set the due_at of every unowned, unfinished run to `rearm(run, mapping)` without a new
        version. Runs that are due already stay due. Raises Rejected if business time would go backwards.
        """

    async def purge(self, before: int, n: int) -> int:
        """Delete at most `n` runs that ended before a business instant, and return how many.

        A tree is deleted as one, its root last, and only if all its runs ended before the instant (S-30).

        All rows of the runs go, except tokens. At most `n` effects shared by a tenant go as well, if `keep_ms` have
        passed since they were settled and no run names them (S-18). Receipts of closed writers that began before the
        instant go: a missing receipt proves nothing (S-9).
        """

    async def purge_runs(self, runs: Sequence[Run]) -> None:
        """Delete all rows of these runs, which have ended, in this order, and the tokens that name them (S-32)."""

    async def purge_ledgers(self, before: int, n: int) -> int:
        """Delete the ledgers of at most `n` runs that ended before a business instant, and return how many runs.

        Effects, memos and late answers of these runs go. Effects shared by a tenant stay, and so do all other rows of
        the runs. Runs are taken in the order of their ends, each once: the meta row LEDGERS names the last one.
        """

    async def forget(self, n: int) -> int:
        """Delete stored answers and rows of workers whose retention is over, and return how many.

        Answers to requests are kept for ANSWERS_KEPT, and the oldest go first. A closed worker is kept for WORKERS_KEPT
        after its lease, and longer if it owns a run. At most `n` rows of each kind go.
        """

    def facts(self) -> dict[str, str | int]:
        """Return versions and durability settings for `outlast doctor`."""


@runtime_checkable
class Expiry(Protocol):
    """Optional capability: the database deletes rows by itself after an instant that is written into them."""

    async def expire(self, before: int, n: int, *, runs_kept: int, ledger_kept: int) -> int:
        """Write the ends of retention into rows of at most `n` runs that ended before an instant; return how many runs.

        Runs are taken in the order of their ends, each once. From the end of `ledger_kept` on its ledger is absent, and
        from that of `runs_kept` on the whole run, as after a purge; 0 = no such end. Nothing of an unfinished run ever
        expires, and neither do tokens and effects shared by a tenant. Returns 0 while runs whose ledgers expire after
        another time are left. The purges delete rows that this misses.
        """


@runtime_checkable
class Transactions(Protocol):
    """Optional capability: transactions that write tables of authors along with the store's rows."""

    serializes: bool
    """True if a transaction may be serializable."""

    def transaction(self, timeout_ms: int, *, serializable: bool = False) -> "AbstractAsyncContextManager[Transaction]":
        """Begin a transaction in the current event loop. It is rolled back unless `land` commits it.

        The server ends it after `timeout_ms` without a statement. Raises Unavailable.
        """


@runtime_checkable
class CommitNotifier(Protocol):
    """Optional capability: call subscribers when a commit of this process has landed, without polling."""

    def on_commit(self, callback: "RunCallback") -> Callable[[], None]:
        """Call `callback` in the current event loop for each run that a commit or take of this process changed.

        Commits of other processes are not reported. Return the function that unsubscribes.
        """


@runtime_checkable
class DeltaChannel(Protocol):
    """Optional capability: pass texts of runs that are never stored to listeners, also in other processes.

    Lossy: a process that cannot be reached or is behind loses texts. Nothing waits for it.
    """

    def publish(self, deltas: Sequence[Delta]) -> None:
        """Send deltas to the subscribers of every process that can be reached. Never blocks or raises."""

    def on_deltas(self, callback: Callable[[Sequence[Delta]], None]) -> Callable[[], None]:
        """Call `callback` in the current event loop with deltas of any process. Return the function that unsubscribes.

        Those of one origin arrive in order.
        """


@runtime_checkable
class OnFile(Protocol):
    """Optional capability: a store in one file, which can be copied, moved, deleted or replaced."""

    def lost(self) -> StoreReplaced | None:
        """Return why the opened file is gone, or None if its name still leads to it."""

    async def adopt_file(self, *, moved: bool = False) -> None:
        """Make the present file the store's file, after a recovery or, if `moved`, without one.

        Raises Conflict if the file was copied rather than moved, and StoreUnusable if it is a backup.
        """


@runtime_checkable
class AnchoredClock(Protocol):
    """Optional capability: store time that follows the boot-time clock, not the wall clock."""

    async def clock_step(self) -> int:
        """Return how far the wall clock of this machine is ahead of business time in ms, or negative."""

    async def follow_clock(self, rearm: Callable[[Run, Mapping], int | None]) -> int:
        """Skip business time forward by a wall-clock step of CLOCK_STEP or more, and return the step or 0.

        Due times are recomputed as in `set_mapping`.
        """


async def rows_of_each(store: Store, runs: Sequence[tuple[str, str]]) -> Sequence[RunRows | Corrupt | None]:
    """Return all rows of each run, and in place of those that cannot be read the error. Raises StoreError."""
    try:
        return await store.run_rows(runs)
    except Corrupt as error:
        if len(runs) == 1:
            return [error]
    return [each for run in runs for each in await rows_of_each(store, [run])]


def maintenance(store: Store) -> Maintenance:
    """Return the store as one that can be maintained. Raises Conflict."""
    if not isinstance(store, Maintenance):
        raise Conflict(f"the store {store.url} cannot be maintained", "it has no method for it")
    return store


async def clock_step(store: Store) -> int:
    """Return how far the wall clock is off business time, or 0 if a server tells the store's time."""
    return await store.clock_step() if isinstance(store, AnchoredClock) else 0


def lost(store: Store) -> StoreReplaced | None:
    """Return why the file of a store is gone, or None if it is there or the store has no file."""
    return store.lost() if isinstance(store, OnFile) else None


RunCallback = Callable[[str, str, Run | None], None]
"""Tenant, run, and the run's row as written, or None if only a message was appended."""

# Kinds of rows that belong to a run and are deleted with it. Tokens outlive it (S-18).
RUN_KINDS: Final[tuple[Kind[Row], ...]] = tuple(
    kind for kind in KINDS if kind is RUN or (kind.columns[1] == "run" and kind is not TOKEN)
)
# Purged before their run (CKP-7).
LEDGER_KINDS: Final[tuple[Kind[Row], ...]] = (EFFECT, MEMO, EVIDENCE, *MAP_KINDS)
# In the order of RunRows.
HOLDER_KINDS: Final[tuple[Kind[Row], ...]] = (EFFECT, MEMO, WAIT, APPROVAL, MESSAGE, EVIDENCE)


def gather_rows(
    run: Run, last: Event | None, rest: Sequence[Sequence[Row]], now: Instant, shared: Sequence[Row] = ()
) -> RunRows:
    """Combine the rows of a run, with `rest` in the order of HOLDER_KINDS.

    Raises Corrupt for a run without a snapshot.
    """
    if last is None:
        raise Corrupt(f"run {run.run}: no event carries a snapshot")
    effects, memos, waits, approvals, messages, evidence = map(tuple, rest)
    return RunRows(run, last, effects, memos, waits, approvals, messages, evidence, now, tuple(shared))  # type: ignore[arg-type]

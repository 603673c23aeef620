"""The store in memory: dictionaries of rows, in the caller's thread. It is the model of the other stores."""

import asyncio
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from threading import RLock
from typing import Any, Final

from typing_extensions import override

from outlast.core.clock import Clock
from outlast.core.commit import Chain, Commit, Done, Instant, Mapping
from outlast.core.crash_points import point
from outlast.core.deliveries import SUBSCRIBED_TENANTS, tenants_of
from outlast.core.durations import ANSWERS_KEPT, WORKERS_KEPT
from outlast.core.machine import ENDED, LeaseStatus
from outlast.core.rows import (
    CURSOR,
    EFFECT,
    EVENT,
    KINDS,
    META,
    REQUEST,
    RUN,
    STORE,
    UNPUBLISHED,
    USAGE,
    WORKER,
    WRITER,
    AnyKind,
    Cursor,
    Key,
    Kind,
    R,
    Row,
    Run,
    Writer,
    check_effect,
    check_run,
    is_due,
    key_of,
)
from outlast.errors import Rejected, StoreError, StoreUnusable, Unavailable
from outlast.store.batch import Batch
from outlast.store.bounds import check
from outlast.store.clock import MAPPING_ROW, StoreClock, mapping_of, mapping_row, successor
from outlast.store.fair_queueing import NONE_HELD, DueQuery, FairQueue, HeldCounts, chosen
from outlast.store.pages import PAGE_MAX, check_columns, cursor_of, place_after, place_of
from outlast.store.port import HOLDER_KINDS, RUN_KINDS, Page, RunRows, Step, Store, gather_rows
from outlast.store.threads import WakeSubscribers

SLACK: Final = 1_000  # superseded entries that a heap may hold before it is rebuilt


class RowsInMemory:
    """All rows of a memory store. A row is replaced whole, and versions are not compared."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Key, dict[Key, Any]]] = {kind.name: {} for kind in KINDS}
        self._due: dict[str, list[tuple[int, Key]]] = {}  # heap per lane, with entries that newer rows supersede
        self._armed: dict[str, int] = {}  # number of runs with a due_at, by lane
        self._owned: dict[str, set[Key]] = {}
        self._queued: set[Key] = set()
        self._over: list[tuple[int, Key]] = []  # end and key of ended runs, in order

    def get(self, kind: Kind[R], key: Key) -> R | None:
        """Return the row at a key, or None."""
        group = self._groups[kind.name].get(_group(kind, key))
        return None if group is None else group.get(key)

    def put(self, kind: AnyKind, key: Key, row: Row) -> None:
        """Replace the row at a key."""
        group = self._groups[kind.name].setdefault(_group(kind, key), {})
        if kind is RUN:
            old = group.get(key)
            assert isinstance(row, Run)
            self._index(old, row)
        group[key] = row

    def drop(self, kind: AnyKind, prefix: Key) -> None:
        """Delete all rows of this kind whose key begins with `prefix`."""
        for key in [key_of(kind, row) for row in self.under(kind, prefix)]:
            group = self._groups[kind.name][_group(kind, key)]
            row = group.pop(key)
            if kind is RUN:
                self._index(row, None)
            if not group:
                del self._groups[kind.name][_group(kind, key)]

    def under(self, kind: Kind[R], prefix: Key) -> list[R]:
        """Return rows whose key begins with `prefix`, in key order."""
        groups = self._groups[kind.name]
        width = 1 if kind.key == 2 else 2
        if len(prefix) >= width:
            found = list(groups.get(prefix[:width], {}).items())
        else:
            found = [item for group in groups.values() for item in group.items()]
        return [row for key, row in sorted(found) if key[: len(prefix)] == prefix]

    def due(self, query: DueQuery, real: int) -> list[Run]:
        """Return the runs that a query for due runs finds."""
        heap = self._due.get(query.lane, [])
        if query.without:
            others = sorted({e for e in heap if query.since <= e[0] <= real and e[1][0] not in query.without})
            armed = (self._armed_run(query.lane, entry) for entry in others)
            return list(islice((run for run in armed if run is not None), query.limit))
        found: list[Run] = []
        taken: list[tuple[int, Key]] = []
        while heap and heap[0][0] <= real and len(found) < query.limit:
            entry = heappop(heap)
            run = self._armed_run(query.lane, entry)
            if run is not None and (not taken or taken[-1] != entry):
                found.append(run)
                taken.append(entry)
        for entry in taken:
            heappush(heap, entry)
        return found

    def next_due(self, lane: str) -> int | None:
        """Return the earliest due_at of a lane, or None."""
        heap = self._due.get(lane, [])
        while heap and self._armed_run(lane, heap[0]) is None:
            heappop(heap)
        return heap[0][0] if heap else None

    def owned(self, owner: str) -> list[Run]:
        """Return the runs of an owner, in key order."""
        return self._runs(self._owned.get(owner, set()))

    def held(self, tenant: str) -> list[Run]:
        """Return the owned runs of a tenant, by owner."""
        return [run for owner in sorted(self._owned) for run in self.owned(owner) if run.tenant == tenant]

    def over(self, tenant: str, since: int) -> list[Run]:
        """Return the runs of a tenant that ended at or after a business instant, newest end first."""
        found = self._over[bisect_left(self._over, (since, ())) :]
        runs = [self.get(RUN, key) for _, key in reversed(found) if key[0] == tenant]
        return [run for run in runs if run is not None]

    def queued(self) -> list[Run]:
        """Return the runs that wait for a slot, oldest first."""
        return sorted(self._runs(self._queued), key=lambda run: (run.created_at, run.tenant, run.run))

    def _runs(self, keys: set[Key]) -> list[Run]:
        runs = [self.get(RUN, key) for key in sorted(keys)]
        return [run for run in runs if run is not None]

    def _armed_run(self, lane: str, entry: tuple[int, Key]) -> Run | None:
        """Return the run of a heap entry, or None if a newer row superseded the entry."""
        run = self.get(RUN, entry[1])
        return run if run is not None and run.lane == lane and run.due_at == entry[0] else None

    def _index(self, old: Run | None, new: Run | None) -> None:
        key = (new or old)[:2]  # type: ignore[index]
        was = None if old is None else (old.lane, old.due_at, old.owner, old.queue, old.ended_at)
        now = None if new is None else (new.lane, new.due_at, new.owner, new.queue, new.ended_at)
        if was == now:
            return
        if old is not None:
            self._owned.get(old.owner, set()).discard(key)
            self._queued.discard(key)
            if old.due_at is not None:
                self._armed[old.lane] -= 1
            if old.ended_at:
                del self._over[bisect_left(self._over, (old.ended_at, key))]
        if new is not None:
            if new.owner not in ("", ENDED):
                self._owned.setdefault(new.owner, set()).add(key)
            if new.queue:
                self._queued.add(key)
            if new.ended_at:
                insort(self._over, (new.ended_at, key))
            if new.due_at is not None:
                self._arm(new.lane, new.due_at, key, new)

    def _arm(self, lane: str, due_at: int, key: Key, run: Run) -> None:
        self._armed[lane] = self._armed.get(lane, 0) + 1
        heap = self._due.setdefault(lane, [])
        heappush(heap, (due_at, key))
        if len(heap) > 2 * self._armed[lane] + SLACK:
            heap[:] = {e for e in heap if self._armed_run(lane, e) is not None} | {(due_at, run[:2])}
            heapify(heap)


def _group(kind: AnyKind, key: Key) -> Key:
    """Return the group of a key: the run if the key names one, else the tenant."""
    return key[:1] if kind.key == 2 else key[:2]


class MemoryCore:
    """State shared by the memory stores that are opened on it, each with its own writer."""

    def __init__(self, clock: Clock) -> None:
        self.store_clock = StoreClock(clock)
        self.rows = RowsInMemory()
        self.wakes = WakeSubscribers()
        self.lock = RLock()

    def mapping(self) -> Mapping:
        """Return the present clock mapping."""
        return mapping_of(self.rows.get(META, MAPPING_ROW))

    def now(self) -> Instant:
        """Return the store's real and business time."""
        return self.mapping().at(self.store_clock.real())

    def apply(self, batch: Batch) -> None:
        """Set every row of a batch and wake subscribers if a run may be due."""
        for kind in KINDS:
            for key, left in batch.changes[kind.name].items():
                self.rows.put(kind, key, left.row)
        for key in batch.published:
            self.rows.drop(UNPUBLISHED, tuple(key))
        if any(left.row.owner == "" and left.row.due_at is not None
               for left in batch.changes[RUN.name].values()):  # fmt: skip
            self.wakes.fire()


class MemoryStore(Store):
    """One writer on a MemoryCore. Keeps every promise of `Store`, except to survive the process."""

    def __init__(self, core: MemoryCore, writer: str) -> None:
        self.url = "memory:"
        self.writer = writer
        self._core = core
        self._closed = False
        self._fair = FairQueue()
        with core.lock:
            if core.rows.get(WRITER, (STORE, writer)) is not None:
                raise StoreUnusable(f"writer {writer} exists already", "each start needs a new writer id")
            row = Writer(STORE, writer, 1, LeaseStatus.ALIVE, 0, core.now().business)
            core.rows.put(WRITER, (STORE, writer), row)

    # --- writing -------------------------------------------------------------------------
    @override
    def submit(self, commit: Commit, *, chain: Chain | None = None, linger: bool = False) -> "asyncio.Future[Done]":
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self._land(commit, chain))
        except StoreError as error:
            future.set_exception(error)
            future.exception()  # marks it as retrieved: the caller need not await it
        return future

    @override
    async def commit(self, commit: Commit, *, chain: Chain | None = None) -> Done:
        return self._land(commit, chain)

    @override
    def hasten(self) -> None:
        pass

    @override
    async def urgent(self, commit: Commit) -> Done:
        return self._land(commit, None)

    @override
    def urgent_sync(self, commit: Commit) -> Done:
        return self._land(commit, None)

    @override
    async def take(
        self, lanes: Sequence[str], n: int, step: Step, *, owners: Sequence[str] = (), held: HeldCounts = NONE_HELD
    ) -> tuple[Run, ...]:
        taken: list[Run] = []
        with self._core.lock:
            now, mapping = self._core.now(), self._core.mapping()
            for run in self._candidates(lanes, n, owners, held, now.real):
                commit = step(run, now, mapping)
                if commit is None:
                    continue
                try:
                    self._land(commit, None)
                except (Rejected, Unavailable):
                    raise
                except StoreError:
                    continue  # a row that it names has changed: the run is not taken now
                left = self._core.rows.get(RUN, run[:2])
                assert left is not None
                taken.append(left)
        return tuple(taken)

    def _candidates(
        self, lanes: Sequence[str], n: int, owners: Sequence[str], held: HeldCounts, real: int
    ) -> list[Run]:
        rows = self._core.rows
        if owners:
            return [run for owner in owners for run in rows.owned(owner)][:n]
        queries = self._fair.queries(lanes, n, real, held)
        while query := queries.query:
            queries.answer(rows.due(query, real))
        return chosen(queries.found, n, held)

    def _land(self, commit: Commit, chain: Chain | None) -> Done:
        core = self._core
        with core.lock:
            try:
                check(commit)
                receipt = self._receipt()
                point("store.batch:before", (commit.label,))
                batch = Batch(
                    core.rows.get, core.now(), subscribed_tenants=tenants_of(core.rows.get(META, SUBSCRIBED_TENANTS))
                )
                done = batch.land(commit, chain)
                point("store.batch:inside", (commit.label,))
                core.rows.put(WRITER, receipt[:2], receipt)
                core.apply(batch)
            except StoreError:
                if chain is not None:
                    chain.broken = True
                raise
            point("store.batch:after", (commit.label,))
            return done

    def _receipt(self) -> Writer:
        """Return this writer's row with the next batch number.

        Raises Unavailable if the writer is closed (S-9).
        """
        if self._closed:
            raise Unavailable("the store is closed")
        row = self._core.rows.get(WRITER, (STORE, self.writer))
        if row is None or row.status is not LeaseStatus.ALIVE:
            raise Unavailable(f"writer {self.writer} has been closed", "another process declared this one dead")
        return row._replace(batch=row.batch + 1)

    @override
    async def set_mapping(self, mapping: Mapping, rearm: Callable[[Run, Mapping], int | None]) -> Mapping:
        core = self._core
        with core.lock:
            self._receipt()
            stored = successor(core.mapping(), mapping, core.store_clock.real())
            for row in core.rows.under(RUN, ()):
                if row.owner == "" and not is_due(row, core.store_clock.real()):
                    core.rows.put(RUN, row[:2], row._replace(due_at=rearm(row, stored)))
            core.rows.put(META, MAPPING_ROW, mapping_row(stored))
            core.wakes.fire()
            return stored

    @override
    async def purge(self, before: int, n: int) -> int:
        rows = self._core.rows
        with self._core.lock:
            self._receipt()
            over = [r for r in rows.under(RUN, ()) if r.owner == ENDED and r.ended_at < before]
            over.sort(key=lambda run: (run.ended_at, run.tenant, run.run))
            for run in over[:n]:
                for kind in RUN_KINDS:
                    rows.drop(kind, run[:2])
            self._forget_shared(n)
            for row in rows.under(WRITER, ()):
                if row.status is LeaseStatus.CLOSED and row.started_at < before:
                    rows.drop(WRITER, row[:2])
        return len(over[:n])

    @override
    async def forget(self, n: int) -> int:
        rows = self._core.rows
        with self._core.lock:
            self._receipt()
            now = self._core.now()
            owners = {row.owner for row in rows.under(RUN, ())}
            answers = [r for r in rows.under(REQUEST, ()) if r.at < now.business - ANSWERS_KEPT]
            answers = sorted(answers, key=lambda r: r.at)[:n]
            workers = [
                w for w in rows.under(WORKER, ())
                if w.status is LeaseStatus.CLOSED
                and w.lease_until < now.real - WORKERS_KEPT and w.id not in owners
            ][:n]  # fmt: skip
            for answer in answers:
                rows.drop(REQUEST, answer[:2])
            for worker in workers:
                rows.drop(WORKER, worker[:2])
        return len(answers) + len(workers)

    def _forget_shared(self, n: int) -> None:
        """Delete shared effects whose retention is over and which no run names (S-18)."""
        rows, now = self._core.rows, self._core.now().business
        used = {(row.tenant, row.key) for row in rows.under(USAGE, ())}
        over = [
            e for e in rows.under(EFFECT, ())
            if not e.run and e.keep_ms and e.settled_at
            and e.settled_at + e.keep_ms <= now and (e.tenant, e.key) not in used
        ]  # fmt: skip
        for effect in over[:n]:
            rows.drop(EFFECT, key_of(EFFECT, effect))

    # --- reading -------------------------------------------------------------------------
    @override
    async def load(self, kind: Kind[R], key: Key) -> R | None:
        return self._core.rows.get(kind, key)

    @override
    async def load_many(self, kind: Kind[R], keys: Sequence[Key]) -> tuple[R | None, ...]:
        return tuple(self._core.rows.get(kind, key) for key in keys)

    @override
    async def rows(self, kind: Kind[R], prefix: Key, *, after: Key = (), limit: int = 10_000) -> tuple[R, ...]:
        found = self._core.rows.under(kind, prefix)
        return tuple([row for row in found if not after or key_of(kind, row) > after][:limit])

    @override
    async def in_order(self, kind: Kind[R], prefix: Key, *, after: int = 0, limit: int = 10_000) -> tuple[R, ...]:
        place = kind.columns.index("ordinal")
        found = [row for row in self._core.rows.under(kind, prefix) if row[place] > after]  # type: ignore[operator]
        return tuple(sorted(found, key=lambda row: row[place])[:limit])  # type: ignore[arg-type,return-value]

    @override
    async def count(self, kind: AnyKind, prefixes: Sequence[Key]) -> tuple[int, ...]:
        with self._core.lock:
            return tuple(len(self._core.rows.under(kind, prefix)) for prefix in prefixes)

    @override
    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        with self._core.lock:
            now = self._core.now()
            return tuple(self._run_rows(key, now) for key in runs)

    def _run_rows(self, key: tuple[str, str], now: Instant) -> RunRows | None:
        rows = self._core.rows
        run = rows.get(RUN, key)
        if run is None:
            return None
        check_run(run)
        events = [row for row in rows.under(EVENT, key) if row.snapshot is not None]
        effects = rows.under(EFFECT, key)
        rest: list[list[Any]] = [effects, *(rows.under(kind, key) for kind in HOLDER_KINDS[1:])]
        named = [rows.get(EFFECT, (key[0], "", 0, row[2])) for row in rows.under(USAGE, key)]
        shared = [effect for effect in named if effect is not None]
        for effect in (*effects, *shared):
            check_effect(effect)
        return gather_rows(run, events[-1] if events else None, rest, now, shared)

    @override
    async def page(
        self, kind: Kind[R], tenant: str, where: dict[str, str | int], *, cursor: str = "", limit: int = 50
    ) -> Page[R]:
        check_columns(kind, list(where))
        limit = min(limit, PAGE_MAX)
        after = place_after(kind, cursor)
        fields = kind.columns
        found = [
            row for row in self._core.rows.under(kind, (tenant,))
            if all(row[fields.index(name)] == value for name, value in where.items())
            and (after is None or place_of(kind, row) < after)
        ]  # fmt: skip
        found.sort(key=lambda row: place_of(kind, row), reverse=True)
        more = len(found) > limit
        return Page(tuple(found[:limit]), cursor_of(kind, found[limit - 1]) if more else "")

    @override
    async def tally(self, kind: AnyKind, tenant: str, column: str) -> dict[str, int]:
        check_columns(kind, [column])
        place = kind.columns.index(column)
        return dict(Counter(str(row[place]) for row in self._core.rows.under(kind, (tenant,))))

    @override
    async def owing(self, tenant: str, subscription: str, n: int) -> tuple[Cursor, ...]:
        found = [
            row for row in self._core.rows.under(CURSOR, (tenant,))
            if row.subscription == subscription and row.due_at is not None
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda row: (row.due_at or 0, row.run))[:n])

    @override
    async def census(self, kind: AnyKind, columns: Sequence[str], *, filled: str = "") -> dict[tuple[str, ...], int]:
        check_columns(kind, [*columns, *([filled] if filled else [])])
        names = kind.columns
        rows = [row for row in self._core.rows.under(kind, ()) if not filled or row[names.index(filled)] != ""]
        return dict(Counter(tuple(str(row[names.index(column)]) for column in columns) for row in rows))

    @override
    async def next_due(self, lanes: Sequence[str]) -> int | None:
        found = [self._core.rows.next_due(lane) for lane in lanes]
        return min((due for due in found if due is not None), default=None)

    @override
    async def queued(self, tenant: str, limit: int) -> tuple[Run, ...]:
        return tuple([r for r in self._core.rows.queued() if tenant in (STORE, r.queue)][:limit])

    @override
    async def owned(self, owner: str) -> tuple[Run, ...]:
        return tuple(self._core.rows.owned(owner))

    @override
    async def moving(self, tenant: str, since: int, limit: int) -> tuple[Run, ...]:
        rows = self._core.rows
        return (*rows.held(tenant)[:limit], *rows.over(tenant, since)[:limit])

    @override
    async def now(self) -> Instant:
        return self._core.now()

    @override
    def mapping(self) -> Mapping:
        return self._core.mapping()

    @override
    def facts(self) -> dict[str, str | int]:
        return {"store": self.url, "survives": "nothing: it lives in this process"}

    # --- subscriptions, schema, end -------------------------------------------------------
    @override
    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._core.wakes.subscribe(wake)

    @override
    async def migrate(self) -> None:
        pass

    @override
    async def close(self) -> None:
        with self._core.lock:
            if not self._closed:
                row = self._core.rows.get(WRITER, (STORE, self.writer))
                if row is not None and row.status is LeaseStatus.ALIVE:
                    closed = row._replace(status=LeaseStatus.CLOSED, version=row.version + 1)
                    self._core.rows.put(WRITER, row[:2], closed)
            self._closed = True

"""The store in memory: dictionaries of rows, in the caller's thread. It is the model of the other stores."""

import asyncio
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any

from typing_extensions import override

from outlast.core.clock_port import Clock
from outlast.core.commit import Chain, Commit, Done, Instant, Mapping
from outlast.core.crash_points import point
from outlast.core.durations import ANSWERS_KEPT, WORKERS_KEPT
from outlast.core.generation import LEDGERS, ledgers_after, ledgers_of
from outlast.core.machine import ENDED, LeaseStatus
from outlast.core.row_checks import check_effect, check_run
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_rows import EFFECT, USAGE
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import EVENT, RUN, TOKEN, Run, is_due, start_token_of
from outlast.core.rows.store_rows import META, REQUEST, STORE, WORKER, WRITER, Writer
from outlast.core.state.delta_packets import Delta
from outlast.core.webhooks.deliveries import SUBSCRIBED_TENANTS, tenants_of
from outlast.errors import Rejected, StoreError, StoreUnusable, Unavailable
from outlast.store.batch import Batch
from outlast.store.bounds import check
from outlast.store.delta_channel import DeltaCallback
from outlast.store.fair_queueing import NONE_HELD, FairQueue, HeldCounts, chosen
from outlast.store.port import (
    HOLDER_KINDS,
    LEDGER_KINDS,
    RUN_KINDS,
    CommitNotifier,
    DeltaChannel,
    Maintenance,
    RunCallback,
    RunRows,
    Step,
    Store,
    gather_rows,
)
from outlast.store.queries import Query, T
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.store_clock import MAPPING_ROW, StoreClock, mapping_of, mapping_row, successor
from outlast.store.threads import Subscribers, WakeSubscribers


class MemoryCore:
    """State shared by the memory stores that are opened on it, each with its own writer."""

    def __init__(self, clock: Clock) -> None:
        self.store_clock = StoreClock(clock)
        self.rows = RowsInMemory()
        self.wakes = WakeSubscribers()
        self.deltas = Subscribers[Sequence[Delta]]()
        self.landings = Subscribers[str, str, Run | None]()
        self.lock = RLock()

    def mapping(self) -> Mapping:
        """Return the present clock mapping."""
        return mapping_of(self.rows.get(META, MAPPING_ROW))

    def now(self) -> Instant:
        """Return the store's real and business time."""
        return self.mapping().at(self.store_clock.real())

    def apply(self, batch: Batch) -> None:
        """Set every row of a batch and wake subscribers if a run may be due."""
        for kind, key in batch.erased:
            self.rows.drop(kind, key)
        for kind in KINDS:
            for key, left in batch.changes[kind.name].items():
                self.rows.put(kind, key, left.row)
        for key in batch.published:
            self.rows.drop(UNPUBLISHED, tuple(key))
        if any(left.row.owner == "" and left.row.due_at is not None for left in batch.changes[RUN.name].values()):
            self.wakes.fire()
        if self.landings.has_any():
            rows = [left.row for left in batch.changes[RUN.name].values()]
            self.landings.report([(row.tenant, row.run, row) for row in rows])


class MemoryStore(Store, Maintenance, CommitNotifier, DeltaChannel):
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
            runs = rows.under(RUN, ())
            kept = {(r.tenant, r.root or r.run) for r in runs if r.owner != ENDED or r.ended_at >= before}
            over = [r for r in runs if (r.tenant, r.root or r.run) not in kept]
            over.sort(key=lambda run: (-run.depth, run.ended_at, run.tenant, run.run))  # a root goes last
            for run in over[:n]:
                for kind in RUN_KINDS:
                    rows.drop(kind, run[:2])
            self._forget_shared(n)
            for row in rows.under(WRITER, ()):
                if row.status is LeaseStatus.CLOSED and row.started_at < before:
                    rows.drop(WRITER, row[:2])
        return len(over[:n])

    @override
    async def purge_runs(self, runs: Sequence[Run]) -> None:
        with self._core.lock:
            self._receipt()
            for run in runs:
                for kind in (*RUN_KINDS, TOKEN):
                    self._core.rows.drop(kind, run[:2])
                self._core.rows.drop(TOKEN, start_token_of(run))

    @override
    async def purge_ledgers(self, before: int, n: int) -> int:
        rows = self._core.rows
        with self._core.lock:
            self._receipt()
            row = rows.get(META, LEDGERS)
            purged = ledgers_of(row)
            ends = [(r.ended_at, r.tenant, r.run) for r in rows.under(RUN, ()) if r.owner == ENDED]
            over = sorted(end for end in ends if end[0] < before and end > purged.last)[:n]
            for _, *run in over:
                for kind in LEDGER_KINDS:
                    rows.drop(kind, tuple(run))
            after = ledgers_after(purged, over, before, n)
            if after != purged:
                rows.put(META, LEDGERS, after.row(row))
        return len(over)

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
                w
                for w in rows.under(WORKER, ())
                if w.status is LeaseStatus.CLOSED and w.lease_until < now.real - WORKERS_KEPT and w.id not in owners
            ][:n]
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
            e
            for e in rows.under(EFFECT, ())
            if not e.run
            and e.keep_ms
            and e.settled_at
            and e.settled_at + e.keep_ms <= now
            and (e.tenant, e.key) not in used
        ]
        for effect in over[:n]:
            rows.drop(EFFECT, key_of(EFFECT, effect))

    # --- reading -------------------------------------------------------------------------
    @override
    async def query(self, query: Query[T]) -> T:
        with self._core.lock:
            return query.find(self._core.rows)

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
            check_effect(effect, stored=True)
        return gather_rows(run, events[-1] if events else None, rest, now, shared)

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
    def on_commit(self, callback: RunCallback) -> Callable[[], None]:
        return self._core.landings.subscribe(callback)

    @override
    def publish(self, deltas: Sequence[Delta]) -> None:
        self._core.deltas.report([(deltas,)])

    @override
    def on_deltas(self, callback: DeltaCallback) -> Callable[[], None]:
        return self._core.deltas.subscribe(callback)

    @override
    async def close(self) -> None:
        with self._core.lock:
            if not self._closed:
                row = self._core.rows.get(WRITER, (STORE, self.writer))
                if row is not None and row.status is LeaseStatus.ALIVE:
                    closed = row._replace(status=LeaseStatus.CLOSED, version=row.version + 1)
                    self._core.rows.put(WRITER, row[:2], closed)
            self._closed = True

"""Check of a whole store, page by page and read-only. A finding is checked again before it is reported."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from outlast.core.children import place_of
from outlast.core.commit import Mapping
from outlast.core.divergence import MAP
from outlast.core.fork_starts import START, STARTS, is_copy, start_of, token_key
from outlast.core.forks import ledger_of
from outlast.core.generation import GENERATION, LEDGERS, NO_LEDGERS, generation_of, ledgers_of
from outlast.core.keys import tree_of_key
from outlast.core.limits import FORKS_NOTED_MAX
from outlast.core.living_forks import NOTES, ForkNote, notes_of
from outlast.core.maps import calls_of, name_of, terms_of
from outlast.core.rows.all_kinds import R
from outlast.core.rows.effect_rows import EFFECT, MEMO, USAGE, Memo
from outlast.core.rows.graph_rows import GRAPH_KINDS
from outlast.core.rows.limit_rows import CALL_USAGE, PAUSE, SLOT, TENANT_BUDGET, Slot
from outlast.core.rows.map_rows import MAP_INPUTS, MAP_OUTCOME, MAP_PROGRESS
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, SUBSCRIPTION, UNPUBLISHED, Subscription
from outlast.core.rows.row_kind import AnyKind, Key, Kind, key_of
from outlast.core.rows.run_rows import (
    ATTRIBUTE,
    EVENT,
    FLAGGING,
    FLOOR,
    RESULT,
    RUN,
    TOKEN,
    Attribute,
    Event,
    Flagging,
    Floor,
    Result,
    Run,
    is_over,
)
from outlast.core.rows.store_rows import META, REQUEST, STORE, TOPOLOGY, WORKER, Meta
from outlast.core.rows.text_rows import MODEL_TEXT
from outlast.core.state.snapshot_codec import StateChunk
from outlast.engine.detached_children import is_counted_detached
from outlast.engine.snapshots import values_of
from outlast.engine.store_maintenance import ledger_purged
from outlast.errors import Corrupt
from outlast.store.migrations import SCHEMA
from outlast.store.port import RunRows, Store, maintenance, rows_of_each
from outlast.store.queries import ROWS_MAX, ByOrdinal
from outlast.upkeep import fsck_checks, fsck_families, fsck_history, fsck_maps
from outlast.upkeep.fsck_checks import Check, CheckedRun, Finding, Violations
from outlast.upkeep.fsck_threads import by_namespace, findings_of, read_thread

OF_A_RUN: Final[tuple[Check, ...]] = (
    fsck_checks.run_row,
    fsck_checks.row_columns,
    fsck_checks.run_visits,
    fsck_checks.run_causes,
    fsck_checks.run_clocks,
    fsck_checks.floor_kept,
    fsck_checks.run_mail,
    fsck_checks.wait_bound,
    fsck_checks.wait_visit,
    fsck_checks.evidence_of_effect,
    fsck_checks.effect_row,
    fsck_checks.effect_digest,
    fsck_checks.effect_order,
    fsck_checks.effect_claim,
    fsck_checks.effect_open_at_end,
    fsck_checks.effect_undone,
    fsck_checks.undo_order,
    fsck_checks.run_restored,
    fsck_checks.approval_decided,
    fsck_checks.approval_plans,
    fsck_checks.approval_consumed,
    fsck_checks.approval_in_time,
    fsck_checks.approval_at_end,
)
OF_HISTORY: Final[tuple[Check, ...]] = (
    fsck_history.history_numbers,
    fsck_history.history_head,
    fsck_history.history_chain,
    fsck_history.history_columns,
    fsck_history.history_versions,
    fsck_history.history_moves,
    fsck_history.history_end,
    fsck_history.effect_settled,
    fsck_history.checkpoint_kept,
    fsck_history.state_whole,
)


def violations(
    rows: RunRows,
    history: Sequence[Event] | None = None,
    *,
    mapping: Mapping | None = None,
    generation: int | None = None,
    values: Sequence[StateChunk] | None = None,
    chain: bool = True,
    ledger_purged: bool = False,
    skew: int = 0,
    floor: Floor | None = None,
) -> list[Finding]:
    """Return the violated invariants in one snapshot of a run's rows; [] if it keeps all.

    `history`: all events up to the snapshot; None checks only the rows. `values`: the large parts of the states; None
    skips them. `mapping`, `generation`: of the store, for checks that depend on them. `chain`: recompute hashes and
    digests. `ledger_purged`: the run's own effects are gone. `skew`: of the store. `floor`: where a history that is a
    window begins. Pure: the simulator and the crash tests use it, too.
    """
    events = None if history is None else tuple(history)
    parts = None if values is None else tuple(values)
    one = CheckedRun(rows, events, mapping, generation, parts, chain, ledger_purged, skew)
    return findings(from_floor(one, floor))


def from_floor(one: CheckedRun, floor: Floor | None) -> CheckedRun:
    """Return the rows of a run with a window of history, without the events behind its floor."""
    if floor is None or one.history is None:
        return one._replace(floor=floor)
    first = next((event for event in one.history if event.seq == 1), None)
    return one._replace(floor=floor, first=first, history=tuple(e for e in one.history if e.seq >= floor.seq))


def findings(one: CheckedRun) -> list[Finding]:
    """Run every check in order and return the findings."""
    found: list[Finding] = []
    for check in (*OF_A_RUN, *OF_HISTORY):
        found += _named(check.__name__, RUN, one.run, check(one))
    return found


PAGE: Final = 200  # runs per read
EVENTS: Final = 1_000  # rows of other kinds per read
SLOTS_MAX: Final = 100_000
DEFERRED_MAX: Final = 100_000
"""Ended children without a row that are looked up together among those that the maps of their parents have counted."""
READ_ALONE: Final[tuple[AnyKind, ...]] = (PAUSE, REQUEST, TENANT_BUDGET, MODEL_TEXT, TOPOLOGY)
AGAIN: Final = 3  # checks of a finding in a changing run


class FsckReport(NamedTuple):
    """Number of checked rows, and the findings."""

    runs: int
    events: int
    effects: int
    generation: int
    findings: tuple[Finding, ...]
    threads: int  # of LangGraph; each subgraph with its own namespace counts as one


class Fsck:
    """One check of a store. It reads one page of runs at a time, so that a store of any size fits in memory."""

    def __init__(self, store: Store, *, chain: bool = False) -> None:
        """`chain`: recompute every hash and digest."""
        self._store = store
        self._chain = chain
        self._found: list[Finding] = []
        self._runs = self._events = self._effects = 0
        self._generation = 1
        self._tenants: set[str] = set()
        self._slots: dict[Key, Slot | None] = {}
        self._workers: frozenset[str] = frozenset()
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._ledgers = NO_LEDGERS
        self._uncounted: dict[tuple[str, str], set[str]] = {}
        self._deferred = 0

    async def look(self, progress: Callable[[int], None] | None = None) -> FsckReport:
        """Check the whole store. `progress` receives the number of checked runs. Raises StoreError."""
        await self._wide()
        after: Key = ()
        while True:
            page, after = await self._page(after)
            await self._look_at(page)
            if progress is not None:
                progress(self._runs)
            if not after:
                break
        await self._counted()
        await self._slots_held()
        await self._shared()
        for tenant in sorted(self._tenants):
            await self._made_by(tenant)
        await self._tokens()
        await self._fork_starts()
        await self._readable_all()
        threads = await self._threads()
        return FsckReport(self._runs, self._events, self._effects, self._generation, tuple(self._found), threads)

    # --- runs ------------------------------------------------------------------------------------
    async def _page(self, after: Key) -> tuple[Sequence[Run], Key]:
        """Read runs in key order, and the key to continue after; an unreadable run is reported and skipped."""
        try:
            rows = await self._store.rows(RUN, (), after=after, limit=PAGE)
        except Corrupt:
            return await self._page_with_a_gap(after)
        return rows, rows[-1][:2] if len(rows) == PAGE else ()

    async def _page_with_a_gap(self, after: Key) -> tuple[Sequence[Run], Key]:
        runs, _, after = await self._one_by_one(RUN, (), after, PAGE)
        return runs, after

    async def _one_by_one(self, kind: Kind[R], prefix: Key, after: Key, most: int) -> tuple[list[R], list[Key], Key]:
        """Read at most `most` rows, and report those that cannot be read.

        Returns the readable rows, the keys of the others, and the key to continue after, which is () at the end.
        """
        found: list[R] = []
        unreadable: list[Key] = []
        for _ in range(most):
            try:
                rows = await self._store.rows(kind, prefix, after=after, limit=1)
            except Corrupt as error:
                if error.row is None:
                    raise
                self._unreadable(error)
                after = error.row[1]
                unreadable.append(after)
                continue
            if not rows:
                return found, unreadable, ()
            found.append(rows[0])
            after = key_of(kind, rows[0])
        return found, unreadable, after

    async def _readable(self, kind: Kind[R], prefix: Key, most: int = EVENTS) -> tuple[Sequence[R], list[Key]]:
        """Return at most `most` rows of no single run, and the keys of those that cannot be read, which it reports."""
        try:
            return await self._store.rows(kind, prefix, limit=most), []
        except Corrupt:
            found, unreadable, _ = await self._one_by_one(kind, prefix, (), most)
            return found, unreadable

    async def _every(self, kind: Kind[R], prefix: Key = ()) -> AsyncIterator[R]:
        """Yield all rows under a prefix in key order, and report those that cannot be read."""
        after: Key = ()
        while True:
            try:
                rows: Sequence[R] = await self._store.rows(kind, prefix, after=after, limit=EVENTS)
                after = key_of(kind, rows[-1]) if len(rows) == EVENTS else ()
            except Corrupt:
                rows, _, after = await self._one_by_one(kind, prefix, after, EVENTS)
            for row in rows:
                self._report(_named("row", kind, row, fsck_checks.columns_of(kind, row)))
                yield row
            if not after:
                return

    def _unreadable(self, error: Corrupt, run: Run | None = None) -> None:
        if error.row is None and run is not None:
            self._report([Finding("checkpoint_kept", RUN.name, run[:2], error.what)])
            return
        kind, key = error.row or (RUN.name, ())
        check = "effect_row" if kind == EFFECT.name else "run_row" if kind == RUN.name else "row"
        self._report([Finding(check, kind, key, error.what)])

    async def _look_at(self, page: Sequence[Run]) -> None:
        self._runs += len(page)
        self._tenants |= {run.tenant for run in page}
        if not page:
            return
        for run, each in zip(page, await rows_of_each(self._store, [run[:2] for run in page]), strict=True):
            if isinstance(each, Corrupt):
                self._unreadable(each, run)
            elif each is not None:
                await self._look_at_run(each)

    async def _look_at_run(self, each: RunRows) -> None:
        self._effects += len(each.effects)
        try:
            history = await self._history(each.run)
            self._events += len(history)
            found = await self._found_in(each, history)
            if found:
                self._report(await self._still(each.run, found))
        except Corrupt as error:
            self._unreadable(error, each.run)

    async def _rows_of(self, run: Run) -> RunRows | None:
        (rows,) = await rows_of_each(self._store, [run[:2]])
        if isinstance(rows, Corrupt):
            self._unreadable(rows, run)
            return None
        return rows

    async def _still(self, run: Run, found: list[Finding]) -> list[Finding]:
        """Return the findings that a fresh read of the run confirms, because a concurrent change is no violation."""
        for _ in range(AGAIN):
            rows = await self._rows_of(run)
            if rows is None:
                return []  # purged, or unreadable, which is reported separately
            await self._wide()
            again = {(f.check, f.kind, f.key) for f in await self._found_in(rows, await self._history(rows.run))}
            found = [f for f in found if (f.check, f.kind, f.key) in again]
            if not found:
                return []
        return found

    async def _found_in(self, rows: RunRows, history: tuple[Event, ...]) -> list[Finding]:
        run = rows.run
        values = await values_of(self._store, rows, history)
        store, purged = self._store, self._ledgers.has(run, rows.now.business + self._store.skew)
        one = CheckedRun(rows, history, store.mapping(), self._generation, values, self._chain, purged, store.skew)
        one = from_floor(one, floor := await store.load(FLOOR, run[:2]))  # read last, so no event above it is missing
        return [
            *findings(one),
            *_named("slot_named", RUN, run, fsck_checks.slot_named(run, self._slots)),
            *_named("attributes_kept", RUN, run, fsck_checks.attributes_kept(run, await self._attributes(run))),
            *_named("flaggings_kept", RUN, run, fsck_checks.flaggings_kept(run, await self._flaggings(run))),
            *_named("owner_known", RUN, run, fsck_checks.owner_known(run, self._workers)),
            *await self._produced(run, history, purged=floor is not None),
            *await self._used(run),
            *await self._family(rows),
            *await self._maps(rows, floor),
            *(await self._copied(rows) if run.forked_from and not purged else ()),
            *(await self._delivered(run, history) if self._subscriptions.get(run.tenant) else ()),
        ]

    async def _attributes(self, run: Run) -> Sequence[Attribute]:
        return await self._store.rows(ATTRIBUTE, run[:2]) if run.attributes_text else ()

    async def _flaggings(self, run: Run) -> Sequence[Flagging]:
        return await self._store.rows(FLAGGING, run[:2]) if run.flagged_at else ()

    async def _family(self, rows: RunRows) -> list[Finding]:
        """Check the children of a run, and its place below its parent."""
        run, found = rows.run, list[Finding]()
        root, exists = await self._run((run.tenant, run.root)) if run.root else (run, True)
        calls = [call for call in rows.effects if call.child_text]
        floor = await self._store.load(FLOOR, run[:2]) if calls else None
        if floor is not None:  # of a child that has ended behind the window, the run goes before the row
            calls = [call for call in calls if not call.settled_at or not 0 < call.visit < floor.visit]
        for first in range(0, len(calls), PAGE):
            part = calls[first : first + PAGE]
            loaded = await self._store.load_many(RUN, [(run.tenant, call.external_id) for call in part])
            there = {row.run: row for row in loaded if row is not None}
            found += _named("child_living", EFFECT, run, fsck_families.child_living(part, there, root))
        found += _named("root_known", RUN, run, fsck_families.root_known(run, exists=exists))
        if run.parent:
            parent = await self._store.load(RUN, (run.tenant, run.parent))
            call = await self._store.load(EFFECT, (run.tenant, run.parent, *place_of(run)))
            purged = parent is not None and await ledger_purged(self._store, parent)
            if parent is not None and call is None and not purged:
                floor = await self._store.load(FLOOR, parent[:2])
                purged = floor is not None and 0 < place_of(run)[0] < floor.visit
            if parent is not None and call is None and not purged:
                purged = is_over(run) or await is_counted_detached(self._store, run)
                if is_over(run):
                    await self._defer(run)
            placed = fsck_families.child_placed(run, parent, call, purged=purged)
            found += _named("child_placed", RUN, run, placed)
        return found

    async def _defer(self, run: Run) -> None:
        """Look up an ended child without a row among those that maps of its parent have counted, later, with others."""
        self._uncounted.setdefault((run.tenant, run.parent), set()).add(run.run)
        self._deferred += 1
        if self._deferred >= DEFERRED_MAX:
            await self._counted()

    async def _counted(self) -> None:
        """Check that maps have counted the ended children whose rows are not in the ledgers of their parents."""
        deferred, self._uncounted, self._deferred = self._uncounted, {}, 0
        for (tenant, parent), children in deferred.items():
            async for outcome in self._every(MAP_OUTCOME, (tenant, parent)):
                children.discard(outcome.child)
            for child in children:
                await self._confirmed(partial(self._found_uncounted, (tenant, child)))

    async def _found_uncounted(self, key: tuple[str, str]) -> list[Finding]:
        run, _ = await self._run(key)
        parent, _ = (None, False) if run is None else await self._run((run.tenant, run.parent))
        if run is None or parent is None or await ledger_purged(self._store, parent):
            return []
        call = await self._store.load(EFFECT, (run.tenant, run.parent, *place_of(run)))
        floor = await self._store.load(FLOOR, parent[:2])
        purged = floor is not None and 0 < place_of(run)[0] < floor.visit
        if call is None and not purged:
            async for outcome in self._every(MAP_OUTCOME, (run.tenant, run.parent, place_of(run)[0])):
                if outcome.child == run.run:
                    return []
        return list(_named("child_placed", RUN, run, fsck_families.child_placed(run, parent, call, purged=purged)))

    async def _maps(self, rows: RunRows, floor: Floor | None) -> list[Finding]:
        """Check the maps of a run. Their outcomes are read after the letters that count them, with which they land."""
        run, memos = rows.run, [memo for memo in rows.memos if memo.activity == MAP and memo.digest]
        progress = await self._store.rows(MAP_PROGRESS, run[:2])
        found = list(_named("map_known", RUN, run, fsck_maps.map_known(memos, progress, floor)))
        there = {(row.visit, row.key): row for row in progress}
        root, _ = await self._run((run.tenant, run.root)) if run.root else (run, True)
        for memo in [] if found else memos:
            if (row := there.get((memo.visit, name_of(memo)))) is None:
                continue  # behind the floor
            calls = calls_of(row.key, run._replace(visit=memo.visit), rows.effects)
            found += await self._map(fsck_maps.CheckedMap(memo, terms_of(memo), row, calls), root)
        return found

    async def _map(self, one: fsck_maps.CheckedMap, root: Run | None) -> list[Finding]:
        row, places, prefix = one.progress, set[int](), one.progress[: MAP_PROGRESS.key]
        portions = [each async for each in self._every(MAP_INPUTS, prefix)]
        found = [
            *_named("map_inputs", MAP_PROGRESS, row, fsck_maps.map_inputs(one, portions)),
            *_named("map_decided", MAP_PROGRESS, row, fsck_maps.map_decided(one)),
            *_named("map_calls", MAP_PROGRESS, row, fsck_maps.map_calls(one)),
        ]
        after: Key = ()
        while page := await self._store.rows(MAP_OUTCOME, prefix, after=after, limit=PAGE):
            names = [(row.tenant, each.child) for each in page if each.child]
            loaded = await self._store.load_many(RUN, names)
            runs = {run.run: run for run in loaded if run is not None}
            counted = fsck_maps.outcomes_counted(one, page, runs, root)
            found += _named("outcomes_counted", MAP_PROGRESS, row, counted)
            places.update(each.place for each in page)
            after = key_of(MAP_OUTCOME, page[-1])
        return [*found, *_named("all_counted", MAP_PROGRESS, row, fsck_maps.all_counted(one, places))]

    async def _delivered(self, run: Run, history: tuple[Event, ...]) -> list[Finding]:
        """Check deliveries of a run. Unpublished rows are read first, because they become cursors."""
        key = run[:2]
        unpublished = {row[2] for row in await self._store.rows(UNPUBLISHED, key)}
        failed = await self._store.rows(DELIVERY, key)
        cursors = await self._store.rows(CURSOR, key)
        own = {row.subscription: row for row in cursors}
        found = [f for row in cursors for f in _named("cursor_due", CURSOR, row, fsck_checks.cursor_due(row, None))]
        for each in self._subscriptions[run.tenant]:
            name = each.subscription
            mine = {row.seq: row for row in failed if row.subscription == name}
            broken_deliveries = fsck_checks.event_delivered(run, history, each, own.get(name), mine, unpublished)
            found += _named("event_delivered", RUN, run, broken_deliveries)
        return found

    async def _produced(self, run: Run, history: tuple[Event, ...], *, purged: bool) -> list[Finding]:
        """Check the run's results, which are read after the events that count them."""
        found: list[Result] = []
        while page := await self._store.query(
            ByOrdinal(RESULT, run[:2], after=found[-1].ordinal if found else 0, limit=EVENTS)
        ):
            found += page
            if len(page) < EVENTS:
                break
        return list(_named("results_counted", RUN, run, fsck_history.results_counted(history, found, purged=purged)))

    async def _used(self, run: Run) -> list[Finding]:
        """Check the usage of the run's calls, with its row as it is after they were read."""
        rows = await self._store.rows(CALL_USAGE, run[:2])
        fresh = (await self._run((run.tenant, run.run)))[0] if rows else None
        if fresh is None:
            return []
        return list(_named("usage_counted", RUN, fresh, fsck_checks.usage_counted(fresh, rows)))

    async def _copied(self, rows: RunRows) -> list[Finding]:
        """Check the calls that a fork has copied against the rows of its ancestors, as far as these exist."""
        run, memos = rows.run, {(memo.visit, memo.key): memo for memo in rows.memos}
        try:
            ledger = ledger_of(memos)
        except Corrupt as error:
            return list(_named("copies_match", RUN, run, iter([(RUN, run[:2], error.what)])))
        if ledger is not None and ledger.terms.both_go_on:
            ancestor, noted = await self._noted(run)
            wrong = fsck_checks.fork_noted(run, ledger.terms, ancestor, noted, self._store.skew)
            found = list(_named("fork_noted", RUN, run, wrong))
        else:
            found = []
        of = {call.of for call in ledger.calls} if ledger is not None else set[str]()
        effects = [row for name in sorted(of) for row in await self._store.rows(EFFECT, (run.tenant, name))]
        return [*found, *_named("copies_match", RUN, run, fsck_checks.copies_match(run, ledger, effects))]

    async def _noted(self, fork: Run) -> tuple[Run | None, tuple[ForkNote, ...]]:
        """Return the ancestor of a fork and its notes; None if its notes cannot be read, or are gone."""
        of = (fork.tenant, fork.forked_from)
        memos = await self._store.rows(MEMO, (*of, 0), after=(*of, 0, NOTES), limit=FORKS_NOTED_MAX)
        ancestor, _ = await self._run(of)
        if ancestor is None or await ledger_purged(self._store, ancestor):
            return None, ()
        return ancestor, notes_of({(memo.visit, memo.key): memo for memo in memos})

    async def _history(self, run: Run) -> tuple[Event, ...]:
        """Read the events of a run up to the number in its row."""
        found: list[Event] = []
        while len(found) < run.seq:
            after = (*run[:2], found[-1].seq if found else 0)
            page = await self._store.rows(EVENT, run[:2], after=after, limit=EVENTS)
            found += page
            if len(page) < EVENTS:
                break
        over = [event for event in found if event.seq > run.seq]
        if over:  # the run advanced since its row was read, or the row is wrong: a fresh read decides
            (fresh,) = await self._store.run_rows([run[:2]])
            if fresh is not None and fresh.run.seq > run.seq:
                return tuple(event for event in found if event.seq <= run.seq)
        return tuple(found)

    # --- rows of no single run --------------------------------------------------------------------
    async def _wide(self) -> None:
        """Read the few rows that every run is compared with."""
        self._subscriptions = {}
        for each in (await self._readable(SUBSCRIPTION, (), ROWS_MAX))[0]:
            self._subscriptions.setdefault(each.tenant, []).append(each)
        slots, unreadable = await self._readable(SLOT, (), SLOTS_MAX)
        self._slots = {**{slot[:2]: slot for slot in slots}, **dict.fromkeys(unreadable)}
        workers, unreadable = await self._readable(WORKER, (STORE,), ROWS_MAX)
        self._workers = frozenset((*(worker.id for worker in workers), *(str(key[-1]) for key in unreadable)))
        self._ledgers = ledgers_of(await self._store.load(META, LEDGERS))
        row = await self._store.load(META, GENERATION)
        try:
            found = generation_of(row)
        except Corrupt as error:
            self._report([Finding("generation_kept", META.name, GENERATION, error.what)])
        else:
            self._generation = found.n if found else 1
        for worker in workers:
            self._report(_named("worker_lease", WORKER, worker, fsck_checks.worker_lease(worker)))
        for text in fsck_checks.settings_safe(maintenance(self._store).facts(), SCHEMA):
            self._report([Finding("settings_safe", META.name, (STORE, "settings"), text)])

    async def _run(self, key: tuple[str, str]) -> tuple[Run | None, bool]:
        """Return a run and True if there is a row; an unreadable row has been reported."""
        try:
            row = await self._store.load(RUN, key)
        except Corrupt:
            return None, True
        return (row, True) if row is not None else (None, False)

    async def _slots_held(self) -> None:
        for slot in filter(None, self._slots.values()):
            for _ in range(AGAIN):
                fresh = await self._store.load(SLOT, slot[:2])
                if fresh is None:
                    break
                key = (fresh.holder_tenant, fresh.holder)
                (holder,) = await self._store.load_many(RUN, [key], listed=True) if fresh.holder else (None,)
                found = list(_named("slot_held", SLOT, fresh, fsck_checks.slot_held(fresh, holder)))
                again = await self._store.load(SLOT, slot[:2])
                if not found:
                    break
                if again == fresh:
                    self._report(found)
                    break

    async def _shared(self) -> None:
        """Check that every usage names an existing tenant effect."""
        async for usage in self._every(USAGE):
            (effect,) = await self._store.load_many(EFFECT, [(usage.tenant, "", 0, usage.key)], listed=True)
            self._report(_named("usage_of", USAGE, usage, fsck_checks.usage_of(usage, effect is not None)))
            if tree_of_key(usage.key):
                run, _ = await self._run((usage.tenant, usage.run))
                root = run if run is None or not run.root else (await self._run((usage.tenant, run.root)))[0]
                self._report(_named("used_in_tree", USAGE, usage, fsck_families.used_in_tree(usage, run, root)))

    async def _made_by(self, tenant: str) -> None:
        """Check that every tenant effect has a usage row of the run that made it."""
        async for effect in self._every(EFFECT, (tenant, "")):
            (usage,) = await self._store.load_many(USAGE, [(tenant, effect.by_run, effect.key)], listed=True)
            owner, _ = await self._run((tenant, effect.by_run))
            self._report(_named("usage_known", EFFECT, effect, fsck_checks.usage_known(effect, owner, usage)))

    async def _tokens(self) -> None:
        """Check that every start key names an existing run, or one that was purged completely."""
        async for token in self._every(TOKEN):
            named = (token.tenant, token.run or token.target)
            if not (await self._run(named))[1]:
                left = await self._store.rows(EVENT, named, limit=1, listed=True)
                gone = not left or (await self._run(named))[1]
                self._report(_named("token_target", TOKEN, token, fsck_checks.token_target(token, gone)))

    async def _fork_starts(self) -> None:
        """Check starts of forks, and that all copies of calls without a run belong to one (S-28)."""
        after: Key = (STORE, STARTS)
        while rows := await self._store.rows(META, (STORE,), after=after, limit=PAGE, listed=True):
            for row in rows:
                if row.key.startswith(STARTS):
                    await self._confirmed(partial(self._found_in_start, row))
            after = key_of(META, rows[-1])
        after, seen = (), ("", "")
        while memos := await self._store.rows(MEMO, (), after=after, limit=PAGE, listed=True):
            for memo in memos:
                if is_copy(memo) and memo[:2] != seen:
                    seen = memo[:2]
                    await self._confirmed(partial(self._found_in_copy, memo))
            after = key_of(MEMO, memos[-1])

    async def _confirmed(self, look: Callable[[], Awaitable[list[Finding]]]) -> None:
        """Report what each of several looks finds, because a concurrent change is no violation."""
        found = await look()
        for _ in range(AGAIN):
            again = await look() if found else []
            found = [finding for finding in found if finding in again]
        self._report(found)

    async def _found_in_start(self, row: Meta) -> list[Finding]:
        if await self._store.load(META, key_of(META, row)) != row:
            return []
        try:
            start = start_of(row)
        except Corrupt as error:
            return [Finding("fork_started", META.name, key_of(META, row), error.what)]
        memo = await self._store.load(MEMO, key_of(MEMO, start.memo()))
        token = await self._store.load(TOKEN, token_key(start.tenant, start.run))
        wrong = fsck_checks.fork_started(row, memo, start, was_started=token is not None)
        return list(_named("fork_started", META, row, wrong))

    async def _found_in_copy(self, memo: Memo) -> list[Finding]:
        """Check the first copied call of a run that may not exist."""
        if await self._store.load(TOKEN, token_key(memo.tenant, memo.run)) is not None:
            return []
        named = await self._store.load(MEMO, (memo.tenant, memo.run, 0, START))
        (left,) = await self._store.load_many(MEMO, [key_of(MEMO, memo)], listed=True)
        if named is not None or left is None:
            return []
        return [Finding("fork_started", MEMO.name, key_of(MEMO, memo), "a copied call of no fork and of no start")]

    async def _readable_all(self) -> None:
        """Report unreadable rows of the kinds that no other check reads."""
        for kind in READ_ALONE:
            async for _ in self._every(kind):
                pass

    # --- threads of LangGraph --------------------------------------------------------------------
    async def _threads(self) -> int:
        """Check all threads, one namespace at a time, and return how many namespaces there are."""
        n = 0
        async for one in by_namespace([self._every(kind) for kind in GRAPH_KINDS]):
            n += 1
            if found := findings_of(one):
                self._report(await self._still_of_thread(one.key, found))
        return n

    async def _still_of_thread(self, key: Key, found: list[Finding]) -> list[Finding]:
        """Return the findings that fresh reads of the namespace confirm, as `_still` does for runs."""
        for _ in range(AGAIN):
            try:
                again = {finding[:3] for finding in findings_of(await read_thread(self._store, key))}
            except Corrupt:
                return found  # a row cannot be read, which is reported, and what else was found is said beside it
            found = [finding for finding in found if finding[:3] in again]
            if not found:
                return []
        return found

    def _report(self, found: "list[Finding] | Iterator[Finding]") -> None:
        self._found += [finding for finding in found if finding not in self._found]


def _named(check: str, kind: Kind[R], row: R, wrong: Violations) -> Iterator[Finding]:
    """Yield what a check finds. One that raises is a finding of `row`, which it was made for."""
    try:
        for of, key, text in wrong:
            yield Finding(check, of.name, key, text)
    except Exception as error:  # because a stored value may be any, and the other checks are made
        yield Finding(check, kind.name, key_of(kind, row), f"it cannot be checked: {error!r}"[:500])

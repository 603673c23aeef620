"""A plan for each query: read a superset of the rows that it needs, then let the query find its answer in them.

A strong read costs one read unit for each 4 KB of an item or range, and an index half. docs/dynamodb.md lists the cost
of each query. Lists for people and for polls read an index, which lags by less than a second as a rule: a row that it
does not show is missing until the next poll. All other queries are strongly consistent.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from outlast.core.limits import COUNT_MAX, FLAGGED_MAX
from outlast.core.machine import ApprovalStatus
from outlast.core.row_checks import DECIDED
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, MEMO, USAGE
from outlast.core.rows.graph_rows import GRAPH_THREAD
from outlast.core.rows.limit_rows import CALL_USAGE, PAUSE
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, SUBSCRIPTION
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_rows import ATTRIBUTE, EVENT, FLAGGING, MESSAGE, RUN, Run
from outlast.core.rows.store_rows import REQUEST, STORE, TOPOLOGY, WORKER, lanes_served
from outlast.store.agent_calls import NewestCalls, NewestMemos, NewestRequests
from outlast.store.bars import (
    EVERY,
    BarSpan,
    CountedBars,
    EndBars,
    FirstFlagged,
    FlaggedBars,
    LastFlaggings,
    RunsByEnd,
    StartBars,
    TimesOfCauses,
    end_place,
)
from outlast.store.bounds import INT_MAX
from outlast.store.budgeted_runs import SpentOfRuns, UnfinishedRuns
from outlast.store.due_runs import DueRuns
from outlast.store.dynamodb.connection import IDEMPOTENCY, RUNS
from outlast.store.dynamodb.items import (
    Item,
    ItemPlace,
    decided_list_of,
    flags_in,
    lane_list_of,
    lane_of,
    list_of,
    number_of,
    open_list_of,
    partition,
    place,
    queue_of,
    spending_of,
    tree_list_of,
    unknown_list_of,
    within,
)
from outlast.store.dynamodb.reads import AT_ONCE, PAGE, DynamoReads, Unreadable, place_of
from outlast.store.measured_rows import FIRST_EVENTS, MeasuredApprovals, MeasuredRuns, RunCourses
from outlast.store.open_calls import OpenCalls
from outlast.store.open_rows import (
    FlaggedCounts,
    FlaggedRuns,
    LaneCounts,
    OpenRows,
    Summary,
    SummaryRows,
    earliest_first,
    flagged_counts,
    has_marks,
    marks,
    open_order,
    open_place,
)
from outlast.store.queries import (
    ORDER,
    PAGE_MAX,
    ByOrdinal,
    Census,
    CountBy,
    LastOrdinals,
    Load,
    LoadMany,
    Moving,
    Newest,
    NextDue,
    Owing,
    Owned,
    Query,
    Queued,
    RunsBelow,
    T,
    Under,
    place_after,
)
from outlast.store.queries import place_of as position_of
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.unused_threads import UnusedThreads
from outlast.store.usage_sums import RunsUsage, RunUsage, TenantDayUsage, TenantUsage, TreeUsage

Plan = Callable[[DynamoReads, Any], Awaitable[Any]]
Fill = Callable[[DynamoReads, Any, RowsInMemory], Awaitable[None]]
Pages = AsyncIterator[list[Item]]

LISTED: Final = ("listed", "list", "list_at")
DUE: Final = ("due", "due_lane", "due_at")
OWNER: Final = ("owner", "held_by", "pk")
QUEUED: Final = ("queue", "queue_of", "created_at")
ENDED_INDEX: Final = ("ended", "ended_of", "ended_at")
SPENT: Final = ("spent", "spent_of", "at")
OPEN: Final = ("asking", "asking_of", "asking_at")
LANE: Final = ("lane", "lane_of", "pk")
TREE: Final = ("tree", "tree_of", "ended_at")
FLAGGED: Final = ("flagged", "flagged_of", "flagged_as")
LOOKS: Final = 3  # at the index for an approval that a caller names, because it may be a moment old
LOOK_AGAIN_S: Final = 0.5


async def answer(reads: DynamoReads, query: Query[T]) -> T:
    """Return the answer of a query. Raises InvalidInput, Corrupt, Unavailable."""
    unreadable = Unreadable.REPLACE if getattr(query, "listed", False) else OF_MANY_RUNS.get(type(query))
    found: T = await PLANS[type(query)](reads if unreadable is None else reads.of_many(unreadable), query)
    return found


def put(rows: RowsInMemory, kind: AnyKind, found: Sequence[Row]) -> None:
    """Put rows of a kind into memory."""
    for row in found:
        rows.put(kind, key_of(kind, row), row)


def _filled(fill: Fill) -> Plan:
    """Return the plan that fills a memory store with rows and searches it."""

    async def plan(reads: DynamoReads, query: Query[Any]) -> Any:
        rows = RowsInMemory()
        query.find(rows)  # raises InvalidInput before anything is read
        await fill(reads, query, rows)
        return query.find(rows)

    return plan


# --- rows by key -------------------------------------------------------------------------
async def _load(reads: DynamoReads, query: Load[Any]) -> Any:
    return (await reads.load(query.kind, (query.key,)))[0]


async def _load_many(reads: DynamoReads, query: LoadMany[Any]) -> Any:
    return tuple(await reads.load(query.kind, query.keys))


async def _under(reads: DynamoReads, query: Under[Any], rows: RowsInMemory) -> None:
    kind, after, limit = query.kind, query.after, query.limit
    assert not after or after[: len(query.prefix)] == query.prefix, "the place to begin lies under the prefix"
    backwards = query.backwards
    span = within(kind, query.prefix, () if backwards else after)
    if span is None:
        assert not backwards, "rows of many partitions are read in key order"
        put(rows, kind, await reads.walk(kind, query.prefix, after, limit))
        return
    if backwards and after:
        span = span._replace(high=place(kind, after).sk)
    n = 0
    async for items in reads.items.range(span, backwards=backwards, limit=limit + 1 if limit < AT_ONCE else 0):
        found = [row for row in await reads.rows(items, kind) if query.is_past(key_of(kind, row))]
        put(rows, kind, found)
        n += len(found)
        if n >= limit:
            return


async def _by_ordinal(reads: DynamoReads, query: ByOrdinal[Any], rows: RowsInMemory) -> None:
    await _under(reads, Under(query.kind, query.prefix, limit=INT_MAX), rows)


async def _last_ordinals(reads: DynamoReads, query: LastOrdinals, rows: RowsInMemory) -> None:
    wanted = [Under(query.kind, prefix, limit=INT_MAX) for prefix in query.prefixes]
    await asyncio.gather(*(_under(reads, each, rows) for each in wanted))


# --- lists -------------------------------------------------------------------------------
class Listing(NamedTuple):
    """A list of an index: its table, the names of index and attributes, and its hash."""

    table: str
    names: tuple[str, str, str]
    value: str

    def pages(self, reads: DynamoReads, low: int | None = None, high: int | None = None, **how: Any) -> Pages:
        """Return the pages of its entries from `low` to `high`."""
        return reads.items.index(self.table, self.names, self.value, low=low, high=high, **how)


LISTS: Final = {
    RUN.name: RUNS,
    APPROVAL.name: RUNS,
    DELIVERY.name: RUNS,
    REQUEST.name: RUNS,
    EFFECT.name: IDEMPOTENCY,
    GRAPH_THREAD.name: RUNS,
}
"""Kinds with a list of all rows of a tenant, and the table that has it."""
OPEN_LISTS: Final = {**LISTS, MESSAGE.name: RUNS}
"""Kinds with a list of open rows."""


async def _newest(reads: DynamoReads, query: Newest[Any], rows: RowsInMemory) -> None:
    kind, where = query.kind, dict(query.where)
    if kind.columns[1] == "run" and "run" in where:
        await _under(reads, Under(kind, (query.tenant, str(where["run"])), limit=INT_MAX), rows)
    elif kind is USAGE and "key" in where:
        listing = Listing(IDEMPOTENCY, LISTED, list_of(kind, query.tenant, str(where["key"])))
        await _newest_listed(reads, query, listing, rows)
    elif kind is ATTRIBUTE and {"name", "value"} <= where.keys():
        listing = Listing(RUNS, LISTED, list_of(kind, query.tenant, f"{where['name']}={where['value']}"))
        await _newest_listed(reads, query, listing, rows)
    elif kind is APPROVAL and where.get("decided_by"):
        listing = Listing(RUNS, OPEN, decided_list_of(query.tenant, str(where["decided_by"])))
        await _newest_listed(reads, query, listing, rows)
    elif kind.name in LISTS:
        listing = Listing(LISTS[kind.name], LISTED, list_of(kind, query.tenant))
        looks = LOOKS if kind is APPROVAL and "id" in where else 1
        for n in range(looks):
            if n:
                await asyncio.sleep(LOOK_AGAIN_S)
            await _newest_listed(reads, query, listing, rows)
            if rows.under(kind, (query.tenant,)):
                break
    else:
        await _under(reads, Under(kind, (query.tenant,), limit=INT_MAX), rows)


async def _newest_listed(reads: DynamoReads, query: Newest[Any], listing: Listing, rows: RowsInMemory) -> None:
    """Read a list from the newest row to the end of the wanted page."""
    kind = query.kind
    after = place_after(kind, query.cursor)
    columns = [(kind.columns.index(name), value) for name, value in query.where]
    of_key = [(i, value) for i, value in columns if i < kind.key]

    def fits(row: Row) -> bool:
        return all(row[i] == value for i, value in columns) and (after is None or position_of(kind, row) < after)

    def may_fit(at: ItemPlace) -> bool:
        return not of_key or _names(kind, at, of_key)

    limit = min(query.limit, PAGE_MAX) + 1
    first = PAGE if of_key else _page(limit)
    pages = listing.pages(reads, high=int(after[0]) if after else None, backwards=True, limit=first)
    await _gather(reads, kind, pages, listing, rows, limit, fits, may_fit)


def _names(kind: AnyKind, at: ItemPlace, of_key: Sequence[tuple[int, object]]) -> bool:
    """Return False if the place of an item shows that a column of its key has another value."""
    if kind is not APPROVAL:
        return True
    return all(place(kind, ("", "", value)).sk == at.sk for i, value in of_key if i == 2)  # type: ignore[arg-type]


def _page(limit: int) -> int:
    return max(25, min(limit, PAGE))


async def _gather(
    reads: DynamoReads,
    kind: AnyKind,
    pages: Pages,
    listing: Listing,
    rows: RowsInMemory,
    limit: int = INT_MAX,
    fits: Callable[[Any], bool] = lambda row: True,
    may_fit: Callable[[ItemPlace], bool] = lambda at: True,
) -> None:
    """Put the rows that fit into memory, in the order of the index, until `limit` fit where the index shows them.

    Rows with the same number as the last one are among them, because the query orders those by their key.
    """
    column = kind.columns.index(_column(kind, listing))
    n = 0
    last: float | None = None
    async for items in pages:
        entries = [(place_of(listing.table, item), number_of(item[listing.names[2]]["N"])) for item in items]
        if last is not None:
            entries = [each for each in entries if each[1] == last]
            if not entries and items:
                return
        found = [row for row in await reads.at(kind, [at for at, _ in entries if may_fit(at)]) if fits(row)]
        put(rows, kind, found)
        shown = dict(entries)
        n += sum(row[column] == shown.get(place(kind, key_of(kind, row))) for row in found)
        if n >= limit and last is None and entries:
            last = entries[-1][1]


def _column(kind: AnyKind, listing: Listing) -> str:
    """Return the column by which an index orders rows of a kind."""
    order = listing.names[2]
    if order in kind.columns:
        return order
    if listing.names is OPEN and not listing.value.startswith("decided#"):
        return open_order(kind)
    return "due_at" if kind is CURSOR else ORDER[kind.name]


# --- rows that wait for a person ---------------------------------------------------------
async def _open_rows(reads: DynamoReads, query: OpenRows[Any], rows: RowsInMemory) -> None:
    """Read an index that has only such rows, from the wanted page on."""
    kind, earliest = query.kind, earliest_first(query.kind)
    after = place_after(kind, query.cursor)
    columns = [(kind.columns.index(name), value) for name, value in query.where]
    wanted = marks(query.reason, query.cause)

    def fits(row: Row) -> bool:
        if not query.is_among(row) or not all(row[i] == value for i, value in columns):
            return False
        if not has_marks(kind, row, wanted):
            return False
        return after is None or (open_place(kind, row) > after) is earliest

    limit = min(query.limit, PAGE_MAX) + 1
    listing = Listing(
        OPEN_LISTS[kind.name],
        OPEN,
        unknown_list_of(query.tenant) if query.unknown else open_list_of(kind, query.tenant),
    )
    at = int(after[0]) if after else None
    how = {"low": at} if earliest else {"high": at, "backwards": True}
    await _gather(reads, kind, listing.pages(reads, limit=_page(limit), **how), listing, rows, limit, fits)


async def _summary(reads: DynamoReads, query: Summary) -> SummaryRows:
    """Read the rows of each kind, and the number of the effects and of the runs of each lane from the keys alone."""
    rows = RowsInMemory()
    kinds: tuple[AnyKind, ...] = (APPROVAL, DELIVERY)
    wanted = [OpenRows(kind, query.tenant, limit=query.most) for kind in kinds]
    of_tenant = [Under(kind, (query.tenant,)) for kind in (PAUSE, SUBSCRIPTION)]
    of_store = [Under(kind, (STORE,)) for kind in (WORKER, TOPOLOGY)]
    effects = Listing(IDEMPOTENCY, OPEN, open_list_of(EFFECT, query.tenant)).pages(reads, limit=query.most)
    uncertain, (flagged, flagged_all), _ = await asyncio.gather(
        _keys(effects, query.most),
        _flagged(reads, query.tenant),
        asyncio.gather(
            *(_open_rows(reads, each, rows) for each in wanted),
            *(_under(reads, each, rows) for each in (*of_tenant, *of_store)),
        ),
    )
    found = query.find(rows)
    served = lanes_served(rows.under(WORKER, (STORE,)), query.real)
    unserved = await _of_lanes(reads, query.tenant, _lanes(rows, query.lanes) - served, query.most)
    dead_all = len(rows.open(DELIVERY, query.tenant)) <= query.most
    approvals = wanted[0].find(rows).rows
    pending, voted = query.pending(approvals)
    return found._replace(
        pending=pending,
        voted=voted,
        approvals_all=len(approvals) < query.most,
        uncertain=uncertain,
        unserved=unserved,
        dead_all=dead_all,
        flagged=flagged,
        flagged_all=flagged_all,
    )


async def _flagged_counts(reads: DynamoReads, query: FlaggedCounts) -> tuple[FlaggedRuns, ...]:
    if query.of == EVERY:
        return (await _flagged(reads, query.tenant))[0]
    rows = RowsInMemory()
    await _flagged_runs(reads, query, rows)
    return query.find(rows)


async def _flagged(reads: DynamoReads, tenant: str) -> tuple[tuple[FlaggedRuns, ...], bool]:
    """Count flagged runs from the keys of their index, and tell if these are all: at most FLAGGED_MAX are read."""
    found: list[tuple[str, int, int]] = []
    async for items in Listing(RUNS, FLAGGED, open_list_of(RUN, tenant)).pages(reads):
        found += [flags_in(item[FLAGGED[2]]["S"]) for item in items]
        if len(found) > FLAGGED_MAX:
            break
    return flagged_counts(found[:FLAGGED_MAX]), len(found) <= FLAGGED_MAX


async def _flagged_runs(reads: DynamoReads, query: FirstFlagged | FlaggedCounts, rows: RowsInMemory) -> None:
    """Read at most FLAGGED_MAX flagged runs."""
    async for runs in _at_entries(reads, Listing(RUNS, FLAGGED, open_list_of(RUN, query.tenant)).pages(reads)):
        put(rows, RUN, runs)
        if len(rows.open(RUN, query.tenant)) >= FLAGGED_MAX:
            break


async def _flaggings(
    reads: DynamoReads, tenant: str, rows: RowsInMemory, low: int | None = None, high: int | None = None
) -> bool:
    """Read at most FLAGGED_MAX flaggings, or one page more, newest first. Return True if these are all."""
    n = 0
    pages = Listing(RUNS, LISTED, list_of(FLAGGING, tenant)).pages(reads, low=low, high=high, backwards=True)
    async for items in pages:
        put(rows, FLAGGING, await reads.at(FLAGGING, [place_of(RUNS, item) for item in items]))
        n += len(items)
        if n > FLAGGED_MAX:
            return False
    return True


def _as_far(found: CountedBars, is_all: bool) -> CountedBars:
    """Return counts of rows, which are lower bounds unless all rows were read."""
    return found._replace(all=found.all and is_all)


async def _flagged_bars(reads: DynamoReads, query: FlaggedBars) -> CountedBars:
    rows = RowsInMemory()
    is_all = await _flaggings(reads, query.tenant, rows, query.span.since, query.span.until)
    return _as_far(query.find(rows), is_all)


async def _times_of_causes(reads: DynamoReads, query: TimesOfCauses, rows: RowsInMemory) -> None:
    await _flaggings(reads, query.tenant, rows)


async def _last_flaggings(reads: DynamoReads, query: LastFlaggings, rows: RowsInMemory) -> None:
    """Read all of the time, also before the page, because a later flagging of a run hides an earlier one."""
    await _flaggings(reads, query.tenant, rows, query.interval.low, query.interval.high)


async def _ended_runs(reads: DynamoReads, query: RunsByEnd, rows: RowsInMemory) -> None:
    after, limit = place_after(RUN, query.cursor), min(query.limit, PAGE_MAX) + 1
    low, high = query.interval

    def fits(run: Run) -> bool:
        is_wanted = query.interval.has(run.ended_at) and run.status in query.statuses and query.of.keep(run)
        return is_wanted and (after is None or end_place(run) < after)

    listing = Listing(RUNS, ENDED_INDEX, query.tenant)
    pages = listing.pages(reads, low=low, high=int(after[0]) if after else high, backwards=True, limit=_page(limit))
    await _gather(reads, RUN, pages, listing, rows, limit, fits)


async def _start_bars(reads: DynamoReads, query: StartBars) -> CountedBars:
    rows = RowsInMemory()
    is_all = await _runs_in(reads, Listing(RUNS, LISTED, list_of(RUN, query.tenant)), query.span, rows)
    return _as_far(query.find(rows), is_all)


async def _end_bars(reads: DynamoReads, query: EndBars) -> CountedBars:
    rows = RowsInMemory()
    is_all = await _runs_in(reads, Listing(RUNS, ENDED_INDEX, query.tenant), query.span, rows)
    return _as_far(query.find(rows), is_all)


async def _runs_in(reads: DynamoReads, listing: Listing, span: BarSpan, rows: RowsInMemory) -> bool:
    """Read the runs of a time, at most FLAGGED_MAX or one page more, newest first. Return True if these are all."""
    n = 0
    pages = listing.pages(reads, low=span.since, high=span.until, backwards=True)
    async for runs in _at_entries(reads, pages):
        put(rows, RUN, runs)
        n += len(runs)
        if n > FLAGGED_MAX:
            return False
    return True


async def _measured_runs(reads: DynamoReads, query: MeasuredRuns, rows: RowsInMemory) -> None:
    """Read the runs that ended in the time, newest end first, until enough of them fit, and their first events."""
    keys = list[Key]()
    listing = Listing(RUNS, ENDED_INDEX, query.tenant)
    async for runs in _at_entries(reads, listing.pages(reads, low=query.since, high=query.until, backwards=True)):
        put(rows, RUN, runs)
        keys += [(run.tenant, run.run) for run in runs if query.of.keep(run)]
        if len(keys) > query.most:
            break
    wanted = [(*key, seq) for key in keys[: query.last] for seq in FIRST_EVENTS]
    put(rows, EVENT, [each for each in await reads.load(EVENT, wanted) if each is not None])


async def _measured_approvals(reads: DynamoReads, query: MeasuredApprovals, rows: RowsInMemory) -> None:
    """Read approvals with their runs until enough of them fit."""
    if query.pending:
        pages = Listing(RUNS, OPEN, open_list_of(APPROVAL, query.tenant)).pages(reads)
    else:
        listing = Listing(RUNS, LISTED, list_of(APPROVAL, query.tenant))
        pages = listing.pages(reads, low=query.since, high=query.until, backwards=True)
    n = 0
    async for items in pages:
        found = await reads.at(APPROVAL, [place_of(RUNS, item) for item in items])
        statuses = frozenset({ApprovalStatus.PENDING}) if query.pending else DECIDED
        kept = [row for row in found if row.status in statuses]
        runs = await reads.load(RUN, list(dict.fromkeys((row.tenant, row.run) for row in kept)))
        put(rows, APPROVAL, kept)
        put(rows, RUN, [run for run in runs if run is not None])
        fits = {run.run for run in runs if run is not None and query.of.keep(run)}
        n += sum(row.run in fits for row in kept)
        if n > query.most:
            break


async def _run_courses(reads: DynamoReads, query: RunCourses, rows: RowsInMemory) -> None:
    keys = [(query.tenant, run) for run in query.runs]
    for first in range(0, len(keys), AT_ONCE):
        some = keys[first : first + AT_ONCE]
        for kind in (EVENT, EFFECT):
            for found in await asyncio.gather(*(reads.under(kind, key) for key in some)):
                put(rows, kind, found)


async def _lane_counts(reads: DynamoReads, query: LaneCounts) -> dict[str, int]:
    rows = RowsInMemory()
    await _under(reads, Under(TOPOLOGY, (STORE,)), rows)
    return await _of_lanes(reads, query.tenant, _lanes(rows, query.lanes), COUNT_MAX)


def _lanes(rows: RowsInMemory, further: Iterable[str]) -> set[str]:
    return {*further, *(row.lane for row in rows.under(TOPOLOGY, (STORE,)))}


async def _of_lanes(reads: DynamoReads, tenant: str, lanes: Collection[str], most: int) -> dict[str, int]:
    """Count the unfinished runs of a tenant in lanes. A lane without such runs is left out."""
    lists = [Listing(RUNS, LANE, lane_list_of(tenant, lane)) for lane in lanes]
    counts = await asyncio.gather(*(_keys(each.pages(reads, limit=most), most) for each in lists))
    return {lane: n for lane, n in zip(lanes, counts, strict=True) if n}


async def _unfinished_runs(reads: DynamoReads, query: UnfinishedRuns, rows: RowsInMemory) -> None:
    """Read runs by the list of each lane, which is in the order of their ids, until there are enough."""
    n = 0
    for lane in query.lanes:
        async for runs in _at_entries(reads, Listing(RUNS, LANE, lane_list_of(query.tenant, lane)).pages(reads)):
            put(rows, RUN, runs)
            n += len(runs)
            if n >= query.most:
                return


async def _keys(pages: Pages, most: int) -> int:
    """Count entries of an index, up to `most`."""
    n = 0
    async for items in pages:
        n += len(items)
        if n >= most:
            break
    return min(n, most)


# --- counts ------------------------------------------------------------------------------
async def _count_by(reads: DynamoReads, query: CountBy) -> dict[str, int]:
    query.find(RowsInMemory())  # raises InvalidInput
    kind, tenant = query.kind, query.tenant
    if kind.name not in LISTS:
        rows = RowsInMemory()
        await _under(reads, Under(kind, (tenant,), limit=INT_MAX), rows)
        return query.find(rows)
    listing = Listing(LISTS[kind.name], LISTED, list_of(kind, tenant))
    return dict(await _counted(reads, query, listing.pages(reads, limit=PAGE)))


async def _census(reads: DynamoReads, query: Census) -> dict[tuple[str, ...], int]:
    query.find(RowsInMemory())  # raises InvalidInput
    kind = query.kind
    if kind.name not in LISTS:
        rows = RowsInMemory()
        await _under(reads, Under(kind, (), limit=INT_MAX), rows)
        return query.find(rows)
    begins = {LISTED[1]: list_of(kind, "")}
    return dict(await _counted(reads, query, reads.items.scan(LISTS[kind.name], LISTED[0], **begins)))


async def _counted(reads: DynamoReads, query: "CountBy | Census", pages: Pages) -> "Counter[Any]":
    """Sum the counts of the rows at the entries, page by page."""
    found: Counter[Any] = Counter()
    table = LISTS[query.kind.name]
    async for items in pages:
        rows = RowsInMemory()
        put(rows, query.kind, await reads.at(query.kind, [place_of(table, item) for item in items]))
        found.update(query.find(rows))
    return found


# --- runs and cursors --------------------------------------------------------------------
async def _at_entries(reads: DynamoReads, pages: Pages) -> AsyncIterator[list[Run]]:
    async for items in pages:
        yield await reads.at(RUN, [place_of(RUNS, item) for item in items])


async def _owned(reads: DynamoReads, query: Owned, rows: RowsInMemory) -> None:
    async for runs in _at_entries(reads, Listing(RUNS, OWNER, query.owner).pages(reads)):
        put(rows, RUN, runs)


async def _queued(reads: DynamoReads, query: Queued, rows: RowsInMemory) -> None:
    if query.tenant == STORE:  # of all tenants: the index has only runs that wait for a slot
        async for runs in _at_entries(reads, reads.items.scan(RUNS, QUEUED[0])):
            put(rows, RUN, [run for run in runs if run.queue])
        return
    of_children = Listing(
        RUNS, QUEUED, queue_of(query.tenant, child=True)
    )  # all, because their order is that of the roots
    async for runs in _at_entries(reads, of_children.pages(reads)):
        put(rows, RUN, [run for run in runs if run.queue == query.tenant])
    listing = Listing(RUNS, QUEUED, queue_of(query.tenant, child=False))
    pages = listing.pages(reads, limit=_page(query.limit))
    await _gather(reads, RUN, pages, listing, rows, query.limit, lambda run: run.queue == query.tenant)


async def _moving(reads: DynamoReads, query: Moving, rows: RowsInMemory) -> None:
    begins = {"pk": partition(query.tenant)}  # the index has only runs that a worker owns
    async for runs in _at_entries(reads, reads.items.scan(RUNS, OWNER[0], **begins)):
        put(rows, RUN, runs)
    ended = Listing(RUNS, ENDED_INDEX, query.tenant)
    pages = ended.pages(reads, low=query.since, backwards=True, limit=_page(query.limit))
    await _gather(reads, RUN, pages, ended, rows, query.limit, lambda run: run.ended_at > 0)


async def _next_due(reads: DynamoReads, query: NextDue, rows: RowsInMemory) -> None:
    """Read the first run of each lane. An unowned run that was armed under an older mapping counts as due now."""
    now = await reads.now()
    for lane in query.lanes:
        low = None if query.after is None else query.after + 1
        async for items in Listing(RUNS, DUE, lane_of(lane, now.mapping)).pages(reads, low=low, limit=1):
            runs = await reads.at(RUN, [place_of(RUNS, item) for item in items])
            runs = [run for run in runs if run.lane == lane and run.due_at is not None]
            put(rows, RUN, runs)
            if any(str(run.due_at) == item["due_at"]["N"] for run, item in zip(runs, items, strict=False)):
                break  # otherwise the index lags, and the next entry may be due earlier
        for older in range(now.mapping):
            async for runs in _at_entries(reads, Listing(RUNS, DUE, lane_of(lane, older)).pages(reads)):
                put(rows, RUN, [_due_by(run, now.real) for run in runs if run.lane == lane])


def _due_by(run: Run, real: int) -> Run:
    return run if run.owner or run.due_at is None else run._replace(due_at=min(run.due_at, real))


async def _due_runs(reads: DynamoReads, query: DueRuns, rows: RowsInMemory) -> None:
    def fits(run: Run) -> bool:
        return run.lane == query.lane and run.due_at is not None and query.since <= run.due_at <= query.until

    mapping = (await reads.mapping()).version
    for version in range(mapping + 1):
        listing = Listing(RUNS, DUE, lane_of(query.lane, version))
        pages = listing.pages(reads, low=query.since, high=query.until, limit=_page(query.limit))
        await _gather(reads, RUN, pages, listing, rows, query.limit, fits)


async def _owing(reads: DynamoReads, query: Owing, rows: RowsInMemory) -> None:
    listing = Listing(RUNS, LISTED, list_of(CURSOR, query.tenant, query.subscription))
    pages = listing.pages(reads, limit=_page(query.limit))
    await _gather(reads, CURSOR, pages, listing, rows, query.limit, lambda row: row.due_at is not None)


# --- threads of LangGraph ----------------------------------------------------------------
async def _unused_threads(reads: DynamoReads, query: UnusedThreads, rows: RowsInMemory) -> None:
    """Read the index of all lists, and then the threads. The index may lag, and the query looks at the rows."""
    root = place(GRAPH_THREAD, ("", "", "")).sk
    since, *key = query.after
    after = (since, place(GRAPH_THREAD, (*key, "")).pk)
    found: list[tuple[float, str, ItemPlace]] = []
    async for items in reads.items.scan(RUNS, LISTED[0], **{LISTED[1]: list_of(GRAPH_THREAD, "")}):
        entries = [(number_of(item[LISTED[2]]["N"]), place_of(RUNS, item)) for item in items]
        found += [(n, at.pk, at) for n, at in entries if n < query.before and at.sk == root and (n, at.pk) > after]
        found = nsmallest(query.limit, found)
    put(rows, GRAPH_THREAD, await reads.at(GRAPH_THREAD, [at for _, _, at in found]))


# --- calls and usage ---------------------------------------------------------------------
async def _open_calls(reads: DynamoReads, query: OpenCalls, rows: RowsInMemory) -> None:
    await asyncio.gather(*(_calls_of(reads, (query.tenant, run), visit, rows) for run, visit in query.visits))


async def _calls_of(reads: DynamoReads, run: tuple[str, str], visit: int, rows: RowsInMemory) -> None:
    reading = asyncio.gather(*(reads.under(EFFECT, (*run, at)) for at in {0, visit}))
    used = await reads.under(USAGE, run)
    put(rows, USAGE, used)
    for effects in await reading:
        put(rows, EFFECT, effects)
    shared: list[Key] = [(run[0], "", 0, each.key) for each in used]
    put(rows, EFFECT, [each for each in await reads.load(EFFECT, shared) if each is not None])


async def _runs_below(reads: DynamoReads, query: RunsBelow) -> int:
    """Count entries of the index of trees, without reading the runs."""
    n = 0
    async for items in Listing(RUNS, TREE, tree_list_of(query.tenant, query.root)).pages(reads):
        n += len(items)
        if n >= query.limit:
            break
    return min(n, query.limit)


async def _run_usage(reads: DynamoReads, query: RunUsage, rows: RowsInMemory) -> None:
    put(rows, CALL_USAGE, await reads.under(CALL_USAGE, (query.tenant, query.run)))


async def _runs_usage(reads: DynamoReads, query: RunsUsage, rows: RowsInMemory) -> None:
    for found in await asyncio.gather(*(reads.under(CALL_USAGE, (query.tenant, run)) for run in {*query.runs})):
        put(rows, CALL_USAGE, found)


async def _tree_usage(reads: DynamoReads, query: TreeUsage, rows: RowsInMemory) -> None:
    listing = Listing(RUNS, LISTED, list_of(CALL_USAGE, query.tenant, query.root))
    async for items in listing.pages(reads):
        put(rows, CALL_USAGE, await reads.at(CALL_USAGE, [place_of(RUNS, item) for item in items]))
    if query.root != query.but:
        put(rows, CALL_USAGE, await reads.under(CALL_USAGE, (query.tenant, query.root)))


async def _spent_of_runs(reads: DynamoReads, query: SpentOfRuns, rows: RowsInMemory) -> None:
    """Read usage, calls and messages of each run, and the usage and the runs below it by their lists."""
    for run in query.runs:
        await _tree_usage(reads, TreeUsage(query.tenant, run), rows)
        for kind in (EFFECT, MESSAGE):
            put(rows, kind, await reads.under(kind, (query.tenant, run)))
        below = Listing(RUNS, TREE, tree_list_of(query.tenant, run))
        async for found in _at_entries(reads, below.pages(reads)):
            put(rows, RUN, found)


async def _day_usage(reads: DynamoReads, query: TenantDayUsage, rows: RowsInMemory) -> None:
    """Read the usage from an index that has whole rows: one request per day, not an item per call."""
    listing = Listing(RUNS, SPENT, spending_of(query.tenant, query.day))
    async for items in listing.pages(reads):
        put(rows, CALL_USAGE, await reads.rows(items, CALL_USAGE))


async def _usage_of_days(reads: DynamoReads, query: TenantUsage | NewestRequests, rows: RowsInMemory) -> None:
    """Read the usage of each day, the latest first, until there is enough of it, and the runs that reported it."""
    n, runs = 0, dict[Key, None]()
    for day in range(query.until, query.since - 1, -1):
        async for items in Listing(RUNS, SPENT, spending_of(query.tenant, day)).pages(reads):
            found = await reads.rows(items, CALL_USAGE)
            put(rows, CALL_USAGE, found)
            n += len(found)
            runs.update(dict.fromkeys((row.tenant, row.run) for row in found))
        if n > query.most:
            break
    put(rows, RUN, [each for each in await reads.load(RUN, list(runs)) if each is not None])


async def _newest_calls(reads: DynamoReads, query: NewestCalls, rows: RowsInMemory) -> None:
    """Read the newest calls by their list, and the runs that made them."""
    listing, runs, n = Listing(IDEMPOTENCY, LISTED, list_of(EFFECT, query.tenant)), dict[Key, None](), 0
    async for items in listing.pages(reads, backwards=True):
        found = await reads.at(EFFECT, [place_of(IDEMPOTENCY, item) for item in items])
        put(rows, EFFECT, found)
        n += sum(not row.undoes for row in found)
        runs.update(dict.fromkeys((row.tenant, row.run or row.by_run) for row in found))
        if n >= query.most:
            break
    put(rows, RUN, [each for each in await reads.load(RUN, list(runs)) if each is not None])


async def _newest_memos(reads: DynamoReads, query: NewestMemos, rows: RowsInMemory) -> None:
    """Read the newest runs by their list, and the memos of each."""
    await _newest(reads, Newest(RUN, query.tenant, limit=query.runs), rows)
    for run in rows.under(RUN, (query.tenant,)):
        put(rows, MEMO, await reads.under(MEMO, (query.tenant, run.run)))


PLANS: Final[dict[type[Query[Any]], Plan]] = {
    Load: _load,
    LoadMany: _load_many,
    Under: _filled(_under),
    ByOrdinal: _filled(_by_ordinal),
    LastOrdinals: _filled(_last_ordinals),
    Newest: _filled(_newest),
    OpenRows: _filled(_open_rows),
    Summary: _summary,
    LaneCounts: _lane_counts,
    UnfinishedRuns: _filled(_unfinished_runs),
    FlaggedCounts: _flagged_counts,
    FlaggedBars: _flagged_bars,
    TimesOfCauses: _filled(_times_of_causes),
    LastFlaggings: _filled(_last_flaggings),
    RunsByEnd: _filled(_ended_runs),
    FirstFlagged: _filled(_flagged_runs),
    EndBars: _end_bars,
    StartBars: _start_bars,
    MeasuredRuns: _filled(_measured_runs),
    MeasuredApprovals: _filled(_measured_approvals),
    RunCourses: _filled(_run_courses),
    CountBy: _count_by,
    Census: _census,
    Owned: _filled(_owned),
    Queued: _filled(_queued),
    Moving: _filled(_moving),
    NextDue: _filled(_next_due),
    DueRuns: _filled(_due_runs),
    Owing: _filled(_owing),
    OpenCalls: _filled(_open_calls),
    RunsBelow: _runs_below,
    RunUsage: _filled(_run_usage),
    RunsUsage: _filled(_runs_usage),
    TreeUsage: _filled(_tree_usage),
    SpentOfRuns: _filled(_spent_of_runs),
    TenantDayUsage: _filled(_day_usage),
    TenantUsage: _filled(_usage_of_days),
    NewestRequests: _filled(_usage_of_days),
    NewestCalls: _filled(_newest_calls),
    NewestMemos: _filled(_newest_memos),
    UnusedThreads: _filled(_unused_threads),
}


OF_MANY_RUNS: Final[dict[type[Query[Any]], Unreadable]] = {
    **dict.fromkeys((Owned, Queued, NextDue, DueRuns), Unreadable.LEAVE_OUT),
    **dict.fromkeys((LastOrdinals, Newest, OpenRows, Summary, LaneCounts, FlaggedCounts, CountBy), Unreadable.REPLACE),
    **dict.fromkeys(
        (FlaggedBars, TimesOfCauses, LastFlaggings, FirstFlagged, EndBars, StartBars, RunsByEnd), Unreadable.REPLACE
    ),
    **dict.fromkeys((MeasuredRuns, MeasuredApprovals, RunCourses), Unreadable.REPLACE),
    **dict.fromkeys(
        (Census, Moving, Owing, OpenCalls, RunsUsage, TenantDayUsage, TenantUsage, TreeUsage, UnusedThreads),
        Unreadable.REPLACE,
    ),
    **dict.fromkeys((NewestRequests, NewestCalls, NewestMemos), Unreadable.REPLACE),
    **dict.fromkeys((UnfinishedRuns, SpentOfRuns), Unreadable.REPLACE),
}
"""Queries over rows of many runs: of workers, and of lists. Any other one raises Corrupt for an unreadable row."""

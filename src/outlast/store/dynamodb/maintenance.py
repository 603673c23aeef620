"""Clock mapping and retention of a DynamoDB store, page by page. `receipts.py` has the writers' rows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from outlast.core.commit import Mapping
from outlast.core.durations import ANSWERS_KEPT, SECOND, WORKERS_KEPT
from outlast.core.generation import LEDGERS, LedgersPurged, PurgePoint, last_of, ledgers_after, ledgers_of
from outlast.core.machine import ENDED, LeaseStatus
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import EFFECT, USAGE, Effect
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.row_kind import AnyKind, key_of, version_of
from outlast.core.rows.run_rows import RUN, TOKEN, Run, is_due, start_token_of
from outlast.core.rows.store_rows import META, REQUEST, STORE, WORKER, WRITER, Meta
from outlast.errors import Corrupt, Unavailable
from outlast.store.dynamodb.connection import CHECKPOINTS, IDEMPOTENCY, RUNS, ConditionRefused, pause
from outlast.store.dynamodb.items import (
    BODY,
    RECEIPT,
    Item,
    ItemPlace,
    Stamp,
    encode,
    kind_of,
    number,
    number_of,
    of_ended_run,
    place,
    receipt_place,
    text,
    tree_list_of,
    within,
)
from outlast.store.dynamodb.landing import Lander
from outlast.store.dynamodb.plans import DUE, ENDED_INDEX, LISTED, OWNER, TREE, Listing
from outlast.store.dynamodb.reads import SAME_TRIES, DynamoReads, ItemReader, Unreadable, place_of
from outlast.store.dynamodb.takes import RunFinder
from outlast.store.port import LEDGER_KINDS
from outlast.store.sql import warn_once
from outlast.store.store_clock import MAPPING_ROW, StoreClock, mapping_of, mapping_row, successor

AT_ONCE: Final = 16  # requests at once
DELETED_AT_ONCE: Final = 25  # items in one BatchWriteItem
OVER_MAX: Final = 10_000  # ended runs that one scan of their index finds
PAST: Final = 1  # `ttl` of a run that is being deleted: from here on it counts as absent
PARTS: Final = (RUNS, CHECKPOINTS, IDEMPOTENCY)  # tables with rows of a run


Keeps = Callable[[Run], Awaitable[bool]]


async def keeps_none(run: Run) -> bool:
    """Return False: each run that ended before the instant is meant."""
    return False


class RunToPurge(NamedTuple):
    """An ended run that is to be deleted, or whose ledger is. They sort by end, tenant and run."""

    ended_at: float
    at: ItemPlace


class EndedRuns:
    """Ended runs in the order of their ends, as the index of them has them. One scan of it serves many calls."""

    def __init__(self, items: ItemReader) -> None:
        self._items = items
        self._found: list[RunToPurge] = []  # and not yet handed out

    async def oldest(
        self, before: int, n: int, after: RunToPurge | None = None, keeps: Keeps = keeps_none
    ) -> list[Run]:
        """Return the `n` oldest runs that ended before a business instant, and after one of them.

        `keeps`: tells of a run whether it is left out. Behind as many of them as one scan finds, the next one goes on.
        """
        found = await self._next(before, n, after, keeps)
        while len(found) < n:
            known = {place(RUN, run[:2]) for run in found}
            ended: list[RunToPurge] = []
            async for items in self._items.scan(RUNS, ENDED_INDEX[0]):
                entries = (RunToPurge(number_of(item["ended_at"]["N"]), place_of(RUNS, item)) for item in items)
                ended += [each for each in entries if each.ended_at < before and each.at not in known]
                if after is not None:
                    ended = [each for each in ended if each > after]
                if len(ended) > 2 * OVER_MAX:
                    ended = nsmallest(OVER_MAX, ended)
            self._found = nsmallest(OVER_MAX, ended)
            last = self._found[-1] if len(ended) > OVER_MAX else None
            found += await self._next(before, n - len(found), after, keeps)
            if last is None:
                break
            after = last
        return found

    def put_back(self, runs: Iterable[Run]) -> None:
        """Hand these runs out again, before the others that a scan has found."""
        self._found = [*(RunToPurge(run.ended_at, place(RUN, run[:2])) for run in runs), *self._found]

    async def _next(self, before: int, n: int, after: RunToPurge | None, keeps: Keeps) -> list[Run]:
        found: list[Run] = []
        while len(found) < n and (runs := await self._still_there(before, n - len(found), after)):
            found += [run for run in runs if not await keeps(run)]
        return found

    async def _still_there(self, before: int, n: int, after: RunToPurge | None) -> list[Run]:
        """Return the next of the runs found by a scan that still exist."""
        found: list[Run] = []
        while self._found and len(found) < n and self._found[0].ended_at < before:
            part, self._found = self._found[: n - len(found)], self._found[n - len(found) :]
            part = [each for each in part if each.ended_at < before and (after is None or each > after)]
            items = await self._items.get_many([each.at for each in part])
            for each in part:
                if each.at in items and has_ended(items[each.at], each.ended_at):
                    found += _readable(items[each.at])
        return found


def _readable(item: Item) -> list[Run]:
    """Return the run of an item; [] for one that cannot be read: it is kept and logged, and stops no purge."""
    try:
        return [of_ended_run(item)]
    except Corrupt as error:
        warn_once(error.row[1] if error.row else (item["pk"]["S"], item["sk"]["S"]), error.what)
        return []


def has_ended(item: Item, ended_at: float) -> bool:
    """True if the run ended at this instant, so nothing of it is needed to continue it, and its rows may expire.

    The index lags: the id of a deleted run may name a new run, which has not ended, or later.
    """
    return item["owner"] == text(ENDED) and item["ended_at"] == number(ended_at)


def _to_purge(end: PurgePoint) -> RunToPurge:
    return RunToPurge(end.ended_at, place(RUN, (end.tenant, end.run)))


def _seconds(mapping: Mapping, business: int) -> int:
    """Return the first second since 1970 that begins at a business instant or later."""
    return -(-mapping.real(business) // SECOND)


def _kind(at: ItemPlace) -> AnyKind | None:
    """Return the kind of the row of an item, also of a body item."""
    return kind_of(at.sk.rpartition(BODY)[0] or at.sk)


def _ends_after(item: Item, end: int) -> bool:
    return "ttl" not in item or number_of(item["ttl"]["N"]) > end


class Housekeeper:
    """Changes the clock mapping, and deletes rows whose retention is over, in the store's own event loop."""

    def __init__(
        self, lander: Lander, finder: RunFinder, reads: DynamoReads, store_clock: StoreClock, writer: str
    ) -> None:
        self._lander = lander
        self._finder = finder
        self._reads = reads
        self._listed = reads.of_many(Unreadable.REPLACE)  # a row that cannot be read still names its run and its key
        self._readable = reads.of_many(Unreadable.LEAVE_OUT)
        self._items: ItemReader = reads.items
        self._clock = store_clock
        self._writer = writer
        self._over = EndedRuns(reads.items)
        self._unmarked = EndedRuns(reads.items)
        self._ledgers = EndedRuns(reads.items)

    # --- clock mapping -----------------------------------------------------------------------
    async def set_mapping(self, wanted: Mapping, rearm: Callable[[Run, Mapping], int | None]) -> Mapping:
        """Land the mapping, have all writers judge by it, then move the due_at of unowned runs.

        A run that the index of due runs does not show yet keeps the older mapping in its item. The take that finds it
        moves its due_at.
        """
        for n in range(SAME_TRIES):
            (before,) = await self._reads.load(META, [MAPPING_ROW])
            stored = successor(mapping_of(before), wanted, self._clock.real())
            try:
                await self._lander.land_alone(
                    [self._put_mapping(stored, 0 if before is None else before.version)], "set"
                )
            except ConditionRefused:
                await pause(n)
                continue
            await self._lander.changed_settings()
            await self._rearm_all(stored, rearm)
            return stored
        raise Unavailable("the store is busy", "the clock mapping changes all the time")

    def _put_mapping(self, stored: Mapping, replaces: int) -> dict[str, Any]:
        (item,) = encode(META, mapping_row(stored), Stamp(self._writer, 0, 0))
        put: dict[str, Any] = {"TableName": self._items.table(RUNS), "Item": item}
        put |= _if_version(replaces) if replaces else {"ConditionExpression": "attribute_not_exists(pk)"}
        return {"Put": put}

    async def _rearm_all(self, mapping: Mapping, rearm: Callable[[Run, Mapping], int | None]) -> None:
        """Arm all runs that wait by an older mapping. A commit that changes a run arms it by the present one."""
        async for entries in self._items.scan(RUNS, DUE[0]):
            for i in range(0, len(entries), AT_ONCE):
                found, real = await self._lander.read_at(entries[i : i + AT_ONCE]), self._clock.real()
                await asyncio.gather(
                    *(self._finder.rearm(each, mapping, rearm, stays_due=is_due(each.run, real)) for each in found)
                )

    # --- runs that ended -----------------------------------------------------------------------
    async def purge(self, before: int, n: int) -> int:
        """Delete at most `n` runs whose trees ended before a business instant, and return how many. A root goes last.

        The last call of a purge, which finds fewer, also deletes shared effects and closed writers.
        """

        async def keeps(run: Run) -> bool:
            return bool(run.root) or await self._ends_later(run, before)

        await self._lander.land_alone((), "purge")  # raises Unavailable if this writer was closed
        deleted, roots = 0, await self._over.oldest(before, n, keeps=keeps)
        while roots and deleted < n:
            below = await self._below(roots[0], n - deleted)
            is_whole = len(below) < n - deleted
            for run in (*below, *roots[:1]) if is_whole else below:
                await self._delete_run(run)
                deleted += 1
            roots = roots[1:] if is_whole else roots
        if deleted == n:
            self._over.put_back(roots)
            return n
        await self._forget_shared(n)
        await self._forget_writers(before)
        return deleted

    async def _ends_later(self, root: Run, before: int) -> bool:
        """Return True if a run below a root has not ended, or ended at an instant or later. The index sorts by ends."""
        tree = Listing(RUNS, TREE, tree_list_of(root.tenant, root.run))
        for low, high in ((0, 0), (before, None)):
            async for items in tree.pages(self._reads, low=low, high=high, limit=1):
                if items:
                    return True
        return False

    async def _below(self, root: Run, n: int) -> list[Run]:
        """Return at most `n` runs below a root, all of which have ended."""
        found: list[Run] = []
        async for items in Listing(RUNS, TREE, tree_list_of(root.tenant, root.run)).pages(self._reads):
            there = await self._items.get_many([place_of(RUNS, item) for item in items])
            found += [run for item in there.values() for run in _readable(item) if run.ended_at]
            if len(found) >= n:
                break
        return found[:n]

    async def _is_of_tree(self, run: Run) -> bool:
        """Return True if other runs are in the tree of a run."""
        if run.root:
            return True
        async for items in Listing(RUNS, TREE, tree_list_of(run.tenant, run.run)).pages(self._reads, limit=1):
            if items:
                return True
        return False

    async def expire(self, before: int, n: int, runs_kept: int, ledger_kept: int) -> int:
        """Write the ends of retention into the items of at most `n` runs that ended before an instant.

        The last of these runs is noted first: readers may take a ledger for gone while it is there, never the opposite.
        """
        await self._lander.land_alone((), "expire")  # raises Unavailable if this writer was closed
        (row,) = await self._reads.load(META, [LEDGERS])
        purged, mapping = ledgers_of(row), await self._reads.mapping()
        marked, kept = purged.marked, min(filter(None, (runs_kept, ledger_kept)), default=0)  # of a ledger
        if mapping.rate != 1 or not kept:
            return 0  # the instant of the end in real time is not known
        if kept != purged.kept:
            if mapping.business(self._clock.real()) <= marked.ended_at + purged.kept:
                return 0  # ledgers that were marked expire after another time
            purged = purged._replace(last=max(purged.last, marked))  # they are gone
        over = await self._unmarked.oldest(before, n, _to_purge(marked))
        found = [(run.ended_at, run.tenant, run.run) for run in over]
        after = purged._replace(marked=max(marked, last_of(found, before, n)), kept=kept)
        if after != purged and not await self._note_ledgers(after, row):
            return 0
        for run in over:
            own_kept = 0 if await self._is_of_tree(run) else runs_kept  # a tree is purged as one
            run_until, ledger_until = [
                _seconds(mapping, run.ended_at + each) if each else 0 for each in (own_kept, kept)
            ]
            await self._mark_run(run, run_until, ledger_until)
        return len(over)

    async def purge_runs(self, runs: Sequence[Run]) -> None:
        """Delete all rows of ended runs, and the tokens that name them."""
        await self._lander.land_alone((), "purge runs")  # raises Unavailable if this writer was closed
        for run in runs:
            await self._delete_run(run, with_tokens=True)
            await self._delete([place(TOKEN, start_token_of(run))])

    async def purge_ledgers(self, before: int, n: int) -> int:
        """Let the ledgers of at most `n` runs that ended before an instant expire, and note the last of these runs.

        A deletion costs as much as the mark. DynamoDB deletes marked items within days, or the purge of the run does.
        """
        await self._lander.land_alone((), "purge ledgers")  # raises Unavailable if this writer was closed
        (row,) = await self._reads.load(META, [LEDGERS])
        purged = ledgers_of(row)
        over = await self._ledgers.oldest(before, n, _to_purge(purged.last))
        for run in over:
            await self._mark_run(run, 0, max(PAST, (self._clock.real() - (before - run.ended_at)) // SECOND))
        found = [(run.ended_at, run.tenant, run.run) for run in over]
        after = ledgers_after(purged, found, before, n)
        if after != purged:
            await self._note_ledgers(after, row)
        return len(over)

    async def _mark_run(self, run: Run, run_until: int, ledger_until: int) -> None:
        """Write ends of retention, in seconds since 1970, into the items of an ended run. 0 = none.

        The run is read after its items were listed. Each mark compares the receipt of its item, so that none meets an
        item of a later run with the same id.
        """
        listed = await self._items_of(run, PARTS if run_until else (IDEMPOTENCY,))
        mine = place(RUN, run[:2])
        item = await self._items.get(mine)
        if item is None or not has_ended(item, run.ended_at):
            return
        if run_until and not await self._mark(mine, item, "kept_until", run_until):
            return  # it is being deleted
        ends = [(at, item, ledger_until if _kind(at) in LEDGER_KINDS else run_until) for at, item in listed.items()]
        ends = [(at, item, end) for at, item, end in ends if end and _kind(at) is not RUN and _ends_after(item, end)]
        for i in range(0, len(ends), AT_ONCE):
            await asyncio.gather(*(self._mark(at, item, "ttl", end) for at, item, end in ends[i : i + AT_ONCE]))

    async def _mark(self, at: ItemPlace, item: Item, attribute: str, until: int) -> bool:
        """Write an end of retention. Return False if the item was replaced or deleted, or ends before."""
        try:
            await self._items.call(
                "UpdateItem",
                TableName=self._items.table(at.table),
                Key=at.key(),
                UpdateExpression="SET #end = :end",
                ConditionExpression="receipt = :receipt AND (attribute_not_exists(#end) OR #end >= :end)",
                ExpressionAttributeNames={"#end": attribute},
                ExpressionAttributeValues={":end": number(until), ":receipt": item[RECEIPT]},
            )
        except ConditionRefused:
            return False
        return True

    async def _note_ledgers(self, after: LedgersPurged, before: Meta | None) -> bool:
        """Write the meta row, or return False if another process marks the same ledgers."""
        (item,) = encode(META, after.row(before), Stamp(self._writer, 0, 0))
        put = {"TableName": self._items.table(RUNS), "Item": item}
        condition = (
            {"ConditionExpression": "attribute_not_exists(pk)"} if before is None else _if_version(before.version)
        )
        try:
            await self._lander.land_alone([{"Put": put | condition}], "ledgers")
        except ConditionRefused:
            return False
        return True

    async def _delete_run(self, run: Run, *, with_tokens: bool = False) -> None:
        """Delete the rows of an ended run, but not its tokens.

        First its own item is marked as expired, so that the run is absent for all readers at once. That item is deleted
        last, so that a later purge finds the rest if this one is interrupted.
        """
        at = place(RUN, run[:2])
        item = await self._items.get(at)
        if item is None or not has_ended(item, run.ended_at) or not await self._mark(at, item, "kept_until", PAST):
            return  # another purge has deleted it
        listed = await self._items_of(run, PARTS, with_tokens=with_tokens)
        for table in PARTS:
            await self._delete([each for each in listed if each.table == table and each != at])
        await self._delete([at])

    async def _items_of(self, run: Run, tables: Sequence[str], *, with_tokens: bool = False) -> dict[ItemPlace, Item]:
        """Return keys, receipts and `ttl` of a run's items, without its tokens, which outlive it (S-18)."""
        marks = within(UNPUBLISHED, run[:2])
        assert marks is not None
        wanted = [(table, "pk = :pk", {":pk": text(place(RUN, run[:2]).pk)}) for table in tables]
        if RUNS in tables:
            values = {":pk": text(marks.pk), ":low": text(marks.low), ":high": text(marks.high)}
            wanted.append((RUNS, "pk = :pk AND sk BETWEEN :low AND :high", values))
        found: dict[ItemPlace, Item] = {}
        for table, where, values in wanted:
            request = {
                "TableName": self._items.table(table),
                "KeyConditionExpression": where,
                "ExpressionAttributeValues": values,
                "ExpressionAttributeNames": {"#ttl": "ttl"},
                "ProjectionExpression": "pk, sk, receipt, #ttl",
                "ConsistentRead": True,
            }
            async for items in self._items.pages("Query", request):
                found |= {place_of(table, item): item for item in items}
        return {at: item for at, item in found.items() if with_tokens or kind_of(at.sk) is not TOKEN}

    async def _delete(self, places: Sequence[ItemPlace]) -> None:
        """Delete items of one table without a condition."""
        for i in range(0, len(places), DELETED_AT_ONCE):
            part = places[i : i + DELETED_AT_ONCE]
            table = self._items.table(part[0].table)
            left: Any = {table: [{"DeleteRequest": {"Key": each.key()}} for each in part]}
            for n in range(SAME_TRIES):
                left = (await self._items.call("BatchWriteItem", RequestItems=left)).get("UnprocessedItems")
                if not left:
                    break
                await pause(n)

    # --- what no run owns ------------------------------------------------------------------------
    async def _forget_shared(self, n: int) -> None:
        """Delete at most `n` shared effects whose retention is over and which no run names (S-18).

        Each use of a settled effect gives it a new version. So the users that were written before an effect was read
        are found by the second scan, and those after it make the deletion fail.
        """
        now = (await self._reads.now()).business
        over: dict[tuple[str, str], Effect] = {}
        async for items in self._all(IDEMPOTENCY, "keep_ms > :none AND settled_at > :none", {":none": number(0)}):
            for effect in await self._readable.rows(items, EFFECT):
                if not effect.run and effect.settled_at + effect.keep_ms <= now:
                    over[effect.tenant, effect.key] = effect
        if not over:
            return
        async for items in self._all(IDEMPOTENCY, "contains(sk, :usage)", {":usage": text("#usage")}):
            for usage in await self._listed.rows(items, USAGE):
                over.pop((usage.tenant, usage.key), None)
        await self._delete_rows(EFFECT, list(over.values())[:n])

    async def _forget_writers(self, before: int) -> None:
        for row in await self._readable.under(WRITER, (STORE,)):
            if row.status is LeaseStatus.CLOSED and row.started_at < before:
                item = await self._items.get(place(WRITER, row[: WRITER.key]))
                shards = 0 if item is None else int(item["shards"]["N"])
                await self._delete([receipt_place(row.id, n) for n in reversed(range(shards))])

    async def forget(self, n: int) -> int:
        """Delete at most `n` stored answers and `n` rows of workers whose retention is over, and return how many."""
        await self._lander.land_alone((), "forget")
        now = await self._reads.now()
        requests = await self._old_requests(now.business - ANSWERS_KEPT, n)
        workers = [
            row
            for row in await self._readable.under(WORKER, (STORE,))
            if row.status is LeaseStatus.CLOSED and row.lease_until < now.real - WORKERS_KEPT
        ]
        idle = [row for row in workers if not await self._owns(row.id)]
        return await self._delete_rows(REQUEST, requests) + await self._delete_rows(WORKER, idle[:n])

    async def _old_requests(self, before: int, n: int) -> list[Any]:
        oldest: list[tuple[float, ItemPlace]] = []
        where = "begins_with(#list, :list) AND list_at < :before"
        values = {":list": text(f"{REQUEST.name}#"), ":before": number(before)}
        request = {
            "TableName": self._items.table(RUNS),
            "IndexName": LISTED[0],
            "FilterExpression": where,
            "ExpressionAttributeNames": {"#list": LISTED[1]},
            "ExpressionAttributeValues": values,
        }
        async for items in self._items.pages("Scan", request):
            oldest += [(number_of(item["list_at"]["N"]), place_of(RUNS, item)) for item in items]
            oldest = nsmallest(n, oldest)
        rows = await self._readable.at(REQUEST, [at for _, at in oldest])
        return [row for row in rows if row.at < before]

    async def _owns(self, worker: str) -> bool:
        async for items in Listing(RUNS, OWNER, worker).pages(self._reads):
            runs = await self._listed.at(RUN, [place_of(RUNS, item) for item in items])
            if any(run.owner == worker for run in runs):
                return True
        return False

    async def _delete_rows(self, kind: AnyKind, rows: Iterable[Row]) -> int:
        """Delete rows that have not changed since they were read, with their body items. Return how many."""
        deleted = 0
        for row in rows:
            at = place(kind, key_of(kind, row))
            try:
                await self._items.call(
                    "DeleteItem",
                    TableName=self._items.table(at.table),
                    Key=at.key(),
                    **_if_version(version_of(kind, row)),
                )
            except ConditionRefused:
                continue
            deleted += 1
            bodies = within(kind, key_of(kind, row))
            assert bodies is not None
            found = [place_of(at.table, each) async for part in self._items.range(bodies) for each in part]
            await self._delete([each for each in found if kind_of(each.sk) is None])
        return deleted

    # --- helpers ---------------------------------------------------------------------------------
    async def _all(self, table: str, where: str, values: dict[str, Any]) -> AsyncIterator[list[Item]]:
        """Yield the items of a table that meet a condition, read strongly."""
        request = {
            "TableName": self._items.table(table),
            "FilterExpression": where,
            "ExpressionAttributeValues": values,
            "ConsistentRead": True,
        }
        async for items in self._items.pages("Scan", request):
            yield items


def _if_version(version: int) -> dict[str, Any]:
    """Return the condition that an item still has a version."""
    return {
        "ConditionExpression": "#version = :version",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": {":version": number(version)},
    }

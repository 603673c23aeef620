"""Reads of a DynamoDB store: the items of a table, and the rows of a run.

`plans.py` has a plan for each query. An index lags, so it only tells keys: the items at these keys are read again,
strongly, and judged by what they hold.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from copy import copy
from enum import Enum, auto
from functools import cache
from typing import Any, Final, NamedTuple

from outlast.core.commit import Instant, Mapping
from outlast.core.row_checks import listed_as_unreadable
from outlast.core.rows.all_kinds import R
from outlast.core.rows.effect_rows import EFFECT, USAGE
from outlast.core.rows.row_kind import AnyKind, Key, Kind, key_of
from outlast.core.rows.run_rows import EVENT, RUN, Event
from outlast.core.rows.store_rows import META, WRITER
from outlast.errors import Corrupt, Unavailable
from outlast.store.dynamodb.connection import RUNS, Away, Conflicted, Connection, Throttled, Unusable, pause
from outlast.store.dynamodb.items import (
    Item,
    ItemPlace,
    KeyRange,
    Torn,
    body_places,
    corrupt,
    decode,
    has_expired,
    kind_of,
    partition,
    place,
    receipt_place,
    stored_values,
    whole,
    within,
)
from outlast.store.port import HOLDER_KINDS, RunRows, gather_rows
from outlast.store.sql import warn_once
from outlast.store.store_clock import MAPPING_ROW, StoreClock, mapping_of

log = logging.getLogger("outlast.store")
READ_S: Final = 3.0  # time in which a request is repeated
TRIES: Final = 8  # requests of a batch of which no key is answered
SAME_TRIES: Final = 50  # reads of rows that changed while they were read
TORN_FOR_GOOD: Final = 12  # reads of an item that stays the same, and whose body items are of another write
TORN_MAX: Final = 1_000
AT_ONCE: Final = 100  # keys in one BatchGetItem
PAGE: Final = 1_000  # items per page at most, if a page has a limit
SENDERS: Final = 4  # concurrent requests that read single items; later reads wait and share the next request
LATEST: Final = 10  # events per page when the last snapshot is searched
FEW: Final = 40  # items of a run without ledger and events, which one request reads
WALK_MAX: Final = 100_000  # keys that one scan finds for the pages of a walk
WALKS_MAX: Final = 8
WALK_KEPT_S: Final = 600.0


class Walk(NamedTuple):
    """Places that a scan found and that no page has had yet, in key order. `whole`: there are no others."""

    places: Sequence[ItemPlace]
    whole: bool
    found_at: float


class ItemReader:
    """Requests that read items. A request without an answer is repeated, because it changes nothing.

    `page_limit` cuts pages in tests as 1 MB does in DynamoDB.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.page_limit: int | None = None
        self._asked: deque[tuple[ItemPlace, asyncio.Future[Item | None]]] = deque()
        self._senders: set[asyncio.Task[None] | None] = set()
        self._torn: dict[ItemPlace, Item] = {}  # items whose body items are missing

    async def call(self, operation: str, *, within_s: float = READ_S, **request: Any) -> dict[str, Any]:
        """Send a request whose repetition is harmless until it is answered.

        Raises ConditionRefused, also if an earlier attempt landed, and Unavailable after `within_s`.
        """
        try:
            return await self.connection.insist(operation, within_s, **request)
        except (Away, Unusable) as error:
            raise Unavailable("the store does not answer", str(error)) from error
        except (Conflicted, Throttled) as error:
            raise Unavailable("the store is busy", str(error)) from error

    async def get(self, at: ItemPlace) -> Item | None:
        """Return the item at a place, or None. Reads of many tasks share requests: each costs a millisecond of CPU."""
        asked: asyncio.Future[Item | None] = asyncio.get_running_loop().create_future()
        self._asked.append((at, asked))
        if len(self._senders) < SENDERS:
            sender = asyncio.create_task(self._send())
            self._senders.add(sender)
        return await asked

    async def _send(self) -> None:
        """Read all items that are asked for, and answer."""
        try:
            while self._asked:
                await self._send_some()
        finally:  # in the same step as the look above, so that no later read counts on this task
            self._senders.discard(asyncio.current_task())

    async def _send_some(self) -> None:
        part = [self._asked.popleft() for _ in range(min(len(self._asked), self.page_limit or AT_ONCE))]
        places = list(dict.fromkeys(at for at, _ in part))
        try:
            found = await (self._batch(places) if len(places) > 1 else self._one(places[0]))
        except Exception as error:  # every caller must get an answer
            for _, asked in part:
                if not asked.done():
                    asked.set_exception(error)
            return
        except asyncio.CancelledError:
            for _, asked in part:
                asked.cancel()
            raise
        for at, asked in part:
            if not asked.done():  # its caller was cancelled
                asked.set_result(found.get(at))

    async def _one(self, at: ItemPlace) -> dict[ItemPlace, Item]:
        answer = await self.call("GetItem", TableName=self.table(at.table), Key=at.key(), ConsistentRead=True)
        return {at: answer["Item"]} if "Item" in answer else {}

    async def get_many(self, places: Sequence[ItemPlace]) -> dict[ItemPlace, Item]:
        """Return the items at these places. Missing ones are left out."""
        size = min(AT_ONCE, self.page_limit or AT_ONCE)
        wanted = list(dict.fromkeys(places))
        if len(wanted) == 1:
            item = await self.get(wanted[0])
            return {} if item is None else {wanted[0]: item}
        parts = [wanted[i : i + size] for i in range(0, len(wanted), size)]
        found: dict[ItemPlace, Item] = {}
        for part in await asyncio.gather(*map(self._batch, parts)):
            found |= part
        return found

    async def _batch(self, places: Sequence[ItemPlace]) -> dict[ItemPlace, Item]:
        names = {self.table(each.table): each.table for each in places}
        left: dict[str, Any] = {name: {"Keys": [], "ConsistentRead": True} for name in names}
        for each in places:
            left[self.table(each.table)]["Keys"].append(each.key())
        found: dict[ItemPlace, Item] = {}
        tries = 0
        while left:
            answer = await self.call("BatchGetItem", RequestItems=left)
            for name, items in answer["Responses"].items():
                found |= {place_of(names[name], item): item for item in items}
            left = answer.get("UnprocessedKeys") or {}
            tries = 0 if any(answer["Responses"].values()) else tries + 1
            if tries == TRIES:
                raise Unavailable("the store cannot be read", "it leaves all keys unprocessed")
            if left:
                await pause(tries)
        return found

    async def whole_runs(self, places: Sequence[ItemPlace]) -> dict[ItemPlace, Item | Corrupt]:
        """Return the items at these places; those of runs have the columns of their body items.

        A run whose body items cannot be joined is an error. Raises Unavailable.
        """
        found = await self.get_many(places)
        parted = [at for at, item in found.items() if "bodies" in item and kind_of(at.sk) is RUN]
        joined = await asyncio.gather(*(self._joined(at, found[at]) for at in parted))
        return {**found, **dict(zip(parted, joined, strict=True))}

    async def _joined(self, at: ItemPlace, item: Item) -> Item | Corrupt:
        try:
            return await self._whole(at, item)
        except Corrupt as error:
            return error

    async def _whole(self, at: ItemPlace, item: Item) -> Item:
        same = 0
        for n in range(SAME_TRIES):
            bodies = await self.get_many(body_places(at.table, item))
            try:
                return whole(RUN, item, bodies.values())
            except Torn:
                self.check_parts(RUN, at, item, same)
                await pause(n)
            before, item = item, await self.get(at) or item
            same = same + 1 if item == before else 0
            if "bodies" not in item:
                return item
        raise Unavailable("the store is busy", f"a run changed {SAME_TRIES} times while it was read")

    def check_parts(self, kind: AnyKind, at: ItemPlace, item: Item, same: int) -> None:
        """Raise Corrupt if body items cannot belong to a write that is being made: its items appear in milliseconds.

        `same`: reads in succession that found this item, and body items of another write. Such an item is remembered,
        so that later looks at it do not wait.
        """
        if same < TORN_FOR_GOOD and self._torn.get(at) != item:
            return
        if len(self._torn) >= TORN_MAX:
            self._torn.clear()
        self._torn[at] = item
        raise corrupt(kind, item, "its parts are missing, or of another write")

    async def range(self, of: KeyRange, *, backwards: bool = False, limit: int = 0) -> AsyncIterator[list[Item]]:
        """Yield the pages of a range of one partition key, read strongly. `limit`: as in `pages`."""
        async for items in self.pages("Query", self._request(of) | {"ScanIndexForward": not backwards}, limit):
            yield items

    async def first(self, of: KeyRange, limit: int) -> tuple[list[Item], str]:
        """Return the first page of a range, read strongly, and the sort key up to which it is whole."""
        request = self._request(of) | {"Limit": min(limit, self.page_limit or limit)}
        answer = await self.call("Query", **request)
        last = answer.get("LastEvaluatedKey")
        return answer["Items"], of.high if last is None else last["sk"]["S"]

    def _request(self, of: KeyRange) -> dict[str, Any]:
        return {
            "TableName": self.table(of.table),
            "KeyConditionExpression": "pk = :pk AND sk BETWEEN :low AND :high",
            "ExpressionAttributeValues": {":pk": {"S": of.pk}, ":low": {"S": of.low}, ":high": {"S": of.high}},
            "ConsistentRead": True,
        }

    async def index(
        self,
        table: str,
        names: tuple[str, str, str],
        value: str,
        *,
        low: int | None = None,
        high: int | None = None,
        backwards: bool = False,
        limit: int = 0,
    ) -> AsyncIterator[list[Item]]:
        """Yield the pages of one hash of an index: `names` are the index and its two attributes."""
        index, hash_, range_ = names
        where, values = "#h = :h", {":h": {"S": value}}
        given = {"#h": hash_}
        if low is not None or high is not None:
            where += " AND #r BETWEEN :low AND :high"
            given["#r"] = range_
            values[":low"] = {"N": str(-(10**19) if low is None else low)}
            values[":high"] = {"N": str(10**19 if high is None else high)}
        request = {
            "TableName": self.table(table),
            "IndexName": index,
            "KeyConditionExpression": where,
            "ExpressionAttributeNames": given,
            "ExpressionAttributeValues": values,
            "ScanIndexForward": not backwards,
        }
        async for items in self.pages("Query", request, limit):
            yield items

    async def scan(self, table: str, index: str = "", **begins: str) -> AsyncIterator[list[Item]]:
        """Yield the pages of keys of a table, read strongly, or of an index. `begins`: how their attributes begin."""
        names = {f"#{n}": name for n, name in enumerate(begins)}
        request: dict[str, Any] = {"TableName": self.table(table)}
        if index:
            request["IndexName"] = index
        else:
            request |= {"ConsistentRead": True, "ProjectionExpression": "pk, sk"}
        if begins:
            request["FilterExpression"] = " AND ".join(f"begins_with({name}, :{name[1:]})" for name in names)
            request["ExpressionAttributeNames"] = names
            request["ExpressionAttributeValues"] = {f":{n}": {"S": text} for n, text in enumerate(begins.values())}
        async for items in self.pages("Scan", request):
            yield items

    async def pages(self, operation: str, request: dict[str, Any], limit: int = 0) -> AsyncIterator[list[Item]]:
        """Yield the pages of a Query or Scan to its end. A page may be empty.

        `limit`: most items of the first page. Each page has twice as many, because few of them were what was wanted.
        """
        while True:
            if most := min(filter(None, (limit, self.page_limit)), default=0):
                request["Limit"] = most
            limit = min(2 * limit, PAGE)
            answer = await self.call(operation, **request)
            yield answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def table(self, name: str) -> str:
        """Return the name of a table in DynamoDB."""
        return self.connection.address.table(name)


class Unreadable(Enum):
    """Use of a row that cannot be read: it raises Corrupt, is replaced as in a list, or is left out and logged."""

    RAISE = auto()
    REPLACE = auto()
    LEAVE_OUT = auto()


class DynamoReads:
    """The reading half of a DynamoDB store, in the store's own event loop."""

    _unreadable = Unreadable.RAISE

    def __init__(self, connection: Connection, store_clock: StoreClock) -> None:
        self.items = ItemReader(connection)
        self._clock = store_clock
        self._walks: dict[tuple[str, Key, Key], Walk] = {}

    def of_many(self, unreadable: Unreadable) -> "DynamoReads":
        """Return the same reads for rows of many runs, of which one that cannot be read must not hide the others."""
        reads = copy(self)
        reads._unreadable = unreadable
        return reads

    # --- rows ----------------------------------------------------------------------------
    async def load(self, kind: Kind[R], keys: Sequence[Key]) -> list[R | None]:
        """Return the rows at these keys, None for missing ones."""
        places = [place(kind, key) for key in keys]
        found = await self.items.get_many(places) if places else {}
        rows = {key_of(kind, row): row for row in await self.rows(found.values(), kind)}
        return [rows.get(key) for key in keys]

    async def at(self, kind: Kind[R], places: Sequence[ItemPlace]) -> list[R]:
        """Return the rows at these places in their order, without missing ones."""
        found = await self.items.get_many(places) if places else {}
        return await self.rows([found[each] for each in dict.fromkeys(places) if each in found], kind)

    async def rows(self, items: Iterable[Item], kind: Kind[R]) -> list[R]:
        """Return the rows of one kind among items, in their order. Bodies that are not among them are read."""
        mains, bodies = self._sorted(items, kind)
        table = table_of(kind)
        missing = [each for item in mains for each in body_places(table, item) if each not in bodies]
        if missing:
            bodies |= await self.items.get_many(missing)
        rows = [await self._row(kind, item, bodies) for item in mains]
        if kind is WRITER:
            rows = [row and await self._counted(row, item) for row, item in zip(rows, mains, strict=True)]
        return [row for row in rows if row is not None]

    def _sorted(self, items: Iterable[Item], kind: AnyKind) -> tuple[list[Item], dict[ItemPlace, Item]]:
        """Return the items of the rows of a kind that have not expired, and all body items."""
        mains: list[Item] = []
        bodies: dict[ItemPlace, Item] = {}
        table, real = table_of(kind), self._clock.real()
        for item in items:
            at = place_of(table, item)
            found = kind_of(at.sk)
            if found is None:
                bodies[at] = item
            elif found is kind and not has_expired(item, real):
                mains.append(item)
        return mains, bodies

    async def _row(self, kind: Kind[R], item: Item, bodies: dict[ItemPlace, Item]) -> R | None:
        """Decode a row. Item and bodies are read again while they are of two writes. None: it was deleted meanwhile."""
        table, same = table_of(kind), 0
        try:
            for n in range(SAME_TRIES):
                try:
                    row: R = decode(kind, item, _parts(table, item, bodies))
                    return row
                except Torn:
                    self.items.check_parts(kind, place_of(table, item), item, same)
                    await pause(n)
                    found = await self.items.get(place_of(table, item))
                    if found is None:
                        return None
                    same = same + 1 if found == item else 0
                    item = found
                    bodies = await self.items.get_many(body_places(table, item))
        except Corrupt as error:
            return self._in_place(kind, item, _parts(table, item, bodies), error)
        raise Unavailable("the store is busy", f"{kind.name} changed {SAME_TRIES} times while it was read")

    def _in_place(self, kind: Kind[R], item: Item, bodies: list[Item], error: Corrupt) -> R | None:
        """Return the row of a list in place of one that cannot be read; None to leave it out. Raises Corrupt."""
        if self._unreadable is Unreadable.RAISE:
            raise error
        if self._unreadable is Unreadable.LEAVE_OUT:
            at = place_of(table_of(kind), item)
            if kind is RUN:
                warn_once(error.row[1] if error.row else (at.pk, at.sk), error.what)
            else:
                log.error("%s is left out, because it cannot be read; check the store: outlast fsck", error.what)
            return None
        try:
            values = stored_values(kind, item, bodies)
        except (Corrupt, Torn):
            values = stored_values(kind, {name: value for name, value in item.items() if name != "bodies"})
        return listed_as_unreadable(kind, tuple(values), error.what)

    async def _counted(self, row: Any, item: Item) -> Any:
        """Return a writer's row with the number of its transactions: the sum over its receipts."""
        further = [receipt_place(row.id, n) for n in range(1, int(item["shards"]["N"]))]
        found = await self.items.get_many(further)
        return row._replace(batch=row.batch + sum(int(each["batch"]["N"]) for each in found.values()))

    # --- walks -----------------------------------------------------------------------------
    async def walk(self, kind: Kind[R], prefix: Key, after: Key, limit: int) -> list[R]:
        """Return rows of many partition keys in key order, found by a scan.

        The scan of the first page also finds the keys of the next pages. So a row that is written behind the present
        position after the walk began may be missed, as if the walk had read all its rows at once.
        """
        walk = self._walks.pop((kind.name, prefix, after), None)
        if walk is None or walk.found_at + WALK_KEPT_S < _mono():
            walk = await self._scanned(kind, prefix, after)
        found: list[R] = []
        while True:
            places = walk.places[: min(limit - len(found), 10 * AT_ONCE)]
            found += await self.at(kind, places)
            walk = walk._replace(places=walk.places[len(places) :])
            if not walk.places and not walk.whole:
                walk = await self._scanned(kind, prefix, places[-1])
            if not walk.places or len(found) >= limit:
                break
        if found and walk.places:
            self._walks[kind.name, prefix, key_of(kind, found[-1])] = walk
            while len(self._walks) > WALKS_MAX:
                del self._walks[next(iter(self._walks))]
        return found

    async def _scanned(self, kind: AnyKind, prefix: Key, after: "Key | ItemPlace") -> Walk:
        """Return the places of a kind's rows after a key, the first WALK_MAX of them."""
        table = table_of(kind)
        begins = {"sk": kind.name} if table == RUNS else {}
        if prefix:
            begins["pk"] = partition(str(prefix[0]))
        start = after if isinstance(after, ItemPlace) else place(kind, after) if len(after) == kind.key else None
        started = _mono()
        found: list[ItemPlace] = []
        whole = True
        async for items in self.items.scan(table, **begins):
            places = (place_of(table, item) for item in items)
            found += [each for each in places if kind_of(each.sk) is kind and (start is None or each > start)]
            if len(found) > 2 * WALK_MAX:
                found, whole = heapq.nsmallest(WALK_MAX, found), False
        found.sort()
        return Walk(found[:WALK_MAX], whole and len(found) <= WALK_MAX, started)

    # --- a run -------------------------------------------------------------------------------
    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        """Return all rows of each run. Its own row is the same before and after its other rows were read."""
        if not runs:
            return ()
        now = await self.now()
        return tuple(await asyncio.gather(*(self._rows_of_run(key, now) for key in runs)))

    async def _rows_of_run(self, key: tuple[str, str], now: Instant) -> RunRows | None:
        at = place(RUN, key)
        before = await self.items.get(at)
        for n in range(SAME_TRIES):
            if before is None or has_expired(before, self._clock.real()):
                return None
            found = await self._parts_of_run(key, now, before)
            after = await self.items.get(at)
            if after == before:
                return found
            before = after
            await pause(n)
        raise Unavailable("the store is busy", f"run {key[1]} changed {SAME_TRIES} times while it was read")

    async def _parts_of_run(self, key: tuple[str, str], now: Instant, item: Item) -> RunRows:
        """Read the rows of a run once. They may be of several moments."""
        (run,) = await self.rows([item], RUN)
        ledger = within(EFFECT, key)  # with memos, evidence and usage
        assert ledger is not None
        apart = [kind for kind in HOLDER_KINDS if table_of(kind) != ledger.table]
        last, called, rest = await asyncio.gather(
            self._last_snapshot(key), self._all(ledger), self._rows_beside(key, apart)
        )
        for kind in (*HOLDER_KINDS, USAGE):
            if kind not in apart:
                rest[kind.name] = await self.rows(called, kind)
        named = [(key[0], "", 0, each[2]) for each in rest[USAGE.name]]
        shared = [each for each in await self.load(EFFECT, named) if each is not None]
        return gather_rows(run, last, [rest[kind.name] for kind in HOLDER_KINDS], now, shared)

    async def _rows_beside(self, key: Key, kinds: Sequence[AnyKind]) -> dict[str, Sequence[Any]]:
        """Return rows of these kinds, which lie in one table. One request reads them all if the run has few items."""
        spans = [span for kind in kinds if (span := within(kind, key)) is not None]
        low, high = min(span.low for span in spans), max(span.high for span in spans)
        items, read_to = await self.items.first(spans[0]._replace(low=low, high=high), FEW)
        found: dict[str, Sequence[Any]] = {}
        for kind, span in zip(kinds, spans, strict=True):
            found[kind.name] = await (self.rows(items, kind) if span.high <= read_to else self.under(kind, key))
        return found

    async def _last_snapshot(self, key: Key) -> Event | None:
        events = within(EVENT, key)
        assert events is not None
        async for items in self.items.range(events, backwards=True, limit=LATEST):
            for row in await self.rows(items, EVENT):
                if row.snapshot is not None:
                    return row
        return None

    async def under(self, kind: Kind[R], prefix: Key) -> list[R]:
        """Return all rows of one partition key whose key begins with `prefix`."""
        span = within(kind, prefix)
        assert span is not None, "the rows lie under one partition key"
        return await self.rows(await self._all(span), kind)

    async def _all(self, span: KeyRange) -> list[Item]:
        return [item async for items in self.items.range(span) for item in items]

    # --- time ----------------------------------------------------------------------------------
    async def mapping(self) -> Mapping:
        """Return the clock mapping that is in force."""
        return mapping_of((await self.load(META, [MAPPING_ROW]))[0])

    async def now(self) -> Instant:
        """Return the store's real and business time."""
        return (await self.mapping()).at(self._clock.real())


@cache
def table_of(kind: AnyKind) -> str:
    """Return the table of a kind's rows."""
    return place(kind, ("",) * kind.key).table


def _parts(table: str, item: Item, bodies: dict[ItemPlace, Item]) -> list[Item]:
    """Return the body items of an item that are among those that were read."""
    return [bodies[each] for each in body_places(table, item) if each in bodies]


def place_of(table: str, item: Item) -> ItemPlace:
    """Return the place of an item of a table, or of an entry of its index."""
    return ItemPlace(table, item["pk"]["S"], item["sk"]["S"])


def _mono() -> float:
    return asyncio.get_running_loop().time()

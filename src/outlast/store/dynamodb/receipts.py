"""Receipts of one writer: numbered items, each used by one transaction at a time, which resolve lost answers (S-9)."""

import asyncio
import logging
from collections import deque
from itertools import count
from typing import Any, Final, NamedTuple

from outlast.core.machine import LeaseStatus
from outlast.core.rows.row_kind import Key
from outlast.core.rows.store_rows import META, STORE, WRITER, Writer
from outlast.core.webhooks.deliveries import SUBSCRIBED_TENANTS
from outlast.errors import StoreUnusable, Unavailable, Uncertain
from outlast.store.dynamodb.connection import Away, ConditionRefused, Conflicted, Connection, Throttled, Unusable, pause
from outlast.store.dynamodb.items import Item, ItemPlace, decode, encode, place, receipt_place, within
from outlast.store.dynamodb.reads import ItemReader
from outlast.store.dynamodb.transact import Action, Receipt, refuse_late
from outlast.store.store_clock import MAPPING_ROW

log = logging.getLogger("outlast.store")
SHARDS_MAX: Final = 16  # transactions of one writer at once, besides that of `urgent_sync`
URGENT: Final = 1  # number of the shard of `urgent_sync`
INSIST_S: Final = 30.0  # time in which a harmless request is repeated
REGISTER_TURNS: Final = 6  # further attempts to write the writer's row, within about a second
REFUSED: Final = "ConditionalCheckFailed"
ALIVE: Final = {"S": LeaseStatus.ALIVE.value}
CLOSED: Final = {"S": LeaseStatus.CLOSED.value}


class WriterSettings(NamedTuple):
    """Versions of the two META rows by which a writer judges. 0 = there is no row."""

    mapping: int
    subscribed: int

    @property
    def text(self) -> str:
        """Return the value of the attribute `settings` of a receipt."""
        return f"{self.mapping}/{self.subscribed}"

    @classmethod
    def parse(cls, text: str) -> "WriterSettings":
        """Return the settings that a receipt has."""
        mapping, subscribed = text.split("/")
        return cls(int(mapping), int(subscribed))

    def raised(self, other: "WriterSettings") -> "WriterSettings":
        """Return the later version of each."""
        return WriterSettings(max(self.mapping, other.mapping), max(self.subscribed, other.subscribed))


class Shard:
    """A receipt item as this process knows it."""

    __slots__ = ("batch", "lost", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.batch = 0  # number of the last transaction that is known to have landed or to be impossible
        self.lost = False  # True while the transaction after it may still land


class FoundShard(NamedTuple):
    """A receipt item as the store has it."""

    batch: int
    alive: bool
    settings: WriterSettings


class Receipts:
    """The receipt items of one writer, and the settings by which it judges."""

    def __init__(self, connection: Connection, writer: str) -> None:
        self.settings = WriterSettings(0, 0)
        self.urgent = Shard(URGENT)
        self.env = connection.address.environment
        self.items = ItemReader(connection)
        self._connection = connection
        self._writer = writer
        self._row = place(WRITER, (STORE, writer))
        self._number = 2  # receipt items that exist
        self._free = [Shard(0)]
        self._waiting: deque[asyncio.Future[Shard]] = deque()
        self._growth: asyncio.Task[None] | None = None

    # --- the writer's row ----------------------------------------------------------------
    async def register(self, started_at: int) -> None:
        """Write the writer's row for the present settings.

        Raises StoreUnusable, Unavailable and the errors of a connection. The transaction checks both META rows. So a
        change of one of them lands before, or finds this writer. It is sent again if its answer was lost: it inserts a
        row, so it lands once.
        """
        row = Writer(STORE, self._writer, 1, LeaseStatus.ALIVE, 0, started_at)
        (item,) = encode(WRITER, row, Receipt(self._writer, 0, 0, self.settings.text).stamp)
        actions = [
            self._check_meta(MAPPING_ROW, self.settings.mapping),
            self._check_meta(SUBSCRIBED_TENANTS, self.settings.subscribed),
            self._insert(self._row, item | {"shards": _n(self._number), "settings": {"S": self.settings.text}}),
            self._insert_shard(URGENT),
        ]
        lost = False
        for turn in count():
            try:
                await self._connection.call("TransactWriteItems", TransactItems=actions)
                return
            except ConditionRefused as error:
                if REFUSED not in error.reasons[2:]:
                    raise
                if lost and await self._is_there(row):
                    return
                raise StoreUnusable(
                    f"writer {self._writer} exists already", "each start needs a new writer id"
                ) from error
            except (Away, Conflicted, Throttled) as error:
                if turn >= REGISTER_TURNS or (isinstance(error, Away) and not error.sent):
                    raise
                lost = lost or isinstance(error, Away)
                await pause(turn)

    async def _is_there(self, row: Writer) -> bool:
        """Return True if the row is in the store, as this process wrote it."""
        item = await self.items.get(self._row)
        return item is not None and decode(WRITER, item) == row

    async def resign(self) -> None:
        """Close the writer's row, so that no transaction of it can land any more.

        Raises ConditionRefused if it was closed, and Unavailable.
        """
        if self._growth is not None:
            await asyncio.wait([self._growth])
        actions = [
            self._update(
                self._row,
                "SET #status = :closed, #version = #version + :one",
                "#status = :alive",
                {"#status": "status", "#version": "version"},
                {":closed": CLOSED, ":alive": ALIVE, ":one": _n(1)},
            )
        ]
        actions += [
            self._update(
                receipt_place(self._writer, number),
                "SET #status = :closed",
                "attribute_exists(pk)",
                {"#status": "status"},
                {":closed": CLOSED},
            )
            for number in range(1, self._number)
        ]
        await self.items.call("TransactWriteItems", within_s=INSIST_S, TransactItems=actions)

    # --- shards ----------------------------------------------------------------------------
    async def acquire(self) -> Shard:
        """Return a shard that no other transaction uses. Release it afterwards."""
        if not self._free and self._growth is None:
            self._growth = asyncio.create_task(self._grow())
        if self._free:
            return self._free.pop()
        future: asyncio.Future[Shard] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return await future

    def release(self, shard: Shard) -> None:
        """Give a shard to the next transaction. One with an unresolved transaction is used last."""
        if shard is self.urgent:
            return
        if self._waiting:
            self._waiting.popleft().set_result(shard)
        elif shard.lost:
            self._free.insert(0, shard)
        else:
            self._free.append(shard)

    async def _grow(self) -> None:
        """Make shards while transactions wait for one, up to SHARDS_MAX. If this fails, go on with those that exist."""
        try:
            while self._waiting and self._number <= SHARDS_MAX and await self._make(self._number):
                self._number += 1
                self.release(Shard(self._number - 1))
        except Unavailable as error:
            log.warning("no further receipts for writer %s: %s", self._writer, error)
        finally:
            self._growth = None

    async def _make(self, number: int) -> bool:
        """Make one more shard, and return True if it is there.

        The row's `settings` are compared, so that a new shard never has older ones than a change has announced. A
        repetition after a lost answer is harmless, because the shard is not used before.
        """
        grown = self._update(
            self._row,
            "SET shards = :more",
            "#status = :alive AND shards = :now AND settings = :settings",
            {"#status": "status"},
            {":more": _n(number + 1), ":now": _n(number), ":alive": ALIVE, ":settings": {"S": self.settings.text}},
        )
        try:
            await self.items.call(
                "TransactWriteItems", within_s=INSIST_S, TransactItems=[self._insert_shard(number), grown]
            )
        except ConditionRefused:
            item = await self.items.get(self._row)
            return item is not None and int(item["shards"]["N"]) == number + 1
        return True

    # --- lost answers ------------------------------------------------------------------------
    def next(self, shard: Shard) -> Receipt:
        """Return the receipt of the next transaction over a shard."""
        return Receipt(self._writer, shard.number, shard.batch + 1, self.settings.text)

    async def settle(self, shard: Shard, within_s: float) -> bool:
        """Return True if the shard's next transaction landed, and False if it can never land any more.

        Raises Uncertain if this is not found out in time.
        """
        n = shard.batch + 1
        shard.lost = True
        fence = refuse_late(self.env, self.next(shard))
        why = "the store does not answer"
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        for turn in count():
            try:
                try:
                    await self._connection.call("UpdateItem", **fence)
                    shard.batch, shard.lost = n + 1, False
                    return False
                except ConditionRefused:
                    found = await self.find(shard)
                    if found is None:
                        why = "this writer's receipts were deleted"
                        break
                    if found.batch in (n, n + 1):  # by the transaction, or by a fence whose answer was lost
                        shard.batch, shard.lost = found.batch, False
                        return found.batch == n
            except (Away, Conflicted, Throttled, Unusable, Unavailable) as error:
                why = str(error)
            if loop.time() >= until:
                break
            await pause(turn)
        raise Uncertain("the store's answer was lost", why)

    async def find(self, shard: Shard) -> FoundShard | None:
        """Read a shard as the store has it. Raises Unavailable."""
        item = await self.items.get(receipt_place(self._writer, shard.number))
        return None if item is None else _found(item)

    def closed(self) -> Unavailable:
        """Return the error of all commits after another process closed this writer."""
        return Unavailable(
            f"writer {self._writer} has been closed", "another process declared this one dead", "restart this process"
        )

    # --- settings ------------------------------------------------------------------------------
    async def raise_own(self) -> None:
        """Give the present settings to all shards of this writer. Raises Unavailable."""
        await self._raise_all(self._writer, self.settings)

    async def announce(self) -> None:
        """Give the present settings to all shards of all writers, so that no commit lands by older ones.

        Raises Unavailable.
        """
        settings, where = self.settings, within(WRITER, (STORE,))
        assert where is not None
        async for items in self.items.range(where):
            alive = [item["id"]["S"] for item in items if item["status"] == ALIVE]
            await asyncio.gather(*(self._raise_all(writer, settings) for writer in alive))

    async def _raise_all(self, writer: str, settings: WriterSettings) -> None:
        """Raise the row first: a shard made after that has the settings of the row, and one made before is counted."""
        item = await self._raise(place(WRITER, (STORE, writer)), settings)
        if item is not None:
            numbers = range(1, int(item["shards"]["N"]))
            await asyncio.gather(*(self._raise(receipt_place(writer, number), settings) for number in numbers))

    async def _raise(self, where: ItemPlace, settings: WriterSettings) -> Item | None:
        """Raise one item's settings and return the item, or None if the writer is closed.

        It compares and sets, because another change may be under way, and a slow one must not lower what a later one
        has set.
        """
        for turn in count():
            item = await self.items.get(where)
            if item is None or item["status"] != ALIVE:
                return None
            old = _found(item).settings
            new = old.raised(settings)
            if new == old:
                return item
            update = self._update(
                where,
                "SET settings = :new",
                "settings = :old",
                {},
                {":new": {"S": new.text}, ":old": {"S": old.text}},
            )
            try:
                await self.items.call("UpdateItem", within_s=INSIST_S, **update["Update"])
            except ConditionRefused:
                await pause(turn, 0.005, 0.1)
        raise AssertionError("it ends by returning")

    # --- requests --------------------------------------------------------------------------------
    def _table(self, where: ItemPlace) -> str:
        return self._connection.address.table(where.table)

    def _insert(self, where: ItemPlace, item: Item) -> Action:
        return {
            "Put": {"TableName": self._table(where), "Item": item, "ConditionExpression": "attribute_not_exists(pk)"}
        }

    def _insert_shard(self, number: int) -> Action:
        where = receipt_place(self._writer, number)
        item = {**where.key(), "batch": _n(0), "status": ALIVE, "settings": {"S": self.settings.text}}
        return self._insert(where, item)

    def _check_meta(self, key: Key, version: int) -> Action:
        where = place(META, key)
        check: dict[str, Any] = {"TableName": self._table(where), "Key": where.key()}
        if version:
            check |= {
                "ConditionExpression": "#version = :version",
                "ExpressionAttributeNames": {"#version": "version"},
                "ExpressionAttributeValues": {":version": _n(version)},
            }
        else:
            check["ConditionExpression"] = "attribute_not_exists(pk)"
        return {"ConditionCheck": check}

    def _update(self, where: ItemPlace, update: str, condition: str, names: dict[str, str], values: Item) -> Action:
        request: dict[str, Any] = {
            "TableName": self._table(where),
            "Key": where.key(),
            "UpdateExpression": update,
            "ConditionExpression": condition,
            "ExpressionAttributeValues": values,
        }
        return {"Update": request | ({"ExpressionAttributeNames": names} if names else {})}


def _n(number: int) -> dict[str, str]:
    return {"N": str(number)}


def _found(item: Item) -> FoundShard:
    return FoundShard(int(item["batch"]["N"]), item["status"] == ALIVE, WriterSettings.parse(item["settings"]["S"]))

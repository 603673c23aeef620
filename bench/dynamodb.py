"""An emulator of DynamoDB to measure on, a control, and a meter of what AWS would bill. See `docs/dynamodb.md`."""

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, Final, NamedTuple

from bench.place import FOLDER_VARIABLE
from outlast.core.limits import KIB
from outlast.store.dynamodb.connection import Connection, DynamoAddress
from outlast.store.dynamodb.items import INDEXES, PK, WHOLE
from outlast.store.dynamodb.tables import TABLES
from tests.dynamodb.item_sizes import item_bytes

GIVEN = "OUTLAST_BENCH_DYNAMODB"
"""Endpoint to use instead of an emulator, for example https://dynamodb.eu-central-1.amazonaws.com."""
REGION = os.environ.get("AWS_REGION", "us-east-1")
CONTROL = "control"
LOOKS = 60
ROW = {"S": "one small row"}


@contextmanager
def server() -> Iterator[str]:
    """Yield the endpoint of a server. One started here syncs each commit, and is stopped after the block."""
    if given := os.environ.get(GIVEN):
        yield given
        return
    from tests.dynamodb.server import Server, credentials  # only a checkout has this wheel

    credentials()
    own = Server(inside=os.environ.get(FOLDER_VARIABLE), durable=True)
    try:
        yield own.endpoint
    finally:
        own.close()


@contextmanager
def environment(endpoint: str) -> Iterator[str]:
    """Yield the URL of a store that does not exist yet. Its tables are deleted after the block."""
    url = f"dynamodb://{REGION}/bench-{token_hex(6)}?endpoint={endpoint}"
    try:
        yield url
    finally:
        asyncio.run(_drop(url))


async def _drop(url: str) -> None:
    address = DynamoAddress.parse(url)
    client = Connection(address)
    await client.open()
    there = (await client.call("ListTables"))["TableNames"]
    for name in {address.table(name) for name in (*TABLES, CONTROL)} & {*there}:
        await client.call("DeleteTable", TableName=name)
    await client.close()


def transaction_rate(url: str, seconds: float) -> float:
    """Return how many transactions of one small Put each one connection lands per second, one after another."""

    async def measure() -> float:
        address = DynamoAddress.parse(url)
        client, table = Connection(address), address.table(CONTROL)
        await client.open()
        if table not in (await client.call("ListTables"))["TableNames"]:
            key: dict[str, Any] = {"AttributeName": PK}
            await client.call(
                "CreateTable",
                TableName=table,
                BillingMode="PAY_PER_REQUEST",
                KeySchema=[{**key, "KeyType": "HASH"}],
                AttributeDefinitions=[{**key, "AttributeType": "S"}],
            )
            for _ in range(LOOKS):  # a wait is long on AWS only
                if (await client.call("DescribeTable", TableName=table))["Table"]["TableStatus"] == "ACTIVE":
                    break
                await asyncio.sleep(1)
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            item = {PK: {"S": token_hex(8)}, "value": ROW}
            await client.call("TransactWriteItems", TransactItems=[{"Put": {"TableName": table, "Item": item}}])
            count += 1
        spent = time.perf_counter() - begun
        await client.close()
        return count / spent

    return asyncio.run(measure())


def bytes_kept(url: str) -> int:
    """Return the size of the items of a store, as DynamoDB bills it."""

    async def measure() -> int:
        address = DynamoAddress.parse(url)
        client, size = Connection(address), 0
        await client.open()
        for table in TABLES:
            request: dict[str, Any] = {"TableName": address.table(table)}
            while True:
                page = await client.call("Scan", **request)
                size += sum(item_bytes(item) for item in page["Items"])
                if "LastEvaluatedKey" not in page:
                    break
                request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
        await client.close()
        return size

    return asyncio.run(measure())


# --- the meter -------------------------------------------------------------------------------------
class Bill(NamedTuple):
    """Requests of a kind of work: transactions, their actions and bytes, and the units that AWS bills."""

    transactions: float = 0
    actions: float = 0
    bytes: float = 0
    write_units: float = 0
    read_units: float = 0

    def plus(self, other: "Bill") -> "Bill":
        """Return the sum."""
        return Bill(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: "Bill") -> "Bill":
        """Return the difference."""
        return Bill(*(a - b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Bill":
        """Return the product."""
        return Bill(*(a * factor for a in self))


_SET: Final = re.compile(r"#(\w+) = (:\w+)\b(?! [+-])|(?<![#\w])(\w+) = (:\w+)\b(?! [+-])")
_REMOVE: Final = re.compile(r"REMOVE ([\w, #]+)")


class Meter:
    """Counts what requests of this process would cost on AWS, because the emulator does not.

    A transaction costs two write units for each started KB of each of its items, and one for each index entry of a KB
    that it changes, two if the entry moves. A strong read costs a unit for each started 4 KB, and one of an index half.
    """

    def __init__(self, tenant: str) -> None:
        """`tenant`: requests about its runs are counted apart."""
        self.total = Bill()
        self.of_runs = Bill()
        self.requests: Counter[str] = Counter()
        self._runs = f"{tenant}#"
        self._items: dict[tuple[str, str, str], dict[str, Any]] = {}  # as this process has written them

    def reset(self) -> None:
        """Begin at nothing. What the items look like is kept."""
        self.total = self.of_runs = Bill()
        self.requests.clear()

    def add(self, operation: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Count one request that was answered."""
        self.requests[operation] += 1
        if operation == "TransactWriteItems":
            parts = [next(iter(action.items())) for action in request["TransactItems"]]
            written = [self._write(verb, of_item, 2) for verb, of_item in parts]
            bill = Bill(1, len(parts), sum(size for size, _ in written), sum(units for _, units in written))
            keys = [of_item.get("Item") or of_item["Key"] for _, of_item in parts]
        elif operation in ("PutItem", "UpdateItem", "DeleteItem"):
            _, units = self._write(operation.removesuffix("Item"), request, 1)
            bill, keys = Bill(write_units=units), [request.get("Item") or request["Key"]]
        elif operation in ("GetItem", "BatchGetItem", "Query", "Scan"):
            bill, keys = self._read(operation, request, answer)
        else:
            return
        self.total = self.total.plus(bill)
        if any(key[PK]["S"].startswith(self._runs) for key in keys):
            self.of_runs = self.of_runs.plus(bill)

    def _write(self, verb: str, request: Mapping[str, Any], factor: int) -> tuple[int, int]:
        """Return the bytes of an item and the write units of one action."""
        key = request.get("Item") or request["Key"]
        name = (request["TableName"], key[PK]["S"], key.get("sk", {}).get("S", ""))
        before = self._items.get(name, {})
        if verb == "Put":
            after: dict[str, Any] = dict(request["Item"])
        elif verb == "Delete":
            after = {}
        else:
            after = {**request["Key"], **before, **_sets(request)}
            for removed in _REMOVE.findall(request.get("UpdateExpression", "")):
                for each in removed.split(","):
                    after.pop(each.strip().lstrip("#"), None)
        if verb != "ConditionCheck":
            self._items[name] = after
        size = max(item_bytes(before), item_bytes(after))
        units = factor * max(1, -(-size // KIB))
        table = name[0].split("-", 2)[-1]
        for index, attributes in INDEXES.get(table, {}).items() if verb != "ConditionCheck" else ():
            entries = [_entry(index, attributes, item) for item in (before, after)]
            if entries[0] != entries[1]:
                units += sum(max(1, -(-item_bytes(entry) // KIB)) for entry in entries if entry)
        return item_bytes(after), units

    def _whole_items(
        self, operation: str, request: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> list[tuple[str, list[dict[str, Any]]]]:
        if operation == "BatchGetItem":
            return list(answer["Responses"].items())
        if operation == "GetItem":
            return [(request["TableName"], [answer["Item"]] if "Item" in answer else [])]
        return [] if "IndexName" in request else [(request["TableName"], answer["Items"])]

    def _read(
        self, operation: str, request: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> tuple[Bill, list[dict[str, Any]]]:
        for table, items in self._whole_items(operation, request, answer):
            for item in items:
                self._items[table, item[PK]["S"], item.get("sk", {}).get("S", "")] = item
        if operation == "GetItem":
            found = answer.get("Item", {})
            return Bill(read_units=_units(item_bytes(found), request)), [request["Key"]]
        if operation == "BatchGetItem":
            asked = [key for of_table in request["RequestItems"].values() for key in of_table["Keys"]]
            items = [item for of_table in answer["Responses"].values() for item in of_table]
            units = sum(_units(item_bytes(item), {"ConsistentRead": True}) for item in items)
            return Bill(read_units=units + len(asked) - len(items)), asked
        size = sum(item_bytes(item) for item in answer["Items"])
        values = list((request.get("ExpressionAttributeValues") or {}).values())
        return Bill(read_units=_units(size, request)), [{PK: {"S": v["S"]}} for v in values if "S" in v]


def _units(size: int, request: Mapping[str, Any]) -> float:
    return max(1, -(-size // (4 * KIB))) * (1 if request.get("ConsistentRead") else 0.5)


def _sets(request: Mapping[str, Any]) -> dict[str, Any]:
    names = request.get("ExpressionAttributeNames") or {}
    values = request.get("ExpressionAttributeValues") or {}
    update = request.get("UpdateExpression", "").partition(" REMOVE ")[0]
    found = {}
    for spelled, value, plain, of_plain in _SET.findall(update):
        found[names.get(f"#{spelled}", spelled) if spelled else plain] = values[value or of_plain]
    return found


def _entry(index: str, attributes: Any, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an index holds of an item; nothing if the item is not in it."""
    names = [name for name, _ in attributes]
    if any(name not in item for name in names):
        return {}
    return dict(item) if index in WHOLE else {name: item[name] for name in {*names, PK, "sk"} & item.keys()}


@contextmanager
def metered(tenant: str) -> Iterator[Meter]:
    """Count the requests of all stores of this process for a block."""
    meter, call = Meter(tenant), Connection.call

    async def counted(self: Connection, operation: str, **request: Any) -> dict[str, Any]:
        answer = await call(self, operation, **request)
        meter.add(operation, request, answer)
        return answer

    Connection.call = counted  # type: ignore[method-assign]
    try:
        yield meter
    finally:
        Connection.call = call  # type: ignore[method-assign]

"""The rules of DynamoDB that the store relies on, judged with a raw client, and where the emulator has other rules."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.dynamodb import server
from tests.dynamodb.proxy import Fate, Wire, wire

Answer = dict[str, Any]
ITEM_BYTES_MAX = 400 * 1024
KEY_BYTES = len("pk" + "p" + "sk" + "1" + "b")
NEW = "attribute_not_exists(pk)"
on_emulator = pytest.mark.skipif(server.GIVEN in os.environ, reason="these are rules of the emulator")
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body")  # of aiohttp, about more than 1 MiB


class Table:
    """A table with one index, as the store makes them."""

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.name = client, name

    async def create(self) -> None:
        """Create it and wait until it can be used."""
        types = {"pk": "S", "sk": "S", "due_lane": "S", "due_at": "N"}
        await self.client.create_table(
            TableName=self.name, BillingMode="PAY_PER_REQUEST", KeySchema=schema("pk", "sk"),
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": type_} for name, type_ in types.items()],
            GlobalSecondaryIndexes=[{
                "IndexName": "due", "KeySchema": schema("due_lane", "due_at"),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }],
        )  # fmt: skip
        await self.client.get_waiter("table_exists").wait(TableName=self.name)

    def put(self, pk: str, sk: str = "1", condition: str = "", **more: Answer) -> Answer:
        """Return an action that puts an item."""
        action: Answer = {"TableName": self.name, "Item": {**key(pk, sk), **more}}
        return {"Put": action | ({"ConditionExpression": condition} if condition else {})}

    def update(self, pk: str, expression: str, condition: str = "", **values: Answer) -> Answer:
        """Return an action that updates an item."""
        action: Answer = {"TableName": self.name, "Key": key(pk), "UpdateExpression": expression}
        action["ExpressionAttributeValues"] = {f":{name}": value for name, value in values.items()}
        return {"Update": action | ({"ConditionExpression": condition} if condition else {})}

    def check(self, pk: str, condition: str, **values: Answer) -> Answer:
        """Return an action that checks an item."""
        action: Answer = {"TableName": self.name, "Key": key(pk), "ConditionExpression": condition}
        if values:
            action["ExpressionAttributeValues"] = {f":{name}": value for name, value in values.items()}
        return {"ConditionCheck": action}

    async def transact(self, *actions: Answer, **more: Any) -> None:
        """Send a transaction."""
        await self.client.transact_write_items(TransactItems=list(actions), **more)

    async def get(self, pk: str, sk: str = "1") -> Answer | None:
        """Read an item strongly."""
        answer = await self.client.get_item(TableName=self.name, Key=key(pk, sk), ConsistentRead=True)
        item: Answer | None = answer.get("Item")
        return item

    async def query(self, pk: str, condition: str = "", **more: Any) -> Answer:
        """Read the items of a partition strongly."""
        values = {":p": text(pk), **more.pop("values", {})}
        answer: Answer = await self.client.query(
            TableName=self.name, ConsistentRead=True, KeyConditionExpression=f"pk = :p{condition}",
            ExpressionAttributeValues=values, **more,
        )  # fmt: skip
        return answer

    async def due(self, lane: str, until: int, **more: Any) -> Answer:
        """Read the index."""
        answer: Answer = await self.client.query(
            TableName=self.name, IndexName="due", KeyConditionExpression="due_lane = :l AND due_at <= :n",
            ExpressionAttributeValues={":l": text(lane), ":n": number(until)}, **more,
        )  # fmt: skip
        return answer


def text(value: str) -> Answer:
    return {"S": value}


def number(value: int) -> Answer:
    return {"N": str(value)}


def data(length: int) -> Answer:
    return {"B": b"x" * length}


def key(pk: str, sk: str = "1") -> Answer:
    return {"pk": text(pk), "sk": text(sk)}


def schema(partition: str, sort: str) -> list[Answer]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]


def sort_keys(answer: Answer) -> list[str]:
    return [item["sk"]["S"] for item in answer["Items"]]


async def refused(awaitable: Awaitable[object]) -> tuple[str, list[str]]:
    """Return the code of a refusal, and the code of each action."""
    with pytest.raises(ClientError) as caught:
        await awaitable
    response: Answer = dict(caught.value.response)
    return response["Error"]["Code"], [reason["Code"] for reason in response.get("CancellationReasons", ())]


@asynccontextmanager
async def opened(env: str, at: str = "") -> AsyncIterator[Table]:
    """Open a raw client and create a table, which `server.discard` deletes."""
    async with server.client(at) as client:
        table = Table(client, f"{env}-runs")
        await table.create()
        yield table


def judged(test: Callable[[Table], Awaitable[None]]) -> Callable[[str], None]:
    """Run a test with a new table at the endpoint of the tests."""

    def run(env: str) -> None:
        async def inside() -> None:
            async with opened(env) as table:
                await test(table)

        asyncio.run(inside())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


# --- guarantees that the store relies on ----------------------------------------------------------
@judged
async def test_a_condition_decides_on_the_item_itself(table: Table) -> None:
    await table.transact(table.put("p", "1", NEW))
    assert await refused(table.transact(table.put("p", "1", NEW))) == (
        "TransactionCanceledException", ["ConditionalCheckFailed"],
    )  # fmt: skip
    put = {"TableName": table.name, "Item": key("p"), "ConditionExpression": NEW}
    assert await refused(table.client.put_item(**put)) == ("ConditionalCheckFailedException", [])


@judged
async def test_a_lock_can_be_taken_when_it_is_absent_or_expired(table: Table) -> None:
    lock = f"{NEW} OR expires_at < :now_epoch"

    def take(now: int) -> Awaitable[object]:
        return table.client.put_item(
            TableName=table.name, Item={**key("lock"), "expires_at": number(now + 600)}, ConditionExpression=lock,
            ExpressionAttributeValues={":now_epoch": number(now)},
        )  # fmt: skip

    await take(1000)
    assert (await refused(take(1599)))[0] == (await refused(take(1600)))[0] == "ConditionalCheckFailedException"
    await take(1601)


@judged
async def test_a_transaction_lands_whole_or_not_at_all(table: Table) -> None:
    await table.transact(table.put("there"))
    code, reasons = await refused(table.transact(table.put("a"), table.put("there", "1", NEW), table.put("b")))
    assert (code, reasons) == ("TransactionCanceledException", ["None", "ConditionalCheckFailed", "None"])
    assert await table.get("a") is await table.get("b") is None
    await table.transact(table.put("a"), table.check("there", "attribute_exists(pk)"), table.put("b"))
    assert await table.get("a") and await table.get("b")


@judged
async def test_a_check_writes_nothing_and_each_failed_condition_is_named(table: Table) -> None:
    await table.transact(table.put("run", epoch=number(3)))
    held = table.check("run", "epoch = :e", e=number(4))
    code, reasons = await refused(
        table.transact(held, table.put("x"), table.put("absent", "1", "attribute_exists(pk)"))
    )
    assert (code, reasons[0], reasons[2]) == ("TransactionCanceledException", *["ConditionalCheckFailed"] * 2)
    await table.transact(table.check("run", "epoch = :e", e=number(3)), table.put("x"))
    assert await table.get("run") == {**key("run"), "epoch": number(3)}


@judged
async def test_a_transaction_has_100_actions_and_one_per_item(table: Table) -> None:
    actions = [table.put("many", str(i)) for i in range(101)]
    assert await refused(table.transact(*actions)) == ("ValidationException", [])
    await table.transact(*actions[:100])
    assert (await table.query("many", Select="COUNT"))["Count"] == 100
    twice = [table.put("p"), table.check("p", "attribute_exists(pk)")]
    assert await refused(table.transact(*twice)) == ("ValidationException", [])


@judged
async def test_an_item_has_400_kib_with_its_names(table: Table) -> None:
    await table.transact(table.put("p", b=data(ITEM_BYTES_MAX - KEY_BYTES)))
    code, reasons = await refused(
        table.transact(table.put("p", b=data(ITEM_BYTES_MAX - KEY_BYTES + 1)), table.put("q"))
    )
    assert code == "ValidationException" or reasons[0] == "ValidationError", (code, reasons)
    assert await table.get("q") is None


@judged
async def test_a_transaction_of_almost_4_mib_lands(table: Table) -> None:
    await table.transact(*(table.put("big", str(i), b=data(399 * 1024)) for i in range(10)))
    assert len(await table.get("big", "9") or {}) == 3


@judged
async def test_one_of_30_writers_wins(table: Table) -> None:
    async def write(i: int) -> bool:
        for _ in range(50):
            try:
                await table.transact(table.put("race", f"own-{i}"), table.put("race", "won", NEW, by=number(i)))
            except ClientError as error:
                codes = [reason["Code"] for reason in error.response["CancellationReasons"]]  # type: ignore[typeddict-item]
                if "TransactionConflict" in codes:
                    continue
                assert codes == ["None", "ConditionalCheckFailed"]
                return False
            return True
        raise AssertionError("it always conflicts")

    won = [i for i, wins in enumerate(await asyncio.gather(*map(write, range(30)))) if wins]
    assert sort_keys(await table.query("race")) == [f"own-{won[0]}", "won"] and len(won) == 1


@judged
async def test_no_increment_of_many_is_lost(table: Table) -> None:
    """Each of 10 writers counts to 5 by conditions on what it read."""
    await table.transact(table.put("counter", n=number(0)))

    async def increment() -> None:
        for _ in range(500):
            item = await table.get("counter")
            assert item is not None
            n = int(item["n"]["N"])
            try:
                await table.transact(
                    table.update("counter", "SET n = :new", "n = :old", new=number(n + 1), old=number(n))
                )
            except ClientError:
                continue
            return
        raise AssertionError("it never won")

    async def five() -> None:
        for _ in range(5):
            await increment()

    await asyncio.gather(*(five() for _ in range(10)))
    assert await table.get("counter") == {**key("counter"), "n": number(50)}


@judged
async def test_a_comparison_with_an_absent_attribute(table: Table) -> None:
    """`<>` holds, `=` and `<` do not."""
    await table.transact(table.put("p"))
    await table.transact(table.check("p", "held_by <> :x AND attribute_not_exists(held_by)", x=text("x")))
    for condition in ("held_by = :x", "held_by < :x", "held_by > :x"):
        assert (await refused(table.transact(table.check("p", condition, x=text("x")))))[1] == [
            "ConditionalCheckFailed"
        ]


@judged
async def test_an_update_creates_an_item_unless_its_condition_forbids_it(table: Table) -> None:
    code, _ = await refused(table.transact(table.update("p", "SET n = :n", "n = :old", n=number(2), old=number(1))))
    assert code == "TransactionCanceledException" and await table.get("p") is None
    await table.transact(table.update("p", "SET n = :n", n=number(2)))
    await table.transact(table.update("p", "SET a = :a, b = :b REMOVE n", a=text(""), b={"B": b""}))
    assert await table.get("p") == {**key("p"), "a": text(""), "b": {"B": b""}}
    await table.transact({"Delete": {"TableName": table.name, "Key": key("absent")}})


@judged
async def test_reserved_words_need_a_placeholder(table: Table) -> None:
    for name in ("status", "owner", "ttl"):
        assert await refused(table.transact(table.update("p", f"SET {name} = :n", n=number(1)))) == (
            "ValidationException",
            [],
        )
    unused = table.update("p", "SET n = :n", n=number(1), m=number(2))
    assert await refused(table.transact(unused)) == ("ValidationException", [])


@judged
async def test_integers_of_64_bits_are_kept(table: Table) -> None:
    numbers = {"most": number(2**63 - 1), "least": number(-(2**63)), "zero": number(0)}
    await table.transact(table.put("p", **numbers))
    assert await table.get("p") == {**key("p"), **numbers}


@judged
async def test_a_query_is_in_the_order_of_bytes(table: Table) -> None:
    keys = ["a", "a\0", "a#", "a#b", "ab", "Z", "z", "\x7f", "é", "\uffdc", "😀", "0010", "0009", "10", "9"]
    await table.transact(*(table.put("p", sk) for sk in keys))
    ordered = sorted(keys, key=str.encode)
    assert sort_keys(await table.query("p")) == ordered
    assert sort_keys(await table.query("p", ScanIndexForward=False)) == ordered[::-1]
    begins = await table.query("p", " AND begins_with(sk, :s)", values={":s": text("a#")})
    assert sort_keys(begins) == ["a#", "a#b"]
    between = await table.query("p", " AND sk BETWEEN :s AND :t", values={":s": text("0009"), ":t": text("10")})
    assert sort_keys(between) == ["0009", "0010", "10"]


@judged
async def test_pages_are_followed_by_their_last_key(table: Table) -> None:
    """A page ends after `Limit` items, before the filter. Its last key may have been deleted since."""
    await table.transact(*(table.put("p", str(i), odd=number(i % 2)) for i in range(7)))
    odd = {"FilterExpression": "odd = :o", "values": {":o": number(1)}}
    first = await table.query("p", Limit=3, **odd)
    assert sort_keys(first) == ["1"] and first["ScannedCount"] == 3 and first["LastEvaluatedKey"] == key("p", "2")
    await table.transact({"Delete": {"TableName": table.name, "Key": key("p", "2")}})
    odd = {"FilterExpression": "odd = :o", "values": {":o": number(1)}}
    assert sort_keys(await table.query("p", ExclusiveStartKey=first["LastEvaluatedKey"], **odd)) == ["3", "5"]


@judged
async def test_an_index_has_the_keys_of_items_that_have_both_attributes(table: Table) -> None:
    for i, due in enumerate((10, 9, 100, -5)):
        await table.transact(table.put(str(i), due_lane=text("lane"), due_at=number(due), body=text("long")))
    await table.transact(
        table.put("half", due_lane=text("lane")), table.put("other", due_lane=text("b"), due_at=number(1))
    )

    async def shown(lane: str, until: int, expected: list[str]) -> Answer:
        for _ in range(200):
            answer = await table.due(lane, until)
            if [item["pk"]["S"] for item in answer["Items"]] == expected:
                return answer
            await asyncio.sleep(0.05)  # an index of a real endpoint lags
        raise AssertionError(answer)

    answer = await shown("lane", 50, ["3", "1", "0"])
    assert answer["Items"][0] == {**key("3"), "due_lane": text("lane"), "due_at": number(-5)}
    pages, start = [], {}
    while True:
        page = await table.due("lane", 50, Limit=2, **start)
        pages += [item["pk"]["S"] for item in page["Items"]]
        if "LastEvaluatedKey" not in page:
            break
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    assert pages == ["3", "1", "0"]
    await table.transact(
        table.update("1", "SET due_at = :d", d=number(60)), table.update("0", "SET a = :a REMOVE due_at", a=number(1))
    )
    await shown("lane", 50, ["3"])
    await shown("lane", 1000, ["3", "1", "2"])


@judged
async def test_an_index_is_never_read_strongly(table: Table) -> None:
    assert (await refused(table.due("lane", 1, ConsistentRead=True)))[0] == "ValidationException"


@judged
async def test_a_batch_reads_100_different_keys(table: Table) -> None:
    await table.transact(*(table.put("p", str(i)) for i in range(100)))

    def read(*sort: int) -> Awaitable[Answer]:
        asked = {"Keys": [key("p", str(i)) for i in sort], "ConsistentRead": True}
        return table.client.batch_get_item(RequestItems={table.name: asked})  # type: ignore[no-any-return]

    answer = await read(*range(50, 150))
    assert sorted(int(item["sk"]["S"]) for item in answer["Responses"][table.name]) == [*range(50, 100)]
    assert answer["UnprocessedKeys"] == {}
    assert (await refused(read(*range(101))))[0] == (await refused(read(1, 1)))[0] == "ValidationException"


@judged
async def test_a_scan_reads_each_item_once(table: Table) -> None:
    await table.transact(*(table.put(f"p{i}", str(i)) for i in range(20)))
    found, start = [], {}
    while True:
        page = await table.client.scan(TableName=table.name, ConsistentRead=True, Limit=7, **start)
        found += sort_keys(page)
        if "LastEvaluatedKey" not in page:
            break
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    assert sorted(found, key=int) == [str(i) for i in range(20)]


@judged
async def test_an_expired_item_can_still_be_read(table: Table) -> None:
    ttl = {"Enabled": True, "AttributeName": "ttl"}
    await table.client.update_time_to_live(TableName=table.name, TimeToLiveSpecification=ttl)
    await table.transact(table.put("p", ttl=number(1)))
    assert await table.get("p") == {**key("p"), "ttl": number(1)}
    assert (await table.query("p"))["Count"] == 1
    described = await table.client.describe_time_to_live(TableName=table.name)
    assert described["TimeToLiveDescription"]["AttributeName"] == "ttl"


@judged
async def test_tables_that_exist_or_are_absent_have_their_own_errors(table: Table) -> None:
    assert (await refused(table.create()))[0] == "ResourceInUseException"
    absent = Table(table.client, f"{table.name}-absent")
    for request in (
        absent.get("p"),
        absent.transact(absent.put("p")),
        table.client.describe_table(TableName=absent.name),
    ):
        assert (await refused(request))[0] == "ResourceNotFoundException"


@judged
async def test_keys_are_not_empty(table: Table) -> None:
    assert (await refused(table.transact(table.put(""))))[0] == "ValidationException"
    assert (await refused(table.transact(table.put("p", ""))))[0] == "ValidationException"
    wrong = table.put("p", due_lane=number(1), due_at=number(1))
    assert (await refused(table.transact(wrong)))[0] == "ValidationException"


@judged
async def test_each_answer_has_a_date(table: Table) -> None:
    answer = await table.client.get_item(TableName=table.name, Key=key("p"))
    assert answer["ResponseMetadata"]["HTTPHeaders"]["date"].endswith(" GMT")


# --- where the emulator differs from AWS: a new version that changes one of these is noticed -------
@on_emulator
@judged
async def test_the_emulator_cuts_no_page_and_no_batch(table: Table) -> None:
    """AWS ends a page after 1 MB and a batch after 16 MB. `Wire.page_limit` and `Wire.batch_limit` do."""
    for part in range(5):
        await table.transact(*(table.put(f"p{part}", str(i), b=data(399 * 1024)) for i in range(10)))
    page = await table.query("p0", ProjectionExpression="sk")
    assert page["Count"] == 10 and "LastEvaluatedKey" not in page
    keys = [key(f"p{part}", str(i)) for part in range(5) for i in range(10)]
    answer = await table.client.batch_get_item(RequestItems={table.name: {"Keys": keys}})
    assert len(answer["Responses"][table.name]) == 50 and answer["UnprocessedKeys"] == {}


@on_emulator
@judged
async def test_the_emulator_returns_no_item_with_a_failed_write(table: Table) -> None:
    """It does so for a transaction. AWS returns the item in both."""
    await table.transact(table.put("p"))
    put = {**table.put("p", "1", NEW)["Put"], "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    with pytest.raises(ClientError) as single:
        await table.client.put_item(**put)
    assert "Item" not in single.value.response
    with pytest.raises(ClientError) as transaction:
        await table.transact({"Put": put})
    assert transaction.value.response["CancellationReasons"][0]["Item"] == key("p")  # type: ignore[typeddict-item]


@on_emulator
@judged
async def test_the_emulator_ignores_the_token_of_a_request(table: Table) -> None:
    for _ in range(2):
        await table.transact(table.update("p", "ADD n :one", one=number(1)), ClientRequestToken="token")
    assert await table.get("p") == {**key("p"), "n": number(2)}  # AWS: 1


@on_emulator
@judged
async def test_the_emulator_reports_no_capacity_of_a_transaction(table: Table) -> None:
    answer = await table.client.transact_write_items(TransactItems=[table.put("p")], ReturnConsumedCapacity="TOTAL")
    assert "ConsumedCapacity" not in answer


@on_emulator
@judged
async def test_the_indexes_of_the_emulator_never_lag(table: Table) -> None:
    """`Wire.lag` makes them lag."""
    for i in range(20):
        await table.transact(table.put("p", due_lane=text("lane"), due_at=number(i)))
        assert (await table.due("lane", 100))["Items"][0]["due_at"] == number(i)


# --- refusals of AWS that only the proxy makes here --------------------------------------------------
TOO_MUCH: dict[str, Callable[[Table], Answer | list[Answer]]] = {
    "4 MB": lambda table: [table.put("p", str(i), b=data(399 * 1024)) for i in range(11)],
    "a long sort key": lambda table: table.put("p", "x" * 1025),
    "a long partition key": lambda table: table.put("x" * 2049),
    "an empty key of an index": lambda table: table.put("p", due_lane=text(""), due_at=number(1)),
    "an empty key by an update": lambda table: table.update("p", "SET due_lane = :l", l=text("")),
    "a long expression": lambda table: table.put(
        "p", "1", " AND ".join(f"attribute_not_exists({'x' * 40}{i})" for i in range(80))
    ),
}


@on_emulator
@pytest.mark.parametrize("name", TOO_MUCH)
def test_the_proxy_refuses_what_aws_refuses(name: str, env: str) -> None:
    async def refusal(through: Wire) -> None:
        async with opened(env) as table, server.client(through.endpoint) as client:
            actions = TOO_MUCH[name](table)
            actions = actions if isinstance(actions, list) else [actions]
            code, _ = await refused(Table(client, table.name).transact(*actions))
            assert code == "ValidationException" and len(through.seen("TransactWriteItems", Fate.REFUSE)) == 1
            await table.transact(*actions)  # the emulator lets it pass

    with wire(server.emulator()) as through:
        asyncio.run(refusal(through))

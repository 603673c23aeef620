"""The four tables: made whole or not at all, and tables of others are refused and not changed."""

import asyncio
from typing import Any

import pytest

from outlast.core.machine import LeaseStatus
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.errors import StoreUnusable
from outlast.store.dynamodb.connection import Connection, DynamoAddress, Throttled, Unusable
from outlast.store.dynamodb.items import Stamp, encode
from outlast.store.dynamodb.tables import SCHEMA_KEY, TABLES, creation, open_tables, unusable
from tests.dynamodb import server
from tests.dynamodb.proxy import ALWAYS, Fate, wire

READS = {"DescribeTable": 4, "GetItem": 1}


async def opened(url: str, *, make: bool = True) -> dict[str, int]:
    """Open the tables and return the number of requests by operation."""
    async with server.connected(url) as connection:
        await open_tables(connection, make=make)
        return dict(connection.requests)


async def ask(url: str, operation: str, **request: Any) -> dict[str, Any]:
    async with server.connected(url) as connection:
        return await connection.call(operation, **request)


def refused(url: str, *, make: bool = True) -> StoreUnusable:
    with pytest.raises(StoreUnusable) as found:
        asyncio.run(opened(url, make=make))
    return found.value


async def tables_of(url: str) -> set[str]:
    environment = DynamoAddress.parse(url).environment
    names: list[str] = (await ask(url, "ListTables", ExclusiveStartTableName=environment))["TableNames"]
    return {name.removeprefix(f"{environment}-") for name in names if name.startswith(f"{environment}-")}


def keys(description: dict[str, Any]) -> list[str]:
    return [each["AttributeName"] for each in description["KeySchema"]]


@pytest.mark.req("CKP-1")
def test_a_store_has_four_tables_paid_by_the_request(url: str, env: str) -> None:
    async def main() -> None:
        await opened(url)
        found = {
            table: (await ask(url, "DescribeTable", TableName=f"{env}-{table}"))["Table"]
            for table in await tables_of(url)
        }
        assert {table: keys(description) for table, description in found.items()} == {
            "checkpoints": ["pk", "sk"],
            "idempotency": ["pk", "sk"],
            "recovery-locks": ["pk"],
            "runs": ["pk", "sk"],
        }
        indexes = {index["IndexName"]: index for index in found["runs"]["GlobalSecondaryIndexes"]}
        assert keys(indexes["due"]) == ["due_lane", "due_at"] and keys(indexes["owner"]) == ["held_by", "pk"]
        assert indexes["due"]["Projection"] == {"ProjectionType": "KEYS_ONLY"}
        for table, description in found.items():
            assert description["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
            expiry = (await ask(url, "DescribeTimeToLive", TableName=f"{env}-{table}"))["TimeToLiveDescription"]
            assert expiry == {"AttributeName": "ttl", "TimeToLiveStatus": "ENABLED"}
            backups = await ask(url, "DescribeContinuousBackups", TableName=f"{env}-{table}")
            assert backups["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"] == {
                "PointInTimeRecoveryStatus": "DISABLED"
            }

    asyncio.run(main())


def test_a_store_is_opened_by_five_reads(url: str) -> None:
    async def main() -> None:
        await asyncio.gather(*(opened(url) for _ in range(3)))  # at the same time, and one store is made
        assert await tables_of(url) == {*TABLES}
        assert await opened(url) == await opened(url, make=False) == READS

    asyncio.run(main())


def test_recovery_is_turned_on_and_never_off(url: str, env: str) -> None:
    async def statuses() -> set[str]:
        answers = [await ask(url, "DescribeContinuousBackups", TableName=f"{env}-{table}") for table in TABLES]
        return {
            each["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]
            for each in answers
        }

    async def main() -> None:
        await opened(url)
        assert await opened(f"{url}&pitr=on", make=False) == READS
        assert await statuses() == {"DISABLED"}
        await opened(f"{url}&pitr=on")
        assert await statuses() == {"ENABLED"}
        assert "UpdateContinuousBackups" not in await opened(f"{url}&pitr=on")
        await opened(url)
        assert await statuses() == {"ENABLED"}

    asyncio.run(main())


def test_a_command_that_reads_creates_nothing(url: str) -> None:
    assert f"no store at {url}" in refused(url, make=False).what
    assert asyncio.run(tables_of(url)) == set()


def test_a_creation_that_was_interrupted_is_completed(url: str) -> None:
    address = DynamoAddress.parse(url)

    async def begin() -> None:
        for table in ("runs", "checkpoints"):
            await ask(url, "CreateTable", **creation(address, table))

    asyncio.run(begin())
    assert "no store at" in refused(url, make=False).what
    asyncio.run(opened(url))
    assert asyncio.run(opened(url)) == READS


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.THROTTLE])
def test_a_creation_survives_lost_answers_and_limits(fate: Fate, env: str) -> None:
    with wire(server.endpoint()) as on:
        for operation in ("DescribeTable", "CreateTable", "UpdateTimeToLive", "PutItem", "GetItem"):
            on.rule(operation, fate)
        asyncio.run(opened(server.url(env, on.endpoint)))
        assert len(on.seen("", fate)) == 5
    assert asyncio.run(opened(server.url(env))) == READS


def test_a_service_without_capacity_is_busy(env: str) -> None:
    with wire(server.endpoint()) as on:
        on.rule("DescribeTable", Fate.THROTTLE, ALWAYS)
        assert "is busy" in refused(server.url(env, on.endpoint)).what


class Slow(Connection):
    """A connection whose tables are made slowly, with their indexes last, as on AWS."""

    looks = 6

    async def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Show a table that exists as not yet made, a few times."""
        answer = await super().call(operation, **request)
        if operation == "DescribeTable" and self.looks > 0:
            self.looks -= 1
            if self.looks > 3:
                answer["Table"]["TableStatus"] = "CREATING"
            else:
                for index in answer["Table"].get("GlobalSecondaryIndexes", ()):
                    index["IndexStatus"] = "CREATING"
        return answer


def test_an_opening_waits_until_tables_and_indexes_can_be_used(url: str, env: str) -> None:
    async def main() -> None:
        connection = Slow(DynamoAddress.parse(url))
        await connection.open()
        try:
            await open_tables(connection, make=True)
            assert connection.looks == 0
            item = await connection.call("GetItem", TableName=f"{env}-runs", Key=SCHEMA_KEY, ConsistentRead=True)
            assert "Item" in item
        finally:
            await connection.close()

    asyncio.run(main())


# --- tables of others --------------------------------------------------------------------------
def changed(url: str, table: str, **changes: Any) -> None:
    """Create a table with another definition."""
    asyncio.run(ask(url, "CreateTable", **{**creation(DynamoAddress.parse(url), table), **changes}))


def key(*names: str) -> dict[str, Any]:
    kinds = ("HASH", "RANGE")
    schema = [{"AttributeName": name, "KeyType": kind} for name, kind in zip(names, kinds, strict=False)]
    return {"KeySchema": schema, "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in names]}


@pytest.mark.parametrize(("table", "make"), [("checkpoints", True), ("runs", True), ("idempotency", False)])
def test_a_table_with_other_keys_is_refused(table: str, make: bool, url: str, env: str) -> None:
    request = {**key("tenant_id", "sk"), "TableName": f"{env}-{table}", "BillingMode": "PAY_PER_REQUEST"}
    asyncio.run(ask(url, "CreateTable", **request))
    error = refused(url, make=make)
    assert f"{env}-{table} is not of a store of Outlast" in error.what
    assert error.why == "the keys of the table are tenant_id (S), sk (S), not pk (S), sk (S)"
    assert f"another environment than {env}" in error.fix
    assert asyncio.run(tables_of(url)) == {table}


def test_a_table_without_our_indexes_is_refused(url: str, env: str) -> None:
    request = creation(DynamoAddress.parse(url), "runs")
    indexes = [each for each in request["GlobalSecondaryIndexes"] if each["IndexName"] != "due"]
    used = {"pk", "sk", *(each["AttributeName"] for index in indexes for each in index["KeySchema"])}
    types = [each for each in request["AttributeDefinitions"] if each["AttributeName"] in used]
    changed(url, "runs", GlobalSecondaryIndexes=indexes, AttributeDefinitions=types)
    assert refused(url).why == "it has no index due"
    asyncio.run(server.drop(env))
    whole = [{**each, "Projection": {"ProjectionType": "ALL"}} for each in request["GlobalSecondaryIndexes"]]
    changed(url, "runs", GlobalSecondaryIndexes=whole)
    assert refused(url).why == "the index due has the projection ALL, not KEYS_ONLY"


def test_a_table_of_the_same_form_with_items_of_others_is_refused(url: str, env: str) -> None:
    changed(url, "recovery-locks")
    lock = {"pk": {"S": "acme#run"}, "owner": {"S": "another system"}}
    asyncio.run(ask(url, "PutItem", TableName=f"{env}-recovery-locks", Item=lock))
    error = refused(url)
    assert f"{env}-recovery-locks" in error.what and error.why == f"it has items, and {env}-runs records no store"
    assert asyncio.run(tables_of(url)) == {"recovery-locks"}


def test_a_table_whose_items_expire_by_another_attribute_is_refused(url: str, env: str) -> None:
    changed(url, "runs")
    expiry = {"Enabled": True, "AttributeName": "delete_at"}
    asyncio.run(ask(url, "UpdateTimeToLive", TableName=f"{env}-runs", TimeToLiveSpecification=expiry))
    assert refused(url).why == "its items expire by the attribute delete_at, not ttl"


def test_a_store_that_lost_a_table_is_refused(url: str, env: str) -> None:
    asyncio.run(opened(url))
    asyncio.run(ask(url, "DeleteTable", TableName=f"{env}-idempotency"))
    error = refused(url)
    assert "is not whole" in error.what and f"{env}-idempotency does not exist" in error.why
    assert asyncio.run(tables_of(url)) == {*TABLES} - {"idempotency"}


@pytest.mark.parametrize(
    ("schema", "layout", "words"), [("99", "", "by a newer version"), ("1", "run.old", "before the first release")]
)
def test_a_store_of_another_version_is_refused(schema: str, layout: str, words: str, url: str, env: str) -> None:
    asyncio.run(opened(url))
    item = {**SCHEMA_KEY, "schema": {"N": schema}, "layout": {"S": layout}}
    asyncio.run(ask(url, "PutItem", TableName=f"{env}-runs", Item=item))
    assert words in refused(url, make=False).what
    worker = Worker(STORE, "w", 1, LeaseStatus.CLOSED, 0, "[]", "", 5, 0, '{"version": "0.0.9"}')
    (row,) = encode(WORKER, worker, Stamp("w", 0, 0))
    asyncio.run(ask(url, "PutItem", TableName=f"{env}-runs", Item=row))
    error = refused(url, make=False)
    assert words in error.what and "0.0.9" in error.what + error.why


def test_a_service_that_cannot_be_asked_is_named_with_the_reason() -> None:
    assert "cannot be reached" in refused("dynamodb://local/test?endpoint=http://127.0.0.1:1").what
    address = DynamoAddress.parse("dynamodb://eu-west-1/prod")
    error = unusable(address, Unusable("AccessDeniedException", "no identity-based policy allows it"))
    assert "refuses these credentials" in error.what and "no identity-based policy" in error.why
    assert "is busy" in unusable(address, Throttled("ThrottlingException")).what

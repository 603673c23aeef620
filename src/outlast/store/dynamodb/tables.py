"""The four tables of a DynamoDB store: their definitions, their creation, and the refusal of tables of others."""

import asyncio
from typing import Any, Final, NamedTuple

from outlast.core.rows.store_rows import WORKER
from outlast.errors import Rejected, StoreUnusable, Unavailable, no_store
from outlast.store.dynamodb.connection import (
    CHECKPOINTS,
    IDEMPOTENCY,
    RECOVERY_LOCKS,
    RUNS,
    Away,
    ConditionRefused,
    Conflicted,
    Connection,
    DynamoAddress,
    Throttled,
    Unusable,
)
from outlast.store.dynamodb.items import INDEXES, PK, SK, WHOLE
from outlast.store.migrations import NEWEST, SCHEMA, newer, unreleased

TTL: Final = "ttl"
"""Attribute of the instant, in seconds, after which DynamoDB may delete an item."""
TABLES: Final[dict[str, tuple[str, ...]]] = {
    CHECKPOINTS: (PK, SK), IDEMPOTENCY: (PK, SK), RECOVERY_LOCKS: (PK,), RUNS: (PK, SK),
}  # fmt: skip
"""Key attributes of each table, all of them texts."""
SCHEMA_KEY: Final = {PK: {"S": "*#"}, SK: {"S": "schema"}}
"""Key of the item, in the table of runs, that says that the four tables are a whole store of this layout."""
LAYOUT: Final = ".".join(NEWEST)
WORKERS: Final = f"{WORKER.name}#"
WAIT_S: Final = (0.05, 2.0)  # between two looks at a table that is being made
LOOKS: Final = 300
AGAIN_S: Final = 1.0
NO_TABLE: Final = "ResourceNotFoundException"
EXISTS: Final = "ResourceInUseException"


class Definition(NamedTuple):
    """Keys of a table or an index as DynamoDB describes them: an index's name or '', keys with types, projection."""

    name: str
    keys: tuple[tuple[str, str], ...]
    projection: str = "ALL"


def definitions(table: str) -> list[Definition]:
    """Return what a table must have: its own keys first, then its indexes."""
    indexes = INDEXES.get(table, {}).items()
    return [
        Definition("", tuple((key, "S") for key in TABLES[table])),
        *(Definition(name, keys, "ALL" if name in WHOLE else "KEYS_ONLY") for name, keys in indexes),
    ]


def creation(address: DynamoAddress, table: str) -> dict[str, Any]:
    """Return the request that creates a table, paid by the request."""
    own, *indexes = definitions(table)
    types = dict(key for one in (own, *indexes) for key in one.keys)
    request: dict[str, Any] = {
        "TableName": address.table(table),
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in types.items()],
        "KeySchema": _schema(own),
    }
    if indexes:
        request["GlobalSecondaryIndexes"] = [
            {"IndexName": one.name, "KeySchema": _schema(one), "Projection": {"ProjectionType": one.projection}}
            for one in indexes
        ]
    return request


def _schema(definition: Definition) -> list[dict[str, str]]:
    kinds = ("HASH", "RANGE")
    return [{"AttributeName": key, "KeyType": kind} for (key, _), kind in zip(definition.keys, kinds, strict=False)]


def described(description: dict[str, Any]) -> list[Definition]:
    """Return the keys of a table and of its indexes from the answer of DescribeTable."""
    types = {each["AttributeName"]: each["AttributeType"] for each in description["AttributeDefinitions"]}

    def definition(given: dict[str, Any], index: str, projection: str) -> Definition:
        order = sorted(given["KeySchema"], key=lambda each: str(each["KeyType"]))  # HASH, RANGE
        return Definition(
            index, tuple((each["AttributeName"], types[each["AttributeName"]]) for each in order), projection
        )

    return [
        definition(description, "", "ALL"),
        *(
            definition(each, each["IndexName"], each["Projection"]["ProjectionType"])
            for each in description.get("GlobalSecondaryIndexes", ())
        ),
    ]


def difference(table: str, description: dict[str, Any]) -> str:
    """Return what a table lacks of its definition, or ''. Further indexes do no harm."""
    found = {each.name: each for each in described(description)}
    for wanted in definitions(table):
        has = found.get(wanted.name)
        subject = f"index {wanted.name}" if wanted.name else "table"
        if has is None:
            return f"it has no {subject}"
        if has.keys != wanted.keys:
            return f"the keys of the {subject} are {_text(has)}, not {_text(wanted)}"
        if wanted.name and has.projection != wanted.projection:
            return f"the {subject} has the projection {has.projection}, not {wanted.projection}"
    return ""


def _text(definition: Definition) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in definition.keys)


async def open_tables(connection: Connection, *, make: bool) -> None:
    """Check that the tables are a store of this version, and create what is missing of a new store.

    Tables are created only if none of them has an item. Without `make`, nothing is created or changed. Raises
    StoreUnusable.
    """
    address = connection.address
    try:
        if await _is_store(connection):
            pass
        elif not make:
            raise no_store(address.shown)
        else:
            await _create(connection)
        if make and address.recovery:
            await asyncio.gather(*(_protect(connection, table) for table in TABLES))
    except (Away, ConditionRefused, Conflicted, Throttled, Unusable) as error:
        raise unusable(address, error) from error


async def _is_store(connection: Connection) -> bool:
    """Return True if the four tables are a store, False if they can become one.

    Raises StoreUnusable if they are of others, and what `call` raises.
    """
    address = connection.address
    recorded, *tables = await asyncio.gather(
        _is_recorded(connection), *(_describe(connection, table) for table in TABLES)
    )
    found = dict(zip(TABLES, tables, strict=True))
    for table, description in found.items():
        if recorded and description is None:
            found[table] = await _describe_again(connection, table)
    for table, description in found.items():
        if description is not None and (why := difference(table, description)):
            raise _of_others(address, table, why)
    if recorded:
        return True
    for table, description in found.items():
        if description is not None and await _has_items(connection, table):
            if await _is_recorded(connection):  # another process has just completed the store
                return await _is_store(connection)
            raise _of_others(address, table, f"it has items, and {address.table(RUNS)} records no store")
    return False


async def _describe_again(connection: Connection, table: str) -> dict[str, Any]:
    """Return the description of a table of a store that is recorded, so that all its tables were made.

    Raises StoreUnusable if the table was deleted since.
    """
    address = connection.address
    description = await _describe(connection, table)
    if description is None:
        raise StoreUnusable(
            f"the store {address.shown} is not whole",
            f"its table {address.table(table)} does not exist",
            f"restore {address.table(table)} from a backup, with the other tables from the same moment",
        )
    return description


async def _describe(connection: Connection, table: str) -> dict[str, Any] | None:
    """Return the description of a table that can be used, or None without one. Wait while it is being made."""
    wait, longest = WAIT_S
    for _ in range(LOOKS):
        try:
            answer = await _ask(connection, "DescribeTable", TableName=connection.address.table(table))
        except Unusable as error:
            if error.code != NO_TABLE:
                raise
            return None
        description: dict[str, Any] = answer["Table"]
        status = description["TableStatus"]
        indexes = description.get("GlobalSecondaryIndexes", ())
        if status in ("ACTIVE", "UPDATING") and all(each["IndexStatus"] != "CREATING" for each in indexes):
            return description
        if status not in ("CREATING", "ACTIVE", "UPDATING", "DELETING"):
            break
        await asyncio.sleep(wait)
        wait = min(2 * wait, longest)
    raise StoreUnusable(
        f"the store {connection.address.shown} cannot be opened",
        f"its table {connection.address.table(table)} is {status}",
        "wait until it is ACTIVE: aws dynamodb describe-table",
    )


async def _ask(connection: Connection, operation: str, **request: Any) -> dict[str, Any]:
    """Send a request that may be sent twice, and send it again if it was not answered or not let through."""
    return await connection.insist(operation, AGAIN_S, **request)


async def _is_recorded(connection: Connection) -> bool:
    """Return True if the tables are recorded as a store of this version, False without a record or its table.

    Raises StoreUnusable for another version.
    """
    address = connection.address
    try:
        answer = await _ask(connection, "GetItem", TableName=address.table(RUNS), Key=SCHEMA_KEY, ConsistentRead=True)
    except Rejected:
        return False  # the table has other keys
    except Unusable as error:
        if error.code != NO_TABLE:
            raise
        return False
    item = answer.get("Item")
    if item is None:
        return False
    found = int(item["schema"]["N"])
    if found > SCHEMA:
        raise newer(address.shown, found, await _newest_worker(connection))
    if item["layout"]["S"] != LAYOUT:  # items of an earlier schema lack columns, which `items.decode` fills
        raise unreleased(address.shown, await _newest_worker(connection))
    return True


async def _newest_worker(connection: Connection) -> tuple[int, str] | None:
    """Return start and health of the worker that started last, as WRITTEN_BY does; None without one."""
    answer = await _ask(
        connection,
        "Query",
        TableName=connection.address.table(RUNS),
        KeyConditionExpression=f"{PK} = :pk AND begins_with({SK}, :workers)",
        ExpressionAttributeValues={":pk": SCHEMA_KEY[PK], ":workers": {"S": WORKERS}},
    )
    rows = [(int(item["started_at"]["N"]), item["health"]["S"]) for item in answer["Items"] if "started_at" in item]
    return max(rows, default=None)


async def _has_items(connection: Connection, table: str) -> bool:
    answer = await _ask(connection, "Scan", TableName=connection.address.table(table), Limit=1, ConsistentRead=True)
    return bool(answer.get("Items"))


async def _create(connection: Connection) -> None:
    """Create the tables that are missing, wait for them, and write the schema last."""
    address = connection.address
    await asyncio.gather(*(_make_table(connection, table) for table in TABLES))
    try:
        await _ask(
            connection,
            "PutItem",
            TableName=address.table(RUNS),
            Item={**SCHEMA_KEY, "schema": {"N": str(SCHEMA)}, "layout": {"S": LAYOUT}},
            ConditionExpression="attribute_not_exists(pk)",
        )
    except ConditionRefused:
        pass  # another process has written it
    if not await _is_store(connection):
        raise StoreUnusable(
            f"the store {address.shown} cannot be opened",
            "its tables were deleted while they were created",
            "try again",
        )


async def _make_table(connection: Connection, table: str) -> None:
    """Create a table unless it exists, wait until it can be used, and let expired items be deleted."""
    address = connection.address
    if await _describe(connection, table) is None:
        try:
            await _ask(connection, "CreateTable", **creation(address, table))
        except Unusable as error:
            if error.code != EXISTS:  # another process creates it
                raise
        if await _describe(connection, table) is None:
            raise Away(f"the table {address.table(table)} is not there after its creation", sent=True)
    await _let_expire(connection, table)


async def _let_expire(connection: Connection, table: str) -> None:
    name = connection.address.table(table)

    async def attribute() -> str | None:
        answer = await _ask(connection, "DescribeTimeToLive", TableName=name)
        found = answer["TimeToLiveDescription"]
        return str(found["AttributeName"]) if found["TimeToLiveStatus"] in ("ENABLED", "ENABLING") else None

    if (found := await attribute()) is None:
        try:
            await _ask(
                connection,
                "UpdateTimeToLive",
                TableName=name,
                TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL},
            )
        except Exception:  # any refusal, if another process was faster
            if (found := await attribute()) is None:
                raise
        else:
            return
    if found != TTL:
        raise _of_others(connection.address, table, f"its items expire by the attribute {found}, not {TTL}")


async def _protect(connection: Connection, table: str) -> None:
    """Turn on point-in-time recovery. It is never turned off here."""
    name = connection.address.table(table)
    answer = await _ask(connection, "DescribeContinuousBackups", TableName=name)
    found = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    if found.get("PointInTimeRecoveryStatus") != "ENABLED":
        await _ask(
            connection,
            "UpdateContinuousBackups",
            TableName=name,
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
        )


def _of_others(address: DynamoAddress, table: str, why: str) -> StoreUnusable:
    return StoreUnusable(
        f"the table {address.table(table)} is not of a store of Outlast",
        why,
        f"name another environment than {address.environment}, whose tables are made for it, or another region",
    )


def unusable(address: DynamoAddress, error: Exception) -> StoreUnusable:
    """Return the error of a store that cannot be opened, from an exception of `Connection.call`, or Unavailable."""
    if isinstance(error, Unavailable):
        error = error.__cause__ if isinstance(error.__cause__, Exception) else error
    if isinstance(error, Away):
        return StoreUnusable(
            f"the store {address.shown} cannot be reached", str(error), "check the region, the endpoint and the network"
        )
    if isinstance(error, Unusable):
        return StoreUnusable(
            f"the store {address.shown} refuses these credentials",
            str(error),
            "check them: aws sts get-caller-identity; docs/dynamodb.md lists the permissions",
        )
    return StoreUnusable(f"the store {address.shown} is busy", f"{type(error).__name__}: {error}", "try again later")

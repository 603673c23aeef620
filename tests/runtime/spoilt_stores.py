"""The cases of `hostile_rows` in a PostgreSQL and in a DynamoDB store, as far as these can hold their values."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from secrets import token_hex
from typing import Any, Final, NamedTuple

import asyncpg

from outlast.core.rows.row_kind import AnyKind
from outlast.core.rows.run_rows import RUN
from outlast.store.dynamodb.items import _COLUMNS, INDEXES, Item, kind_of, lane_of
from outlast.store.dynamodb.reads import table_of
from tests.dynamodb import server as dynamodb
from tests.postgres import server as postgres
from tests.runtime.hostile_rows import BAD, DUE_AGAIN, KINDS_SPOILT, Case, play

KIND: Final = {kind.name: kind for kind in KINDS_SPOILT}
Spoilt = Callable[[str, Case], AbstractContextManager[int]]


class Elsewhere(NamedTuple):
    """A kind of store: how an empty one is made and dropped, and how its rows are spoilt and made due."""

    url: Callable[[], str]
    drop: Callable[[str], None]
    spoilt: Spoilt
    due_again: Callable[[str], None]

    @contextmanager
    def empty(self) -> Iterator[str]:
        """Yield the URL of an empty store, and drop it afterwards."""
        url = self.url()
        try:
            yield url
        finally:
            self.drop(url)

    @contextmanager
    def played(self) -> Iterator[str]:
        """Yield the URL of a store with runs of every shape, healthy and to be spoilt."""
        with self.empty() as url:
            asyncio.run(play(url))
            yield url


def _is_bad(row: Any, *columns: str) -> bool:
    return any(str(row.get(name) or "").startswith(f"{BAD}-") for name in columns)


# --- PostgreSQL ------------------------------------------------------------------------------
def _schema(url: str) -> str:
    return url.rpartition("=")[2]


async def _on_postgres(url: str, work: Callable[["asyncpg.Connection[Any]"], Any]) -> Any:
    db = await asyncpg.connect(postgres.url(), server_settings={"search_path": _schema(url)})
    try:
        return await work(db)
    finally:
        await db.close()


@contextmanager
def spoilt_postgres(url: str, case: Case) -> Iterator[int]:
    """Store a case in the rows of the faulty runs, and put the old values back. Yield how many could be changed."""
    kind, column = KIND[case.table], case.column
    key = kind.columns[: kind.key]
    where = " AND ".join(f"{name} = ${n}" for n, name in enumerate(key, 2))
    put = f"UPDATE {kind.name} SET {column} = $1 WHERE {where}"
    spoilt: list[tuple[object, ...]] = []  # the old value, and the key with which the row is found now

    async def spoil(db: "asyncpg.Connection[Any]") -> None:
        found = [row for row in await db.fetch(f"SELECT * FROM {kind.name}") if _is_bad(row, *_owners(kind))]
        found = [row for row in found if row[column] is not None]
        for row in found[-1:] if column in key else found:  # one, because keys differ
            old, new = row[column], case.of(row[column])
            if isinstance(old, bytes) and isinstance(new, str):
                new = new.encode()
            try:
                await db.execute(put, new, *(row[name] for name in key))
            except (asyncpg.PostgresError, asyncpg.DataError):
                continue  # the type of the column, or a key, excludes the value
            spoilt.append((old, *(new if name == column else row[name] for name in key)))

    async def mend(db: "asyncpg.Connection[Any]") -> None:
        for each in spoilt:
            await db.execute(put, *each)

    asyncio.run(_on_postgres(url, spoil))
    try:
        yield len(spoilt)
    finally:
        asyncio.run(_on_postgres(url, mend))


def due_again_postgres(url: str) -> None:
    """Let the faulty runs be due."""
    asyncio.run(_on_postgres(url, lambda db: db.execute(DUE_AGAIN)))


# --- DynamoDB --------------------------------------------------------------------------------
_KEYED: Final = {name for indexes in INDEXES.values() for keys in indexes.values() for name, _ in keys}
"""Attributes of the keys of indexes: DynamoDB refuses a value of another type."""
ITEM_CHARS_MAX: Final = 390_000
"""Longest value that an item has room for: DynamoDB refuses one with more than 400 KB."""
_TAGS: Final[dict[type, str]] = {int: "N", str: "S", bytes: "B"}


def _attribute(value: object) -> dict[str, Any]:
    tag = _TAGS[type(value)]
    return {tag: str(value) if tag == "N" else value}


def _python(value: dict[str, Any]) -> Any:
    ((tag, content),) = value.items()
    return int(content) if tag == "N" else content


@contextmanager
def spoilt_dynamodb(url: str, case: Case) -> Iterator[int]:
    """Store a case in the items of the faulty runs, and put the old ones back. Yield how many could be changed."""
    kind = KIND[case.table]
    name = dict(zip(kind.columns, _COLUMNS[kind.name].names, strict=True))[case.column]
    spoilt: list[Item] = []

    async def spoil() -> None:
        if case.column in kind.columns[: kind.key]:
            return  # an item is found by its own key, which holds these columns, too
        async with dynamodb.connected(url) as connection:
            table = connection.address.table(table_of(kind))
            request: dict[str, Any] = {"TableName": table, "ConsistentRead": True}
            while True:
                page = await connection.call("Scan", **request)
                for item in page["Items"]:
                    if kind_of(item["sk"]["S"]) is not kind or name not in item:
                        continue
                    if not _is_bad({each: item.get(each, {}).get("S") for each in _owners(kind)}, *_owners(kind)):
                        continue
                    old = _python(item[name])
                    new = case.of(old)
                    if type(new) is not type(old) and name in _KEYED:
                        continue
                    if len(str(new)) > ITEM_CHARS_MAX:
                        continue
                    spoilt.append(item)
                    await connection.call("PutItem", TableName=table, Item=item | {name: _attribute(new)})
                if "LastEvaluatedKey" not in page:
                    break
                request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    async def mend() -> None:
        async with dynamodb.connected(url) as connection:
            table = connection.address.table(table_of(kind))
            for item in spoilt:
                await connection.call("PutItem", TableName=table, Item=item)

    asyncio.run(spoil())
    try:
        yield len(spoilt)
    finally:
        asyncio.run(mend())


def change_bad_runs(url: str, change: Callable[[Item], Item]) -> None:
    """Write other attributes into the items of the faulty runs that have not ended and that no worker owns."""

    async def write() -> None:
        async with dynamodb.connected(url) as connection:
            table = connection.address.table(table_of(RUN))
            items = (await connection.call("Scan", TableName=table, ConsistentRead=True))["Items"]
            for item in [each for each in items if kind_of(each["sk"]["S"]) is RUN]:
                if _is_bad({"run": item["run"]["S"]}, "run") and item["owner"]["S"] == "":
                    await connection.call("PutItem", TableName=table, Item=item | change(item))

    asyncio.run(write())


def due_again_dynamodb(url: str) -> None:
    """Let the faulty runs be due, also in the index."""

    def due(item: Item) -> Item:
        return {"due_at": {"N": "1"}, "due_lane": {"S": lane_of(item["lane"]["S"], int(item["mapping"]["N"]))}}

    change_bad_runs(url, due)


def _owners(kind: AnyKind) -> tuple[str, ...]:
    """Return the columns that name the run of a row."""
    return tuple(name for name in ("run", "by_run", "target") if name in kind.columns)


STORES: Final = {
    "postgres": Elsewhere(
        lambda: f"{postgres.url()}?schema=test_{token_hex(6)}",
        lambda url: asyncio.run(postgres.drop(_schema(url))),
        spoilt_postgres,
        due_again_postgres,
    ),
    "dynamodb": Elsewhere(
        lambda: dynamodb.url(f"test-{token_hex(6)}"),
        lambda url: asyncio.run(dynamodb.discard(url.rpartition("/")[2].partition("?")[0])),
        spoilt_dynamodb,
        due_again_dynamodb,
    ),
}

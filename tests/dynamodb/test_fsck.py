"""`fsck` finds in DynamoDB what it finds in a file: each canary spoils the same row, and exactly its check says so."""

import asyncio
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from outlast.clocks import SystemClock
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.store.bounds import SHAPES
from outlast.store.dynamodb.items import Stamp, encode, place
from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from outlast.upkeep.fsck import Fsck
from tests import slices
from tests.upkeep.test_fsck import CANARIES, played, spoil

__all__ = ["played"]
Rows = dict[tuple[str, Key], Row]
KIND = {kind.name: kind for kind in KINDS}


def rows_of(path: Path) -> Rows:
    """Return the rows of a SQLite file as they are, also those that no store would read."""
    db = sqlite3.connect(path)
    found: Rows = {}
    for kind in KINDS:
        for values in db.execute(f"SELECT {', '.join(kind.columns)} FROM {kind.name}"):
            blobs = SHAPES[kind.name].blobs  # which SQL may have set to a text
            row = kind.row._make([v.encode() if i in blobs and isinstance(v, str) else v for i, v in enumerate(values)])
            found[kind.name, key_of(kind, row)] = row
    db.close()
    return found


async def change(store: DynamoStore, before: Rows, after: Rows) -> None:
    """Write the items of changed rows without any condition, and delete those of missing rows."""
    table, call = store._address.table, store._connection.call
    for name, key in before.keys() - after.keys():
        at = place(KIND[name], key)
        await call("DeleteItem", TableName=table(at.table), Key=at.key())
    for (name, key), row in after.items():
        if before.get((name, key)) != row:
            kind: AnyKind = KIND[name]
            (item,) = encode(kind, row, Stamp("canary", 0, 0))
            extra: dict[str, Any] = {"shards": {"N": "1"}, "settings": {"S": "0/0"}} if name == "writer" else {}
            await call("PutItem", TableName=table(place(kind, key).table), Item=item | extra)


async def findings(store: DynamoStore) -> list[tuple[str, str, Key]]:
    looked = await Fsck(store, chain=True).look()
    assert looked.runs >= 3 and looked.events > 10
    return [(found.check, found.kind, found.key) for found in looked.findings]


@pytest.mark.req("TEST-4", "RT-5")
def test_each_canary_is_found(played: Path, tmp_path: Path, url: str) -> None:
    async def live() -> None:
        store = await open_dynamodb(url, writer="fsck", clock=SystemClock())
        on_loop = asyncio.run_coroutine_threadsafe
        clean = rows_of(played)
        try:
            await asyncio.wrap_future(on_loop(change(store, {}, clean), store._loop))
            assert await findings(store) == []
            for check, canary in slices.drawn(list(CANARIES.items()), 8, "canaries"):
                copy = Path(shutil.copy(played, tmp_path / "spoilt.db"))
                spoil(copy, canary.spoil)
                spoilt = rows_of(copy)
                await asyncio.wrap_future(on_loop(change(store, clean, spoilt), store._loop))
                told = await findings(store)
                assert {(name, kind) for name, kind, _ in told} == {(check, canary.kind)}, told
                assert canary.key is None or canary.key in {key for _, _, key in told}, told
                await asyncio.wrap_future(on_loop(change(store, spoilt, clean), store._loop))
        finally:
            await store.close()

    asyncio.run(live())

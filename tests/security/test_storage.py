"""Stored data is readable by its owner only and never becomes code (S26, S30)."""

import asyncio
import json
import pickle
import sqlite3
import stat
from pathlib import Path

import pytest

from outlast.core.approvals import Actor
from outlast.runtime.local_worker import worker_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.upkeep.export import export
from outlast.upkeep.fsck import Fsck
from tests.security.flows import listeners


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> object:
        return Path.touch, (self.file,)


def test_a_store_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(f"sqlite:{tmp_path}/outlast.db")
        await Operations(store, tenant="t", actor=Actor("ana"), workflows={"listener": listeners}).start_run(
            "listener", {}
        )
        modes = readable_by(tmp_path)
        await store.close()
        assert len(modes) >= 3 and set(modes.values()) == {0o600}, modes

    asyncio.run(check())


def readable_by(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@pytest.mark.parametrize("form", ["pickle", "constructor", "reference"])
@pytest.mark.parametrize("column", ["snapshot", "details"])
def test_stored_data_never_becomes_code(tmp_path: Path, form: str, column: str) -> None:
    """A pickle bomb in the rows of a run, shown, executed, exported and checked, is data or an error."""
    pwned = tmp_path / "pwned"
    bomb = pickle.dumps(Bomb(pwned))
    lc = {"lc": 1, "type": "constructor", "id": ["pathlib", "Path", "touch"], "kwargs": {"self": str(pwned)}}
    forms = {"pickle": bomb, "constructor": json.dumps(lc).encode(), "reference": b'{"$ref": "file:///etc/passwd"}'}
    file = tmp_path / "outlast.db"

    async def plant() -> str:
        store = await open_store(f"sqlite:{file}")
        ops = Operations(store, tenant="t", actor=Actor("ana"), workflows={"listener": listeners})
        run = (await ops.start_run("listener", {})).run
        await store.close()
        return run

    async def look(run: str) -> None:
        store = await open_store(f"sqlite:{file}")
        ops = Operations(store, tenant="t", actor=Actor("ana"), workflows={"listener": listeners})
        looks = [ops.rows.full_history(run), ops.explain(run), export(ops, run), Fsck(store, chain=True).look()]
        await asyncio.gather(*looks, return_exceptions=True)
        worker = worker_of(store, [listeners])
        task = asyncio.create_task(worker.run())
        for _ in range(200):
            if (await ops.rows.run(run)).epoch and not (await ops.rows.run(run)).owner:
                break
            await asyncio.sleep(0.02)
        worker.drain()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()

    run = asyncio.run(plant())
    with sqlite3.connect(file) as db:
        changed = db.execute(f"UPDATE event SET {column} = ? WHERE run = ?", (forms[form], run)).rowcount
    db.close()
    assert changed == 1
    asyncio.run(look(run))
    assert not pwned.exists()
    pickle.loads(bomb)
    assert pwned.exists(), "it is one"

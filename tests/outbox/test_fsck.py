"""Checks of deliveries: one row is spoilt, and exactly its check reports it."""

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from outlast.runtime.stores import open_store
from outlast.upkeep.fsck import Fsck
from tests.outbox.helpers import Receiver, a_store, answer, dispatching, firsts, settled, until, url_of, working

CANARIES = {
    "the cursor is gone": ("DELETE FROM cursor", "event_delivered"),
    "the cursor forgot an event": (
        "UPDATE cursor SET upto = upto - 1, seq = seq - 1, last = last - 1",
        "event_delivered",
    ),
    "owed, and not due": ("UPDATE cursor SET seq = seq - 1, last = last - 1", "cursor_due"),
    "due, and nothing owed": ("UPDATE cursor SET due_at = 1", "cursor_due"),
    "owed by no cursor": ("UPDATE delivery SET status = 'owed'", "event_delivered"),
    "given up before its turn": (
        "UPDATE cursor SET seq = 1, last = 1, due_at = 1; UPDATE delivery SET status = 'dead'",
        "event_delivered",
    ),
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store whose run was delivered, one event at the second attempt on a person's request."""
    path = tmp_path_factory.mktemp("told")

    async def live() -> None:
        script = [answer(), answer(422)]
        async with a_store(url_of(path)) as ops, Receiver(script=script).listening() as receiver:
            made = await ops.webhooks.add(receiver.url)
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 2}, run_id="r")

                async def delivered() -> bool:
                    row = await ops.rows.run("r")
                    return bool(row.ended_at) and len(firsts(receiver.got).get("r", ())) == row.seq

                await until(delivered)
                await until(lambda: settled(ops, made.webhook))
            assert (await Fsck(ops.store).look()).findings == ()

    asyncio.run(live())
    return path / "outlast.db"


@pytest.mark.req("OUT-2", "TEST-4")
@pytest.mark.parametrize("name", CANARIES)
def test_a_spoilt_delivery_row_is_found(name: str, played: Path, tmp_path: Path) -> None:
    statements, check = CANARIES[name]
    copy = Path(shutil.copy(played, tmp_path / "spoilt.db"))
    db = sqlite3.connect(copy)
    for statement in statements.split("; "):
        assert db.execute(statement).rowcount > 0
    db.commit()
    db.close()

    async def look() -> set[str]:
        store = await open_store(f"sqlite:{copy}", use="read")
        try:
            return {finding.check for finding in (await Fsck(store).look()).findings}
        finally:
            await store.close()

    assert asyncio.run(look()) == {check}

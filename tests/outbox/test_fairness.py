"""Unpublished events of another tenant must not delay those of this one."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outlast.core.approvals import Actor
from outlast.core.rows.outbox_rows import CURSOR, UNPUBLISHED, Cursor
from outlast.outbox import unpublished
from outlast.runtime.operations import Operations
from outlast.runtime.webhooks import new_dispatcher
from tests.outbox.helpers import DEVELOPMENT, ROUNDS, TENANT, Receiver, a_store, dispatching, until, url_of

pytestmark = pytest.mark.usefixtures("soon")
BACKLOG = 300
OTHER = "globex"


@pytest.mark.req("OUT-1", "RUN-5")
def test_a_round_reads_a_bounded_number_of_events_per_tenant(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One event is owed after the first round, although another tenant has hundreds; all are delivered."""
    monkeypatch.setattr(unpublished, "AT_ONCE", 20)

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            other = Operations(ops.store, tenant=OTHER, actor=Actor("local:bob", frozenset({"admin"})),
                               workflows={"rounds": ROUNDS})  # fmt: skip
            other.webhooks.reach = DEVELOPMENT
            for each in (ops, other):
                await each.webhooks.add(receiver.url)
            await asyncio.gather(*(ops.start_run("rounds", {"left": 1}, run_id=f"r{n}") for n in range(BACKLOG)))
            await other.start_run("rounds", {"left": 1}, run_id="theirs")
            idle = new_dispatcher(ops.store, reach=DEVELOPMENT)
            idle._stopping = True  # it finds, and sends nothing
            await idle._look()
            assert len(await ops.store.rows(UNPUBLISHED, (TENANT,))) == BACKLOG - 20
            assert not await ops.store.rows(UNPUBLISHED, (OTHER,))
            (cursor,) = await ops.store.rows(CURSOR, (OTHER,))
            assert isinstance(cursor, Cursor) and cursor.due_at is not None
            async with dispatching(ops.store):
                await until(lambda: len(receiver.accepted) == BACKLOG + 1, within=60)
        delivered = [got.place[0] for got in receiver.accepted]
        assert delivered.index("theirs") < BACKLOG // 2, "it did not wait for the end of the others"

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_an_unreadable_row_does_not_block_other_tenants(tmp_path: Path) -> None:
    async def live() -> None:
        async with a_store(url_of(tmp_path)) as ops, Receiver().listening() as receiver:
            other = Operations(
                ops.store, tenant=OTHER, actor=Actor("local:ann", frozenset({"admin"})), workflows={"rounds": ROUNDS}
            )
            other.webhooks.reach = DEVELOPMENT
            for each in (ops, other):
                await each.webhooks.add(receiver.url)
                await each.start_run("rounds", {"left": 1}, run_id=f"of-{each.tenant}")
            with closing(sqlite3.connect(tmp_path / "outlast.db", timeout=20)) as db, db:
                db.execute(f"UPDATE run SET status = 'nonsense' WHERE run = 'of-{TENANT}'")
            async with dispatching(ops.store):
                await until(lambda: [got.place for got in receiver.accepted] == [(f"of-{OTHER}", 1)])

    asyncio.run(live())

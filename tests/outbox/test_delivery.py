"""Every event is delivered, signed and in order, to each subscription that wants it."""

import asyncio

import pytest

from outlast.core.machine import SWEPT
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.store.queries import Owing
from tests.outbox.helpers import Receiver, a_store, dispatching, firsts, history, until, working


@pytest.mark.req("OUT-1", "OUT-2", "OUT-3")
@pytest.mark.every_store
def test_every_event_is_delivered_in_order(url: str) -> None:
    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            made = await ops.webhooks.add(receiver.url)
            assert (await ops.webhooks.row(made.webhook)).swept == SWEPT
            async with working(ops.store), dispatching(ops.store):
                runs = [f"r{n}" for n in range(5)]
                for run in runs:
                    await ops.start_run("rounds", {"left": 4}, run_id=run)

                async def forgotten() -> bool:
                    return await ops.store.rows(UNPUBLISHED, ()) == ()

                async def delivered() -> bool:
                    rows = [await ops.rows.run(run) for run in runs]
                    have = firsts(receiver.got)
                    return all(row.ended_at and len(have.get(row.run, ())) == row.seq for row in rows)

                await until(delivered)
                await until(forgotten)
            for run in runs:
                events = await history(ops.store, run)
                mine = [got for got in receiver.got if got.place[0] == run]
                assert [got.body for got in mine] == [event.body for event in events]
                assert [got.headers["outlast-previous"] for got in mine] == [str(n) for n in range(len(events))]
                assert len({got.headers["webhook-id"] for got in mine}) == len(events)
                for got in mine:
                    assert got.verified(made.secret)["subject"] == run
            assert await ops.store.query(Owing("acme", made.webhook, 10)) == ()

    asyncio.run(live())

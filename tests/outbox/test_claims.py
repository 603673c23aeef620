"""A cursor has one holder: dispatchers that share a store tell each event once, in order, and none is passed over."""

import asyncio

import pytest

from outlast.core.outgoing import Cursor
from outlast.core.rows import CURSOR
from outlast.outbox import stream
from outlast.runtime.operations import Operations
from tests.outbox.helpers import (
    TENANT,
    Behaviour,
    Got,
    Receiver,
    a_store,
    all_told,
    answer,
    dispatching,
    firsts,
    history,
    settled,
    until,
    working,
)

pytestmark = pytest.mark.usefixtures("quick")


async def cursor_of(ops: Operations, run: str, subscription: str) -> Cursor | None:
    row = await ops.store.load(CURSOR, (TENANT, run, subscription))
    return row if isinstance(row, Cursor) else None


def held_until(gate: asyncio.Event, status: int = 204) -> Behaviour:
    """Answer once the gate is open."""
    then = answer(status)

    async def behave(got: Got, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await then(got, writer)

    return behave


@pytest.mark.req("OUT-2")
@pytest.mark.every_store
def test_several_dispatchers_never_hold_one_cursor(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them, on the same store: each event once, in order."""
    monkeypatch.setattr(stream, "SENT_AT_ONCE", 1)

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            await ops.webhooks.add(receiver.url)
            async with working(ops.store), dispatching(ops.store), dispatching(ops.store), dispatching(ops.store):
                runs = [f"r{n}" for n in range(20)]
                for run in runs:
                    await ops.start("rounds", {"left": 3}, run_id=run)

                await until(lambda: all_told(ops, receiver, *runs), within=60)
            have = [got.place for got in receiver.got]
            assert len(have) == len(set(have))
            assert all(seqs == sorted(seqs) for seqs in firsts(receiver.got).values())

    asyncio.run(live())


@pytest.mark.req("OUT-1", "OUT-2")
@pytest.mark.every_store
def test_what_happens_while_an_attempt_is_in_the_air_is_told_too(url: str) -> None:
    """The commit that settles the attempt hears that more is owed by now, and all of it is sent."""

    async def live() -> None:
        gate = asyncio.Event()
        receiver = Receiver(script=[answer(500), held_until(gate)])
        async with a_store(url) as ops, receiver.listening():
            made = await ops.webhooks.add(receiver.url)
            name = made.subscription.subscription
            await ops.start("rounds", {"left": 4}, run_id="r")
            async with dispatching(ops.store):
                await until(lambda: len(receiver.got) == 2)
                async with working(ops.store):

                    async def known() -> bool:
                        row, cursor = await ops.run("r"), await cursor_of(ops, "r", name)
                        return bool(row.ended_at) and cursor is not None and cursor.upto == row.seq

                    await until(known)
                gate.set()
                await until(lambda: settled(ops, name))
            assert firsts(receiver.accepted)["r"] == [event.seq for event in await history(ops.store, "r")]

    asyncio.run(live())

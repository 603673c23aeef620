"""A cursor has one holder: dispatchers that share a store tell each event once, in order, and none is passed over."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from outlast.clocks import SystemClock, chance
from outlast.core.commit import Commit, Drop, Put
from outlast.core.rows.outbox_rows import CURSOR, SUBSCRIPTION, Cursor, Subscription
from outlast.core.webhooks import deliveries
from outlast.core.webhooks.deliveries import Attempt
from outlast.outbox import claimed_cursor, dispatcher
from outlast.outbox.address import SystemResolver
from outlast.outbox.delivery_client import DeliveryClient
from outlast.outbox.dispatcher import Dispatcher
from outlast.runtime.operations import Operations
from outlast.store.port import Store
from tests.outbox.helpers import (
    DEVELOPMENT,
    TENANT,
    Behaviour,
    Got,
    Receiver,
    a_store,
    all_delivered,
    answer,
    dispatching,
    firsts,
    history,
    settled,
    until,
    working,
)

pytestmark = pytest.mark.usefixtures("soon")


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
    """Three dispatchers on one store deliver each event once, in order."""
    monkeypatch.setattr(claimed_cursor, "SENT_AT_ONCE", 1)

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            await ops.webhooks.add(receiver.url)
            async with working(ops.store), dispatching(ops.store), dispatching(ops.store), dispatching(ops.store):
                runs = [f"r{n}" for n in range(20)]
                for run in runs:
                    await ops.start_run("rounds", {"left": 3}, run_id=run)

                await until(lambda: all_delivered(ops, receiver, *runs), within=60)
            have = [got.place for got in receiver.got]
            assert len(have) == len(set(have))
            assert all(seqs == sorted(seqs) for seqs in firsts(receiver.got).values())

    asyncio.run(live())


@pytest.mark.req("OUT-1", "OUT-2")
@pytest.mark.every_store
def test_events_during_an_attempt_are_delivered_too(url: str) -> None:
    """The commit that settles the attempt finds that more is owed, and all of it is sent."""

    async def live() -> None:
        gate = asyncio.Event()
        receiver = Receiver(script=[answer(500), held_until(gate)])
        async with a_store(url) as ops, receiver.listening():
            made = await ops.webhooks.add(receiver.url)
            name = made.webhook
            await ops.start_run("rounds", {"left": 4}, run_id="r")
            async with dispatching(ops.store):
                await until(lambda: len(receiver.got) == 2)
                async with working(ops.store):

                    async def known() -> bool:
                        row, cursor = await ops.rows.run("r"), await cursor_of(ops, "r", name)
                        return bool(row.ended_at) and cursor is not None and cursor.upto == row.seq

                    await until(known)
                gate.set()
                await until(lambda: settled(ops, name))
            assert firsts(receiver.accepted)["r"] == [event.seq for event in await history(ops.store, "r")]

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_accepted_events_are_committed_before_a_crash_could_repeat_many(url: str) -> None:
    """A long delivery releases its cursor only at the end, so a crash could repeat all of it."""
    written: list[int] = []

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            name = (await ops.webhooks.add(receiver.url)).webhook

            async def looking(got: Got, writer: asyncio.StreamWriter) -> None:
                cursor = await cursor_of(ops, "r", name)
                assert cursor is not None and cursor.owner
                written.append(got.place[1] - 1 - cursor.seq)
                await answer()(got, writer)

            receiver.behaviour = looking
            await ops.start_run("rounds", {"left": 60}, run_id="r")
            async with working(ops.store):

                async def over() -> bool:
                    return bool((await ops.rows.run("r")).ended_at)

                await until(over)
            async with dispatching(ops.store):
                await until(lambda: all_delivered(ops, receiver, "r"))

    asyncio.run(live())
    assert len(written) > 2 * claimed_cursor.SENT_AT_ONCE and max(written) == claimed_cursor.SENT_AT_ONCE - 1


class Noting(DeliveryClient):
    """An HTTP client that records the deliveries of one dispatcher."""

    def __init__(self, sent: list[int]) -> None:
        super().__init__(DEVELOPMENT, SystemResolver(), SystemClock(), timeout_ms=10_000)
        self.sent = sent

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        """Record the event and send it."""
        self.sent.append(int(headers["outlast-sequence"]))
        return await super().post(url, headers, body)


def noting(store: Store, name: str, sent: list[int]) -> Dispatcher:
    """Run a dispatcher whose deliveries are recorded."""
    return Dispatcher(store, name, clock=SystemClock(), chance=chance, poster=lambda _: Noting(sent))


def short_claims(monkeypatch: pytest.MonkeyPatch, claim_ms: int, margin_ms: int) -> None:
    """Shorten the claim from half a minute to half a second."""
    for module in (deliveries, dispatcher, claimed_cursor):
        monkeypatch.setattr(module, "DELIVERY_CLAIM", claim_ms)
    monkeypatch.setattr(claimed_cursor, "MARGIN_MS", margin_ms)


async def ended(ops: Operations, run: str, rounds: int) -> None:
    """Start a run and wait until it has ended."""
    async with working(ops.store):
        await ops.start_run("rounds", {"left": rounds}, run_id=run)

        async def over() -> bool:
            return bool((await ops.rows.run(run)).ended_at)

        await until(over)


@pytest.mark.req("OUT-2")
@pytest.mark.every_store
def test_a_dispatcher_that_lost_its_claim_sends_and_writes_nothing_more(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim ends during an attempt; the dispatcher that takes over sends the rest alone."""
    short_claims(monkeypatch, 600, 100)

    async def live() -> None:
        gate = asyncio.Event()
        receiver = Receiver(script=[held_until(gate)])
        first: list[int] = []
        second: list[int] = []
        async with a_store(url) as ops, receiver.listening():
            made = await ops.webhooks.add(receiver.url, from_start=True)
            name = made.webhook
            await ended(ops, "r", 5)
            slow = noting(ops.store, "d-1", first)
            task = asyncio.create_task(slow.run())
            await until(lambda: first == [1])
            other = noting(ops.store, "d-2", second)
            other_task = asyncio.create_task(other.run())
            await until(lambda: settled(ops, name))
            before = await cursor_of(ops, "r", name)
            gate.set()
            await until(lambda: len(receiver.accepted) == len(second) + 1)
            slow.drain()
            other.drain()
            await asyncio.gather(task, other_task)
            assert await cursor_of(ops, "r", name) == before, "what it learned is not written over what is known"
            assert first == [1] and second == [event.seq for event in await history(ops.store, "r")]

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_a_claim_is_kept_for_as_long_as_there_is_something_to_send(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten slow answers last longer than the claim, and no other dispatcher takes over."""
    short_claims(monkeypatch, 5_400, 3_600)  # a busy machine may stop this process for seconds
    monkeypatch.setattr(dispatcher, "IDLE_LOOK", 100)  # who lost the race for the claim looks again long before the end

    async def slow(got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.6)
        await answer()(got, writer)

    async def live() -> None:
        sent: list[list[int]] = [[], []]
        async with a_store(url) as ops, Receiver(slow).listening() as receiver:
            made = await ops.webhooks.add(receiver.url, from_start=True)
            await ended(ops, "r", 10)
            both = [noting(ops.store, f"d-{n}", mine) for n, mine in enumerate(sent)]
            tasks = [asyncio.create_task(each.run()) for each in both]
            await until(lambda: settled(ops, made.webhook))
            for each in both:
                each.drain()
            await asyncio.gather(*tasks)
            events = [event.seq for event in await history(ops.store, "r")]
            assert len(events) > 10 and sorted(sent, key=len) == [[], events]

    asyncio.run(live())


@pytest.mark.req("OUT-2")
@pytest.mark.every_store
def test_cursors_of_a_dead_dispatcher_are_taken_over_when_its_claim_ends(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_claims(monkeypatch, 1_500, 100)

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            made = await ops.webhooks.add(receiver.url, from_start=True)
            name = made.webhook
            await ended(ops, "r", 2)
            upto = (await ops.rows.run("r")).seq
            row = await ops.store.load(SUBSCRIPTION, (TENANT, name))
            assert isinstance(row, Subscription)
            now = await ops.store.now()
            opened = deliveries.open_cursor(row, "r", 0, upto, now)
            held = deliveries.hold(opened, "d-dead", now)._replace(version=1)
            await ops.store.commit(Commit((Put(CURSOR, held, 0),)))
            async with dispatching(ops.store):
                await until(lambda: settled(ops, name))
            told_at = await ops.store.now()
            assert told_at.real - now.real >= 1_500, "while its claim runs it may be alive"
            assert firsts(receiver.accepted)["r"] == [event.seq for event in await history(ops.store, "r")]

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_a_refused_run_delays_no_other_run(url: str) -> None:
    """Its second event fails or hangs and blocks its later events; other runs are delivered completely."""
    gate = asyncio.Event()

    async def unless_a(got: Got, writer: asyncio.StreamWriter) -> None:
        if got.place == ("b", 2):
            await gate.wait()
        await answer(500 if got.place == ("a", 2) else 204)(got, writer)

    async def live() -> None:
        async with a_store(url) as ops, Receiver(unless_a).listening() as receiver:
            await ops.webhooks.add(receiver.url)
            sending = noting(ops.store, "d-1", [])
            task = asyncio.create_task(sending.run())
            async with working(ops.store):
                for run in "abcdefghijk":
                    await ops.start_run("rounds", {"left": 2}, run_id=run)
                await until(lambda: all_delivered(ops, receiver, *"cdefghijk"), within=9)  # an attempt may take ten
                await until(lambda: sum(got.place == ("a", 2) for got in receiver.got) >= 3)
            sending.drain()
            gate.set()
            await task
            assert {got.place for got in receiver.got if got.place[0] in "ab"} == {
                (run, n) for run in "ab" for n in (1, 2)
            }

    asyncio.run(live())


@pytest.mark.req("OUT-2")
@pytest.mark.every_store
def test_a_drained_dispatcher_sends_nothing_new_and_releases_its_cursors(url: str) -> None:
    """It finishes open attempts; the next dispatcher continues at once, before the claim ends."""

    async def live() -> None:
        gate = asyncio.Event()
        receiver = Receiver(script=[held_until(gate)])
        first: list[int] = []
        async with a_store(url) as ops, receiver.listening():
            made = await ops.webhooks.add(receiver.url, from_start=True)
            name = made.webhook
            await ended(ops, "r", 4)
            stopped = noting(ops.store, "d-1", first)
            task = asyncio.create_task(stopped.run())
            await until(lambda: first == [1])
            stopped.drain()
            gate.set()
            await task
            cursor = await cursor_of(ops, "r", name)
            assert first == [1] and cursor is not None and (cursor.seq, cursor.owner) == (1, "")
            async with dispatching(ops.store):
                await until(lambda: settled(ops, name), within=10)  # a claim is 30 s
            assert firsts(receiver.accepted)["r"] == [event.seq for event in await history(ops.store, "r")]
            assert len(receiver.got) == len(receiver.accepted), "none of them twice"

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_purged_events_are_not_owed(url: str) -> None:
    """A cursor may know of purged events: it is settled, and no dispatcher reads them again."""

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            name = (await ops.webhooks.add(receiver.url, from_start=True)).webhook
            await ended(ops, "r", 1)
            upto = (await ops.rows.run("r")).seq
            row = await ops.store.load(SUBSCRIPTION, (TENANT, name))
            assert isinstance(row, Subscription)
            opened = deliveries.open_cursor(row, "r", 0, upto + 7, await ops.store.now())
            await ops.store.commit(Commit((Put(CURSOR, opened, 0),)))
            async with dispatching(ops.store):
                await until(lambda: settled(ops, name))
            cursor = await cursor_of(ops, "r", name)
            assert cursor is not None and cursor.seq == upto + 7 and len(receiver.got) == upto

    asyncio.run(live())


@pytest.mark.req("OUT-1", "OUT-2")
def test_nothing_is_forgotten_before_a_cursor_knows_of_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked in every commit: a crash between any two of them loses no event."""
    early: list[Drop] = []

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            name = (await ops.webhooks.add(receiver.url)).webhook
            land = ops.store.commit

            async def watched(commit: Commit, *args: Any, **more: Any) -> Any:
                for drop in [write for write in commit.writes if isinstance(write, Drop)]:
                    mine = [w.row for w in commit.writes if isinstance(w, Put) and w.kind is CURSOR]
                    known = [*mine, await cursor_of(ops, drop.run, name)]
                    if not any(isinstance(c, Cursor) and c.run == drop.run and c.upto >= drop.seq for c in known):
                        early.append(drop)
                return await land(commit, *args, **more)

            monkeypatch.setattr(ops.store, "commit", watched)
            async with working(ops.store), dispatching(ops.store):
                for run in "abc":
                    await ops.start_run("rounds", {"left": 3}, run_id=run)
                await until(lambda: all_delivered(ops, receiver, *"abc"))
                await until(lambda: settled(ops, name))
            assert early == []

    asyncio.run(live())

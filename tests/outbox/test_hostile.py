"""Receivers that are slow, silent, rude or gone: every event is delivered in order or dead-lettered; no other waits."""

import asyncio
from datetime import timedelta

import pytest

from outlast.core.commit import Commit
from outlast.core.machine import DeliveryStatus, SubscriptionStatus
from outlast.core.rows.outbox_rows import CURSOR, UNPUBLISHED, Cursor
from outlast.core.rows.store_rows import META
from outlast.core.webhooks import deliveries
from outlast.core.webhooks.deliveries import SUBSCRIBED_TENANTS, tenants_of
from outlast.outbox import delivery_client as client
from outlast.outbox import dispatcher
from outlast.runtime.webhooks import DeliveryLag, lag_of
from outlast.testing.faults import FaultKind, FaultyStore
from tests.outbox.helpers import (
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


async def silent(got: Got, writer: asyncio.StreamWriter) -> None:
    """Accept the request and never answer."""
    await asyncio.sleep(3_600)


async def resetting(got: Got, writer: asyncio.StreamWriter) -> None:
    """Reset the connection without an answer."""
    writer.transport.abort()
    raise ConnectionResetError


async def dripping(got: Got, writer: asyncio.StreamWriter) -> None:
    """Accept, and send the body without end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def slow_head(got: Got, writer: asyncio.StreamWriter) -> None:
    """Send a byte of the head now and then."""
    for byte in b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1_000:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


async def huge(got: Got, writer: asyncio.StreamWriter) -> None:
    """Send a gigabyte that claims to be gzip."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1073741824\r\n\r\n")
    for _ in range(1_024):
        writer.write(bytes(1_048_576))
        await writer.drain()


async def garbage(got: Got, writer: asyncio.StreamWriter) -> None:
    """Answer with bytes that are not HTTP."""
    writer.write(b"\0\xff not http \r\n\r\n")
    await writer.drain()
    raise ConnectionResetError


pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.req("OUT-2", "OUT-3")
@pytest.mark.parametrize(
    "behaviour",
    [silent, resetting, slow_head, garbage, answer(500), answer(503, retry_after="0"), answer(302), answer(429)],
    ids=["silent", "resetting", "slow_head", "garbage", "500", "503", "redirect", "429"],
)
def test_refused_events_are_retried_in_order(url: str, behaviour: Behaviour) -> None:
    """The third event fails twice and blocks later ones; each attempt has the same id."""

    async def live() -> None:
        ok = answer()
        script = [ok, ok, behaviour, behaviour]
        async with a_store(url) as ops, Receiver(script=script).listening() as receiver:
            made = await ops.webhooks.add(receiver.url)
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 4}, run_id="r")

                async def delivered() -> bool:
                    return await all_delivered(ops, receiver, "r")

                await until(delivered)
            events = await history(ops.store, "r")
            assert [got.place[1] for got in receiver.got] == [1, 2, 3, 3, *range(3, len(events) + 1)]
            assert len({got.headers["webhook-id"] for got in receiver.got}) == len(events)
            for got in receiver.got:
                got.verified(made.secret)
            (row,) = (await ops.webhooks.deliveries(made.webhook)).deliveries
            assert (row.sequence, row.status, row.attempts) == (3, DeliveryStatus.DELIVERED, 3)

    asyncio.run(live())


@pytest.mark.req("OUT-2")
@pytest.mark.parametrize("behaviour", [dripping, huge], ids=["dripping", "huge"])
def test_an_accepted_answer_is_not_read_to_the_end(url: str, behaviour: Behaviour) -> None:
    """The status decides; a gigabyte is not read, and nothing is decompressed."""

    async def live() -> None:
        async with a_store(url) as ops, Receiver(script=[behaviour]).listening() as receiver:
            made = await ops.webhooks.add(receiver.url)
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 1}, run_id="r")

                async def delivered() -> bool:
                    row = await ops.rows.run("r")
                    return bool(row.ended_at) and len(firsts(receiver.got).get("r", ())) == row.seq

                await until(delivered)
            assert len(receiver.got) == (await ops.rows.run("r")).seq, "none of them twice"
            assert (await ops.webhooks.get(made.webhook)).dead == 0

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_a_definite_refusal_is_dead_lettered_and_later_events_are_sent(url: str) -> None:
    """One attempt; a person sees it and redelivers it under the same id."""

    async def live() -> None:
        script = [answer(), answer(422, b"<b>no</b>")]
        async with a_store(url) as ops, Receiver(script=script).listening() as receiver:
            made = await ops.webhooks.add(receiver.url)
            name = made.webhook
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 2}, run_id="r")

                async def delivered() -> bool:
                    row = await ops.rows.run("r")
                    return bool(row.ended_at) and len(receiver.got) == row.seq

                await until(delivered)
                (dead,) = (await ops.webhooks.deliveries(name, status=DeliveryStatus.DEAD)).deliveries
                assert (dead.sequence, dead.attempts, dead.code, dead.answer) == (2, 1, 422, "<b>no</b>")
                assert (await ops.webhooks.get(name)).dead == 1
                sent = len(receiver.got)
                await ops.webhooks.redeliver(dead.delivery)
                await until(lambda: len(receiver.got) == sent + 1)
                assert receiver.got[-1].headers["webhook-id"] == dead.webhook_id
                assert receiver.got[-1].headers["outlast-previous"] == "1"

                async def closed() -> bool:
                    (row,) = (await ops.webhooks.deliveries(name)).deliveries
                    return row.status == DeliveryStatus.DELIVERED

                await until(closed)

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_at_the_ceiling_it_is_dead(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "DELIVERY_ATTEMPTS_MAX", 3)

    async def live() -> None:
        async with a_store(url) as ops, Receiver(answer(500)).listening() as receiver:
            made = await ops.webhooks.add(receiver.url, types=["dev.outlast.workflow.completed"])
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 2}, run_id="r")

                async def dead() -> bool:
                    return (await ops.webhooks.get(made.webhook)).dead == 1

                await until(dead)
                receiver.behaviour = answer()
                assert await ops.webhooks.redeliver_dead(made.webhook) == 1
                await until(lambda: len(receiver.got) == 4)
            assert {got.event["type"] for got in receiver.got} == {"dev.outlast.workflow.completed"}
            assert len({got.headers["webhook-id"] for got in receiver.got}) == 1

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_410_disables_and_enabling_continues_at_the_cursor(url: str) -> None:
    async def live() -> None:
        async with a_store(url) as ops, Receiver(script=[answer(), answer(410)]).listening() as receiver:
            name = (await ops.webhooks.add(receiver.url)).webhook
            async with working(ops.store), dispatching(ops.store) as sender:
                await ops.start_run("rounds", {"left": 2}, run_id="r")

                async def off() -> bool:
                    row = await ops.webhooks.get(name)
                    return row.status == SubscriptionStatus.DISABLED and "410" in row.why

                await until(off)
                await until(lambda: not sender._senders)  # its remaining events are not sent
                await ops.start_run("rounds", {"left": 2}, run_id="meanwhile")

                async def over() -> bool:
                    return bool((await ops.rows.run("meanwhile")).ended_at)

                await until(over)
                assert len(receiver.got) == 2
                await ops.webhooks.enable(name)

                async def delivered() -> bool:
                    return await all_delivered(ops, receiver, "r") and await all_delivered(ops, receiver, "meanwhile")

                await until(delivered)
            assert firsts(receiver.got)["r"] == sorted(firsts(receiver.got)["r"])

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_after_410_no_requested_redelivery_is_sent(url: str) -> None:
    """410 ends both requested redeliveries and new events."""

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            name = (await ops.webhooks.add(receiver.url)).webhook
            async with working(ops.store):
                await ops.start_run("rounds", {"left": 3}, run_id="r")

                async def over() -> bool:
                    return bool((await ops.rows.run("r")).ended_at)

                await until(over)
            async with dispatching(ops.store) as sender:

                async def no(got: Got, writer: asyncio.StreamWriter) -> None:
                    if len(receiver.got) == 2:
                        sender.drain()  # the other events are still owed
                    await answer(422)(got, writer)

                receiver.behaviour = no
                await until(lambda: len(receiver.got) == 2)
            sent = len(receiver.got)
            assert await ops.webhooks.redeliver_dead(name) == sent == 2
            assert not await settled(ops, name)
            receiver.behaviour = answer(410)
            async with dispatching(ops.store):

                async def off() -> bool:
                    return (await ops.webhooks.get(name)).status == SubscriptionStatus.DISABLED

                await until(off)
            assert len(receiver.got) == sent + 1

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_each_sender_that_gets_410_releases_its_cursor(url: str) -> None:
    """One sender disables the webhook, and the tenant's events are no longer recorded as unpublished."""
    runs = [f"r{n}" for n in range(4)]

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            name = (await ops.webhooks.add(receiver.url)).webhook

            async def all_here(got: Got, writer: asyncio.StreamWriter) -> None:
                await until(lambda: len(receiver.got) == len(runs))
                await answer(410)(got, writer)

            receiver.behaviour = all_here
            for run in runs:
                await ops.start_run("rounds", {"left": 1}, run_id=run)
            async with dispatching(ops.store) as sender:

                async def off() -> bool:
                    return (await ops.webhooks.get(name)).status == SubscriptionStatus.DISABLED

                await until(off)
                await until(lambda: not sender._senders)
            held = [row.owner for row in await ops.store.rows(CURSOR, (TENANT,)) if isinstance(row, Cursor)]
            assert held == [""] * len(runs)
            assert not tenants_of(await ops.store.load(META, SUBSCRIBED_TENANTS))

    asyncio.run(live())


@pytest.mark.req("OUT-2", "OUT-3")
def test_changes_of_a_webhook_apply_from_the_next_event_on(url: str) -> None:
    """A rotated secret signs nothing more, and a disabled webhook receives nothing more."""

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            made = await ops.webhooks.add(receiver.url)
            name, secret = made.webhook, made.secret
            async with working(ops.store):
                await ops.start_run("rounds", {"left": 30}, run_id="r")

                async def over() -> bool:
                    return bool((await ops.rows.run("r")).ended_at)

                await until(over)
            fresh = ""
            async with dispatching(ops.store) as sender:

                async def heard(version: int) -> None:
                    """The lane knows of the change."""
                    mine, _ = sender._senders[TENANT, name]
                    mine.wake()
                    await until(lambda: mine._row.version >= version)

                async def meanwhile(got: Got, writer: asyncio.StreamWriter) -> None:
                    nonlocal fresh
                    if len(receiver.got) == 3:
                        fresh = (await ops.webhooks.rotate(name, keep=timedelta(0))).secret
                        await heard((await ops.webhooks.row(name)).version)
                    elif len(receiver.got) == 6:
                        await ops.webhooks.disable(name, reason="enough")
                        await heard((await ops.webhooks.row(name)).version)
                    await answer()(got, writer)

                receiver.behaviour = meanwhile
                await until(lambda: len(receiver.got) >= 6)
                await until(lambda: not sender._senders)
            assert len(receiver.got) == 6
            for n, got in enumerate(receiver.got):
                got.verified(secret if n < 3 else fresh)

    asyncio.run(live())


@pytest.mark.req("OUT-2", "OBS-3")
def test_an_outage_of_the_store_is_logged_once_and_its_end_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    away, asked = False, 0

    def schedule(method: str, commit: Commit | None) -> FaultKind | None:
        nonlocal asked
        asked += away
        return FaultKind.BEFORE if away else None

    def delivered(what: str) -> int:
        return sum(what in message for message in caplog.messages)

    async def live() -> None:
        nonlocal away
        async with a_store(url) as ops, Receiver().listening() as receiver:
            name = (await ops.webhooks.add(receiver.url)).webhook
            async with dispatching(FaultyStore(ops.store, schedule)) as sender:
                await until(lambda: (TENANT, name) in sender._senders)
                away = True
                sender._senders[TENANT, name][0].wake()
                await until(lambda: delivered("starting no new work") == 2 and asked >= 10)
                away = False
                await until(lambda: delivered("is available again") == 2)
        assert delivered("starting no new work") == 2, caplog.messages

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_events_without_a_subscriber_do_not_count_as_lag(url: str) -> None:
    """An event was recorded for the tenant's last webhook before that was removed."""

    async def live() -> None:
        async with a_store(url) as ops:
            name = (await ops.webhooks.add("http://127.0.0.1:9/")).webhook
            await ops.start_run("rounds", {"left": 1}, run_id="r")
            before = (await ops.store.now()).real

            async def later() -> bool:
                return (await ops.store.now()).real > before

            await until(later)
            assert (await lag_of(ops.store, [TENANT])).due_ms > 0
            await ops.webhooks.remove(name)
            assert await ops.store.rows(UNPUBLISHED, (TENANT,)) and await lag_of(ops.store, [TENANT]) == DeliveryLag(
                0, 0
            )

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_a_silent_receiver_delays_no_other_receiver(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first attempt at one receiver times out, the other has received everything."""
    given = {**(client.DeliveryClient.__init__.__kwdefaults__ or {}), "timeout_ms": 12_000}
    monkeypatch.setattr(client.DeliveryClient.__init__, "__kwdefaults__", given)

    async def live() -> None:
        good, bad = Receiver(), Receiver(silent)
        async with a_store(url) as ops, good.listening(), bad.listening():
            await ops.webhooks.add(bad.url)
            await ops.webhooks.add(good.url)
            async with working(ops.store), dispatching(ops.store):
                runs = [f"r{n}" for n in range(30)]
                for run in runs:
                    await ops.start_run("rounds", {"left": 2}, run_id=run)

                async def delivered() -> bool:
                    return all([await all_delivered(ops, good, run) for run in runs])

                await until(delivered, within=11)
                assert bad.accepted == [] and len(bad.got) == dispatcher.WIDTH
                bad.behaviour = resetting
                bad.cut()

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_a_receiver_that_asks_for_patience_gets_it(url: str) -> None:
    async def live() -> None:
        script = [answer(429, retry_after="2")]
        async with a_store(url) as ops, Receiver(script=script).listening() as receiver:
            await ops.webhooks.add(receiver.url)
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 1}, run_id="r")
                await until(lambda: len(receiver.got) >= 2)
            assert receiver.got[1].at - receiver.got[0].at >= 1.9

    asyncio.run(live())


@pytest.mark.req("OUT-2", "OUT-3")
def test_a_filtered_subscriber_can_prove_that_it_missed_no_event(url: str) -> None:
    """`outlast-previous` names the previous event that was sent to it, whatever lies between."""

    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            await ops.start_run("rounds", {"left": 3}, run_id="before")
            await ops.webhooks.add(receiver.url, types=["dev.outlast.workflow.*"], workflows=["rounds"])
            await ops.webhooks.add(receiver.url, workflows=["other"])
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 5}, run_id="r")

                async def delivered() -> bool:
                    ends = [got for got in receiver.got if got.event["type"].endswith("completed")]
                    return len(ends) == 2

                await until(delivered)
            mine = [got for got in receiver.got if got.place[0] == "r"]
            wanted = [e.seq for e in await history(ops.store, "r") if e.type.startswith("dev.outlast.workflow.")]
            assert [got.place[1] for got in mine] == wanted
            assert [int(got.headers["outlast-previous"]) for got in mine] == [0, *wanted[:-1]]
            early = [got for got in receiver.got if got.place[0] == "before"]
            assert early[0].place[1] > 1 and early[0].headers["outlast-previous"] == "0", "it begins with now"

    asyncio.run(live())


@pytest.mark.req("OUT-2")
def test_from_the_start_and_rotation(url: str) -> None:
    async def live() -> None:
        async with a_store(url) as ops, Receiver().listening() as receiver:
            async with working(ops.store):
                await ops.start_run("rounds", {"left": 3}, run_id="old")

                async def over() -> bool:
                    return bool((await ops.rows.run("old")).ended_at)

                await until(over)
            made = await ops.webhooks.add(receiver.url, from_start=True)
            rotated = await ops.webhooks.rotate(made.webhook)
            async with dispatching(ops.store):

                async def delivered() -> bool:
                    return await all_delivered(ops, receiver, "old")

                await until(delivered)
            for got in receiver.got:
                assert got.verified(made.secret) == got.verified(rotated.secret)
                assert len(got.headers["webhook-signature"].split()) == 2
            test = await ops.webhooks.test(made.webhook)
            assert (test.code, test.error) == (204, "")
            assert receiver.got[-1].verified(rotated.secret)["type"] == "dev.outlast.webhook.test"

    asyncio.run(live())

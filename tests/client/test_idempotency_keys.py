"""Keys of acts, the same over a store and over a service: a repetition does nothing, another content is refused."""

from collections import Counter
from typing import Any

import pytest

import outlast
from outlast import Client
from outlast.clocks import new_id
from outlast.core.approvals import Actor
from outlast.core.durations import SECRET_KEPT
from outlast.core.rows.outbox_rows import SUBSCRIPTION, Subscription
from outlast.core.rows.run_rows import MESSAGE, Message
from outlast.core.webhooks.deliveries import secrets_of
from outlast.errors import BadRequest, Conflict, Uncertain
from outlast.runtime.operations import Operations
from tests.client.conftest import Place

URL = "https://93.184.215.14/hooks"
TENANT = "default"


async def messages(place: Place, run: str) -> list[Message]:
    """Return the inbox of a run."""
    async with outlast.connect(place.store) as client:
        assert isinstance(client, Operations)
        return list(await client.store.rows(MESSAGE, (TENANT, run)))


async def subscription(place: Place, webhook: str) -> Subscription:
    async with outlast.connect(place.store) as client:
        assert isinstance(client, Operations)
        row = await client.store.load(SUBSCRIPTION, (TENANT, webhook))
    assert row is not None
    return row


async def waiting(client: Client) -> str:
    """Return the id of a run that waits for a signal."""
    run = (await client.start("order", {"supplier": new_id("s")})).id

    async def waits() -> bool | None:
        return True if (await client.run(run)).waiting_for else None

    assert await client.until(waits, within_s=60)
    return run


async def asked(client: Client) -> str:
    """Return the id of a pending approval."""
    run = await waiting(client)
    await client.signal(run, "offer", {"cents": 900})

    async def found() -> str | None:
        return next((each.approval for each in (await client.approvals(run=run)).approvals), None)

    approval = await client.until(found, within_s=60)
    assert approval is not None
    return approval


@pytest.mark.req("RUN-10")
def test_a_raise_under_one_key_is_added_once(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await waiting(client)
        for _ in range(3):
            await client.raise_budget(run, calls=2, money="0.5", reason="more", idempotency_key="raise-1")
        with pytest.raises(Conflict, match="used for another request"):
            await client.raise_budget(run, calls=3, money="0.5", reason="more", idempotency_key="raise-1")
        other = await waiting(client)
        with pytest.raises(Conflict, match="used for another request"):
            await client.raise_budget(other, calls=2, money="0.5", reason="more", idempotency_key="raise-1")
        await client.raise_budget(run, calls=2, money="0.5", reason="more", idempotency_key="raise-2")
        assert [each.kind for each in await messages(place, run)].count("raise") == 2
        assert not await messages(place, other)

    place.play(test)


@pytest.mark.req("RUN-4")
def test_a_webhook_and_a_notification_are_added_once(place: Place) -> None:
    async def test(client: Client) -> None:
        before = {each.webhook for each in await client.webhooks.list()}
        made = await client.webhooks.add(
            URL, types=["dev.outlast.run.*"], headers={"X-A": "b"}, idempotency_key="add-1"
        )
        with pytest.raises(Uncertain, match="rotate once more to see a secret") as lost:
            await client.webhooks.add(URL, types=["dev.outlast.run.*"], headers={"X-A": "b"}, idempotency_key="add-1")
        assert made.webhook in str(lost.value) and made.secret not in str(lost.value)
        for more in ({"url": f"{URL}/2"}, {"headers": {"X-A": "c"}}):
            given: dict[str, Any] = {"url": URL, "types": ["dev.outlast.run.*"], "headers": {"X-A": "b"}, **more}
            with pytest.raises(Conflict, match="used for another request"):
                await client.webhooks.add(given.pop("url"), **given, idempotency_key="add-1")
        told = [
            await client.webhooks.notify("ntfys://1.1.1.1/topic", role="buyer", idempotency_key="tell-1")
            for _ in range(2)
        ]
        assert told[0].webhook == told[1].webhook
        after = {each.webhook for each in await client.webhooks.list()}
        assert after - before == {made.webhook, told[0].webhook}

    place.play(test)


@pytest.mark.req("OUT-3")
def test_a_repeated_rotation_finds_its_own_and_leaves_the_older_secret_its_time(place: Place) -> None:
    async def test(client: Client) -> None:
        made = await client.webhooks.add(URL)
        with_a_lost_answer = await client.webhooks.rotate(made.webhook, idempotency_key="turn-1")
        for _ in range(2):
            with pytest.raises(Uncertain, match="rotate once more to see a secret"):
                await client.webhooks.rotate(made.webhook, idempotency_key="turn-1")
        row = await subscription(place, made.webhook)
        assert row.version == with_a_lost_answer.version, "nothing was rotated again"
        seen = await client.webhooks.rotate(made.webhook, idempotency_key="turn-2")
        assert seen.secret not in (made.secret, with_a_lost_answer.secret)
        again = await subscription(place, made.webhook)
        signing = secrets_of(again, row.former_until - 1)
        assert signing == (seen.secret, with_a_lost_answer.secret, made.secret), "that of the receiver still signs"
        assert secrets_of(again, row.former_until) == signing[:2] and SECRET_KEPT > 0

    place.play(test)


@pytest.mark.req("RUN-4")
def test_the_key_of_another_caller_or_method_is_another_key(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await waiting(client)
        async with outlast.connect(place.store) as here:
            assert isinstance(here, Operations)
            for name in ("local:ana", "local:bob"):
                one = Operations(here.store, tenant=TENANT, actor=Actor(name), workflows={})
                for _ in range(2):
                    await one.raise_budget(run, calls=1, reason="more", idempotency_key=f"shared-{run}")
            await one.cancel(run, reason="no use", idempotency_key=f"shared-{run}")  # the last: it ends the run
        kinds = Counter((each.kind, each.actor) for each in await messages(place, run))
        assert kinds == {("raise", "local:ana"): 1, ("raise", "local:bob"): 1, ("cancel", "local:bob"): 1}

    place.play(test)


@pytest.mark.req("GATE-5")
def test_an_own_decision_answers_as_the_first_time_under_its_key_only(place: Place) -> None:
    async def test(client: Client) -> None:
        approval = await asked(client)
        first = await client.approve(approval, reason="fair", idempotency_key=f"yes-{approval}")
        again = await client.approve(
            approval, reason="fair", version=first.version - 1, idempotency_key=f"yes-{approval}"
        )
        assert (again.status, again.decided_by, again.reason) == (first.status, first.decided_by, "fair")
        for key in ("", "another"):
            with pytest.raises(Conflict):
                await client.approve(approval, reason="fair", idempotency_key=key)
        with pytest.raises(Conflict, match="used for another request"):
            await client.reject(approval, reason="fair", idempotency_key=f"yes-{approval}")

    place.play(test)


@pytest.mark.req("RUN-9")
def test_an_own_cancel_answers_as_the_first_time_under_its_key_only(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await waiting(client)
        await client.cancel(run, reason="no use", idempotency_key=f"stop-{run}")
        assert await client.ended(run, within_s=60)
        await client.cancel(run, reason="no use", idempotency_key=f"stop-{run}")
        with pytest.raises(Conflict):
            await client.cancel(run, reason="no use")
        assert [each.kind for each in await messages(place, run)].count("cancel") == 1

    place.play(test)


@pytest.mark.req("RUN-9")
def test_the_cancel_of_a_handle_takes_a_key(place: Place) -> None:
    async def test(client: Client) -> None:
        run = client.get(await waiting(client))
        await run.cancel("no use", idempotency_key=f"stop-{run.id}")
        assert await client.ended(run.id, within_s=60)
        await run.cancel("no use", idempotency_key=f"stop-{run.id}")
        with pytest.raises(Conflict, match="used for another request"):
            await run.cancel("another reason", idempotency_key=f"stop-{run.id}")
        assert [each.kind for each in await messages(place, run.id)].count("cancel") == 1

    place.play(test)


@pytest.mark.parametrize("key", ["a b", "ä", "x" * 256, "\n"])
def test_a_key_that_no_header_can_hold_is_refused_before_the_act(place: Place, key: str) -> None:
    async def test(client: Client) -> None:
        run = await waiting(client)
        with pytest.raises(BadRequest, match="cannot be used"):
            await client.cancel(run, reason="no", idempotency_key=key)
        assert not await messages(place, run)

    place.play(test)

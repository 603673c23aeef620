"""Messages to approvers: one for each approval, one before its deadline, one after it; none after a decision."""

import asyncio
from pathlib import Path

import pytest

from outlast.core.events import EventType
from outlast.core.rows.outbox_rows import CURSOR, SUBSCRIPTION
from outlast.errors import Conflict, InvalidInput
from outlast.runtime import webhooks
from outlast.runtime.operations import Operations
from outlast.upkeep.fsck import Fsck
from outlast.upkeep.whole_store import examine
from tests.outbox.approvers import (
    ASKING,
    PAGE,
    MailServer,
    approvers,
    message,
    ntfy,
    pass_time,
    pending,
    rows_of,
    until_told,
)
from tests.outbox.helpers import TENANT, Receiver, answer, dispatching, history, settled, until, working

pytestmark = pytest.mark.req("OUT-2")
ON_EVERY_STORE = pytest.mark.parametrize("url", ["sqlite", "postgres", "dynamodb"], indirect=True)


@ON_EVERY_STORE
def test_a_role_is_told_of_its_approvals_and_no_other(url: str) -> None:
    async def live() -> None:
        async with (
            approvers(url) as ops,
            Receiver(answer(200)).listening() as mine,
            Receiver(answer(200)).listening() as other,
        ):
            finance = await ops.webhooks.notify(ntfy(mine), role="finance", name="finance")
            await ops.webhooks.notify(ntfy(other), role="legal")
            async with working(ops.store, ASKING), dispatching(ops.store, public_url=PAGE):
                await ops.start_run("asking", {}, run_id="r")
                asked = await pending(ops.store)
                await until_told(
                    ops.store, finance.webhook, f"delivered asked:{asked.id}", f"scheduled reminder:{asked.id}"
                )
                (got,) = mine.got
                said = message(got)
                assert said["title"] == "Approval: Award to Acme GmbH, €184,200"
                first, link, key = [line for line in said["message"].splitlines() if line]
                assert first.startswith("Award to Acme GmbH, €184,200: waits for finance until 20")
                assert first.endswith(" UTC, 96h left. Without a decision nothing is approved.")
                assert (link, key) == (f"{PAGE}/ui/approvals/{asked.id}", f"(asked:{asked.id})")
                assert "acme" not in first, "arguments stay on the page"
            assert other.got == []
            scheduled = next(row for row in await rows_of(ops.store, finance.webhook) if row.status == "scheduled")
            due = ops.store.mapping().business(scheduled.due_at)
            assert due == asked.within_until - (asked.within_until - asked.asked_at) // 4
            view = await ops.webhooks.get(finance.webhook)
            assert (view.audience, view.behind, view.owed) == ("role:finance", 0, 0)
            assert view.url == f"ntfy://127.0.0.1:{mine.port}/…"
            (shown,) = [d for d in (await ops.webhooks.deliveries()).deliveries if d.status == "scheduled"]
            assert shown.delivery.endswith("r") and shown.next_at is not None
            with pytest.raises(Conflict, match="not due yet"):
                await ops.webhooks.redeliver(shown.delivery)
            assert (await Fsck(ops.store).look()).findings == ()
            assert not [each for each in await examine(ops) if each.what == "webhooks" and each.fix]

    asyncio.run(live())


@ON_EVERY_STORE
def test_a_reminder_survives_restarts_and_an_escalation_follows(url: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(200)).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), every=True)
            async with working(ops.store, ASKING):
                async with dispatching(ops.store):
                    await ops.start_run("asking", {}, run_id="r")
                    asked = (await pending(ops.store)).id
                    await until_told(ops.store, made.webhook, f"delivered asked:{asked}", f"scheduled reminder:{asked}")
                await pass_time(ops.store, 73)
                async with dispatching(ops.store):
                    told = [f"delivered asked:{asked}", f"delivered reminder:{asked}"]
                    await until_told(ops.store, made.webhook, *told)
                await pass_time(ops.store, 24)
                async with dispatching(ops.store):
                    await until_told(ops.store, made.webhook, *told, f"delivered escalated:{asked}")
                    await until(lambda: settled(ops, made.webhook))
            titles = [message(got)["title"].partition(":")[0] for got in receiver.got]
            assert titles == ["Approval", "Reminder", "Not decided in time"]
            assert f"outlast approvals show {asked}" in message(receiver.got[1])["message"], "no public address is set"
            assert (await Fsck(ops.store).look()).findings == ()

    asyncio.run(live())


async def has_ended(ops: Operations) -> bool:
    return bool((await ops.rows.run("r")).ended_at)


def test_no_reminder_follows_a_decision(url: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(200)).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance")
            async with working(ops.store, ASKING), dispatching(ops.store):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, f"delivered asked:{asked}", f"scheduled reminder:{asked}")
                await ops.approve(asked, reason="under budget")
                await until(lambda: has_ended(ops))
            await pass_time(ops.store, 95)
            async with dispatching(ops.store):
                await until_told(ops.store, made.webhook, f"delivered asked:{asked}", f"not_needed reminder:{asked}")
            assert len(receiver.got) == 1
            (row,) = [row for row in await rows_of(ops.store, made.webhook) if row.status == "not_needed"]
            # The run has ended without the approved call, so its approval was withdrawn.
            assert row.error == f"not sent: {asked} is withdrawn"

    asyncio.run(live())


def test_nothing_is_said_of_what_was_decided_while_the_dispatcher_was_away(url: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(200)).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance")
            async with working(ops.store, ASKING):
                await ops.start_run("asking", {}, run_id="r")
                await ops.approve((await pending(ops.store)).id, reason="seen on the page")
                await until(lambda: has_ended(ops))
            async with dispatching(ops.store):
                await until(lambda: settled(ops, made.webhook))
            assert receiver.got == [] and await rows_of(ops.store, made.webhook) == []

    asyncio.run(live())


def test_after_a_reassignment_the_new_approvers_are_told_and_the_former_ones_not_reminded(url: str) -> None:
    async def live() -> None:
        async with (
            approvers(url) as ops,
            Receiver(answer(200)).listening() as first,
            Receiver(answer(200)).listening() as second,
        ):
            finance = await ops.webhooks.notify(ntfy(first), role="finance")
            boss = await ops.webhooks.notify(ntfy(second), person="ana")
            async with working(ops.store, ASKING):
                async with dispatching(ops.store):
                    await ops.start_run("asking", {}, run_id="r")
                    asked = (await pending(ops.store)).id
                    await until_told(
                        ops.store, finance.webhook, f"delivered asked:{asked}", f"scheduled reminder:{asked}"
                    )
                    await ops.reassign(asked, "boss | person:ana", reason="on leave")
                    await until_told(ops.store, boss.webhook, f"delivered asked:{asked}", f"scheduled reminder:{asked}")
                await pass_time(ops.store, 73)
                async with dispatching(ops.store):
                    await until_told(
                        ops.store, finance.webhook, f"delivered asked:{asked}", f"not_needed reminder:{asked}"
                    )
                    await until_told(ops.store, boss.webhook, f"delivered asked:{asked}", f"delivered reminder:{asked}")
            assert (len(first.got), len(second.got)) == (1, 2), "the run parked twice, and sent no message twice"

    asyncio.run(live())


def test_a_run_that_parks_again_for_the_same_approval_repeats_no_message(url: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(200)).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance")
            async with working(ops.store, ASKING), dispatching(ops.store):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                told = (f"delivered asked:{asked}", f"scheduled reminder:{asked}")
                await until_told(ops.store, made.webhook, *told)
                await ops.reassign(asked, "finance | boss", reason="either may")

                async def parked_again() -> bool:
                    events = await history(ops.store, "r")
                    cursor = await ops.store.load(CURSOR, (TENANT, "r", made.webhook))
                    twice = sum(event.type == EventType.PARKED for event in events) == 2
                    return twice and cursor is not None and cursor.seq >= events[-1].seq and not cursor.owner

                await until(parked_again)
                await until_told(ops.store, made.webhook, *told)
            assert len(receiver.got) == 1

    asyncio.run(live())


@pytest.mark.parametrize(
    ("kinds", "statuses"),
    [(["asked"], {"delivered asked"}), (["reminder"], {"scheduled reminder"}), (["escalated"], set())],
)
def test_a_subscription_names_the_messages_that_it_wants(url: str, kinds: list[str], statuses: set[str]) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(200)).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance", kinds=kinds)
            async with working(ops.store, ASKING), dispatching(ops.store):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, *(f"{status}:{asked}" for status in statuses))
            assert len(receiver.got) == ("asked" in kinds)

    asyncio.run(live())


@ON_EVERY_STORE
def test_a_receiver_that_fails_is_asked_again_and_its_approval_is_announced_once(url: str, soon: None) -> None:
    async def live() -> None:
        script = [answer(500), answer(503), answer(429)]
        async with approvers(url) as ops, Receiver(answer(502), script=script).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance", kinds=["asked"])
            async with working(ops.store, ASKING):
                async with dispatching(ops.store):
                    await ops.start_run("asking", {}, run_id="r")
                    asked = (await pending(ops.store)).id
                    await until(lambda: len(receiver.got) > 3)
                (row,) = await rows_of(ops.store, made.webhook)
                assert row.status == "owed" and row.attempts == len(receiver.got)
                receiver.behaviour = answer(200)
                async with dispatching(ops.store):
                    await until_told(ops.store, made.webhook, f"delivered asked:{asked}")
            (row,) = await rows_of(ops.store, made.webhook)
            assert row.attempts == len(receiver.got) > 4, "the next dispatcher went on"
            assert len({message(got)["title"] for got in receiver.got}) == 1

    asyncio.run(live())


def test_a_message_that_is_refused_is_given_up_and_sent_again_on_request(url: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(200), script=[answer(404)]).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance")
            async with working(ops.store, ASKING), dispatching(ops.store):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, f"dead asked:{asked}", f"scheduled reminder:{asked}")
                (item,) = await ops.webhooks.attention()
                assert item.webhook == made.webhook and "404" in item.detail
                assert "secret-topic" not in item.detail and "hidden" not in item.detail
                assert await ops.webhooks.redeliver(made.webhook) == 1
                await until_told(ops.store, made.webhook, f"delivered asked:{asked}", f"scheduled reminder:{asked}")
            assert (await Fsck(ops.store).look()).findings == ()

    asyncio.run(live())


def test_a_silent_receiver_delays_neither_other_subscriptions_nor_the_end(url: str, quick: None) -> None:

    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    async def live() -> None:
        async with (
            approvers(url) as ops,
            Receiver(silent).listening() as bad,
            Receiver(answer(200)).listening() as good,
        ):
            one = await ops.webhooks.notify(ntfy(bad), role="finance", kinds=["asked"])
            two = await ops.webhooks.notify(ntfy(good), role="finance", kinds=["asked"])
            async with working(ops.store, ASKING), dispatching(ops.store):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, two.webhook, f"delivered asked:{asked}")
                await until_told(ops.store, one.webhook, f"owed asked:{asked}")
            (row,) = await rows_of(ops.store, one.webhook)
            assert row.due_at > 0 and row.error

    asyncio.run(live())


def test_mail_is_plain_text_with_the_key_in_a_header(url: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops, MailServer().listening() as server:
            made = await ops.webhooks.notify(server.address, role="finance", kinds=["asked"])
            assert made.url == f"mailto://127.0.0.1:{server.port}/…"
            async with working(ops.store, ASKING), dispatching(ops.store, public_url=PAGE):
                hostile = "Pay\r\nBcc: evil@x.example\n<b>now</b> <!channel> @here http://evil.example \u202egnp.exe"
                await ops.start_run("asking", {"summary": hostile}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, f"delivered asked:{asked}")
            (mail,) = server.mails
            assert server.recipients == ["ana@example.com"]
            assert mail.get_content_type() == "text/plain" and mail["Bcc"] is None
            assert mail["X-Outlast-Notification"] == f"asked:{asked}"
            text = mail["Subject"] + mail.get_content()
            assert f"{PAGE}/ui/approvals/{asked}" in text
            assert not [sign for sign in ("<", "@", "\u202e", "http://") if sign in text]

    asyncio.run(live())


def test_a_mailbox_that_does_not_exist_is_given_up(url: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops, MailServer(refuse="550 no such user").listening() as server:
            made = await ops.webhooks.notify(server.address, role="finance", kinds=["asked"])
            async with working(ops.store, ASKING), dispatching(ops.store):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, f"dead asked:{asked}")
            (row,) = await rows_of(ops.store, made.webhook)
            assert "550" in row.error and "ana@example.com" not in row.error

    asyncio.run(live())


def test_a_test_message_is_about_no_approval(url: str) -> None:
    async def live() -> None:
        async with (
            approvers(url) as ops,
            Receiver(answer(200), script=[answer(200), answer(500)]).listening() as receiver,
        ):
            made = await ops.webhooks.notify(ntfy(receiver), role="finance")
            assert (await ops.webhooks.test(made.webhook)).accepted
            assert "nothing to decide" in message(receiver.got[0])["message"]
            refused = await ops.webhooks.test(made.webhook)
            assert (refused.accepted, refused.code) == (False, 500)
            with pytest.raises(Conflict, match="no signing secret"):
                await ops.webhooks.rotate(made.webhook)
            await ops.webhooks.remove(made.webhook)
            row = await ops.store.load(SUBSCRIPTION, ("acme", made.webhook))
            assert row is not None and row.secret_text == ""

    asyncio.run(live())


def test_no_view_shows_an_address(url: str) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(500, b"hidden-password")).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance", kinds=["asked"])
            async with working(ops.store, ASKING), dispatching(ops.store):
                await ops.start_run("asking", {}, run_id="r")
                asked = (await pending(ops.store)).id
                await until_told(ops.store, made.webhook, f"owed asked:{asked}")
            shown = repr((
                made, await ops.webhooks.list(), await ops.webhooks.rows(), (await ops.webhooks.deliveries()),
                await ops.webhooks.test(made.webhook),
            ))  # fmt: skip
            assert "hidden" not in shown and "4711" not in shown

    asyncio.run(live())


def test_exactly_one_audience_is_named(url: str, tmp_path: Path) -> None:
    async def live() -> None:
        async with approvers(url) as ops:
            for given in ({}, {"role": "a", "person": "b"}, {"role": "a", "every": True}):
                with pytest.raises(InvalidInput, match="one audience"):
                    await ops.webhooks.notify("ntfys://ntfy.sh/topic", **given)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput):
                await ops.webhooks.notify("ntfys://ntfy.sh/topic", role="two words")
            with pytest.raises(InvalidInput, match="kinds"):
                await ops.webhooks.notify("ntfys://ntfy.sh/topic", role="a", kinds=["decided"])

    asyncio.run(live())


def test_the_missing_extra_is_named_for_mail_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from outlast.outbox import channel_address

    monkeypatch.setattr(channel_address, "find_spec", lambda name: None)

    async def live() -> None:
        async with approvers(url) as ops, Receiver(answer(200)).listening() as receiver:
            with pytest.raises(InvalidInput, match=r"pip install 'outlast\[notify\]'"):
                await ops.webhooks.notify("mailtos://smtp.example.com?from=a@b.example", role="finance")
            assert (await ops.webhooks.notify(ntfy(receiver), role="finance")).status == "active"

    asyncio.run(live())
    assert webhooks.load_sender()

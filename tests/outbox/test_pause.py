"""A receiver that asks to wait is left alone, and the messages that gather during a pause become one."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from outlast.core.durations import DAY, DELIVERY_PAUSE_CEILING, MINUTE, SECOND
from outlast.core.webhooks.approval_notices import ASKED, REMINDER, Notice
from outlast.core.webhooks.deliveries import LATER, Attempt, pause_after
from outlast.outbox.dispatcher import WIDTH
from outlast.outbox.receiver_pause import ReceiverPause
from outlast.runtime.operations import Operations
from tests.conformance.subject import HandClock
from tests.core.test_approval_notices import approval
from tests.outbox.approvers import ASKING, PAGE, MailServer, approvers, message, ntfy, pending, rows_of, until_told
from tests.outbox.helpers import Receiver, answer, dispatching, settled, until, working

pytestmark = pytest.mark.req("OUT-2")
RUNS = WIDTH + 4
ANNOUNCED = ("delivered asked", "scheduled reminder")
LATER_ANSWER = answer(429, retry_after="1")


async def asked(ops: Operations) -> dict[str, str]:
    """Start runs that ask, and return their approvals."""
    for n in range(RUNS):
        await ops.start_run("asking", {"summary": f"Award {n}"}, run_id=f"r{n}")
    return {f"r{n}": (await pending(ops.store, f"r{n}")).id for n in range(RUNS)}


def probes(at: Sequence[float]) -> int:
    """Return how many requests came alone, after a pause."""
    return sum(later - earlier >= 0.95 for earlier, later in pairwise(at))


@pytest.mark.parametrize("kind", ["messages", "events"])
def test_a_receiver_that_always_asks_to_wait_is_asked_by_one_request_after_each_pause(
    url: str, kind: str, soon: None
) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(LATER_ANSWER).listening() as receiver:
            async with working(ops.store, ASKING):
                if kind == "messages":
                    await ops.webhooks.notify(ntfy(receiver), role="finance", kinds=["asked"])
                else:
                    await ops.webhooks.add(receiver.url)
                await asked(ops)
            async with dispatching(ops.store):
                await until(lambda: len(receiver.got) > WIDTH and probes([got.at for got in receiver.got]) >= 3)
            at = [got.at for got in receiver.got]
            assert all(later - earlier >= 0.95 for earlier, later in pairwise(at[WIDTH - 1 :])), at

    asyncio.run(live())


@pytest.mark.parametrize("service", ["ntfy", "mail"])
def test_the_messages_that_gather_during_a_pause_become_one(url: str, service: str, soon: None) -> None:
    async def live() -> None:
        async with AsyncExitStack() as stack:
            ops = await stack.enter_async_context(approvers(url))
            receiver = await stack.enter_async_context(Receiver(LATER_ANSWER).listening())
            server = await stack.enter_async_context(MailServer(replies={"MAIL": ["450 later"] * 100}).listening())
            address = ntfy(receiver) if service == "ntfy" else server.address

            def times() -> list[float]:
                return server.at or [got.at for got in receiver.got]

            made = await ops.webhooks.notify(address, role="finance")
            other = await ops.webhooks.notify(address, role="legal")
            async with working(ops.store, ASKING):
                ids = await asked(ops)
                async with dispatching(ops.store, public_url=PAGE):
                    await until(lambda: probes(times()) >= 1)
                    refused = len(times())
                    receiver.behaviour = answer(200)
                    server.replies.clear()
                    told_of = [f"{kind}:{each}" for each in ids.values() for kind in ANNOUNCED]
                    await until_told(ops.store, made.webhook, *told_of)
                    sent = times()[refused:]
                    assert len(sent) <= 2, "the request that was under way, and one message for all"
                    texts = [mail.get_content() for mail in server.mails] or [message(receiver.got[-1])["message"]]
                    said = f"{RUNS - 1} more items wait: {PAGE}/ui/approvals"
                    assert [line for text in texts for line in text.splitlines() if "more items" in line] == [said]
                    told = [row for row in await rows_of(ops.store, made.webhook) if "earlier message" in row.answer]
                    assert len(told) == RUNS - 1 and await rows_of(ops.store, other.webhook) == []
                    # One that was told of with the others is sent by itself if a person requests it.
                    page = (await ops.webhooks.deliveries(made.webhook)).deliveries
                    again = next(each for each in page if each.answer and each.status == "delivered")
                    await ops.webhooks.redeliver(again.delivery)
                    await until(lambda: len(times()) > refused + len(sent))

    asyncio.run(live())


def test_a_message_that_is_decided_meanwhile_is_not_counted(url: str, soon: None) -> None:
    async def live() -> None:
        async with approvers(url) as ops, Receiver(LATER_ANSWER).listening() as receiver:
            made = await ops.webhooks.notify(ntfy(receiver), role="finance", kinds=["asked"])
            async with working(ops.store, ASKING):
                ids = await asked(ops)
                async with dispatching(ops.store):
                    await until(lambda: probes([got.at for got in receiver.got]) >= 1)
                    for each in list(ids.values())[2:]:
                        await ops.approve(each, reason="seen on the page")
                    receiver.behaviour = answer(200)
                    await until(lambda: settled(ops, made.webhook))
            bodies = [message(got)["message"] for got in receiver.got if "1 more item waits" in message(got)["message"]]
            assert len(bodies) == 1 and "1 more item waits: outlast approvals ls" in bodies[0]

    asyncio.run(live())


# --- decisions -------------------------------------------------------------------------------
def attempt(code: int, retry_after_ms: int = 0) -> Attempt:
    return Attempt(code, "", "" if code == 200 else f"answered {code}", 0, retry_after_ms=retry_after_ms)


def test_a_pause_is_as_long_as_was_asked_for_and_grows_if_it_is_asked_for_again() -> None:
    assert pause_after(attempt(429, 7 * MINUTE), 1, 0.5) == 7 * MINUTE
    grown = [pause_after(attempt(429, LATER), times, 0.99) for times in range(1, 12)]
    assert grown == sorted(grown) and LATER < grown[0] <= 5 * SECOND and grown[-1] <= DELIVERY_PAUSE_CEILING
    assert pause_after(attempt(429, 10 * DAY), 1, 0.5) == DAY


def test_what_was_under_way_when_a_pause_began_neither_ends_nor_lengthens_the_next_one() -> None:
    clock = HandClock()
    pause = ReceiverPause(clock, lambda: 0.0)
    for early in (attempt(200), attempt(500), attempt(0), attempt(404)):
        pause.note(early)
        assert not pause.left_ms and not pause.probing
    for _ in range(WIDTH):
        pause.note(attempt(429, 10 * SECOND))
    pause.note(attempt(200))
    assert pause.left_ms == 10 * SECOND and pause.probing
    clock.time += 10 * SECOND
    assert not pause.left_ms and pause.probing
    pause.note(attempt(0))
    assert pause.probing, "no answer"
    pause.note(attempt(200))
    assert not pause.probing


def test_a_message_takes_the_place_of_each_that_it_counted_once() -> None:
    pause = ReceiverPause(HandClock(), lambda: 0.0)
    one, two = (Notice(ASKED, (approval(id=each),)) for each in ("ap_1", "ap_2"))
    assert not pause.settles(one)
    pause.sum_up(one.ids | two.ids)
    assert pause.not_summed(one.ids | {(ASKED, "ap_3")}) == {(ASKED, "ap_3")}
    assert not pause.settles(Notice(ASKED, (*one.approvals, approval(id="ap_3")))), "one of it was not told"
    assert not pause.settles(one._replace(kind=REMINDER))
    assert pause.settles(one) and not pause.settles(one) and pause.settles(two)

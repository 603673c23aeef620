"""The moves of subscriptions, cursors and deliveries, each fired, and what they promise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.commit import Instant
from outlast.core.durations import (
    DELIVERY_ATTEMPTS_MAX,
    DELIVERY_BACKOFF_CEILING,
    DELIVERY_CLAIM,
    DELIVERY_FIRST_WAIT,
    DELIVERY_RETRY_AFTER_MAX,
)
from outlast.core.machine import SWEPT, DeliveryStatus, SubscriptionStatus
from outlast.core.rows.outbox_rows import Cursor, Delivery, Subscription
from outlast.core.rows.run_rows import Event
from outlast.core.webhooks import deliveries
from outlast.core.webhooks.approval_notices import ASKED, REMINDER, Notice
from outlast.core.webhooks.deliveries import ANY, Attempt
from outlast.core.webhooks.webhook_details import SubscriptionTerms
from outlast.errors import IllegalMove

T0 = 1_700_000_000_000
NOW = Instant(T0, T0, 1)
NO = Attempt(500, "oops", "answered 500", 3)
YES = Attempt(204, "", "", 3)
EVENT = Event("t", "r", 3, "run.parked", T0, "n", 1, 2, 1, "w", "", "", b"", "f" * 64, None)


def subscription(**given: object) -> Subscription:
    """Return an active subscription with these changes."""
    terms = SubscriptionTerms("https://example.com/")
    row = deliveries.subscribe("t", "wh_1", terms, secret="whsec_a", since=T0, by="ann", now=NOW)
    return row._replace(**given)  # type: ignore[arg-type]


def every_move() -> None:
    """Each verb of both machines, from each of its sources."""
    row = subscription()
    assert deliveries.rotate(row, "whsec_b", 1_000, by="ann", now=NOW).status is SubscriptionStatus.ACTIVE
    off = deliveries.disable(row, "gone", by="ann", now=NOW)
    assert deliveries.is_active(row) and not deliveries.is_active(off)
    on = deliveries.enable(off, by="ann", now=NOW)
    assert (on.status, on.swept, row.swept) == (SubscriptionStatus.ACTIVE, "", SWEPT)
    for each in (row, off):
        assert deliveries.remove(each, by="ann", now=NOW).secret_text == ""
    first = deliveries.send("wh_1", EVENT, None, NO, 0.5, NOW)
    again = deliveries.send("wh_1", EVENT, first, NO, 0.5, NOW)
    assert (first.status, first.attempts, again.attempts, again.version) == (DeliveryStatus.OWED, 1, 2, 2)
    closed = deliveries.close(again, EVENT, YES, NOW)
    dead = deliveries.dead_letter("wh_1", EVENT, again, NO, NOW)
    assert (closed.status, dead.status) == (DeliveryStatus.DELIVERED, DeliveryStatus.DEAD)
    assert deliveries.dead_letter("wh_1", EVENT, None, NO, NOW).attempts == 1
    for before in (None, first, closed, dead):
        asked = deliveries.redeliver("wh_1", EVENT, before, by="ann", now=NOW)
        assert (asked.status, asked.attempts, asked.due_at, asked.by) == (DeliveryStatus.OWED, 0, T0, "ann")
        assert asked.event == deliveries.webhook_id(EVENT)
    every_move_of_a_message()


def every_move_of_a_message() -> None:
    """Each verb of a message to approvers, which has a row from its first attempt on."""
    notice = Notice(ASKED, ())
    new = deliveries.message_delivery("wh_1", EVENT, notice, NOW)
    told = deliveries.close(new, EVENT, YES, NOW)
    assert (told.version, told.status, told.type) == (1, DeliveryStatus.DELIVERED, ASKED)
    later = deliveries.schedule(told, notice, T0 + 5, NOW)
    assert (later.status, later.type, later.attempts, later.due_at) == ("scheduled", REMINDER, 0, T0 + 5)
    assert deliveries.event_seq(later) == EVENT.seq and deliveries.delivery_id(later) == "wh_1:r:3r"
    assert deliveries.delivery_place("wh_1:r:3r") == ("wh_1", "r", later.seq)
    assert deliveries.postpone(later, T0 + 9).due_at == T0 + 9
    assert deliveries.send("wh_1", EVENT, later, NO, 0.5, NOW).status is DeliveryStatus.OWED
    assert deliveries.close(later, EVENT, YES, NOW).status is DeliveryStatus.DELIVERED
    assert deliveries.dead_letter("wh_1", EVENT, later, NO, NOW).status is DeliveryStatus.DEAD
    spared = deliveries.spare(later, "decided", NOW)
    assert (spared.status, spared.due_at, spared.error) == (DeliveryStatus.NOT_NEEDED, 0, "decided")
    owed = deliveries.redeliver("wh_1", EVENT, spared, by="ann", now=NOW)
    assert deliveries.spare(owed, "decided", NOW).status is DeliveryStatus.NOT_NEEDED


@pytest.mark.req("OUT-2")
def test_every_move_leads_where_the_table_says() -> None:
    every_move()


@pytest.mark.req("OUT-2")
def test_a_transition_outside_the_table_is_refused() -> None:
    removed = deliveries.remove(subscription(), by="ann", now=NOW)
    with pytest.raises(IllegalMove):
        deliveries.enable(removed, by="ann", now=NOW)
    closed = deliveries.close(deliveries.send("wh_1", EVENT, None, NO, 0, NOW), EVENT, YES, NOW)
    with pytest.raises(IllegalMove):
        deliveries.dead_letter("wh_1", EVENT, closed, NO, NOW)


@pytest.mark.req("OUT-3")
def test_both_secrets_sign_until_the_old_one_is_over() -> None:
    row = deliveries.rotate(subscription(), "whsec_b", 1_000, by="ann", now=NOW)
    assert deliveries.secrets_of(row, T0 + 999) == ("whsec_b", "whsec_a")
    assert deliveries.secrets_of(row, T0 + 1_000) == ("whsec_b",)
    assert deliveries.rotate(subscription(), "whsec_b", 0, by="ann", now=NOW).former == ""


@pytest.mark.req("OUT-3")
def test_a_second_rotation_leaves_the_first_secret_its_time() -> None:
    """No receiver has the secret between them, because its answer was lost."""
    once = deliveries.rotate(subscription(), "whsec_b", 1_000, by="ann", now=NOW)
    twice = deliveries.rotate(once, "whsec_c", 2_000, by="ann", now=NOW._replace(real=T0 + 500))
    assert deliveries.secrets_of(twice, T0 + 999) == ("whsec_c", "whsec_b", "whsec_a")
    assert deliveries.secrets_of(twice, T0 + 1_000) == ("whsec_c", "whsec_b")
    assert deliveries.secrets_of(twice, T0 + 2_500) == ("whsec_c",)
    assert set(deliveries.secrets_in(twice)) == {"whsec_a", "whsec_b", "whsec_c"}, "none of them is shown"
    assert deliveries.shown(twice).former == ""
    leaked = deliveries.rotate(twice, "whsec_d", 0, by="ann", now=NOW._replace(real=T0 + 600))
    assert deliveries.secrets_of(leaked, T0 + 600) == ("whsec_d",)


def test_former_secrets_have_a_limit() -> None:
    row = subscription()
    for n in range(10):
        row = deliveries.rotate(row, f"whsec_{n}", 1_000, by="ann", now=NOW)
    assert deliveries.secrets_of(row, T0) == ("whsec_9", "whsec_8", "whsec_7", "whsec_6")


@pytest.mark.req("OUT-2")
@given(st.floats(0, 0.999), st.integers(0, 10**12))
def test_the_wait_grows_is_capped_and_heeds_the_receiver(chance: float, asked: int) -> None:
    before: Delivery | None = None
    for n in range(1, DELIVERY_ATTEMPTS_MAX + 1):
        attempt = NO._replace(retry_after_ms=asked)
        assert deliveries.is_over(before, attempt) == (n == DELIVERY_ATTEMPTS_MAX)
        before = deliveries.send("wh_1", EVENT, before, attempt, chance, NOW)
        wait = before.due_at - T0
        own = min(DELIVERY_FIRST_WAIT * 3 ** (n - 1), DELIVERY_BACKOFF_CEILING)
        assert max(own // 2, min(asked, DELIVERY_RETRY_AFTER_MAX)) <= wait
        assert wait <= max(own, min(asked, DELIVERY_RETRY_AFTER_MAX))
    assert deliveries.is_over(None, NO._replace(definite=True))


@pytest.mark.req("OUT-2")
@pytest.mark.parametrize(
    ("types", "type_", "wanted"),
    [
        ("", "dev.outlast.run.parked", True),
        ('["dev.outlast.run.*"]', "dev.outlast.run.parked", True),
        ('["dev.outlast.run.*"]', "dev.outlast.workflow.started", False),
        ('["dev.outlast.run.park"]', "dev.outlast.run.parked", False),
        ('["dev.outlast.run.park"]', ANY, True),
    ],
)
def test_the_filters_select_events(types: str, type_: str, wanted: bool) -> None:
    assert deliveries.wants_type(subscription(types_text=types), type_) is wanted
    assert deliveries.wants_workflow(subscription(types_text=types), "w")
    assert not deliveries.wants_workflow(subscription(workflows_text='["other"]'), "w")


@pytest.mark.req("OUT-2")
@pytest.mark.req("REC-6")
def test_the_claim_of_a_cursor_ends_by_every_clock() -> None:
    free = deliveries.open_cursor(subscription(), "r", 0, 2, NOW)
    held = deliveries.hold(free, "d", NOW)
    assert deliveries.takeable_at(free, 4_000) == free.due_at
    assert deliveries.takeable_at(held, 4_000) == T0 + DELIVERY_CLAIM + 4_000


def test_a_cursor_is_due_exactly_while_it_owes() -> None:
    row = deliveries.open_cursor(subscription(), "r", 0, 2, NOW)
    held = deliveries.hold(row, "d", NOW)
    assert (held.epoch, held.owner) == (1, "d") and held.due_at is not None and held.due_at > T0
    more = deliveries.owe(held, 5, NOW)
    assert more is not None and (more.upto, more.due_at) == (5, held.due_at), "its holder continues"
    assert deliveries.owe(more, 5, NOW) is None
    idle = deliveries.let_go(held._replace(seq=2), NOW, again_at=None)
    assert (idle.owner, idle.due_at, idle.owed_since, idle.epoch) == ("", None, 0, 2)
    with pytest.raises(AssertionError):
        deliveries.let_go(held, NOW, again_at=None)
    woken = deliveries.owe(idle, 3, NOW)
    assert woken is not None and woken.due_at == woken.owed_since == T0
    later = deliveries.let_go(held._replace(seq=2, again=1), NOW, again_at=T0 + 9, scheduled=True)
    assert (later.due_at, later.owed_since) == (T0 + 9, T0 + 9), "a reminder is owed from its time on"
    early = deliveries.owe(later, 3, NOW)
    assert early is not None and early.due_at == early.owed_since == T0, "an event does not wait for a reminder"
    asked = deliveries.ask_again(idle, NOW)
    assert (asked.due_at, asked.again, asked.version, asked.owed_since) == (T0, 1, idle.version + 1, T0)
    taken = deliveries.ask_again(held._replace(owed_since=T0 - 5), NOW)
    assert (taken.due_at, taken.owed_since) == (held.due_at, T0 - 5), "its holder keeps it"
    assert isinstance(woken, Cursor)

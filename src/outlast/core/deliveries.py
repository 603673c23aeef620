"""The moves of subscriptions, cursors and deliveries: pure functions from rows to the rows that follow them."""

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from outlast.core.commit import Instant
from outlast.core.durations import (
    DELIVERY_ATTEMPTS_MAX,
    DELIVERY_BACKOFF_CEILING,
    DELIVERY_CLAIM,
    DELIVERY_FIRST_WAIT,
    DELIVERY_RETRY_AFTER_MAX,
    wait_before,
)
from outlast.core.limits import ANSWER_CHARS_MAX, TEXT_CHARS_MAX
from outlast.core.machine import SWEPT, DeliveryStatus, SubscriptionStatus, delivery_target, subscription_target
from outlast.core.rows import STORE, Cursor, Delivery, Event, Meta, Row, Subscription

SUBSCRIBED_TENANTS: Final = (STORE, "subscribed_tenants")
"""The meta row that lists the tenants whose events are noted as untold, since some subscription wants them."""
DISPATCHER_HEARTBEAT: Final = (STORE, "dispatcher_heartbeat")
"""The meta row in which dispatchers say that they live, and when, so that people are told where nobody sends."""
ANY: Final = ""  # Untold.type of a mark that says "look": it concerns every subscription
BACKOFF_FACTOR: Final = 3.0
GONE: Final = "it answered 410: it wants to hear no more"


class Attempt(NamedTuple):
    """How one attempt ended, as far as this side can tell."""

    code: int  # HTTP status, 0 = no answer
    answer: str  # the beginning of the body
    error: str  # '' = accepted
    took_ms: int
    retry_after_ms: int = 0  # what the receiver asked for
    definite: bool = False  # another attempt would be answered the same
    gone: bool = False  # 410: it wants to hear no more


# --- what is wanted ------------------------------------------------------------------------
def wants_type(subscription: Subscription, type_: str) -> bool:
    """Does it want events of this type? ANY: it may."""
    if not subscription.types or type_ == ANY:
        return True
    return any(
        type_.startswith(wanted[:-1]) if wanted.endswith("*") else type_ == wanted
        for wanted in json.loads(subscription.types)
    )


def wants_workflow(subscription: Subscription, workflow: str) -> bool:
    """Does it want events of runs of this workflow?"""
    return not subscription.workflows or workflow in json.loads(subscription.workflows)


def tenants_of(row: Row | None) -> frozenset[str]:
    """The tenants that OUTLETS lists."""
    assert row is None or isinstance(row, Meta)
    return frozenset() if row is None else frozenset(json.loads(row.value))


def subscribed_tenants_row(old: Row | None, tenants: Iterable[str]) -> Meta:
    """The row that follows OUTLETS' old one."""
    assert old is None or isinstance(old, Meta)
    return Meta(*SUBSCRIBED_TENANTS, 1 if old is None else old.version + 1, json.dumps(sorted(tenants)))


def sign_of(row: Row | None) -> tuple[str, int]:
    """Which dispatcher was the last to say that it lives, and when, real; ('', 0) where none ever did."""
    assert row is None or isinstance(row, Meta)
    if row is None:
        return "", 0
    name, at = json.loads(row.value)
    return str(name), int(at)


def sign(old: Row | None, dispatcher: str, now: Instant) -> Meta:
    """The row that follows SENDER's old one."""
    assert old is None or isinstance(old, Meta)
    return Meta(*DISPATCHER_HEARTBEAT, 1 if old is None else old.version + 1, json.dumps([dispatcher, now.real]))


# --- subscriptions -------------------------------------------------------------------------
def subscribe(
    tenant: str,
    subscription: str,
    *,
    url: str,
    secret: str,
    name: str,
    types: Iterable[str],
    workflows: Iterable[str],
    headers: Mapping[str, str],
    from_start: bool,
    since: int,
    by: str,
    now: Instant,
) -> Subscription:
    """A new one, which is told of everything that is there, or of what happens from `since` on.

    `since` is a business instant after the commit that makes it: whoever finds an event of then finds this row too.
    """
    wanted, flows = sorted(set(types)), sorted(set(workflows))
    return Subscription(
        tenant=tenant,
        subscription=subscription,
        version=1,
        status=subscription_target("subscribe", None),
        url=url,
        name=name,
        types=json.dumps(wanted) if wanted else "",
        workflows=json.dumps(flows) if flows else "",
        secret=_sealed(secret, headers),
        former="",
        former_until=0,
        since=0 if from_start else since,
        swept="" if from_start else SWEPT,
        why="",
        created_at=now.business,
        created_by=by,
        changed_at=now.business,
        changed_by=by,
    )


def _changed(row: Subscription, by: str, now: Instant) -> Subscription:
    return row._replace(version=row.version + 1, changed_at=now.business, changed_by=by)


def rotate(row: Subscription, secret: str, keep_ms: int, *, by: str, now: Instant) -> Subscription:
    """With a new secret; the old one signs too for `keep_ms`, and its headers stay."""
    status = subscription_target("rotate", row.status)
    until = now.real + keep_ms if keep_ms else 0
    changed = _changed(row, by, now)
    return changed._replace(
        status=status,
        secret=_sealed(secret, headers_of(row)),
        former=_key(row.secret) if keep_ms else "",
        former_until=until,
    )


def disable(row: Subscription, why: str, *, by: str, now: Instant) -> Subscription:
    """It is told nothing until it is enabled again; what it was told of stays known."""
    status = subscription_target("disable", row.status)
    return _changed(row, by, now)._replace(status=status, why=why[:TEXT_CHARS_MAX])


def enable(row: Subscription, *, by: str, now: Instant) -> Subscription:
    """It goes on where it was: the runs are looked through for what happened meanwhile."""
    status = subscription_target("enable", row.status)
    return _changed(row, by, now)._replace(status=status, why="", swept="")


def remove(row: Subscription, *, by: str, now: Instant) -> Subscription:
    """For ever, and its secrets with it."""
    status = subscription_target("remove", row.status)
    return _changed(row, by, now)._replace(status=status, secret="", former="", former_until=0)


def is_active(row: Subscription) -> bool:
    """Is it told of events?"""
    return row.status is SubscriptionStatus.ACTIVE


def secrets_of(row: Subscription, real: int) -> tuple[str, ...]:
    """What its deliveries are signed with now, the newest first."""
    key = _key(row.secret)
    return (key, row.former) if row.former and real < row.former_until else (key,)


def secrets_in(row: Subscription) -> tuple[str, ...]:
    """What must not be shown, but for its headers."""
    return tuple(each for each in (_key(row.secret), row.former) if each)


def headers_of(row: Subscription) -> dict[str, str]:
    """The headers of its own that go out with each delivery, by lower-case name."""
    _, _, text = row.secret.partition("\n")
    return dict(json.loads(text)) if text else {}


def shown(row: Subscription) -> Subscription:
    """As it may leave: without its secrets; of its headers the names."""
    return row._replace(secret=_sealed("", dict.fromkeys(headers_of(row), "")), former="")


def _sealed(key: str, headers: Mapping[str, str]) -> str:
    return f"{key}\n{json.dumps(dict(headers))}" if headers else key


def _key(secret: str) -> str:
    return secret.partition("\n")[0]


def swept(row: Subscription, run: str) -> Subscription:
    """Looked through up to this run; SWEPT: all of them."""
    return row._replace(version=row.version + 1, swept=run)


# --- cursors -------------------------------------------------------------------------------
def open_cursor(subscription: Subscription, run: str, start: int, upto: int, now: Instant) -> Cursor:
    """The first word of a run to a subscription: it owes the events after `start`."""
    return Cursor(
        tenant=subscription.tenant,
        run=run,
        subscription=subscription.subscription,
        version=1,
        epoch=0,
        owner="",
        due_at=now.real,
        seq=start,
        upto=upto,
        last=0,
        again=0,
        owed_since=now.real,
        at=now.business,
    )


def owe(cursor: Cursor, upto: int, now: Instant) -> Cursor | None:
    """It owes events up to this one; None where that is known already."""
    if cursor.upto >= upto:
        return None
    return _due(cursor._replace(version=cursor.version + 1, upto=upto), now)


def _due(cursor: Cursor, now: Instant) -> Cursor:
    """Due now, where nobody sends and nothing waits for its next attempt."""
    if cursor.due_at is not None:
        return cursor
    return cursor._replace(due_at=now.real, owed_since=now.real)


def hold(cursor: Cursor, dispatcher: str, now: Instant) -> Cursor:
    """Taken by a dispatcher, until DELIVERY_CLAIM is over or it gives it back."""
    return cursor._replace(
        version=cursor.version + 1,
        epoch=cursor.epoch + 1,
        owner=dispatcher,
        due_at=now.real + DELIVERY_CLAIM,
        at=now.business,
    )


def keep(cursor: Cursor, now: Instant) -> Cursor:
    """Held for another DELIVERY_CLAIM, with what has been told so far."""
    return cursor._replace(version=cursor.version + 1, due_at=now.real + DELIVERY_CLAIM, at=now.business)


def let_go(cursor: Cursor, now: Instant, *, again_at: int | None) -> Cursor:
    """Given back; `again_at`: real, the next attempt, None where nothing is owed."""
    assert (again_at is None) == (cursor.seq >= cursor.upto and not cursor.again), "what is owed has its time"
    return cursor._replace(
        version=cursor.version + 1,
        epoch=cursor.epoch + 1,
        owner="",
        due_at=again_at,
        owed_since=cursor.owed_since if again_at is not None else 0,
        at=now.business,
    )


def ask_again(cursor: Cursor, now: Instant) -> Cursor:
    """A person wants an earlier event sent again: at once, and what failed meanwhile is tried with it."""
    due_at = cursor.due_at if cursor.owner else now.real
    return cursor._replace(
        version=cursor.version + 1, again=cursor.again + 1, due_at=due_at, owed_since=cursor.owed_since or now.real
    )


# --- deliveries ----------------------------------------------------------------------------
def webhook_id(event: Event) -> str:
    """What a receiver dedupes by: made from the event's hash, so the same at each attempt and in no other store."""
    return f"evt_{event.hash[:40]}"


def _attempted(
    subscription: str, event: Event, before: Delivery | None, attempt: Attempt, status: DeliveryStatus, now: Instant
) -> Delivery:
    old = before or Delivery(
        tenant=event.tenant,
        run=event.run,
        subscription=subscription,
        seq=event.seq,
        version=0,
        status=status,
        event=webhook_id(event),
        type=event.type,
        attempts=0,
        first_at=now.business,
        last_at=now.business,
        due_at=0,
        code=0,
        answer="",
        error="",
        took_ms=0,
        by="",
    )
    return old._replace(
        version=old.version + 1,
        status=status,
        attempts=old.attempts + 1,
        last_at=now.business,
        due_at=0,
        code=attempt.code,
        answer=attempt.answer[:ANSWER_CHARS_MAX],
        error=attempt.error[:TEXT_CHARS_MAX],
        took_ms=attempt.took_ms,
    )


def send(
    subscription: str, event: Event, before: Delivery | None, attempt: Attempt, chance: float, now: Instant
) -> Delivery:
    """Not accepted: it is owed, and its next attempt has a time."""
    status = delivery_target("send", before.status if before else None)
    row = _attempted(subscription, event, before, attempt, status, now)
    wait = wait_before(
        row.attempts + 1,
        chance,
        first_ms=DELIVERY_FIRST_WAIT,
        ceiling_ms=DELIVERY_BACKOFF_CEILING,
        factor=BACKOFF_FACTOR,
    )
    return row._replace(due_at=now.real + max(wait, min(attempt.retry_after_ms, DELIVERY_RETRY_AFTER_MAX)))


def close(before: Delivery, event: Event, attempt: Attempt, now: Instant) -> Delivery:
    """Accepted at last."""
    status = delivery_target("close", before.status)
    return _attempted(before.subscription, event, before, attempt, status, now)


def dead_letter(subscription: str, event: Event, before: Delivery | None, attempt: Attempt, now: Instant) -> Delivery:
    """Given up: a person decides."""
    status = delivery_target("dead_letter", before.status if before else None)
    return _attempted(subscription, event, before, attempt, status, now)


def redeliver(subscription: str, event: Event, before: Delivery | None, *, by: str, now: Instant) -> Delivery:
    """A person wants it sent again, now; its attempts are counted anew."""
    status = delivery_target("redeliver", before.status if before else None)
    nothing = Attempt(0, "", "", 0)
    row = _attempted(subscription, event, before, nothing, status, now)
    return row._replace(attempts=0, due_at=now.real, by=by)


def is_over(delivery: Delivery | None, attempt: Attempt) -> bool:
    """Is this attempt that was not accepted the last one?"""
    return attempt.definite or (delivery.attempts if delivery else 0) + 1 >= DELIVERY_ATTEMPTS_MAX

"""Verbs of subscriptions, cursors and deliveries: pure functions from a row to its next version."""

import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from outlast.core.commit import Instant
from outlast.core.durations import (
    DELIVERY_ATTEMPTS_MAX,
    DELIVERY_BACKOFF_CEILING,
    DELIVERY_CLAIM,
    DELIVERY_FIRST_WAIT,
    DELIVERY_PAUSE_CEILING,
    DELIVERY_RETRY_AFTER_MAX,
    SECOND,
    wait_before,
)
from outlast.core.events import ancestor_in, selects
from outlast.core.limits import ANSWER_CHARS_MAX, TEXT_CHARS_MAX
from outlast.core.machine import SWEPT, DeliveryStatus, SubscriptionStatus, delivery_target, subscription_target
from outlast.core.rows.columns import SECRET, TYPES, WORKFLOWS, WebhookSecret, decoded
from outlast.core.rows.outbox_rows import Cursor, Delivery, Subscription
from outlast.core.rows.run_rows import Event
from outlast.core.rows.store_rows import STORE, Meta
from outlast.core.webhooks.approval_notices import CARRIED_BY, KINDS, REMINDER, REMINDERS, Notice, event_of, is_reminder
from outlast.core.webhooks.webhook_details import SubscriptionTerms
from outlast.errors import Conflict, NotFound

SUBSCRIBED_TENANTS: Final = (STORE, "subscribed_tenants")
"""Key of the meta row that lists the tenants with subscriptions. Stores mark their events as unpublished."""
DISPATCHER_HEARTBEAT: Final = (STORE, "dispatcher_heartbeat")
"""Key of the meta row with the last heartbeat of a dispatcher."""
ANY: Final = ""  # Unpublished.type of a mark that concerns every subscription
_PATH: Final = re.compile(r"[/?#\\]")
BACKOFF_FACTOR: Final = 3.0
LATER: Final = SECOND  # a receiver that asks to wait and does not say for how long
FORMERS_MAX: Final = 3
"""Former secrets that sign beside the present one, so that the header of signatures has a limit."""
GONE: Final = "it answered 410: it wants to hear no more"


class Attempt(NamedTuple):
    """Outcome of one delivery attempt."""

    code: int  # HTTP status, or SMTP code of a mail; 0 = no answer
    answer: str  # start of the response body
    error: str  # '' = accepted
    took_ms: int
    retry_after_ms: int = 0  # > 0: it wants nothing before that; value of Retry-After, or LATER
    definite: bool = False  # another attempt would get the same answer
    gone: bool = False  # status 410: the receiver wants no more deliveries


# --- filters ------------------------------------------------------------------------
def wants_type(subscription: Subscription, type_: str) -> bool:
    """True if the subscription includes events of this type, or messages after them; always True for ANY."""
    if type_ == ANY:
        return True
    if subscription.audience:
        return any(CARRIED_BY[kind] == type_ for kind in kinds_of(subscription))
    return not subscription.types or selects(subscription.types, type_)


def kinds_of(subscription: Subscription) -> tuple[str, ...]:
    """Return the kinds of messages that a subscription of approvers includes."""
    return subscription.types or KINDS


def wants_event(subscription: Subscription, event: Event) -> bool:
    """Return True if the subscription includes an event. A webhook includes forks if it asks for them (S-28)."""
    if ancestor_in(event.details) and not (subscription.audience or subscription.forks):
        return False
    return wants_type(subscription, event.type)


def wants_workflow(subscription: Subscription, workflow: str) -> bool:
    """True if the subscription includes runs of this workflow."""
    return not subscription.workflows or workflow in subscription.workflows


def tenants_of(row: Meta | None) -> frozenset[str]:
    """Return the tenants listed in the row of SUBSCRIBED_TENANTS."""
    return frozenset() if row is None else frozenset(decoded(row.value, f"meta row {row.key}"))


def subscribed_tenants_row(old: Meta | None, tenants: Iterable[str]) -> Meta:
    """Return the next version of the row of SUBSCRIBED_TENANTS."""
    return Meta(*SUBSCRIBED_TENANTS, 1 if old is None else old.version + 1, json.dumps(sorted(tenants)))


def sign_of(row: Meta | None) -> tuple[str, int]:
    """Return the dispatcher of the last heartbeat and its time (real); ('', 0) if there was none."""
    if row is None:
        return "", 0
    name, at = decoded(row.value, f"meta row {row.key}")
    return str(name), int(at)


def sign(old: Meta | None, dispatcher: str, now: Instant) -> Meta:
    """Return the next version of the row of DISPATCHER_HEARTBEAT."""
    return Meta(*DISPATCHER_HEARTBEAT, 1 if old is None else old.version + 1, json.dumps([dispatcher, now.real]))


# --- subscriptions -------------------------------------------------------------------------
def subscribe(
    tenant: str,
    subscription: str,
    terms: SubscriptionTerms,
    *,
    secret: str,
    since: int,
    by: str,
    now: Instant,
) -> Subscription:
    """Create a subscription to all existing events, or to events from `since` on. `secret`: signing key; of messages
    to approvers, the whole address.

    `since` is a business instant after the commit that creates it, so a dispatcher that finds an event of that time
    also finds this row.
    """
    return Subscription(
        tenant=tenant,
        subscription=subscription,
        version=1,
        status=subscription_target("subscribe", None),
        url=terms.url,
        types_text=TYPES.encode(terms.types),
        workflows_text=WORKFLOWS.encode(terms.workflows),
        secret_text=SECRET.encode(WebhookSecret(secret, terms.headers)),
        former="",
        former_until=0,
        since=0 if terms.from_start else since,
        swept="" if terms.from_start else SWEPT,
        why="",
        created_at=now.business,
        created_by=by,
        changed_at=now.business,
        changed_by=by,
        audience=terms.audience,
        forks=int(terms.forks),
        **terms.details._asdict(),
    )


def _changed(row: Subscription, by: str, now: Instant) -> Subscription:
    return row._replace(version=row.version + 1, changed_at=now.business, changed_by=by)


def rotate(row: Subscription, secret: str, keep_ms: int, *, by: str, now: Instant, seen: int = 0) -> Subscription:
    """Replace the secret. The old one also signs for `keep_ms`, and those before it for the rest of their time.

    So a rotation whose secret was never shown can be followed by another, and the receiver's secret still signs. A
    `keep_ms` of 0 ends all former secrets. Headers are unchanged.

    `seen`: version that the caller saw, 0 = any. A request without a key that is sent twice is so refused the second
    time. Raises Conflict (`moved`).
    """
    if seen not in (0, row.version):
        raise Conflict(
            f"webhook {row.subscription} has changed since you saw it",
            f"{row.changed_by} changed it, so its secret may be new already",
            "look again before you rotate it",
            refusal="moved",
        )
    status = subscription_target("rotate", row.status)
    until = now.real + keep_ms if keep_ms else 0
    earlier = [f"{key} {ends}" for key, ends in formers(row) if now.real < ends][: FORMERS_MAX - 1]
    changed = _changed(row, by, now)
    return changed._replace(
        status=status,
        secret_text=SECRET.encode(row.secret._replace(key=secret)),
        former="\n".join([row.secret.key, *earlier]) if keep_ms else "",
        former_until=until,
    )


def formers(row: Subscription) -> list[tuple[str, int]]:
    """Return the secrets before the present one, the latest first, and until when each signs (real).

    `row.former` holds the latest, whose end is `row.former_until`, and a line with secret and end for each before it.
    """
    first, *lines = row.former.split("\n")
    found = [(first, row.former_until)] if first else []
    for line in lines:
        key, _, ends = line.partition(" ")
        found += [(key, int(ends))] if ends.isdecimal() else []
    return found


def disable(row: Subscription, why: str, *, by: str, now: Instant) -> Subscription:
    """Stop deliveries until the subscription is enabled again. The cursor positions are kept."""
    status = subscription_target("disable", row.status)
    return _changed(row, by, now)._replace(status=status, why=why[:TEXT_CHARS_MAX])


def enable(row: Subscription, *, by: str, now: Instant) -> Subscription:
    """Resume deliveries from the cursor positions, including events since the subscription was disabled."""
    status = subscription_target("enable", row.status)
    return _changed(row, by, now)._replace(status=status, why="", swept="")


def remove(row: Subscription, *, by: str, now: Instant) -> Subscription:
    """Remove the subscription and its secrets permanently."""
    status = subscription_target("remove", row.status)
    return _changed(row, by, now)._replace(status=status, secret_text="", former="", former_until=0)


def is_active(row: Subscription) -> bool:
    """True if events are delivered to it."""
    return row.status is SubscriptionStatus.ACTIVE


def secrets_of(row: Subscription, real: int) -> tuple[str, ...]:
    """Return the secrets that sign deliveries now, newest first."""
    return (row.secret.key, *(key for key, ends in formers(row) if real < ends))


def secrets_in(row: Subscription) -> tuple[str, ...]:
    """Return the text that must not be shown, without the headers."""
    return tuple(each for each in (row.secret.key, *(key for key, _ in formers(row))) if each)


def headers_of(row: Subscription) -> dict[str, str]:
    """Return the custom headers of each delivery, by lower-case name."""
    return dict(row.secret.headers)


def shown(row: Subscription) -> Subscription:
    """Return the row without its secrets: of its URL the host remains, of custom headers only the names."""
    names = WebhookSecret("", tuple((name, "") for name, _ in row.secret.headers))
    return row._replace(url=shown_url(row.url), secret_text=SECRET.encode(names), former="")


def shown_url(url: str) -> str:
    """Return the scheme, host and port of a URL. Its login, path and query may be secret, whatever their names are."""
    scheme, _, rest = url.partition("://")
    authority = _PATH.split(rest, maxsplit=1)[0]
    host = authority.rpartition("@")[2]
    return f"{scheme}://{host}" + ("" if rest in (host, f"{host}/") else "/\u2026")


def swept(row: Subscription, run: str) -> Subscription:
    """Record that runs up to this one were scanned for past events; SWEPT: all runs."""
    return row._replace(version=row.version + 1, swept=run)


# --- cursors -------------------------------------------------------------------------------
def open_cursor(subscription: Subscription, run: str, start: int, upto: int, now: Instant) -> Cursor:
    """Create the cursor of a subscription for a run; events after `start` are due."""
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
    """Extend the cursor to events up to this one; None if it includes them already."""
    if cursor.upto >= upto:
        return None
    return _due(cursor._replace(version=cursor.version + 1, upto=upto), now)


def _due(cursor: Cursor, now: Instant) -> Cursor:
    """Due now, unless a dispatcher holds the cursor or a failed delivery waits for its next attempt."""
    if cursor.due_at is None:
        return cursor._replace(due_at=now.real, owed_since=now.real)
    if cursor.owner or cursor.owed_since <= now.real:
        return cursor
    return cursor._replace(due_at=now.real, owed_since=now.real)  # only reminders are owed, and later


def takeable_at(cursor: Cursor, skew: int) -> int:
    """Return the real instant from which a dispatcher may claim the cursor.

    A claim must have ended also by the clock of the dispatcher that holds it. `skew`: of the store.
    """
    return (cursor.due_at or 0) + (skew if cursor.owner else 0)


def hold(cursor: Cursor, dispatcher: str, now: Instant) -> Cursor:
    """Claim the cursor for a dispatcher until it releases it, at most for DELIVERY_CLAIM."""
    return cursor._replace(
        version=cursor.version + 1,
        epoch=cursor.epoch + 1,
        owner=dispatcher,
        due_at=now.real + DELIVERY_CLAIM,
        at=now.business,
    )


def keep(cursor: Cursor, now: Instant) -> Cursor:
    """Renew the claim for another DELIVERY_CLAIM and save the position."""
    return cursor._replace(version=cursor.version + 1, due_at=now.real + DELIVERY_CLAIM, at=now.business)


def let_go(cursor: Cursor, now: Instant, *, again_at: int | None, scheduled: bool = False) -> Cursor:
    """Release the cursor. `again_at`: real time of the next attempt, None if no event is due; `scheduled`: only
    reminders are left, so nothing is owed before that.
    """
    assert (again_at is None) == (cursor.seq >= cursor.upto and not cursor.again), "what is owed has its time"
    return cursor._replace(
        version=cursor.version + 1,
        epoch=cursor.epoch + 1,
        owner="",
        due_at=again_at,
        owed_since=0 if again_at is None else again_at if scheduled else min(cursor.owed_since or now.real, now.real),
        at=now.business,
    )


def ask_again(cursor: Cursor, now: Instant) -> Cursor:
    """Request that an earlier event is sent again at once, together with deliveries that failed."""
    due_at = cursor.due_at if cursor.owner else now.real
    return cursor._replace(
        version=cursor.version + 1,
        again=cursor.again + 1,
        due_at=due_at,
        owed_since=min(cursor.owed_since or now.real, now.real),
    )


# --- deliveries ----------------------------------------------------------------------------
def delivery_id(delivery: Delivery) -> str:
    """Return the id of a delivery: SUBSCRIPTION:RUN:SEQ, and an r after the number if it is a reminder."""
    letter = "r" if is_reminder(delivery.seq) else ""
    return f"{delivery.subscription}:{delivery.run}:{event_of(delivery.seq)}{letter}"


def delivery_place(delivery: str) -> tuple[str, str, int]:
    """Return subscription, run and `seq` of a delivery by its id. Raises NotFound if it is malformed."""
    subscription, _, rest = delivery.partition(":")
    run, _, number = rest.rpartition(":")
    seq = number.removesuffix("r")
    if not (subscription and run and seq.isascii() and seq.isdigit() and len(seq) <= 12):
        raise NotFound(
            f"no delivery {delivery}", "its id is WEBHOOK:RUN:SEQ", "list them with: outlast webhooks deliveries"
        )
    return subscription, run, int(seq) + (REMINDERS if number != seq else 0)


def webhook_id(event: Event) -> str:
    """Return the webhook-id by which receivers deduplicate.

    It is derived from the event's hash, so it is equal at each attempt and differs between stores.
    """
    return f"evt_{event.hash[:40]}"


def new_delivery(subscription: str, event: Event, status: DeliveryStatus, now: Instant) -> Delivery:
    """Return the row of an event of which nothing is recorded yet, at version 0."""
    return Delivery(
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


def message_delivery(subscription: str, event: Event, notice: Notice, now: Instant) -> Delivery:
    """Return the row of a message to approvers of which nothing is recorded yet, at version 0."""
    row = new_delivery(subscription, event, DeliveryStatus.OWED, now)
    return row._replace(event=notice.key, type=notice.kind)


def _attempted(
    subscription: str, event: Event, before: Delivery | None, attempt: Attempt, status: DeliveryStatus, now: Instant
) -> Delivery:
    old = before or new_delivery(subscription, event, status, now)
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
    """Record a failed attempt and the time of the next one."""
    status = delivery_target("send", _source(before))
    row = _attempted(subscription, event, before, attempt, status, now)
    wait = wait_before(
        row.attempts + 1,
        chance,
        first_ms=DELIVERY_FIRST_WAIT,
        ceiling_ms=DELIVERY_BACKOFF_CEILING,
        factor=BACKOFF_FACTOR,
    )
    return row._replace(due_at=now.real + max(wait, min(attempt.retry_after_ms, DELIVERY_RETRY_AFTER_MAX)))


def pause_after(attempt: Attempt, times: int, chance: float) -> int:
    """Return for how long (ms) a receiver is left alone that has asked to wait so many times in a row."""
    wait = wait_before(
        times + 1, chance, first_ms=DELIVERY_FIRST_WAIT, ceiling_ms=DELIVERY_PAUSE_CEILING, factor=BACKOFF_FACTOR
    )
    return max(wait, min(attempt.retry_after_ms, DELIVERY_RETRY_AFTER_MAX))


def _source(before: Delivery | None) -> DeliveryStatus | None:
    return before.status if before is not None and before.version else None


def close(before: Delivery, event: Event, attempt: Attempt, now: Instant) -> Delivery:
    """Record that a delivery that had failed, or a message to approvers, was accepted."""
    status = delivery_target("close", _source(before))
    return _attempted(before.subscription, event, before, attempt, status, now)


def dead_letter(subscription: str, event: Event, before: Delivery | None, attempt: Attempt, now: Instant) -> Delivery:
    """Give up a delivery, until a person requests it again."""
    status = delivery_target("dead_letter", _source(before))
    return _attempted(subscription, event, before, attempt, status, now)


def redeliver(subscription: str, event: Event, before: Delivery | None, *, by: str, now: Instant) -> Delivery:
    """Request a delivery again, now, with a new count of attempts."""
    status = delivery_target("redeliver", before.status if before else None)
    nothing = Attempt(0, "", "", 0)
    row = _attempted(subscription, event, before, nothing, status, now)
    return row._replace(attempts=0, due_at=now.real, by=by)


def schedule(announced: Delivery, notice: Notice, due_at: int, now: Instant) -> Delivery:
    """Schedule the reminder that follows the announcement of approvals. `due_at`: real."""
    status = delivery_target("schedule", None)
    return announced._replace(
        seq=REMINDERS + announced.seq,
        version=1,
        status=status,
        event=notice._replace(kind=REMINDER).key,
        type=REMINDER,
        attempts=0,
        first_at=now.business,
        last_at=now.business,
        due_at=due_at,
        code=0,
        answer="",
        error="",
        took_ms=0,
        by="",
    )


def postpone(row: Delivery, due_at: int) -> Delivery:
    """Schedule a reminder for another time, because the mapping of business time has changed."""
    return row._replace(version=row.version + 1, status=delivery_target("schedule", row.status), due_at=due_at)


def spare(row: Delivery, why: str, now: Instant) -> Delivery:
    """Record that a message is not needed any more."""
    status = delivery_target("spare", row.status)
    return row._replace(
        version=row.version + 1, status=status, due_at=0, last_at=now.business, error=why[:TEXT_CHARS_MAX]
    )


def give_up_purged(row: Delivery, now: Instant) -> Delivery:
    """Give up a delivery whose event is gone, because the history of its run is a window (S-32)."""
    status = delivery_target("dead_letter", row.status)
    why = "the event was purged behind the window of the history of its run"
    return row._replace(version=row.version + 1, status=status, due_at=0, last_at=now.business, error=why)


def event_seq(row: Delivery) -> int:
    """Return the number of the event that a delivery belongs to."""
    return event_of(row.seq)


def is_over(delivery: Delivery | None, attempt: Attempt) -> bool:
    """True if this failed attempt was the last one."""
    return attempt.definite or (delivery.attempts if delivery else 0) + 1 >= DELIVERY_ATTEMPTS_MAX

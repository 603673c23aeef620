"""Webhooks and their deliveries as people and programs read them: plain JSON data, and never a secret but a new one.

Instants are RFC 3339 text of business time, but where a name ends in `_real`.
"""

import json
from collections.abc import Callable
from typing import Any

from outlast.core.deliveries import Attempt, headers_of
from outlast.core.machine import DeliveryStatus
from outlast.core.outgoing import Delivery, Subscription
from outlast.runtime.views import instant
from outlast.runtime.webhooks import Made, Standing, id_of
from outlast.telemetry.redact import redact


def webhook_view(row: Subscription) -> dict[str, Any]:
    """An address that is told of what happens. `former_until_real`: until when the secret before this one signs too."""
    return {
        "webhook": row.subscription,
        "status": row.status.value,
        "url": redact(row.url),
        "name": row.name,
        "types": json.loads(row.types) if row.types else [],
        "workflows": json.loads(row.workflows) if row.workflows else [],
        "headers": sorted(headers_of(row)),
        "since": instant(row.since),
        "why": row.why,
        "created_at": instant(row.created_at),
        "created_by": row.created_by,
        "changed_at": instant(row.changed_at),
        "changed_by": row.changed_by,
        "former_until_real": instant(row.former_until),
    }


def made_view(made: Made) -> dict[str, Any]:
    """With its new secret: the one answer that has it."""
    return {**webhook_view(made.subscription), "secret": made.secret}


def whole_webhook_view(row: Subscription, standing: Standing) -> dict[str, Any]:
    """How it fares: events given up, events that will be sent again, runs of which something is still to be told."""
    return {
        **webhook_view(row),
        DeliveryStatus.DEAD.value: standing.dead,
        DeliveryStatus.OWED.value: standing.owed,
        "behind": standing.behind,
        "more": standing.more,
        "oldest_at_real": instant(standing.oldest_at or 0),
    }


def delivery_view(row: Delivery, business: Callable[[int], int]) -> dict[str, Any]:
    """An event that was not accepted at once; `shared_answer` is a stranger's text, veiled before it was stored.

    `business`: of a real instant, ours.
    """
    return {
        "delivery": id_of(row),
        "webhook": row.subscription,
        "run": row.run,
        "sequence": row.seq,
        "type": row.type,
        "webhook_id": row.event,
        "status": row.status.value,
        "attempts": row.attempts,
        "code": row.code,
        "error": row.error,
        "answer": row.answer,
        "took_ms": row.took_ms,
        "first_at": instant(row.first_at),
        "last_at": instant(row.last_at),
        "next_at": instant(business(row.due_at)) if row.due_at else None,
        "asked_by": row.by,
    }


def attempt_view(webhook: str, attempt: Attempt) -> dict[str, Any]:
    """What came back of one attempt; `shared_answer` is a stranger's text."""
    return {"webhook": webhook, "accepted": not attempt.error, **attempt._asdict()}

"""Signature headers of a delivery: Standard Webhooks over the event's bytes, and the event's place in its run (OUT-3).

The body is never changed. `outlast-previous` is the number of the previous event of this run that was sent to this
subscription, so a receiver that has it has missed no event it asked for (S-11).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from standardwebhooks import Webhook

CLOUD_EVENT: Final = "application/cloudevents+json; charset=utf-8"


def headers(
    message: str, body: bytes, secrets: Sequence[str], wall_ms: int, *, sequence: int, previous: int, subscription: str
) -> dict[str, str]:
    """Return the headers of one attempt, signed with each secret.

    `wall_ms`: this machine's clock; receivers reject timestamps five minutes from theirs.
    """
    at = datetime.fromtimestamp(wall_ms // 1000, UTC)
    return {
        "content-type": CLOUD_EVENT,
        "webhook-id": message,
        "webhook-timestamp": str(wall_ms // 1000),
        "webhook-signature": " ".join(Webhook(secret).sign(message, at, body.decode()) for secret in secrets),
        "outlast-sequence": str(sequence),
        "outlast-previous": str(previous),
        "outlast-subscription": subscription,
    }

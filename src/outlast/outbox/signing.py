"""What goes out with an event: Standard Webhooks' signature over the stored bytes, and its place in the run (OUT-3).

Nothing here makes or changes a body. `outlast-previous` is the number of the event of the same run that this
subscription was sent before: a receiver that has it has missed nothing of what it asked for (S-11).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from standardwebhooks import Webhook

CLOUD_EVENT: Final = "application/cloudevents+json; charset=utf-8"


def headers(
    message: str, body: bytes, secrets: Sequence[str], wall_ms: int, *, sequence: int, previous: int, subscription: str
) -> dict[str, str]:
    """The headers of one attempt, signed with each of the secrets.

    `wall_ms`: this machine's clock; receivers refuse what is five minutes away from theirs.
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

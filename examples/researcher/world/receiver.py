"""The receiver of webhooks. It records each delivery with its headers, and refuses one of each run for a moment."""

from collections.abc import Awaitable, Callable
from typing import Any

from .record import Hit, Journal, now
from .site import Send, lifespan, reply

REFUSED_ONCE = 3
"""Number of the event whose first delivery gets 503: order must hold while it is retried."""
KEPT = ("webhook-id", "webhook-timestamp", "webhook-signature", "outlast-sequence", "outlast-previous")


class Receiver:
    """ASGI application of the receiver."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._refused: set[str] = set()

    async def __call__(
        self, scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Send
    ) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        at = now()
        body = await whole_body(receive)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        delivery = headers.get("webhook-id", "")
        status = 204
        if headers.get("outlast-sequence", "").lstrip("0") == str(REFUSED_ONCE) and delivery not in self._refused:
            self._refused.add(delivery)
            status = 503
        kept = {name: headers.get(name, "") for name in KEPT}
        self._journal.add(
            Hit("receiver", at, now(), "POST", scope["path"], status, "", delivery, [kept, body.decode()])
        )
        await reply(send, status)


async def whole_body(receive: Callable[[], Awaitable[dict[str, Any]]]) -> bytes:
    """Return the body of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body

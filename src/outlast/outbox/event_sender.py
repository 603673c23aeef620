"""Sends the events of a cursor to a webhook, signed."""

from typing import Final

from typing_extensions import override

from outlast.core.crash_points import point
from outlast.core.rows.outbox_rows import Delivery
from outlast.core.rows.run_rows import EVENT, Event
from outlast.core.webhooks import deliveries
from outlast.core.webhooks.deliveries import Attempt, webhook_id
from outlast.outbox import signing
from outlast.outbox.cursor_sender import CursorSender, Settled
from outlast.outbox.delivery_client import DeliveryClient
from outlast.outbox.subscriptions import redacted_attempt

BACK_MAX: Final = 50  # events searched for the predecessor of a repeated one


class EventSender(CursorSender[DeliveryClient]):
    """Sends each event as it is."""

    @override
    async def _first(self, event: Event, before: Delivery | None) -> Settled:
        return await self._settle(event, before, await self._send(event, self._cursor.last))

    @override
    async def _again(self, event: Event, before: Delivery) -> Settled:
        return await self._settle(event, before, await self._send(event, await self._previous(event)))

    async def _previous(self, event: Event) -> int:
        """Return the number of the previous event that this subscription was sent; 0 if there was none."""
        seqs = range(event.seq - 1, max(0, event.seq - 1 - BACK_MAX), -1)
        for row in await self._tools.store.load_many(EVENT, [(*self._cursor.key[:2], seq) for seq in seqs]):
            if row is not None and deliveries.wants_event(self._subscription(), row):
                return row.seq if row.at >= self._subscription().since else 0
        return 0

    async def _send(self, event: Event, previous: int) -> Attempt:
        """Attempt one delivery; first renew the claim if it could end before the attempt."""
        await self._cursor.extend()
        clock, row = self._tools.clock, self._subscription()
        label = (f"{event.run} delivery {event.seq}",)
        point("outbox.delivery:before", label)
        wall, body = clock.wall(), event.body
        signed = signing.headers(
            webhook_id(event),
            body,
            deliveries.secrets_of(row, wall),
            wall,
            sequence=event.seq,
            previous=previous,
            subscription=row.subscription,
        )
        attempt = await self._client.post(row.url, {**deliveries.headers_of(row), **signed}, body)
        point("outbox.delivery:after", label)
        return redacted_attempt(attempt, row)

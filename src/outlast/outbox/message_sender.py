"""Sends messages about approvals of a cursor's run to approvers, with their reminders.

An event that asks for an approval leads to a message, and the same commit that records it schedules the reminder. So a
crash between the two loses neither. Whether a message is still needed is decided before each attempt, from the rows of
the run: no approver gets a message about an approval that has been decided.
"""

from typing import Final

from typing_extensions import override

from outlast.core.commit import Put
from outlast.core.crash_points import point
from outlast.core.machine import DeliveryStatus
from outlast.core.rows.outbox_rows import DELIVERY, Delivery
from outlast.core.rows.run_rows import Event
from outlast.core.webhooks import approval_notices, deliveries
from outlast.core.webhooks.approval_notices import ASKED, REMINDER, Notice, NoticeId
from outlast.core.webhooks.deliveries import Attempt
from outlast.outbox import notices
from outlast.outbox.channel_client import ChannelClient
from outlast.outbox.cursor_sender import CursorSender, Settled
from outlast.outbox.subscriptions import redacted_attempt

SUMMED: Final = Attempt(0, "an earlier message told of it, together with others", "", 0)


class MessageSender(CursorSender[ChannelClient]):
    """Sends the message that an event leads to, if any."""

    @override
    async def _first(self, event: Event, before: Delivery | None) -> Settled:
        store, row = self._tools.store, self._subscription()
        notice = await notices.after_event(store, row, event, before)
        if not notice.approvals:
            return None, await self._spared(before)
        first = before or deliveries.message_delivery(row.subscription, event, notice, await store.now())
        if notice.kind not in deliveries.kinds_of(row):  # only its reminder is wanted
            return None, await self._scheduled(first, notice)
        at, put = await self._settle(event, first, await self._tell(first, notice))
        return (at, put) if at is not None else (at, (*put, *await self._scheduled(first, notice)))

    async def _scheduled(self, announced: Delivery, notice: Notice) -> tuple[Put, ...]:
        """Return the write that schedules the reminder of announced approvals, if there is one."""
        due = approval_notices.first_reminder(notice.approvals)
        if notice.kind != ASKED or due is None or REMINDER not in deliveries.kinds_of(self._subscription()):
            return ()
        if approval_notices.is_reminder(announced.seq) or self._gone:
            return ()
        store = self._tools.store
        due_at = store.mapping().real(due)
        row = deliveries.schedule(announced, notice, due_at, await store.now())
        if await store.load(DELIVERY, (*self._cursor.key, row.seq)) is not None:
            return ()
        self._cursor.repeated -= 1
        self._cursor.reminders.append(due_at)
        return (Put(DELIVERY, row, 0),)

    async def _spared(self, before: Delivery | None) -> tuple[Put, ...]:
        """Return the write that records that a message is not needed any more."""
        if before is None:
            return ()
        store = self._tools.store
        row = deliveries.spare(before, await notices.why_spared(store, before), await store.now())
        return (Put(DELIVERY, row, before.version),)

    async def _tell(self, before: Delivery, notice: Notice) -> Attempt:
        """Attempt to send one message; first renew the claim if it could end before the attempt.

        The first message after a pause takes the place of all that have gathered.
        """
        if self._pause.settles(notice):
            return SUMMED
        await self._cursor.extend()
        row, label = self._subscription(), (f"{before.run} delivery {before.seq}",)
        now = await self._tools.store.now()
        waiting = frozenset[NoticeId]()
        if self._pause.probing:
            waiting = await notices.waiting(self._tools.store, row, now.business)
        more = len(self._pause.not_summed(waiting) - notice.ids)
        text = approval_notices.write(notice, now.business, self._tools.public_url, more)
        point("outbox.delivery:before", label)
        attempt = await self._client.post(row.secret.key, text._replace(key=before.event))
        point("outbox.delivery:after", label)
        if more and not attempt.error:
            self._pause.sum_up(waiting)
        return redacted_attempt(attempt, row)

    @override
    async def _again(self, event: Event, before: Delivery) -> Settled:
        store = self._tools.store
        notice = await notices.once_more(store, self._subscription(), before)
        if not notice.approvals:
            return None, await self._spared(before)
        due = approval_notices.first_reminder(notice.approvals)
        early = due is not None and (await store.now()).business < due
        if before.status is DeliveryStatus.SCHEDULED and due is not None and early:
            row = deliveries.postpone(before, store.mapping().real(due))
            return row.due_at, (Put(DELIVERY, row, before.version),)
        return await self._settle(event, before, await self._tell(before, notice))

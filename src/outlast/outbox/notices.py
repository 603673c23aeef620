"""Messages to approvers, found from the rows of a run after an event or an earlier message."""

from typing import Final

from outlast.core.machine import ApprovalStatus, DeliveryStatus
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.core.rows.outbox_rows import DELIVERY, Delivery, Subscription
from outlast.core.rows.run_rows import RUN, Event
from outlast.core.webhooks import approval_notices, deliveries
from outlast.core.webhooks.approval_notices import ASKED, Notice, NoticeId
from outlast.store.port import Store

GATHERED_MAX: Final = 1_000
NOTHING: Final = Notice(ASKED, ())


async def after_event(store: Store, row: Subscription, event: Event, before: Delivery | None) -> Notice:
    """Return the message that an event leads to; NOTHING, or one without approvals, if none.

    `before`: the row of an earlier attempt, whose approvals the message keeps as long as they are undecided.
    """
    if before is not None:
        return await once_more(store, row, before)
    if not (approval_notices.awaits_approval(event) or approval_notices.reports_timeout(event)):
        return NOTHING
    place = (event.tenant, event.run)
    approvals = await store.rows(APPROVAL, place)
    earlier = [each.event for each in await store.rows(DELIVERY, (*place, row.subscription))]
    return approval_notices.new_notice(row.audience, event, approvals, await store.load(RUN, place), earlier)


async def once_more(store: Store, row: Subscription, delivery: Delivery) -> Notice:
    """Return the message of a delivery that failed, is scheduled or was requested again, as of now."""
    place = (delivery.tenant, delivery.run)
    approvals = await store.rows(APPROVAL, place)
    run = await store.load(RUN, place)
    return approval_notices.still_open(delivery.type, delivery.event, row.audience, approvals, run)


async def why_spared(store: Store, delivery: Delivery) -> str:
    """Return why a message is not needed any more."""
    return approval_notices.why_not(delivery.event, await store.rows(APPROVAL, (delivery.tenant, delivery.run)))


async def waiting(store: Store, row: Subscription, now: int) -> frozenset[NoticeId]:
    """Return the messages about the newest approvals that a subscription has not received. `now`: business."""
    found: list[Approval] = []
    for status in (ApprovalStatus.PENDING, ApprovalStatus.EXPIRED):
        page = await store.page(APPROVAL, row.tenant, {"status": status.value}, limit=GATHERED_MAX)
        found += [each for each in page.rows if each.asked_at >= row.since]
    places = list(dict.fromkeys((each.tenant, each.run) for each in found))
    runs = dict(zip(places, await store.load_many(RUN, places), strict=True)) if places else {}
    mine = [
        (each, run)
        for each in found
        if (run := runs[each.tenant, each.run]) is not None and deliveries.wants_workflow(row, run.workflow)
    ]
    where: dict[str, str | int] = {"subscription": row.subscription, "status": DeliveryStatus.DELIVERED.value}
    announced = [each.event for each in (await store.page(DELIVERY, row.tenant, where, limit=GATHERED_MAX)).rows]
    return approval_notices.waiting(row.audience, deliveries.kinds_of(row), mine, announced, now)

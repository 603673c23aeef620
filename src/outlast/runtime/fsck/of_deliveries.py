"""Checks of what subscriptions were told of a run: every event is accepted, owed, or visibly dead (I23)."""

from collections.abc import Collection, Sequence

from outlast.core import deliveries
from outlast.core.machine import SWEPT, DeliveryStatus
from outlast.core.outgoing import Cursor, Delivery, Subscription
from outlast.core.rows import CURSOR, DELIVERY, EVENT, Event, Run
from outlast.runtime.fsck.finding import Broken, broken


def event_told(
    run: Run,
    history: Sequence[Event],
    subscription: Subscription,
    cursor: Cursor | None,
    failed: dict[int, Delivery],
    untold: Collection[int],
) -> Broken:
    """Every event that a subscription asked for is behind its cursor, owed by it, or noted as untold."""
    if not deliveries.is_active(subscription) or not deliveries.wants_workflow(subscription, run.workflow):
        return
    if subscription.swept != SWEPT:
        return  # its runs are still looked through
    upto = cursor.upto if cursor else 0
    for event in history:
        wanted = event.at >= subscription.since and deliveries.wants_type(subscription, event.type)
        if wanted and event.seq > upto and event.seq not in untold:
            yield broken(EVENT, event, f"{subscription.subscription} is not told of it, and nobody will")
    for row in failed.values():
        if cursor is None or row.seq > cursor.upto:
            yield broken(DELIVERY, row, f"it was sent, and its cursor stands at {cursor.upto if cursor else 'nothing'}")
        elif row.status is DeliveryStatus.OWED and row.seq <= cursor.seq and not cursor.again:
            yield broken(DELIVERY, row, "it is to be sent again, and its cursor does not know of it")
        elif row.status is DeliveryStatus.DEAD and row.seq > cursor.seq:
            yield broken(DELIVERY, row, "it was given up, and its cursor has not passed it")


def cursor_due(cursor: Cursor, run: Run | None) -> Broken:
    """A cursor has its time exactly while it owes something, and knows of no event that there is not."""
    owes = cursor.seq < cursor.upto or cursor.again > 0
    if owes != (cursor.due_at is not None) and not cursor.owner:
        yield broken(CURSOR, cursor, f"it owes {'something' if owes else 'nothing'}, and is due at {cursor.due_at}")
    if not 0 <= cursor.last <= cursor.seq <= cursor.upto or (run is not None and cursor.upto > run.seq):
        yield broken(CURSOR, cursor, f"last {cursor.last}, told {cursor.seq}, known {cursor.upto}")
    if cursor.owner and cursor.due_at is None:
        yield broken(CURSOR, cursor, f"held by {cursor.owner} for ever")

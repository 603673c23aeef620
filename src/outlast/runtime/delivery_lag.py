"""How long the world has waited to be told what happened, and whether anybody tells it: read from rows, now."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from outlast.core import deliveries
from outlast.core.budget import DELIVERY_ALIVE, SECOND
from outlast.core.deliveries import DISPATCHER_HEARTBEAT, SUBSCRIBED_TENANTS, sign_of, tenants_of
from outlast.core.outgoing import Unpublished
from outlast.core.rows import META, UNPUBLISHED
from outlast.outbox import subscriptions
from outlast.store.port import Store

LOOKED_MAX: Final = (
    10_000  # of the untold events of a tenant, and of the cursors of a webhook; beyond it, at least so old
)
UNSEEN: Final = 5 * SECOND  # so long a dispatcher may take to begin


class DeliveryLag(NamedTuple):
    """For how long, in ms; 0 where there is nothing."""

    due_ms: int
    """The oldest event should have been sent, and nobody sends it."""
    owed_ms: int
    """The oldest event has not been accepted, whether it was tried or not."""


class DispatcherHeartbeat(NamedTuple):
    """The dispatcher that was seen last; '' none ever."""

    dispatcher: str
    seen_ms: int
    """How long ago."""

    @property
    def alive(self) -> bool:
        """Is anybody sending?"""
        return bool(self.dispatcher) and self.seen_ms < DELIVERY_ALIVE


async def lag_of(store: Store, tenants: Iterable[str] | None = None) -> DeliveryLag:
    """Of these tenants, or all. What a disabled webhook is owed does not count, nor what nobody listens to any more."""
    listened = tenants_of(await store.load(META, SUBSCRIBED_TENANTS))
    tenants = listened if tenants is None else listened.intersection(tenants)
    now = (await store.now()).real
    due = owed = now
    for tenant in tenants:
        marks = await store.rows(UNPUBLISHED, (tenant,), limit=LOOKED_MAX)
        if ats := [mark.at for mark in marks if isinstance(mark, Unpublished)]:
            oldest = store.mapping().real(min(ats))
            due, owed = min(due, oldest), min(owed, oldest)
        for row in await subscriptions.of_tenant(store, tenant):
            if not deliveries.is_active(row):
                continue
            for cursor in await store.owing(tenant, row.subscription, LOOKED_MAX):
                owed = min(owed, cursor.owed_since or now)
                due = min(due, now if cursor.due_at is None else cursor.due_at)
    return DeliveryLag(now - due, now - owed)


async def dispatcher_heartbeat(store: Store) -> DispatcherHeartbeat:
    """Who tells the webhooks of this store, as far as rows show."""
    dispatcher, at = sign_of(await store.load(META, DISPATCHER_HEARTBEAT))
    return DispatcherHeartbeat(dispatcher, (await store.now()).real - at)


async def unattended_ms(store: Store, tenant: str) -> int:
    """For how long, in ms, events of a tenant have waited with no dispatcher alive; 0 where one is, or none waits."""
    lag = await lag_of(store, [tenant])
    if lag.due_ms <= UNSEEN or (await dispatcher_heartbeat(store)).alive:
        return 0
    return lag.due_ms


async def dispatcher_missing(store: Store) -> bool:
    """Does somebody want to be told of events, while no dispatcher is alive?"""
    return (
        bool(tenants_of(await store.load(META, SUBSCRIBED_TENANTS))) and not (await dispatcher_heartbeat(store)).alive
    )

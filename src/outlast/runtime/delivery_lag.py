"""Delay of webhook deliveries and heartbeat of the dispatcher, computed from rows."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from outlast.core import deliveries
from outlast.core.deliveries import DISPATCHER_HEARTBEAT, SUBSCRIBED_TENANTS, sign_of, tenants_of
from outlast.core.durations import DELIVERY_ALIVE, SECOND
from outlast.core.rows import META, UNPUBLISHED, Unpublished
from outlast.outbox import subscriptions
from outlast.store.port import Store

LOOKED_MAX: Final = 10_000  # unpublished events per tenant and cursors per webhook; beyond it the age is a lower bound
UNSEEN: Final = 5 * SECOND  # grace for a dispatcher to start


class DeliveryLag(NamedTuple):
    """Delays in ms; 0 if nothing waits."""

    due_ms: int
    """Age of the oldest event that is due and not sent."""
    owed_ms: int
    """Age of the oldest event that is not accepted, whether tried or not."""


class DispatcherHeartbeat(NamedTuple):
    """The dispatcher seen last; its name is '' if there was none."""

    dispatcher: str
    seen_ms: int
    """Time since its last heartbeat, in ms."""

    @property
    def alive(self) -> bool:
        """True if the dispatcher is alive."""
        return bool(self.dispatcher) and self.seen_ms < DELIVERY_ALIVE


async def lag_of(store: Store, tenants: Iterable[str] | None = None) -> DeliveryLag:
    """Measure the delay of these tenants, or of all. Disabled webhooks and tenants without a webhook do not count."""
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
    """Return the last heartbeat of any dispatcher of this store."""
    dispatcher, at = sign_of(await store.load(META, DISPATCHER_HEARTBEAT))
    return DispatcherHeartbeat(dispatcher, (await store.now()).real - at)


async def unattended_ms(store: Store, tenant: str) -> int:
    """Return for how long events of a tenant have waited without a live dispatcher, in ms; 0 if none has."""
    lag = await lag_of(store, [tenant])
    if lag.due_ms <= UNSEEN or (await dispatcher_heartbeat(store)).alive:
        return 0
    return lag.due_ms


async def dispatcher_missing(store: Store) -> bool:
    """Return True if a subscription is active and no dispatcher is alive."""
    return (
        bool(tenants_of(await store.load(META, SUBSCRIBED_TENANTS))) and not (await dispatcher_heartbeat(store)).alive
    )

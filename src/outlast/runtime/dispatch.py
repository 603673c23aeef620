"""The dispatcher of this process, put together: the outbox's, with the system's clock, dice and resolver."""

from outlast.core import deliveries
from outlast.core.clock import Clock
from outlast.core.codec import canonical
from outlast.core.deliveries import Attempt
from outlast.core.events import iso
from outlast.core.outgoing import Subscription
from outlast.outbox import signing
from outlast.outbox.address import PUBLIC, Reach, Resolver, SystemResolver
from outlast.outbox.dispatcher import Dispatcher
from outlast.outbox.headers import veiled
from outlast.outbox.post import Poster
from outlast.runtime.clocks import SystemClock, chance, new_id, process_id
from outlast.store.port import Store
from outlast.telemetry import Counters

TEST_TYPE = "dev.outlast.webhook.test"


def dispatch(
    store: Store,
    *,
    reach: Reach = PUBLIC,
    clock: Clock | None = None,
    resolve: Resolver | None = None,
    counters: Counters | None = None,
) -> Dispatcher:
    """A dispatcher that was never started: `await it.run()`, and `drain()` ends it.

    `reach`: what the operator allows besides https:// addresses on the internet; `resolve`: in place of the system's
    resolver. While the store has no subscription it costs one read of one row a second.
    """
    time = clock or SystemClock()

    def poster() -> Poster:
        own = SystemResolver()  # no other receiver waits for this one's name server
        return Poster(reach, resolve or own, time, ended=own.close)

    return Dispatcher(store, process_id("d"), clock=time, chance=chance, poster=poster, counters=counters)


async def send_test(row: Subscription, reach: Reach, resolve: Resolver | None = None) -> Attempt:
    """Send a signed event of TEST_TYPE that is in no history."""
    clock = SystemClock()
    message, wall = new_id("evt_test_"), clock.wall()
    body = canonical({
        "specversion": "1.0",
        "id": message,
        "source": f"/{row.tenant}",
        "type": TEST_TYPE,
        "subject": row.subscription,
        "time": iso(wall),
        "datacontenttype": "application/json",
        "data": {"webhook": row.subscription},
    })  # fmt: skip
    own = SystemResolver()
    poster = Poster(reach, resolve or own, clock, ended=own.close)
    try:
        secrets = deliveries.secrets_of(row, wall)
        signed = signing.headers(message, body, secrets, wall, sequence=0, previous=0, subscription=row.subscription)
        return veiled(await poster.post(row.url, {**deliveries.headers_of(row), **signed}, body), row)
    finally:
        await poster.close()

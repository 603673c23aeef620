"""Subscriptions to messages for approvers: one address for a role, a person or every approval."""

from collections.abc import Iterable

from outlast.clocks import new_id
from outlast.core.acts import KeyedAct
from outlast.core.addresses import AddressPolicy, NotAllowed
from outlast.core.approvals import Actor
from outlast.core.approver_rule import Person
from outlast.core.commit import Instant
from outlast.core.keys import check_name
from outlast.core.rows.outbox_rows import Subscription
from outlast.core.webhooks import deliveries
from outlast.core.webhooks.approval_notices import KINDS, ROLE, accepted_audience, short
from outlast.core.webhooks.webhook_details import SubscriptionTerms, check_webhook_details
from outlast.errors import InvalidInput
from outlast.operations.webhook_operations import AddNotification
from outlast.outbox import subscriptions
from outlast.outbox.address import Resolver, SystemResolver, checked_addresses
from outlast.outbox.channel_address import checked_channel
from outlast.store.port import Store


async def add_notification(
    store: Store,
    tenant: str,
    actor: Actor,
    request: AddNotification,
    *,
    reach: AddressPolicy,
    resolve: Resolver | None = None,
    act: KeyedAct | None = None,
) -> Subscription:
    """Store a subscription for approvers, once for each act. Raises InvalidInput, LimitExceeded."""
    audience, wanted = _audience(request.role, request.person, request.every), _kinds(request.kinds)
    check_webhook_details(request.details)
    shown = await _checked(request.address, reach, resolve)
    terms = SubscriptionTerms(shown, request.details, wanted, tuple(request.workflows), audience=audience)
    subscription = new_id("wh_")

    def make(now: Instant, since: int) -> Subscription:
        return deliveries.subscribe(
            tenant, subscription, terms, secret=request.address, since=since, by=actor.name, now=now
        )

    return await subscriptions.add(store, make, tenant, act)


async def check_notification(row: Subscription, reach: AddressPolicy, resolve: Resolver | None) -> None:
    """Check the address of a stored subscription again. Raises InvalidInput."""
    await _checked(row.secret.key, reach, resolve)


async def _checked(address: str, reach: AddressPolicy, resolve: Resolver | None) -> str:
    """Return an address without its secrets, if it and every address of its host are allowed. Raises InvalidInput."""
    channel = checked_channel(address, reach)
    own = SystemResolver()
    try:
        await checked_addresses(channel.host, channel.port, resolve or own, reach)
    except NotAllowed as error:
        raise InvalidInput(
            "this address is not allowed for messages to approvers",
            str(error),
            "an operator may allow networks: OUTLAST_WEBHOOKS__ALLOW_NETWORKS=10.1.0.0/16; for this machine "
            "OUTLAST_WEBHOOKS__ALLOW_PRIVATE=true",
        ) from error
    except (OSError, ValueError) as error:  # TimeoutError among them
        raise InvalidInput(
            f"the host {channel.host} cannot be found", str(error) or "no answer in time", "check its spelling"
        ) from error
    finally:
        own.close()
    return channel.shown


def _audience(role: str, person: str, every: bool) -> str:
    """Return the one audience that the caller named. Raises InvalidInput."""
    found = accepted_audience(role, person, every)
    if len(found) != 1:
        raise InvalidInput(
            "messages for approvers go to one audience",
            f"{len(found)} are named",
            "name a role, a person, or every approval: --for finance, --for person:ana, --every",
        )
    if found[0].startswith(ROLE):
        check_name("role", role)
    elif person:
        Person(found[0].partition(":")[2])
    return found[0]


def _kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of messages by their short names. Raises InvalidInput."""
    by_name = {short(kind): kind for kind in KINDS}
    wanted = tuple(kinds)
    if unknown := [each for each in wanted if each not in by_name]:
        raise InvalidInput(
            "some kinds of messages do not exist",
            problems=[("kinds", each) for each in unknown],
            fix=f"choose from {', '.join(by_name)}",
        )
    return tuple(by_name[each] for each in wanted)

"""Subscriptions: create, change and remove them, and tell the store which tenants have one.

OUTLETS lists the tenants whose events are recorded as unpublished. It is written or expected by the commit that makes a
subscription active or ends one, so that no event of a subscribed tenant is lost.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import unquote

from outlast.core.acts import KeyedAct, with_token
from outlast.core.commit import Commit, Expect, Instant, Put, When
from outlast.core.durations import SECOND
from outlast.core.limits import HEADER_CHARS_MAX, HEADERS_MAX, SUBSCRIPTIONS_MAX
from outlast.core.machine import SubscriptionStatus, can
from outlast.core.rows.outbox_rows import SUBSCRIPTION, Subscription
from outlast.core.rows.row_kind import version_of
from outlast.core.rows.store_rows import META, Meta
from outlast.core.webhooks import deliveries
from outlast.core.webhooks.deliveries import (
    SUBSCRIBED_TENANTS,
    Attempt,
    headers_of,
    secrets_in,
    subscribed_tenants_row,
    tenants_of,
)
from outlast.errors import Conflict, InvalidInput, LimitExceeded, NotFound, Stale
from outlast.store.landed_acts import done_before
from outlast.store.port import Store
from outlast.telemetry.redact import KNOWN_CHARS_MIN, redact

TRIES = 20
LEAD_MS = 200  # from reading the clock to the `since` of a new subscription
LEAD_MAX_MS = 5_000  # after commits that came too late, because the store is slow
T = TypeVar("T")
REMOVED = SubscriptionStatus.REMOVED


async def of_tenant(store: Store, tenant: str) -> tuple[Subscription, ...]:
    """Return every subscription of a tenant that is not removed, ordered by id."""
    rows = await store.rows(SUBSCRIPTION, (tenant,))
    return tuple(row for row in rows if row.status is not REMOVED)


async def get(store: Store, tenant: str, subscription: str) -> Subscription:
    """Return one subscription that is not removed. Raises NotFound."""
    row = await store.load(SUBSCRIPTION, (tenant, subscription))
    if row is None or row.status is REMOVED:
        raise NotFound(
            f"no webhook {subscription}",
            f"tenant {tenant} has no webhook with this id",
            "list them with: outlast webhooks ls",
        )
    return row


async def add(
    store: Store, make: Callable[[Instant, int], Subscription], tenant: str, act: KeyedAct | None = None
) -> Subscription:
    """Store a new subscription, and return when its `since` has passed, so that it receives everything the caller does
    next.

    The commit lands before `since` or not at all. An event of `since` or later is therefore committed after it, and a
    dispatcher that reads unpublished events before subscriptions finds both. Raises LimitExceeded. The subscription of
    an act that landed before is returned as it is.
    """
    if (before_it := await _of_act(store, tenant, act)) is not None:
        return before_it
    if len(await of_tenant(store, tenant)) >= SUBSCRIPTIONS_MAX:
        raise LimitExceeded(f"{tenant} has {SUBSCRIPTIONS_MAX} webhooks, which is the maximum")
    lead_ms = LEAD_MS
    for _ in range(TRIES):
        subscribed_tenants = await _note_events_of(store, tenant)
        now = await store.now()
        since = store.mapping().business(now.real + lead_ms)
        row = make(now, since)
        before = When(since, False, "business", "since")
        commit = Commit(
            (Put(SUBSCRIPTION, row, 0),),
            None,
            (_as_read(subscribed_tenants),),
            (before,),
            f"{row.subscription} add",
        )
        try:
            await store.commit(with_token(commit, act, row.subscription, now))
        except Stale:  # another subscription was added or ended, or the commit was too late
            if (before_it := await _of_act(store, tenant, act)) is not None:
                return before_it
            if (await store.now()).business >= since:
                lead_ms = min(2 * lead_ms, LEAD_MAX_MS)
            continue
        for _ in range(TRIES):
            if (await store.now()).business >= since:
                break
            await asyncio.sleep(lead_ms / TRIES * 2 / SECOND)
        return row
    raise Conflict(
        "the webhook was not added",
        f"{TRIES} commits came too late or met a change of another webhook",
        "try again; if it stays so, the store is slow",
    )


async def _of_act(store: Store, tenant: str, act: KeyedAct | None) -> Subscription | None:
    """Return the subscription that an act has made or changed, as it is; None if the act has not landed."""
    token = await done_before(store, act)
    return await store.load(SUBSCRIPTION, (tenant, token.target)) if token is not None else None


async def change(
    store: Store,
    tenant: str,
    subscription: str,
    move: Callable[[Subscription, Instant], Subscription],
    verb: str,
    act: KeyedAct | None = None,
) -> Subscription:
    """Apply a change of core/webhooks/deliveries.py to a subscription, and update OUTLETS. Raises NotFound, Conflict.

    The subscription of an act that landed before is returned as it is, also if it is removed.
    """
    for _ in range(TRIES):
        if (done := await _of_act(store, tenant, act)) is not None:
            return done
        row = await get(store, tenant, subscription)
        if not can(verb, row.status):
            raise Conflict(f"webhook {subscription} is {row.status.value}, so it is not possible to {verb} it", row.why)
        now = await store.now()
        after = move(row, now)
        subscribed_tenants: Meta | None
        if deliveries.is_active(after):
            subscribed_tenants = await _note_events_of(store, tenant)
            rest: tuple[Put, ...] = ()
        else:
            subscribed_tenants = await store.load(META, SUBSCRIBED_TENANTS)
            rest = await _without(store, tenant, subscription, subscribed_tenants)
        expects = () if rest else (_as_read(subscribed_tenants),)
        puts = (Put(SUBSCRIPTION, after, row.version), *rest)
        commit = Commit(puts, expects=expects, label=f"{subscription} {verb}")
        try:
            await store.commit(with_token(commit, act, subscription, now))
        except Stale:
            continue
        return after
    raise _keeps_changing()


async def _note_events_of(store: Store, tenant: str) -> Meta:
    """Make the store record the tenant's events from now on. Return the row of OUTLETS."""
    for _ in range(TRIES):
        row = await store.load(META, SUBSCRIBED_TENANTS)
        if tenant in tenants_of(row):
            assert row is not None
            return row
        after = subscribed_tenants_row(row, {*tenants_of(row), tenant})
        try:
            await store.commit(Commit((Put(META, after, after.version - 1),), label=f"{tenant} outlet"))
        except Stale:
            continue
        return after
    raise _keeps_changing()


async def _without(store: Store, tenant: str, subscription: str, subscribed_tenants: Meta | None) -> tuple[Put, ...]:
    """Return the write that removes the tenant from OUTLETS, if this was its last active subscription."""
    others = [row for row in await of_tenant(store, tenant) if row.subscription != subscription]
    if tenant not in tenants_of(subscribed_tenants) or any(deliveries.is_active(row) for row in others):
        return ()
    after = subscribed_tenants_row(subscribed_tenants, tenants_of(subscribed_tenants) - {tenant})
    return (Put(META, after, after.version - 1),)


def _keeps_changing() -> Conflict:
    return Conflict("the webhook was not changed", f"others changed the webhooks {TRIES} times meanwhile", "try again")


def _as_read(row: Meta | None) -> Expect:
    return Expect(META, SUBSCRIBED_TENANTS, 0 if row is None else version_of(META, row))


SAFE: Final = re.compile(r"x-[a-z0-9]+(?:-[a-z0-9]+)*|api-?key")
NEVER: Final = re.compile(
    r"x-(?:forwarded|original|rewrite|real|host|http|method|envoy|amzn?|cluster|remote|client|outlast|webhook)(?:-.*)?"
)
"""Headers that proxies and frameworks trust (client, host, method), and names that Outlast sets."""
VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def checked_headers(given: Mapping[str, str]) -> dict[str, str]:
    """Return the headers by lower-case name if all are allowed. Raises InvalidInput, without values."""
    problems: list[tuple[str, str]] = []
    if len(given) > HEADERS_MAX:
        problems.append(("headers", f"at most {HEADERS_MAX} are allowed"))
    found: dict[str, str] = {}
    for name, value in given.items():
        low = name.lower()
        if len(name) > 100 or not SAFE.fullmatch(low) or NEVER.fullmatch(low):
            problems.append(
                (name[:100], "only X-… and Api-Key are allowed, except names that proxies and frameworks trust")
            )
        elif low in found:
            problems.append((name, "it is given twice"))
        elif len(value) > HEADER_CHARS_MAX or not VALUE.fullmatch(value):
            problems.append(
                (
                    name,
                    f"its value must be 1 to {HEADER_CHARS_MAX} printable ASCII characters without surrounding spaces",
                )
            )
        else:
            found[low] = value
    if problems:
        raise InvalidInput("these headers are not allowed for a webhook", problems=problems)
    return found


_OF_SERVICES: Final = frozenset({
    "services", "workflows", "triggers", "manual", "paths", "invoke", "powerautomate", "automations", "direct",
    "webhook", "webhooks",
})  # fmt: skip
"""Words in paths of public services, which are no secrets and which answers repeat."""


def _secrets_in_address(address: str) -> tuple[str, ...]:
    """Return the parts of an address that no text may repeat. Its host is shown, so it is no secret."""
    _, _, rest = address.partition("://")
    authority, _, path = rest.partition("/")
    path, _, query = path.partition("?")
    named = [each.partition("=") for each in query.split("&")]
    parts = [address, rest, *authority.rpartition("@")[0].split(":"), path, *path.split("/"), query]
    parts += [value or name for name, _, value in named]
    known = {each for part in parts for each in (part, unquote(part))}
    return tuple(each for each in known if len(each) >= KNOWN_CHARS_MIN and each not in _OF_SERVICES)


def redacted_attempt(attempt: Attempt, row: Subscription) -> Attempt:
    """Return the attempt without the subscription's secrets, which a receiver may echo."""
    own = _secrets_in_address(row.secret.key) if row.audience else (*secrets_in(row), *_secrets_in_address(row.url))
    known = [each for each in (*own, *headers_of(row).values()) if len(each) >= KNOWN_CHARS_MIN]
    return attempt._replace(answer=redact(attempt.answer, known), error=redact(attempt.error, known))

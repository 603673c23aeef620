"""Webhooks of a tenant: subscribe, inspect, redeliver, rotate, test.

Rows leave this module without their secrets. Only `add` and `rotate` return a secret, once.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from typing_extensions import override

from outlast.clocks import SystemClock, chance, new_id, new_secret, process_id
from outlast.core.acts import KeyedAct, act_of, with_token
from outlast.core.addresses import PUBLIC, AddressPolicy, NotAllowed
from outlast.core.approvals import Actor
from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Instant, Put
from outlast.core.durations import DELIVERY_ALIVE, SECOND, SECRET_KEPT, ms_of
from outlast.core.events import EventType
from outlast.core.limits import NAME
from outlast.core.machine import RULES, Choice, DeliveryStatus, Reason, consequence_of
from outlast.core.paging import pages
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, UNPUBLISHED, Delivery, Subscription
from outlast.core.rows.run_rows import EVENT, Event
from outlast.core.rows.store_rows import META
from outlast.core.webhooks import deliveries
from outlast.core.webhooks.approval_notices import event_of, is_reminder
from outlast.core.webhooks.deliveries import (
    DISPATCHER_HEARTBEAT,
    GONE,
    SUBSCRIBED_TENANTS,
    Attempt,
    delivery_id,
    delivery_place,
    headers_of,
    sign_of,
    tenants_of,
)
from outlast.core.webhooks.webhook_details import WEBHOOK_DETAILS, SubscriptionTerms, check_webhook_details
from outlast.errors import Conflict, InvalidInput, NotFound, Stale, to_install
from outlast.insight.attention_reads import offered_choice
from outlast.models import exact_instant, instant
from outlast.models.attention import WebhookAttention
from outlast.models.webhooks import (
    DeliveryList,
    RedeliveryRecorded,
    WebhookAttempt,
    WebhookDelivery,
    WebhookDetail,
    WebhookList,
    WebhookSummary,
    WebhookWithSecret,
)
from outlast.operations import webhook_operations
from outlast.operations import webhook_operations as webhook_ops
from outlast.operations.declaration import Operation, OperationRequest
from outlast.operations.handlers import handlers_of, handles
from outlast.outbox import subscriptions
from outlast.outbox.address import Resolver, SystemResolver, checked_addresses, checked_url
from outlast.outbox.channel_address import refusal_of
from outlast.outbox.subscriptions import checked_headers
from outlast.runtime.notifications import add_notification, check_notification
from outlast.runtime.webhook_client import WebhookClient
from outlast.store.landed_acts import done_before
from outlast.store.port import Store
from outlast.store.queries import Owing, Page
from outlast.telemetry import Counters

if TYPE_CHECKING:
    from outlast.runtime.settings import Settings


KEPT: Final = timedelta(milliseconds=SECRET_KEPT)
PAGE: Final = 100
TRIES: Final = 20
AT_ONCE: Final = 1_000
"""Maximum of events that one request sends again."""
ENABLED: Final = "the webhook is enabled, and its deliveries are sent again"
TEST_ID_CHARS: Final = 20
"""Of the id of a test event that is sent under a key."""
R = TypeVar("R")
TYPES: Final = frozenset(each.value for each in EventType)


class Webhooks(WebhookClient):
    """Webhooks of one tenant in a store, changed on behalf of one actor."""

    def __init__(
        self, store: Store, tenant: str, actor: Actor, reach: AddressPolicy = PUBLIC, resolve: Resolver | None = None
    ) -> None:
        """`reach`: addresses allowed besides https:// on the internet; `resolve`: replaces the system's resolver."""
        self.reach = reach
        self._resolve = resolve
        self._store = store
        self._tenant = tenant
        self._actor = actor
        self.idempotency_key = ""
        """Key of the one request that this object serves; an act without another key is carried out under it."""

    def _act(self, operation: str, idempotency_key: str = "", *content: object) -> KeyedAct | None:
        key = idempotency_key or self.idempotency_key
        return act_of(self._tenant, self._actor.name, operation, key, *content) if key else None

    @override
    def _call(self, request: OperationRequest[R]) -> Coroutine[Any, Any, R]:
        return HANDLERS[type(request)](self, request)

    perform = _call  # for routes and pages, whose requests are valid

    @handles(webhook_ops.ADD_WEBHOOK)
    async def _add_webhook(self, request: webhook_ops.AddWebhook) -> WebhookWithSecret:
        """Add a webhook. Of one that a request under the same key has added before, return it with an empty secret.

        `dev.outlast.workflow.*` selects types by prefix. The form of the URL and every address of its host are
        checked. For the headers, see `checked_headers`; their values are secrets.
        """
        check_webhook_details(request.details)
        terms = SubscriptionTerms(
            request.url,
            request.details,
            event_types(request.types),
            _names(request.workflows),
            tuple(checked_headers(request.headers or {}).items()),
            request.from_start,
            request.forks,
        )
        further = ("forks",) if terms.forks else ()  # a request without it has the content of earlier versions
        of_events = (terms.types, terms.workflows, dict(terms.headers), terms.from_start)
        content = (request.url, *terms.details, *of_events, *further)
        act = self._act("add_webhook", request.idempotency_key, *content)
        if not await done_before(self._store, act):
            await self._check(request.url)
        secret = new_secret()
        subscription = new_id("wh_")

        def make(now: Instant, since: int) -> Subscription:
            return deliveries.subscribe(
                self._tenant, subscription, terms, secret=secret, since=since, by=self._actor.name, now=now
            )

        row = await subscriptions.add(self._store, make, self._tenant, act)
        new = row.subscription == subscription
        return WebhookWithSecret(**vars(webhook_summary(row)), secret=secret if new else "")

    @handles(webhook_ops.ADD_NOTIFICATION)
    async def _add_notification(self, request: webhook_ops.AddNotification) -> WebhookSummary:
        _names(request.workflows)
        who = (request.address, request.role, request.person, request.every)
        what = (tuple(request.kinds), tuple(request.workflows), *request.details)
        act = self._act("add_notification", request.idempotency_key, *who, *what)
        row = await add_notification(
            self._store, self._tenant, self._actor, request, reach=self.reach, resolve=self._resolve, act=act
        )
        return webhook_summary(row)

    async def rows(self) -> tuple[Subscription, ...]:
        """Return the row of every webhook that is not removed, without its secret."""
        return tuple(deliveries.shown(row) for row in await subscriptions.of_tenant(self._store, self._tenant))

    async def refused(self) -> Sequence[tuple[str, str]]:
        """Return the active subscriptions of approvers whose address is not accepted, with the reason."""
        rows = await subscriptions.of_tenant(self._store, self._tenant)
        mine = [row for row in rows if row.audience and deliveries.is_active(row)]
        return [(row.subscription, why) for row in mine if (why := refusal_of(row, self.reach))]

    async def row(self, webhook: str) -> Subscription:
        """Return the row of a webhook without its secret. Raises NotFound."""
        return deliveries.shown(await subscriptions.get(self._store, self._tenant, webhook))

    @handles(webhook_ops.LIST_WEBHOOKS)
    async def _list_webhooks(self, request: webhook_ops.ListWebhooks) -> WebhookList:
        """Return every webhook without its delivery counts."""
        rows = [webhook_summary(row) for row in await self.rows()]
        return WebhookList(webhooks=rows, unsent_ms=await self.unsent_ms())

    @override
    async def list(self) -> Sequence[WebhookDetail]:
        return [await self._detail(row) for row in await self.rows()]

    @handles(webhook_ops.GET_WEBHOOK)
    async def _get_webhook(self, request: webhook_ops.GetWebhook) -> WebhookDetail:
        return await self._detail(await self.row(request.webhook))

    async def _detail(self, row: Subscription) -> WebhookDetail:
        subscription = row.subscription
        counts = dict.fromkeys((DeliveryStatus.DEAD, DeliveryStatus.OWED), 0)
        for status in counts:
            where: dict[str, str | int] = {"subscription": subscription, "status": status.value}
            read = partial(self._store.page, DELIVERY, self._tenant, where, limit=PAGE)
            counts[status] = sum([len(page.rows) async for page in pages(read)])
        now = (await self._store.now()).real
        listed = await self._store.query(Owing(self._tenant, subscription, PAGE))
        owing = [row for row in listed if row.owed_since <= now]
        oldest = min((row.owed_since for row in owing if row.owed_since), default=None)
        return WebhookDetail(
            **vars(webhook_summary(row)),
            dead=counts[DeliveryStatus.DEAD],
            owed=counts[DeliveryStatus.OWED],
            behind=len(owing),
            more=len(listed) == PAGE,
            oldest_at_real=instant(oldest or 0),
        )

    @override
    async def unsent_ms(self) -> int:
        return await unattended_ms(self._store, self._tenant)

    async def attention(self) -> Sequence[WebhookAttention]:
        """Return webhooks that need a person, as attention items: with failed deliveries, or disabled by the
        dispatcher.
        """
        items = []
        for row in await self.rows():
            dead, _ = await self._page(row.subscription, DeliveryStatus.DEAD, limit=PAGE)
            by_itself = not deliveries.is_active(row) and row.why == GONE
            if not dead and not by_itself:
                continue
            name = row.subscription
            again, off = f"outlast webhooks redeliver {name}", f'outlast webhooks disable {name} --reason "…"'
            commands = {Choice.REDELIVER: again, Choice.DISABLE: off}
            if by_itself:
                commands = {Choice.REDELIVER: f"outlast webhooks enable {name}"}
            items.append(
                WebhookAttention(
                    run="",
                    reason=Reason.WEBHOOK_DEAD.value,
                    detail=row.why if by_itself else dead[0].error,
                    since=exact_instant(min((each.first_at for each in dead), default=row.changed_at)),
                    until=None,
                    if_ignored=RULES[Reason.WEBHOOK_DEAD].if_ignored,
                    choices=[
                        offered_choice(choice.value, text, ENABLED if by_itself else consequence_of(choice))
                        for choice, text in commands.items()
                    ],
                    webhook=name,
                    url=row.url,
                    events=len(dead),
                    more=len(dead) == PAGE,
                )
            )
        return items

    @handles(webhook_ops.TEST_WEBHOOK)
    async def _test_webhook(self, request: webhook_ops.TestWebhook) -> WebhookAttempt:
        """The event has the type `dev.outlast.webhook.test`. Raises Conflict if the webhook is not active."""
        row = await subscriptions.get(self._store, self._tenant, request.webhook)
        if not deliveries.is_active(row):
            raise Conflict(f"webhook {request.webhook} is {row.status.value}", row.why, "enable it first")
        act = self._act("test_webhook", "", request.webhook)  # a receiver drops a repetition, which has the same id
        event = f"evt_test_{act.id[:TEST_ID_CHARS]}" if act is not None else new_id("evt_test_")
        attempt: Attempt = await load_sender().send_test(
            row, event, clock=SystemClock(), reach=self.reach, resolve=self._resolve
        )
        return WebhookAttempt(webhook=request.webhook, accepted=not attempt.error, **attempt._asdict())

    @handles(webhook_ops.LIST_DELIVERIES)
    async def _list_deliveries(self, request: webhook_ops.ListDeliveries) -> DeliveryList:
        return await self._deliveries(request.webhook, request)

    @handles(webhook_ops.LIST_ALL_DELIVERIES)
    async def _list_all_deliveries(self, request: webhook_ops.ListAllDeliveries) -> DeliveryList:
        return await self._deliveries("", request)

    async def _deliveries(
        self, webhook: str, request: webhook_ops.ListDeliveries | webhook_ops.ListAllDeliveries
    ) -> DeliveryList:
        page = await self._page(webhook, request.status, cursor=request.cursor, limit=request.limit)
        business = self._store.mapping().business
        return DeliveryList(deliveries=[webhook_delivery(row, business) for row in page.rows], next_cursor=page.cursor)

    async def _page(
        self, webhook: str, status: DeliveryStatus | None, *, cursor: str = "", limit: int
    ) -> Page[Delivery]:
        """Return deliveries that were not accepted at the first attempt, newest first; others have no row."""
        where: dict[str, str | int] = {}
        if webhook:
            where["subscription"] = (await self.row(webhook)).subscription
        if status is not None:
            where["status"] = status.value
        return await self._store.page(DELIVERY, self._tenant, where, cursor=cursor, limit=limit)

    @handles(webhook_ops.REDELIVER)
    async def _redeliver_one(self, request: webhook_ops.Redeliver) -> WebhookDelivery:
        """Send an event again that was delivered or given up: the same bytes and webhook-id, outside the order of its
        run.

        Raises NotFound, Conflict (not delivered yet).
        """
        return await self._redeliver(request.delivery, self._act("redeliver", "", request.delivery))

    async def _redeliver(self, delivery: str, act: KeyedAct | None) -> WebhookDelivery:
        name, run, seq = delivery_place(delivery)
        subscription = await subscriptions.get(self._store, self._tenant, name)
        at = event_of(seq)
        event = await self._store.load(EVENT, (self._tenant, run, at))
        if event is None:
            raise NotFound(f"no event {at} of run {run}", "it does not exist or was purged")
        for _ in range(TRIES):
            cursor = await self._store.load(CURSOR, (self._tenant, run, name))
            before = await self._store.load(DELIVERY, (self._tenant, run, name, seq))
            if before is not None and await done_before(self._store, act):
                return webhook_delivery(before, self._store.mapping().business)
            if before is None and (subscription.audience or is_reminder(seq)):
                raise NotFound(f"no delivery {delivery}", "no message to approvers was sent after this event")
            if cursor is None or cursor.seq < at:
                raise _not_sent(subscription, event)
            if before is not None and before.status is DeliveryStatus.OWED:
                raise Conflict(f"{delivery} will be retried anyway", "it has not been given up")
            if before is not None and before.status is DeliveryStatus.SCHEDULED:
                raise Conflict(f"{delivery} is not due yet", "it is a reminder, sent before the approval's deadline")
            now = await self._store.now()
            row = deliveries.redeliver(subscription.subscription, event, before, by=self._actor.name, now=now)
            after = deliveries.ask_again(cursor, now)
            puts = (Put(DELIVERY, row, row.version - 1), Put(CURSOR, after, cursor.version))
            try:
                await self._store.commit(with_token(Commit(puts, label=f"{run} redeliver {seq}"), act, delivery, now))
            except Stale:
                continue  # a dispatcher was faster
            return webhook_delivery(row, self._store.mapping().business)
        raise Conflict(f"{delivery} keeps changing", fix="try again")

    @handles(webhook_ops.REDELIVER_DEAD)
    async def _redeliver_dead(self, request: webhook_ops.RedeliverDead) -> RedeliveryRecorded:
        n = await self.redeliver_dead(request.webhook)
        return RedeliveryRecorded(redelivered=request.webhook, events=n, more=n >= AT_ONCE)

    async def redeliver_dead(self, webhook: str, *, limit: int = AT_ONCE) -> int:
        """Send again every event that was given up for this webhook, at most `limit`, and return their number.

        Events that another caller redelivers or that are purged are skipped. Raises NotFound.
        """
        done = 0
        async for page in pages(partial(self._page, webhook, DeliveryStatus.DEAD, limit=min(PAGE, limit))):
            for row in page.rows:
                if done == limit:
                    return done
                try:
                    await self._redeliver(delivery_id(row), None)  # sent again only while it is given up
                except (Conflict, NotFound):
                    continue
                done += 1
        return done

    @handles(webhook_ops.ROTATE_WEBHOOK)
    async def _rotate_webhook(self, request: webhook_ops.RotateWebhook) -> WebhookWithSecret:
        """Replace the secret. After a rotation by a request under the same key, return it with an empty secret.

        Raises NotFound, Conflict (not active, changed), InvalidInput.
        """
        secret = new_secret()
        keep_ms = ms_of("keep", KEPT if request.keep is None else request.keep)
        if keep_ms < 0:
            raise InvalidInput("the old secret cannot be kept for a negative time")
        act = self._act("rotate_webhook", request.idempotency_key, request.webhook, keep_ms)
        if await done_before(self._store, act) is None and (await self.row(request.webhook)).audience:
            raise Conflict(
                f"{request.webhook} has no signing secret",
                "it sends messages to approvers; its secret is its address",
                f"outlast notify add … with the new address, then outlast notify rm {request.webhook}",
            )
        by = self._actor.name

        def rotation(row: Subscription, now: Instant) -> Subscription:
            return deliveries.rotate(row, secret, keep_ms, by=by, now=now, seen=request.version)

        row = await subscriptions.change(self._store, self._tenant, request.webhook, rotation, "rotate", act)
        new = row.secret.key == secret
        return WebhookWithSecret(**vars(webhook_summary(row)), secret=secret if new else "")

    @handles(webhook_ops.DISABLE_WEBHOOK)
    async def _disable_webhook(self, request: webhook_ops.DisableWebhook) -> WebhookSummary:
        return await self._change(
            request.webhook,
            "disable",
            lambda row, now: deliveries.disable(row, request.reason, by=self._actor.name, now=now),
            self._act("disable_webhook", "", request.webhook, request.reason),
        )

    @handles(webhook_ops.ENABLE_WEBHOOK)
    async def _enable_webhook(self, request: webhook_ops.EnableWebhook) -> WebhookSummary:
        act = self._act("enable_webhook", "", request.webhook)
        if await done_before(self._store, act) is None:
            row = await subscriptions.get(self._store, self._tenant, request.webhook)
            if row.audience:
                await check_notification(row, self.reach, self._resolve)
            else:
                await self._check(row.url)
        return await self._change(
            request.webhook, "enable", lambda row, now: deliveries.enable(row, by=self._actor.name, now=now), act
        )

    @handles(webhook_ops.REMOVE_WEBHOOK)
    async def _remove_webhook(self, request: webhook_ops.RemoveWebhook) -> WebhookSummary:
        return await self._change(
            request.webhook,
            "remove",
            lambda row, now: deliveries.remove(row, by=self._actor.name, now=now),
            self._act("remove_webhook", "", request.webhook),
        )

    async def _change(
        self, webhook: str, verb: str, move: Callable[[Subscription, Instant], Subscription], act: KeyedAct | None
    ) -> WebhookSummary:
        return webhook_summary(await subscriptions.change(self._store, self._tenant, webhook, move, verb, act))

    async def _check(self, url: str) -> None:
        """Check the form of the URL and every address of its host. Raises InvalidInput."""
        parsed = checked_url(url, self.reach)
        own = SystemResolver()
        try:
            await checked_addresses(parsed.host, parsed.port, self._resolve or own, self.reach)
        except NotAllowed as error:
            raise InvalidInput(
                "this address is not allowed for a webhook",
                str(error),
                "an operator may allow networks: OUTLAST_WEBHOOKS__ALLOW_NETWORKS=10.1.0.0/16; for this machine "
                "OUTLAST_WEBHOOKS__ALLOW_PRIVATE=true, and OUTLAST_WEBHOOKS__ALLOW_HTTP=true for http://",
            ) from error
        except (OSError, ValueError) as error:  # TimeoutError among them
            raise InvalidInput(
                f"the host {parsed.host} cannot be found", str(error) or "no answer in time", "check its spelling"
            ) from error
        finally:
            own.close()


OF_WEBHOOKS: Final = tuple(each for each in vars(webhook_operations).values() if isinstance(each, Operation))
HANDLERS: Final = handlers_of(Webhooks, OF_WEBHOOKS)


def reach_of(settings: "Settings") -> AddressPolicy:
    """Return the addresses that the settings allow webhooks to reach. Raises InvalidInput."""
    allowed = settings.webhooks
    return AddressPolicy.of(private=allowed.allow_private, plain=allowed.allow_http, networks=allowed.allow_networks)


def new_dispatcher(
    store: Store,
    *,
    reach: AddressPolicy = PUBLIC,
    clock: Clock | None = None,
    resolve: Resolver | None = None,
    counters: Counters | None = None,
    public_url: str = "",
) -> Any:
    """Return a dispatcher of this process, not started: `run()` serves until `drain()`.

    `reach`: addresses the operator allows besides https:// on the internet; `resolve`: replaces the system's resolver;
    `public_url`: address of the service for people. Raises InvalidInput if the extra `service` is not installed.
    """
    return load_sender().dispatcher_of(
        store,
        process_id("d"),
        clock=clock or SystemClock(),
        chance=chance,
        reach=reach,
        resolve=resolve,
        counters=counters,
        public_url=public_url,
    )


def load_sender() -> Any:
    """Import and return the module that sends. Raises InvalidInput if the extra `service` is not installed.

    It is imported on demand, because the HTTP client is slow to import and the signer is an extra.
    """
    try:
        return import_module("outlast.outbox.dispatcher")
    except ModuleNotFoundError as error:
        if error.name != "standardwebhooks":
            raise
        raise InvalidInput(
            "sending webhooks needs the extra `service`",
            "standardwebhooks is not installed",
            to_install("service"),
        ) from None


def event_types(types: Iterable[str]) -> tuple[str, ...]:
    """Return the event types if each exists or is a prefix of one with a star. Raises InvalidInput."""
    wanted = tuple(types)
    unknown = [
        each
        for each in wanted
        if each not in TYPES and not (each.endswith("*") and any(t.startswith(each[:-1]) for t in TYPES))
    ]
    if unknown:
        raise InvalidInput(
            "some event types do not exist",
            problems=[("types", each) for each in unknown],
            fix=f"e.g. {EventType.STARTED.value}, dev.outlast.run.*",
        )
    return wanted


def _names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names if each is a valid workflow name. Raises InvalidInput."""
    wanted = tuple(names)
    if bad := [each for each in wanted if not NAME.fullmatch(each)]:
        raise InvalidInput("some names are not valid workflow names", problems=[("workflows", each) for each in bad])
    return wanted


def _not_sent(subscription: Subscription, event: Event) -> Conflict:
    """Return the error for an event that the subscription has not been sent."""
    what = f"event {event.seq} of {event.run}"
    if event.at < subscription.since:
        return Conflict(
            f"webhook {subscription.subscription} does not receive {what}",
            "it happened before the webhook was added",
            "for all stored events: outlast webhooks add URL --from-start",
        )
    return Conflict(
        f"webhook {subscription.subscription} has not received {what} yet",
        "the events of a run are sent in order",
        "a dispatcher sends them: outlast dispatcher",
    )


def webhook_summary(row: Subscription) -> WebhookSummary:
    """Return a subscription without its secrets. `former_until_real`: until when the previous secret also signs."""
    row = deliveries.shown(row)
    return WebhookSummary(
        webhook=row.subscription,
        version=row.version,
        status=row.status.value,
        url=row.url,
        **WEBHOOK_DETAILS.shown_in(row),
        types=list(row.types),
        workflows=list(row.workflows),
        forks=bool(row.forks),
        since=instant(row.since),
        headers=sorted(headers_of(row)),
        why=row.why,
        created_at=instant(row.created_at),
        created_by=row.created_by,
        changed_at=instant(row.changed_at),
        changed_by=row.changed_by,
        former_until_real=instant(row.former_until),
        audience=row.audience,
    )


def webhook_delivery(row: Delivery, business: Callable[[int], int]) -> WebhookDelivery:
    """Return an event that was not accepted at once. `answer` is the receiver's text, redacted before it was stored.

    `business`: converts a real instant to business time.
    """
    return WebhookDelivery(
        delivery=delivery_id(row),
        webhook=row.subscription,
        run=row.run,
        sequence=event_of(row.seq),
        type=row.type,
        webhook_id=row.event,
        status=row.status.value,
        attempts=row.attempts,
        code=row.code,
        error=row.error,
        answer=row.answer,
        took_ms=row.took_ms,
        first_at=instant(row.first_at),
        last_at=instant(row.last_at),
        next_at=instant(business(row.due_at)) if row.due_at else None,
        asked_by=row.by,
    )


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
        marks = await store.rows(UNPUBLISHED, (tenant,), limit=LOOKED_MAX, listed=True)
        if ats := [mark.at for mark in marks]:
            oldest = store.mapping().real(min(ats))
            due, owed = min(due, oldest), min(owed, oldest)
        for row in await subscriptions.of_tenant(store, tenant):
            if not deliveries.is_active(row):
                continue
            for cursor in await store.query(Owing(tenant, row.subscription, LOOKED_MAX)):
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

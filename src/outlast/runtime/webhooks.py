"""Webhooks as people and the service see them: who is told of what, what was not accepted, and what is done about it.

Rows leave here without their secrets: `add` and `rotate` answer the new one, once, and nothing else ever does.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from outlast.core import deliveries
from outlast.core.clock import Clock
from outlast.core.commit import Commit, Instant, Put
from outlast.core.deliveries import GONE, Attempt, headers_of
from outlast.core.durations import SECOND, SECRET_KEPT
from outlast.core.events import EventType, iso
from outlast.core.limits import NAME, TEXT_CHARS_MAX
from outlast.core.machine import Choice, DeliveryStatus, Reason, if_ignored
from outlast.core.rows import CURSOR, DELIVERY, EVENT, Cursor, Delivery, Event, Subscription
from outlast.errors import Conflict, InvalidInput, NotFound, Stale, to_install
from outlast.outbox import subscriptions
from outlast.outbox.address import (
    PUBLIC,
    AddressPolicy,
    NotAllowed,
    Resolver,
    SystemResolver,
    checked_addresses,
    checked_url,
)
from outlast.outbox.subscriptions import checked_headers
from outlast.runtime.attention_answers import choice_view
from outlast.runtime.clocks import SystemClock, chance, new_id, new_secret, process_id
from outlast.runtime.port import Actor
from outlast.runtime.views import instant
from outlast.store.port import Store
from outlast.telemetry import Counters
from outlast.telemetry.redact import redact

if TYPE_CHECKING:
    from outlast.runtime.settings import Settings


KEPT: Final = timedelta(milliseconds=SECRET_KEPT)
PAGE: Final = 100
TRIES: Final = 20
TYPES: Final = frozenset(each.value for each in EventType)


class NewWebhook(NamedTuple):
    """A subscription and its new secret, which is shown this once."""

    subscription: Subscription
    secret: str


class WebhookBacklog(NamedTuple):
    """How a subscription fares: computed from its rows, now."""

    dead: int  # events given up
    owed: int  # events that failed and will be sent again
    behind: int  # runs of which something is still to be told; `more`: at least so many
    more: bool
    oldest_at: int | None  # real; since when the oldest of these waits


def id_of(delivery: Delivery) -> str:
    """What people call a delivery: SUBSCRIPTION:RUN:SEQ."""
    return f"{delivery.subscription}:{delivery.run}:{delivery.seq}"


def parts_of(delivery: str) -> tuple[str, str, int]:
    """Subscription, run and number of the event. Raises NotFound for what is no delivery's id."""
    subscription, _, rest = delivery.partition(":")
    run, _, seq = rest.rpartition(":")
    if not (subscription and run and seq.isascii() and seq.isdigit() and len(seq) < 16):
        raise NotFound(
            f"no delivery {delivery}", "its id is WEBHOOK:RUN:SEQ", "list them with: outlast webhooks deliveries"
        )
    return subscription, run, int(seq)


class Webhooks:
    """The subscriptions of one tenant, changed in one actor's name."""

    def __init__(
        self, store: Store, tenant: str, actor: Actor, reach: AddressPolicy = PUBLIC, resolve: Resolver | None = None
    ) -> None:
        """`reach`: what the operator allows besides https:// addresses on the internet; `resolve`: a resolver of names
        in place of the system's."""
        self.reach = reach
        self._resolve = resolve
        self._store = store
        self._tenant = tenant
        self._actor = actor

    async def add(
        self,
        url: str,
        *,
        name: str = "",
        types: Iterable[str] = (),
        workflows: Iterable[str] = (),
        headers: Mapping[str, str] | None = None,
        from_start: bool = False,
    ) -> NewWebhook:
        """Tell this address of what happens from now on, or (`from_start`) of everything that is there.

        `types`: event types, `dev.outlast.workflow.*` for all that begin so; `workflows`: their names; none = all.
        `headers`: further ones of each delivery (outbox/subscriptions.py says which); their values are secrets.
        The form of the URL and every address that its host has now are checked. Raises InvalidInput, LimitExceeded.
        """
        wanted, flows, further = _types(types), _names(workflows), checked_headers(headers or {})
        if len(name) > TEXT_CHARS_MAX:
            raise InvalidInput(f"a webhook's name has at most {TEXT_CHARS_MAX} characters")
        await self._check(url)
        secret = new_secret()
        subscription = new_id("wh_")

        def make(now: Instant, since: int) -> Subscription:
            return deliveries.subscribe(
                self._tenant,
                subscription,
                url=url,
                secret=secret,
                name=name,
                types=wanted,
                workflows=flows,
                headers=further,
                from_start=from_start,
                since=since,
                by=self._actor.name,
                now=now,
            )

        return NewWebhook(deliveries.shown(await subscriptions.add(self._store, make, self._tenant)), secret)

    async def list(self) -> tuple[Subscription, ...]:
        """Every subscription that was not removed."""
        return tuple(deliveries.shown(row) for row in await subscriptions.of_tenant(self._store, self._tenant))

    async def get(self, subscription: str) -> Subscription:
        """One of them. Raises NotFound."""
        return deliveries.shown(await subscriptions.get(self._store, self._tenant, subscription))

    async def backlog(self, subscription: str) -> WebhookBacklog:
        """How it fares. Raises NotFound."""
        await self.get(subscription)
        counts = dict.fromkeys((DeliveryStatus.DEAD, DeliveryStatus.OWED), 0)
        for status in counts:
            cursor = ""
            while True:
                where: dict[str, str | int] = {"subscription": subscription, "status": status.value}
                page = await self._store.page(DELIVERY, self._tenant, where, cursor=cursor, limit=PAGE)
                counts[status] += len(page.rows)
                if not (cursor := page.cursor):
                    break
        owing = await self._store.owing(self._tenant, subscription, PAGE)
        oldest = min((row.owed_since for row in owing if row.owed_since), default=None)
        return WebhookBacklog(
            counts[DeliveryStatus.DEAD], counts[DeliveryStatus.OWED], len(owing), len(owing) == PAGE, oldest
        )

    async def attention(self) -> tuple[dict[str, Any], ...]:
        """What of webhooks needs a person, as items of the board: one for each that events were given up for, and one
        for each that the dispatcher disabled."""
        items = []
        for row in await self.list():
            dead, _ = await self.deliveries(row.subscription, status=DeliveryStatus.DEAD, limit=PAGE)
            by_itself = not deliveries.is_active(row) and row.why == GONE
            if not dead and not by_itself:
                continue
            name = row.subscription
            again, off = f"outlast webhooks redeliver {name}", f'outlast webhooks disable {name} --reason "…"'
            commands = {Choice.REDELIVER: again, Choice.DISABLE: off}
            if by_itself:
                commands = {Choice.REDELIVER: f"outlast webhooks enable {name}"}
            items.append({
                "run": "",
                "reason": Reason.WEBHOOK_DEAD.value,
                "webhook": name,
                "url": redact(row.url),
                "events": len(dead),
                "more": len(dead) == PAGE,
                "detail": row.why if by_itself else dead[0].error,
                "since": iso(min((each.first_at for each in dead), default=row.changed_at)),
                "until": None,
                "if_ignored": if_ignored(Reason.WEBHOOK_DEAD),
                "choices": [choice_view(choice.value, text) for choice, text in commands.items()],
            })  # fmt: skip
        return tuple(items)

    async def test(self, subscription: str) -> Attempt:
        """Send it a signed event of type `dev.outlast.webhook.test` now, and answer what came back.

        Raises NotFound, Conflict (it is not active).
        """
        row = await subscriptions.get(self._store, self._tenant, subscription)
        if not deliveries.is_active(row):
            raise Conflict(f"webhook {subscription} is {row.status.value}", row.why, "enable it first")
        attempt: Attempt = await load_sender().send_test(
            row, new_id("evt_test_"), clock=SystemClock(), reach=self.reach, resolve=self._resolve
        )
        return attempt

    async def deliveries(
        self, subscription: str = "", *, status: DeliveryStatus | None = None, cursor: str = "", limit: int = 50
    ) -> tuple[tuple[Delivery, ...], str]:
        """Events that were not accepted at the first attempt (others leave no row), the newest first, of this
        subscription or all; and the cursor of the next page. Raises NotFound."""
        where: dict[str, str | int] = {}
        if subscription:
            where["subscription"] = (await self.get(subscription)).subscription
        if status is not None:
            where["status"] = status.value
        page = await self._store.page(DELIVERY, self._tenant, where, cursor=cursor, limit=limit)
        return tuple(row for row in page.rows if isinstance(row, Delivery)), page.cursor

    async def redeliver(self, delivery: str) -> Delivery:
        """Have an event sent again that it was told of or that was given up: SUBSCRIPTION:RUN:SEQ, the same bytes
        under the same webhook-id, beside the order of its run. Raises NotFound, Conflict (not told of it yet)."""
        name, run, seq = parts_of(delivery)
        subscription = await subscriptions.get(self._store, self._tenant, name)
        event = await self._store.load(EVENT, (self._tenant, run, seq))
        if not isinstance(event, Event):
            raise NotFound(f"no event {seq} of run {run}", "or it was purged")
        for _ in range(TRIES):
            cursor = await self._store.load(CURSOR, (self._tenant, run, name))
            before = await self._store.load(DELIVERY, (self._tenant, run, name, seq))
            if not isinstance(cursor, Cursor) or cursor.seq < seq:
                raise _untold(subscription, event)
            assert before is None or isinstance(before, Delivery)
            if before is not None and before.status is DeliveryStatus.OWED:
                raise Conflict(f"{delivery} will be sent again anyway", "it has not been given up")
            now = await self._store.now()
            row = deliveries.redeliver(subscription.subscription, event, before, by=self._actor.name, now=now)
            after = deliveries.ask_again(cursor, now)
            try:
                await self._store.commit(
                    Commit(
                        (Put(DELIVERY, row, row.version - 1), Put(CURSOR, after, cursor.version)),
                        label=f"{run} redeliver {seq}",
                    )
                )
            except Stale:
                continue  # a dispatcher was faster
            return row
        raise Conflict(f"{delivery} keeps changing", fix="try again")

    async def redeliver_dead(self, subscription: str, *, limit: int = 10_000) -> int:
        """Have every event sent again that was given up for this subscription, at most `limit`; answers how many. What
        somebody else asks for meanwhile, or purges, is passed over. Raises NotFound."""
        done, cursor = 0, ""
        while done < limit:
            dead, cursor = await self.deliveries(
                subscription, status=DeliveryStatus.DEAD, cursor=cursor, limit=min(PAGE, limit - done)
            )
            for row in dead:
                try:
                    await self.redeliver(id_of(row))
                except (Conflict, NotFound):
                    continue
                done += 1
            if not cursor:
                break
        return done

    async def rotate(self, subscription: str, *, keep: timedelta = KEPT) -> NewWebhook:
        """Give it a new secret; for `write_to_file` the old one signs too. Raises NotFound, Conflict (not active)."""
        secret = new_secret()
        keep_ms = int(keep.total_seconds() * SECOND)
        if keep_ms < 0:
            raise InvalidInput("the old secret cannot be kept for less than no time")
        by = self._actor.name
        row = await self._change(
            subscription, "rotate", lambda row, now: deliveries.rotate(row, secret, keep_ms, by=by, now=now)
        )
        return NewWebhook(row, secret)

    async def disable(self, subscription: str, *, reason: str) -> Subscription:
        """Tell it nothing until it is enabled again. Raises NotFound, Conflict (disabled already)."""
        return await self._change(
            subscription, "disable", lambda row, now: deliveries.disable(row, reason, by=self._actor.name, now=now)
        )

    async def enable(self, subscription: str) -> Subscription:
        """Go on where it was: what happened meanwhile is told too. Raises NotFound, Conflict, InvalidInput (its
        address is not allowed any more)."""
        await self._check((await self.get(subscription)).url)
        return await self._change(
            subscription, "enable", lambda row, now: deliveries.enable(row, by=self._actor.name, now=now)
        )

    async def remove(self, subscription: str) -> Subscription:
        """End it for ever. Raises NotFound."""
        return await self._change(
            subscription, "remove", lambda row, now: deliveries.remove(row, by=self._actor.name, now=now)
        )

    async def _change(
        self, subscription: str, verb: str, move: Callable[[Subscription, Instant], Subscription]
    ) -> Subscription:
        return deliveries.shown(await subscriptions.change(self._store, self._tenant, subscription, move, verb))

    async def _check(self, url: str) -> None:
        """Its form, and every address that its host has now. Raises InvalidInput."""
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
                f"the host {parsed.host} cannot be found", str(error) or "no answer in time", "is it spelt so?"
            ) from error
        finally:
            own.close()


def reach_of(settings: "Settings") -> AddressPolicy:
    """Where webhooks may lead, as the settings say. Raises InvalidInput."""
    allowed = settings.webhooks
    return AddressPolicy.of(private=allowed.allow_private, plain=allowed.allow_http, networks=allowed.allow_networks)


def new_dispatcher(
    store: Store,
    *,
    reach: AddressPolicy = PUBLIC,
    clock: Clock | None = None,
    resolve: Resolver | None = None,
    counters: Counters | None = None,
) -> Any:
    """Return a dispatcher of this process, not started: `run()` serves until `drain()`.

    `reach`: addresses the operator allows besides https:// on the internet; `resolve`: replaces the system's resolver.
    Raises InvalidInput if the extra `service` is not installed.
    """
    return load_sender().dispatcher_of(
        store,
        process_id("d"),
        clock=clock or SystemClock(),
        chance=chance,
        reach=reach,
        resolve=resolve,
        counters=counters,
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


def _types(types: Iterable[str]) -> tuple[str, ...]:
    """Checked: each is a type that there is, or the beginning of one with a star. Raises InvalidInput."""
    wanted = tuple(types)
    unknown = [
        each for each in wanted
        if each not in TYPES and not (each.endswith("*") and any(t.startswith(each[:-1]) for t in TYPES))
    ]  # fmt: skip
    if unknown:
        raise InvalidInput(
            "some event types are none that Outlast tells of",
            problems=[("types", each) for each in unknown],
            fix=f"e.g. {EventType.STARTED.value}, dev.outlast.run.*",
        )
    return wanted


def _names(names: Iterable[str]) -> tuple[str, ...]:
    """Checked: each can be a workflow's name. Raises InvalidInput."""
    wanted = tuple(names)
    if bad := [each for each in wanted if not NAME.fullmatch(each)]:
        raise InvalidInput("some names can be no workflow's", problems=[("workflows", each) for each in bad])
    return wanted


def _untold(subscription: Subscription, event: Event) -> Conflict:
    """It was never told of this event: not yet, or not ever."""
    what = f"event {event.seq} of {event.run}"
    if event.at < subscription.since:
        return Conflict(
            f"webhook {subscription.subscription} is not told of {what}",
            "it happened before the webhook began",
            "a webhook of everything: outlast webhooks add URL --from-start",
        )
    return Conflict(
        f"webhook {subscription.subscription} has not been told of {what} yet",
        "it is sent in the order of its run",
        "a dispatcher does that: outlast dispatcher",
    )


def webhook_view(row: Subscription) -> dict[str, Any]:
    """An address that is told of what happens. `former_until_real`: until when the secret before this one signs too."""
    return {
        "webhook": row.subscription,
        "status": row.status.value,
        "url": redact(row.url),
        "name": row.name,
        "types": json.loads(row.types) if row.types else [],
        "workflows": json.loads(row.workflows) if row.workflows else [],
        "headers": sorted(headers_of(row)),
        "since": instant(row.since),
        "why": row.why,
        "created_at": instant(row.created_at),
        "created_by": row.created_by,
        "changed_at": instant(row.changed_at),
        "changed_by": row.changed_by,
        "former_until_real": instant(row.former_until),
    }


def new_webhook_view(made: NewWebhook) -> dict[str, Any]:
    """With its new secret: the one answer that has it."""
    return {**webhook_view(made.subscription), "secret": made.secret}


def webhook_detail_view(row: Subscription, backlog: WebhookBacklog) -> dict[str, Any]:
    """How it fares: events given up, events that will be sent again, runs of which something is still to be told."""
    return {
        **webhook_view(row),
        DeliveryStatus.DEAD.value: backlog.dead,
        DeliveryStatus.OWED.value: backlog.owed,
        "behind": backlog.behind,
        "more": backlog.more,
        "oldest_at_real": instant(backlog.oldest_at or 0),
    }


def delivery_view(row: Delivery, business: Callable[[int], int]) -> dict[str, Any]:
    """An event that was not accepted at once; `shared_answer` is a stranger's text, veiled before it was stored.

    `business`: of a real instant, ours.
    """
    return {
        "delivery": id_of(row),
        "webhook": row.subscription,
        "run": row.run,
        "sequence": row.seq,
        "type": row.type,
        "webhook_id": row.event,
        "status": row.status.value,
        "attempts": row.attempts,
        "code": row.code,
        "error": row.error,
        "answer": row.answer,
        "took_ms": row.took_ms,
        "first_at": instant(row.first_at),
        "last_at": instant(row.last_at),
        "next_at": instant(business(row.due_at)) if row.due_at else None,
        "asked_by": row.by,
    }


def attempt_view(webhook: str, attempt: Attempt) -> dict[str, Any]:
    """What came back of one attempt; `shared_answer` is a stranger's text."""
    return {"webhook": webhook, "accepted": not attempt.error, **attempt._asdict()}

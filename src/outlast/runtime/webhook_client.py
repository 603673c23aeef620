"""The webhooks of one tenant, the same over a store and over a service. `Client` says how methods become requests."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from outlast.core.argument_checks import check_calls
from outlast.core.durations import Duration
from outlast.core.machine import DeliveryStatus
from outlast.core.webhooks.webhook_details import WebhookDetails
from outlast.errors import Unavailable, Uncertain
from outlast.models.webhooks import (
    DeliveryList,
    RedeliveryRecorded,
    WebhookAttempt,
    WebhookDetail,
    WebhookSummary,
    WebhookWithSecret,
)
from outlast.operations import webhook_operations as webhook_ops
from outlast.operations.declaration import OperationRequest

R = TypeVar("R")


class WebhookClient(ABC):
    """Webhooks of one tenant. Every method raises members of OutlastError.

    Parameters of the methods:

    - `webhook`: id or name of a webhook.
    - `idempotency_key`: as for the methods of `Client`.
    """

    _is_closed = False
    """True once its client was closed. Calls then raise Misplaced."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_calls(WebhookClient, cls)

    @abstractmethod
    async def _call(self, request: OperationRequest[R]) -> R:
        """Carry out one operation and return its answer."""

    @abstractmethod
    async def list(self) -> Sequence[WebhookDetail]:
        """Return every webhook with its delivery counts."""

    async def get(self, webhook: str) -> WebhookDetail:
        """Return one webhook with its delivery counts. Raises NotFound."""
        return await self._call(webhook_ops.GetWebhook(webhook))

    @abstractmethod
    async def unsent_ms(self) -> int:
        """Return for how long events have waited without a live dispatcher, in ms; 0 if none wait."""

    async def add(
        self,
        url: str,
        *,
        name: str = "",
        types: Sequence[str] = (),
        workflows: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        from_start: bool = False,
        forks: bool = False,
        idempotency_key: str = "",
    ) -> WebhookWithSecret:
        """Create a webhook that sends events to `url`, and return it with its secret, which is shown only here.

        `name` is for people. `types` and `workflows` select events ((): all). `headers` are sent with each event.
        `from_start` also sends the events that exist already, `forks` those of forks. A repetition under the same key
        adds nothing and raises Uncertain, because the secret is shown once. Raises InvalidInput.
        """
        return shown_once(
            await self._call(
                webhook_ops.AddWebhook(
                    url,
                    details=WebhookDetails(name=name),
                    types=types,
                    workflows=workflows,
                    headers=headers,
                    from_start=from_start,
                    forks=forks,
                    idempotency_key=idempotency_key,
                )
            )
        )

    async def notify(
        self,
        address: str,
        *,
        role: str = "",
        person: str = "",
        every: bool = False,
        kinds: Sequence[str] = (),
        workflows: Sequence[str] = (),
        name: str = "",
        idempotency_key: str = "",
    ) -> WebhookSummary:
        """Send messages about approvals to an `address` of mail, Slack, Teams or ntfy, and return the subscription.

        Exactly one of `role`, `person` and `every` says whose approvals: those whose rule names the role or the
        person, or all of them. `kinds` are `asked`, `reminder` and `escalated` ((): all three). `workflows` selects
        runs ((): all), `name` is for people. The address is a secret and never shown. Raises InvalidInput.
        """
        return await self._call(
            webhook_ops.AddNotification(
                address,
                role=role,
                person=person,
                every=every,
                kinds=kinds,
                workflows=workflows,
                details=WebhookDetails(name=name),
                idempotency_key=idempotency_key,
            )
        )

    async def test(self, webhook: str) -> WebhookAttempt:
        """Send a signed test event and return the attempt. Raises NotFound."""
        return await self._call(webhook_ops.TestWebhook(webhook))

    async def deliveries(
        self, webhook: str = "", *, status: DeliveryStatus | None = None, cursor: str = "", limit: int = 50
    ) -> DeliveryList:
        """Return a page of events that were not accepted at the first attempt, newest first.

        `webhook`: '' for all. `status`: only these. `cursor`: `next_cursor` of the page before; `limit`: size of a
        page.
        """
        if not webhook:
            return await self._call(webhook_ops.ListAllDeliveries(status=status, cursor=cursor, limit=limit))
        return await self._call(webhook_ops.ListDeliveries(webhook, status=status, cursor=cursor, limit=limit))

    async def redeliver(self, delivery: str) -> int:
        """Send an event again, or all that were given up for a webhook. Return their number.

        `delivery`: id of a delivery or of a webhook. Raises NotFound, Conflict.
        """
        if ":" in delivery:
            await self._call(webhook_ops.Redeliver(delivery))
            return 1
        return await redeliver_all(lambda: self._call(webhook_ops.RedeliverDead(delivery)))

    async def rotate(
        self, webhook: str, *, keep: Duration | None = None, version: int = 0, idempotency_key: str = ""
    ) -> WebhookWithSecret:
        """Replace the secret and return the new one. `keep`: how long the old secret signs too [24h].

        `version`: the one that you saw, 0 for any. A repetition under the same key finds its own rotation and raises
        Uncertain, because a secret is shown once: rotate once more, under another key. Raises NotFound, Conflict.
        """
        return shown_once(
            await self._call(
                webhook_ops.RotateWebhook(webhook, keep=keep, version=version, idempotency_key=idempotency_key)
            )
        )

    async def disable(self, webhook: str, *, reason: str) -> WebhookSummary:
        """Stop deliveries until the webhook is enabled again. The position is kept, and `reason` is shown."""
        return await self._call(webhook_ops.DisableWebhook(webhook, reason=reason))

    async def enable(self, webhook: str) -> WebhookSummary:
        """Resume deliveries at the kept position."""
        return await self._call(webhook_ops.EnableWebhook(webhook))

    async def remove(self, webhook: str) -> WebhookSummary:
        """Remove a webhook with its secret. It cannot be restored."""
        return await self._call(webhook_ops.RemoveWebhook(webhook))


class _Unseen(Uncertain):
    """The act was carried out, and only its secret was lost."""

    landed = True


def shown_once(found: WebhookWithSecret) -> WebhookWithSecret:
    """Return a webhook with its secret. Raises Uncertain for an empty one, which an earlier attempt was shown."""
    if found.secret:
        return found
    raise _Unseen(
        f"webhook {found.webhook} has a secret that cannot be shown",
        "an earlier attempt was carried out, and a secret is in one answer only",
        f"rotate once more to see a secret (outlast webhooks rotate {found.webhook}); the older one signs 24 h more",
    )


async def redeliver_all(redeliver: Callable[[], Awaitable[RedeliveryRecorded]]) -> int:
    """Repeat a request until no event is left, and return their number. Raises Uncertain if a later one fails."""
    count, more = 0, True
    while more:
        try:
            answer = await redeliver()
        except Unavailable as error:
            if not count:
                raise
            raise Uncertain(f"{count} events are sent again, others are not", str(error)) from error
        count, more = count + answer.events, answer.more
    return count


check_calls(WebhookClient, WebhookClient)  # those that it defines itself

"""The store is here: who is told of what happens, from its rows."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from outlast.cli.desk.port import View
from outlast.core.machine import DeliveryStatus
from outlast.runtime.lag import unsent
from outlast.runtime.operations import Operations
from outlast.runtime.settings import load
from outlast.runtime.webhook_views import attempt_view, delivery_view, made_view, webhook_view, whole_webhook_view
from outlast.runtime.webhooks import KEPT, reach_of


class LocalWebhooks:
    """The part of a desk that is about webhooks; they may lead where the settings allow. Raises InvalidInput."""

    def __init__(self, ops: Operations) -> None:
        self._ops = ops
        self._webhooks = ops.webhooks
        self._webhooks.reach = reach_of(load())

    async def all(self) -> list[View]:
        """Each counted."""
        return [await self._whole(row.subscription) for row in await self._webhooks.list()]

    async def get(self, webhook: str) -> View:
        """Counted."""
        return await self._whole(webhook)

    async def _whole(self, webhook: str) -> View:
        return whole_webhook_view(await self._webhooks.get(webhook), await self._webhooks.standing(webhook))

    async def unsent(self) -> int:
        """By its rows."""
        return await unsent(self._ops.store, self._ops.tenant)

    async def add(
        self,
        url: str,
        *,
        name: str,
        types: Sequence[str],
        workflows: Sequence[str],
        headers: Mapping[str, str],
        from_start: bool,
    ) -> View:
        """Its address is checked here."""
        made = await self._webhooks.add(
            url, name=name, types=types, workflows=workflows, headers=headers, from_start=from_start
        )
        return made_view(made)

    async def test(self, webhook: str) -> View:
        """Sent from here."""
        return attempt_view(webhook, await self._webhooks.test(webhook))

    async def deliveries(
        self, webhook: str, *, status: DeliveryStatus | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """From the rows."""
        rows, further = await self._webhooks.deliveries(webhook, status=status, cursor=cursor, limit=limit)
        business = self._ops.store.mapping().business
        return [delivery_view(row, business) for row in rows], further

    async def redeliver(self, delivery: str) -> int:
        """By the dispatcher."""
        if ":" not in delivery:
            return await self._webhooks.redeliver_dead(delivery)
        await self._webhooks.redeliver(delivery)
        return 1

    async def rotate(self, webhook: str, *, keep: timedelta | None) -> View:
        """Shown once."""
        return made_view(await self._webhooks.rotate(webhook, keep=KEPT if keep is None else keep))

    async def disable(self, webhook: str, *, reason: str) -> View:
        """By a row."""
        return webhook_view(await self._webhooks.disable(webhook, reason=reason))

    async def enable(self, webhook: str) -> View:
        """Its address is checked again."""
        return webhook_view(await self._webhooks.enable(webhook))

    async def remove(self, webhook: str) -> View:
        """Its secret is forgotten."""
        return webhook_view(await self._webhooks.remove(webhook))

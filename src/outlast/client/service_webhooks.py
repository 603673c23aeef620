"""Webhooks of a service, over HTTP."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel
from typing_extensions import override

from outlast.client.parts import redeliver_all
from outlast.client.service_connection import ServiceConnection
from outlast.core.durations import Duration
from outlast.core.machine import DeliveryStatus
from outlast.models.webhooks import (
    DeliveryList,
    WebhookAttempt,
    WebhookDetail,
    WebhookSummary,
    WebhookWithSecret,
)
from outlast.operations.declaration import OperationRequest
from outlast.operations.webhook_operations import (
    AddNotification,
    AddWebhook,
    DisableWebhook,
    EnableWebhook,
    GetWebhook,
    ListAllDeliveries,
    ListDeliveries,
    ListWebhooks,
    Redeliver,
    RedeliverDead,
    RemoveWebhook,
    RotateWebhook,
    TestWebhook,
)
from outlast.runtime.webhook_client import WebhookClient, shown_once

M = TypeVar("M", bound=BaseModel)


class ServiceWebhooks(WebhookClient):
    """Webhooks of the service; its settings limit their addresses."""

    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection

    async def _call(self, request: OperationRequest[M]) -> M:
        return await self._connection.call(request)

    @override
    async def list(self) -> Sequence[WebhookDetail]:
        listed = (await self._call(ListWebhooks())).webhooks
        return [await self.get(each.webhook) for each in listed]

    @override
    async def get(self, webhook: str) -> WebhookDetail:
        return await self._call(GetWebhook(webhook))

    @override
    async def unsent_ms(self) -> int:
        return (await self._call(ListWebhooks())).unsent_ms

    @override
    async def add(
        self,
        url: str,
        *,
        name: str = "",
        types: Sequence[str] = (),
        workflows: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        from_start: bool = False,
        idempotency_key: str = "",
    ) -> WebhookWithSecret:
        return shown_once(
            await self._call(
                AddWebhook(
                    url,
                    name=name,
                    types=types,
                    workflows=workflows,
                    headers=headers,
                    from_start=from_start,
                    idempotency_key=idempotency_key,
                )
            )
        )

    @override
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
        return await self._call(
            AddNotification(
                address,
                role=role,
                person=person,
                every=every,
                kinds=kinds,
                workflows=workflows,
                name=name,
                idempotency_key=idempotency_key,
            )
        )

    @override
    async def test(self, webhook: str) -> WebhookAttempt:
        return await self._call(TestWebhook(webhook))

    @override
    async def deliveries(
        self, webhook: str = "", *, status: DeliveryStatus | None = None, cursor: str = "", limit: int = 50
    ) -> DeliveryList:
        if not webhook:
            return await self._call(ListAllDeliveries(status=status, cursor=cursor, limit=limit))
        return await self._call(ListDeliveries(webhook, status=status, cursor=cursor, limit=limit))

    @override
    async def redeliver(self, delivery: str) -> int:
        if ":" in delivery:
            await self._call(Redeliver(delivery))
            return 1
        return await redeliver_all(lambda: self._call(RedeliverDead(delivery)))

    @override
    async def rotate(
        self, webhook: str, *, keep: Duration | None = None, version: int = 0, idempotency_key: str = ""
    ) -> WebhookWithSecret:
        return shown_once(
            await self._call(RotateWebhook(webhook, keep=keep, version=version, idempotency_key=idempotency_key))
        )

    @override
    async def disable(self, webhook: str, *, reason: str) -> WebhookSummary:
        return await self._call(DisableWebhook(webhook, reason=reason))

    @override
    async def enable(self, webhook: str) -> WebhookSummary:
        return await self._call(EnableWebhook(webhook))

    @override
    async def remove(self, webhook: str) -> WebhookSummary:
        return await self._call(RemoveWebhook(webhook))

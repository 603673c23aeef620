"""Webhooks of a service, over HTTP."""

from collections.abc import Mapping, Sequence

from typing_extensions import override

from outlast.client.connection import ServiceConnection, iso, part
from outlast.client.parts import redeliver_all
from outlast.core.durations import Duration
from outlast.core.machine import DeliveryStatus
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
from outlast.runtime.webhook_client import WebhookClient, shown_once


class ServiceWebhooks(WebhookClient):
    """Webhooks of the service; its settings limit their addresses."""

    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection

    @override
    async def list(self) -> Sequence[WebhookDetail]:
        listed = (await self._connection.get(WebhookList, "/webhooks")).webhooks
        return [await self.get(each.webhook) for each in listed]

    @override
    async def get(self, webhook: str) -> WebhookDetail:
        return await self._connection.get(WebhookDetail, f"/webhooks/{part(webhook)}")

    @override
    async def unsent_ms(self) -> int:
        return (await self._connection.get(WebhookList, "/webhooks")).unsent_ms

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
        body = {
            "url": url,
            "name": name,
            "types": [*types],
            "workflows": [*workflows],
            "headers": dict(headers or {}),
            "from_start": from_start,
        }
        return shown_once(await self._connection.post(WebhookWithSecret, "/webhooks", body, key=idempotency_key))

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
        body = {
            "address": address,
            "role": role,
            "person": person,
            "every": every,
            "kinds": [*kinds],
            "workflows": [*workflows],
            "name": name,
        }
        return await self._connection.post(WebhookSummary, "/notifications", body, key=idempotency_key)

    @override
    async def test(self, webhook: str) -> WebhookAttempt:
        return await self._connection.post(WebhookAttempt, f"/webhooks/{part(webhook)}/test")

    @override
    async def deliveries(
        self, webhook: str = "", *, status: DeliveryStatus | None = None, cursor: str = "", limit: int = 50
    ) -> DeliveryList:
        where = f"/webhooks/{part(webhook)}/deliveries" if webhook else "/deliveries"
        return await self._connection.get(DeliveryList, where, status=status, cursor=cursor, limit=limit)

    @override
    async def redeliver(self, delivery: str) -> int:
        if ":" in delivery:
            await self._connection.post(WebhookDelivery, f"/deliveries/{part(delivery)}/redeliver")
            return 1
        path = f"/webhooks/{part(delivery)}/redeliver"
        return await redeliver_all(lambda: self._connection.post(RedeliveryRecorded, path))

    @override
    async def rotate(
        self, webhook: str, *, keep: Duration | None = None, version: int = 0, idempotency_key: str = ""
    ) -> WebhookWithSecret:
        path, body = f"/webhooks/{part(webhook)}/rotate", {"keep": iso(keep), "version": version}
        return shown_once(await self._connection.post(WebhookWithSecret, path, body, key=idempotency_key))

    @override
    async def disable(self, webhook: str, *, reason: str) -> WebhookSummary:
        return await self._connection.post(WebhookSummary, f"/webhooks/{part(webhook)}/disable", {"reason": reason})

    @override
    async def enable(self, webhook: str) -> WebhookSummary:
        return await self._connection.post(WebhookSummary, f"/webhooks/{part(webhook)}/enable")

    @override
    async def remove(self, webhook: str) -> WebhookSummary:
        return await self._connection.post(WebhookSummary, f"/webhooks/{part(webhook)}", method="DELETE")

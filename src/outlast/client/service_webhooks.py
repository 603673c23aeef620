"""Webhooks of a service, over HTTP."""

from collections.abc import Sequence
from typing import TypeVar

from typing_extensions import override

from outlast.client.service_connection import ServiceConnection
from outlast.models.webhooks import WebhookDetail
from outlast.operations.declaration import OperationRequest
from outlast.operations.webhook_operations import ListWebhooks
from outlast.runtime.webhook_client import WebhookClient

R = TypeVar("R")


class ServiceWebhooks(WebhookClient):
    """Webhooks of the service; its settings limit their addresses."""

    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection

    @override
    async def _call(self, request: OperationRequest[R]) -> R:
        return await self._connection.call(request)

    @override
    async def list(self) -> Sequence[WebhookDetail]:
        listed = (await self._call(ListWebhooks())).webhooks
        return [await self.get(each.webhook) for each in listed]

    @override
    async def unsent_ms(self) -> int:
        return (await self._call(ListWebhooks())).unsent_ms

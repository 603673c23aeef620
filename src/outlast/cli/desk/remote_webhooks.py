"""A service stands in front of the store: who is told of what happens is asked of it over HTTP."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from outlast.cli.desk.port import View
from outlast.cli.desk.remote_runs import iso, part
from outlast.cli.desk.wire import Wire
from outlast.core.machine import DeliveryStatus


class RemoteWebhooks:
    """The part of a desk that is about webhooks; they may lead where the service's settings allow."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def all(self) -> list[View]:
        """One request each, for how it fares."""
        return [await self.get(each["webhook"]) for each in (await self._wire.get("/webhooks"))["webhooks"]]

    async def get(self, webhook: str) -> View:
        """As the service tells it."""
        view: View = await self._wire.get(f"/webhooks/{part(webhook)}")
        return view

    async def unsent(self) -> int:
        """As the service counts it."""
        return int((await self._wire.get("/webhooks"))["unsent_ms"])

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
        """Its address is checked by the service."""
        body = {
            "url": url,
            "name": name,
            "types": types,
            "workflows": workflows,
            "headers": headers,
            "from_start": from_start,
        }
        view: View = await self._wire.post("/webhooks", body)
        return view

    async def test(self, webhook: str) -> View:
        """Sent by the service."""
        view: View = await self._wire.post(f"/webhooks/{part(webhook)}/test")
        return view

    async def deliveries(
        self, webhook: str, *, status: DeliveryStatus | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """One page."""
        where = f"/webhooks/{part(webhook)}/deliveries" if webhook else "/deliveries"
        page = await self._wire.get(where, status=status, cursor=cursor, limit=limit)
        return page["deliveries"], page["next_cursor"]

    async def redeliver(self, delivery: str) -> int:
        """Until none that was given up is left."""
        if ":" in delivery:
            await self._wire.post(f"/deliveries/{part(delivery)}/redeliver")
            return 1
        n, more = 0, True
        while more:
            answer = await self._wire.post(f"/webhooks/{part(delivery)}/redeliver")
            n, more = n + answer["events"], answer["more"]
        return n

    async def rotate(self, webhook: str, *, keep: timedelta | None) -> View:
        """Shown once."""
        view: View = await self._wire.post(f"/webhooks/{part(webhook)}/rotate", {"keep": iso(keep)})
        return view

    async def disable(self, webhook: str, *, reason: str) -> View:
        """By the service."""
        view: View = await self._wire.post(f"/webhooks/{part(webhook)}/disable", {"reason": reason})
        return view

    async def enable(self, webhook: str) -> View:
        """By the service, which checks its address again."""
        view: View = await self._wire.post(f"/webhooks/{part(webhook)}/enable")
        return view

    async def remove(self, webhook: str) -> View:
        """By the service."""
        view: View = await self._wire.post(f"/webhooks/{part(webhook)}", method="DELETE")
        return view

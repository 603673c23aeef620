"""The maximum of admitted runs, raised by a client in this process and by one of a service."""

import pytest

from outlast import Client
from outlast.core.machine import RunStatus
from outlast.errors import Conflict, InvalidInput
from tests.client import flows
from tests.client.conftest import Place


async def comes_to(client: Client, run: str, status: RunStatus) -> None:
    """Wait until a run has this status."""

    async def found() -> bool | None:
        return (await client.run_summary(run)).status == status or None

    assert await client.until(found, within_s=20), await client.run(run)


@pytest.mark.req("RUN-6")
def test_a_run_over_the_maximum_is_queued_until_it_is_raised(place: Place) -> None:
    async def test(client: Client) -> None:
        limit = await client.set_slots(1)
        assert (limit.slots, limit.used, limit.everywhere) == (1, 0, False)
        first = await client.start(flows.orders, flows.Order(supplier="first"))
        await comes_to(client, first.id, RunStatus.WAITING)
        second = await client.start(flows.orders, flows.Order(supplier="second"))
        await comes_to(client, second.id, RunStatus.QUEUED)
        assert (await client.set_slots(2)).slots == 2
        await comes_to(client, second.id, RunStatus.WAITING)
        assert (await client.set_slots(2)).used == 2, "the same maximum again changes nothing"
        with pytest.raises(Conflict, match="cannot fall from 2 to 1"):
            await client.set_slots(1)
        for wrong in (0, 10_001):
            with pytest.raises(InvalidInput):
                await client.set_slots(wrong)
        await first.cancel("enough")
        await second.cancel("enough")

    place.play(test)


def test_the_maximum_of_all_tenants_is_another_one(place: Place) -> None:
    async def test(client: Client) -> None:
        limit = await client.set_slots(300, everywhere=True)
        assert (limit.slots, limit.everywhere) == (300, True)
        assert (await client.set_slots(3)).slots == 3

    place.play(test)

"""Redelivery on request: events that were given up or delivered are sent again, each once."""

import asyncio

import pytest

from tests.outbox.helpers import Receiver, a_store, answer, dispatching, settled, until, working


@pytest.mark.req("OUT-2")
def test_two_callers_may_redeliver_at_once(url: str) -> None:
    """Each event is redelivered once; neither caller is refused because of the other."""

    async def live() -> None:
        async with a_store(url) as ops, Receiver(answer(422)).listening() as receiver:
            name = (await ops.webhooks.add(receiver.url)).webhook
            async with working(ops.store), dispatching(ops.store):
                await ops.start_run("rounds", {"left": 3}, run_id="r")

                async def dead() -> bool:
                    return bool((await ops.rows.run("r")).ended_at) and await settled(ops, name)

                await until(dead)
            given_up = (await ops.webhooks.get(name)).dead
            assert await ops.webhooks.redeliver_dead(name, limit=1) == 1
            again = await asyncio.gather(ops.webhooks.redeliver_dead(name), ops.webhooks.redeliver_dead(name))
            assert sum(again) == given_up - 1 > 3
            assert (await ops.webhooks.get(name)).dead == 0

    asyncio.run(live())

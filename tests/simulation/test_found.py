"""What the simulated seeds have found in the engine, each as a test of its own."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.rows import SLOT, Slot
from outlast.flow import Context, Perhaps, repeat
from tests.engine.process import Process
from tests.engine.world import MINUTE, SECOND, Go, Receiver, State, World, one_node, ordering, write


def played(test: Callable[[World], Any]) -> None:
    world = World()
    asyncio.run(world.live(lambda: test(world)))


@pytest.mark.req("RUN-3", "RUN-6")
def test_a_store_that_is_away_at_the_end_calls_nobody() -> None:
    """The slots to hand on cannot be read: that is the store's trouble, not the author's."""

    async def test(world: World) -> None:
        world.add_slots("t", 1)
        processes: list[Process] = []

        async def body(ctx: Context[State]) -> None:
            processes[0].wire.reads_fail = 1

        flow = one_node(body)
        processes.append(world.worker(flow))
        await world.start(flow)
        await world.pass_(MINUTE)
        assert (world.reasons(), world.status()) == ([], "completed")

    played(test)


@pytest.mark.req("RUN-6")
def test_a_slot_that_was_handed_to_a_run_which_took_another_goes_on() -> None:
    """As a finish and an admission at once leave it: r1 holds a slot that its row does not name."""

    async def test(world: World) -> None:
        world.add_slots("t", 1)

        async def body(ctx: Context[State]) -> None:
            await ctx.receive("end", Go)

        flow = one_node(body)
        world.worker(flow)
        await world.start(flow, "r1")
        world.core.shelf.put(SLOT, ("t", 1), Slot("t", 1, 1, "t", "r1"))
        await world.start(flow, "r2")
        assert world.status("r2") == "queued"
        await world.pass_(30 * SECOND)
        assert world.status("r2") == "waiting"
        assert [slot.holder for slot in world.slots("t")] == ["r1", "r2"]

    played(test)


@pytest.mark.req("EFF-2", "EFF-8")
def test_a_cancel_between_two_attempts_does_not_deny_the_first() -> None:
    """The first attempt perhaps acted; a cancel comes with the intent of the second: nobody says it did not happen."""

    async def test(world: World) -> None:
        shop = Receiver(Perhaps("502"), dedupes=True)
        flow = ordering(write(shop, mode="repeat", on_doubt=repeat(window=timedelta(hours=1))), "a")
        process = world.worker(flow)
        process.wire.after("defer order/a", lambda: process.wire.before("intend order/a", world.cancel_now))
        await world.start(flow)
        await world.pass_(10 * MINUTE)
        assert world.effect("order/a").status.value != "refused"

    played(test)

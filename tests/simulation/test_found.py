"""Failures of the engine that simulated seeds have found, as separate tests."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest

from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_rows import Run
from outlast.engine import admission
from outlast.flow import Context, Perhaps, Workflow, activity, resend
from outlast.store.port import Store
from tests.engine.process import Process
from tests.engine.world import MINUTE, SECOND, Go, Receiver, State, World, one_node, ordering, write


def played(test: Callable[[World], Any]) -> None:
    world = World()
    asyncio.run(world.live(lambda: test(world)))


@pytest.mark.req("RUN-3", "RUN-6")
def test_an_unreachable_store_at_the_end_raises_no_attention() -> None:
    """The slots to hand on cannot be read: a fault of the store, not of the author."""

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
def test_a_slot_given_to_a_run_that_took_another_is_passed_on() -> None:
    """A concurrent finish and admission leave r1 with a slot that its row does not name."""

    async def test(world: World) -> None:
        world.add_slots("t", 1)

        async def body(ctx: Context[State]) -> None:
            await ctx.receive("end", Go)

        flow = one_node(body)
        world.worker(flow)
        await world.start(flow, "r1")
        world.core.rows.put(SLOT, ("t", 1), Slot("t", 1, 1, "t", "r1"))
        await world.start(flow, "r2")
        assert world.status("r2") == "queued"
        await world.pass_(30 * SECOND)
        assert world.status("r2") == "waiting"
        assert [slot.holder for slot in world.slots("t")] == ["r1", "r2"]

    played(test)


@pytest.mark.req("EFF-2", "EFF-8")
def test_a_cancel_between_two_attempts_does_not_deny_the_first() -> None:
    """The effect stays uncertain if a cancel arrives with the intent of the second attempt."""

    async def test(world: World) -> None:
        shop = Receiver(Perhaps("502"), dedupes=True)
        flow = ordering(write(shop, mode="repeat", if_uncertain=resend(remembered_for=timedelta(hours=1))), "a")
        process = world.worker(flow)
        process.wire.after("defer order/a", lambda: process.wire.before("intend order/a", world.cancel_now))
        await world.start(flow)
        await world.pass_(10 * MINUTE)
        assert world.effect("order/a").status.value != "refused"

    played(test)


@pytest.mark.req("EFF-1", "EFF-8")
def test_no_node_is_left_over_an_effect_whose_record_was_refused() -> None:
    """The advance was submitted before the refusal was known; it must not skip the open effect (S-7)."""

    async def test(world: World) -> None:
        calls: list[int] = []
        flow = Workflow("two-nodes", state=State)

        @activity(key="order/{what}", if_uncertain=resend(remembered_for=timedelta(hours=24)), no_undo="a test")
        async def order(what: str) -> str:
            calls.append(1)
            if len(calls) == 1:  # another process writes the row, so the record names an old version
                (row,) = world.core.rows.under(EFFECT, ("t", "r1"))
                assert isinstance(row, Effect)
                world.core.rows.put(EFFECT, row[:4], row._replace(version=row.version + 1))
            return "done"

        @flow.node(start=True)
        async def one(ctx: Context[State]) -> Literal["two"]:
            ctx.state.said = [await ctx.do(order, "a")]
            return "two"

        @flow.node
        async def two(ctx: Context[State]) -> None:
            await ctx.sleep(timedelta(minutes=1), name="while")

        world.worker(flow.validate())
        await world.start(flow, "r1")
        await world.pass_(10 * MINUTE)
        assert world.status("r1") == "completed"
        (row,) = world.core.rows.under(EFFECT, ("t", "r1"))
        assert isinstance(row, Effect) and row.status.value == "done"

    played(test)


@pytest.mark.req("RUN-6")
def test_a_queued_run_that_ends_leaves_no_slot_it_was_handed_at_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run ends between its look at the slots and its own end, and hands it one."""
    looked = admission.held_and_not

    async def test(world: World) -> None:
        world.add_slots("t", 1)
        handed: list[int] = []

        async def look_then_be_handed_one(store: Store, run: Run) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
            found = await looked(store, run)
            if run.run == "r2" and not handed:
                handed.append(1)
                row = world.core.rows.get(SLOT, ("t", 0))
                assert isinstance(row, Slot)
                world.core.rows.put(SLOT, row[:2], row._replace(version=row.version + 1, holder="r2"))
            return found

        monkeypatch.setattr(admission, "held_and_not", look_then_be_handed_one)

        async def body(ctx: Context[State]) -> None:
            await ctx.receive("end", Go)

        flow = one_node(body)
        world.worker(flow)
        await world.start(flow, "r1")
        await world.start(flow, "r2")
        assert world.status("r2") == "queued"
        await world.cancel("r2")
        await world.pass_(MINUTE)
        assert handed and world.status("r2") == "cancelled"
        assert all(slot.holder != "r2" for slot in world.slots("t"))

    played(test)

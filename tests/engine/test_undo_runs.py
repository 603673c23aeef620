"""A completed child that another run undoes when its parent ends (S-19, S-30)."""

import pytest
from pydantic import BaseModel

from outlast import Context, Fail, Workflow, workflow
from outlast.core.rows.run_rows import RUN
from outlast.errors import InvalidInput
from outlast.upkeep.fsck import Fsck
from tests.engine.world import MINUTE, Receiver, State, World, one_node, write

pytestmark = pytest.mark.req("RUN-13", "EFF-8")
Ctx = Context[State]
FAILS: list[str] = []


@workflow(name="rents_a_room")
async def rents(ctx: Context, room: str) -> str:
    return f"room {room}"


@workflow(name="returns_a_room")
async def returns(ctx: Context, room: str) -> str:
    """Give a room back, after a while."""
    await ctx.sleep("20s")
    if FAILS:
        raise Fail(FAILS.pop())
    return "returned"


@pytest.fixture(autouse=True)
def _no_failure() -> None:
    FAILS.clear()


def parent_of(shop: Receiver) -> Workflow[State]:
    """Return a parent with an effect before and after the child that a run undoes, which fails."""
    order, pay = write(shop, undo=True), write(shop, name="pay", undo=True)

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await ctx.run(rents, rents.arguments("7"), key="room", undo=returns.arguments("7"))
        await ctx.do(pay, "b")
        raise Fail("enough")

    return one_node(body)


async def played(world: World, shop: Receiver, *, fails: bool = False) -> None:
    """Play the parent until it waits for the run that undoes."""
    FAILS.extend(["no key"] if fails else [])
    flow = parent_of(shop)
    world.worker(flow, rents, returns)
    await world.start(flow)


async def whole(world: World) -> None:
    assert (await Fsck(world.store, chain=True).look()).findings == ()


@pytest.mark.every_store
async def test_a_run_undoes_a_child_in_the_order_of_numbers(world: World) -> None:
    shop = Receiver()
    await played(world, shop)
    assert world.status() == "compensating" and len(shop.did) == 3, "the later effect is undone, the earlier one is not"
    assert world.waiting() == [("child", "returns_a_room undo/room")]
    undo = world.effect("undo/room")
    assert (undo.undoes, world.run(undo.external_id).parent) == ("1:room", "r1")
    await whole(world)
    await world.pass_(MINUTE)
    assert (world.status(), len(shop.did)) == ("failed", 4)
    assert {key: world.effect(key).status.value for key in ("room", "undo/room")} == {
        "room": "undone",
        "undo/room": "done",
    }
    await whole(world)


@pytest.mark.parametrize(("choice", "undone"), [("retry", "done"), ("done_by_hand", "done")])
async def test_a_run_that_fails_to_undo_is_a_failed_undo(world: World, choice: str, undone: str) -> None:
    shop = Receiver()
    await played(world, shop, fails=True)
    await world.pass_(MINUTE)
    assert (world.status(), world.reasons(), len(shop.did)) == ("compensating", ["undo_failed"], 3)
    first = world.effect("undo/room").external_id
    await whole(world)
    await world.answer("undo_failed", choice, key="undo/room")
    await world.pass_(MINUTE)
    assert (world.status(), len(shop.did)) == ("failed", 4)
    assert (world.effect("room").status.value, world.effect("undo/room").status.value) == ("undone", undone)
    assert (world.effect("undo/room").external_id == first) == (choice == "done_by_hand")
    await whole(world)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("part", ["child undo/room", "complete", "undo/order/a"])
async def test_a_worker_that_dies_undoes_nothing_twice(world: World, part: str, when: str) -> None:
    shop = Receiver()
    flow = parent_of(shop)
    first = world.worker(flow, rents, returns)

    if part != "complete":  # of the run that undoes, not of the first child
        getattr(first.wire, when)(part, first.kill)
    await world.start(flow)
    getattr(first.wire, when)(part, first.kill)
    await world.pass_(MINUTE)
    assert first.wire.dead
    world.worker(flow, rents, returns)
    await world.pass_(10 * MINUTE)
    if world.reasons() == ["undo_failed"]:  # the call may have happened, and nothing says whether
        assert part == "undo/order/a"
        await world.answer("undo_failed", "done_by_hand", key="undo/order/a")
    assert world.status() == "failed" and len(shop.did) in (3, 4)
    assert len([run for run in world.core.rows.under(RUN, ("t",)) if run.workflow == "returns_a_room"]) == 1
    await whole(world)


class Other(BaseModel):
    """No input of a workflow."""


async def test_a_model_of_no_workflow_is_refused(world: World) -> None:
    said = []

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.run(rents, rents.arguments("7"), key="room", undo=Other())
        except InvalidInput as error:
            said.append(str(error))

    flow = one_node(body)
    world.worker(flow, rents)
    await world.start(flow)
    assert "undo= is a Other, which is the input of 0 workflows" in said[0]

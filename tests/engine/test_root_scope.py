"""Calls once per root: made once in a tree of runs, and kept as long as a run of it names them (S-18)."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import pytest

from outlast import Context, Fail, Workflow, activity, lookup, role, workflow
from outlast.core.keys import plain_key, scope_of_shared, tree_key
from outlast.core.rows.effect_rows import EFFECT, USED, Effect
from outlast.engine import fork_start
from outlast.engine.fork_start import ForkRequest
from outlast.errors import DefinitionError
from outlast.testing.virtual_runtime import App, AppRun
from outlast.upkeep.fsck import Fsck
from tests.engine.world import MINUTE, QUIET, Go, Receiver, Slow, State, World, one_node, write

Ctx = Context[State]
A, B = ("did " + tree_key("r1", f"order/{each}") for each in "ab")
pytestmark = pytest.mark.req("EFF-1")


def rows_of(world: World) -> list[Effect]:
    """Return the rows of the tenant that no run has in its own ledger."""
    return list(world.core.rows.under(EFFECT, ("t", "")))


def per_root(receiver: Receiver, **options: Any) -> Any:
    return write(receiver, once_per="root", **options)


@pytest.mark.every_store
async def test_a_root_and_its_children_make_a_call_once(world: World) -> None:
    """The root asks first, then two children and a child of one of them."""
    shop = Receiver()
    act = per_root(shop)

    @workflow
    async def leaf(ctx: Context) -> str:
        return str(await ctx.do(act, "a"))

    @workflow
    async def branch(ctx: Context, name: str) -> str:
        mine = str(await ctx.do(act, "a"))
        return mine + str(await ctx.run(leaf, {}, no_undo="it lasts"))

    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.do(act, "a"))
        for name in ("x", "y"):
            ctx.state.said.append(await ctx.run(branch, branch.arguments(name=name), no_undo="it lasts"))

    flow = one_node(body)
    world.worker(flow, branch, leaf)
    await world.start(flow)
    assert world.outcome()["said"] == [A, A + A, A + A]
    assert len(shop.attempts) == 1
    (row,) = rows_of(world)
    assert (row.key, row.by_run, row.shared, row.keep_ms) == (tree_key("r1", "order/a"), "r1", USED, 1)
    await world.start(flow, "r2")
    assert len(shop.attempts) == 2, "another tree makes its own call"


async def test_an_approved_call_consumes_its_approval(world: World) -> None:
    """Its row has the key of the tree; the approved plan has the key as the activity renders it."""
    act = per_root(Receiver())

    async def body(ctx: Ctx) -> None:
        await ctx.approval(act.plan("a"), summary="a", by=role("boss"), within="1h")
        ctx.state.said.append(await ctx.do(act, "a"))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending())
    await world.settle()
    assert world.outcome()["said"] == [A]
    assert world.approvals()[0].consumed_by == "0:" + tree_key("r1", "order/a")
    assert (await Fsck(world.store, chain=True).look()).findings == ()


async def test_a_child_makes_the_call_and_its_parent_uses_it_later(world: World) -> None:
    shop = Receiver()
    act = per_root(shop)

    @workflow
    async def leaf(ctx: Context) -> str:
        return str(await ctx.do(act, "a"))

    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.run(leaf, {}, no_undo="it lasts"))
        ctx.state.said.append(await ctx.do(act, "a"))

    flow = one_node(body)
    world.worker(flow, leaf)
    await world.start(flow)
    assert world.outcome()["said"] == [A] * 2 and len(shop.attempts) == 1


@pytest.mark.every_store
async def test_a_child_waits_for_the_call_of_another(world: World) -> None:
    slow = Slow()
    shop = Receiver(slow)
    act = per_root(shop)

    @workflow
    async def leaf(ctx: Context, name: str) -> str:
        return str(await ctx.do(act, "a"))

    async def body(ctx: Ctx) -> None:
        handles = [await ctx.start(leaf, leaf.arguments(name=each), no_undo="it lasts") for each in ("x", "y")]
        ctx.state.said += await asyncio.gather(*(each.result() for each in handles))

    flow = one_node(body)
    world.worker(flow, leaf)
    await world.start(flow)
    await slow.begun.wait()
    slow.go.set()
    await world.pass_(MINUTE)
    assert world.outcome()["said"] == [A] * 2 and len(shop.attempts) == 1


async def test_a_crash_repeats_no_call_of_the_tree(world: World) -> None:
    """The worker dies after the call. The next one finds the row of the tree, and the re-run asks for the same key."""
    shop = Receiver()
    act = per_root(shop)

    @workflow
    async def leaf(ctx: Context) -> str:
        first = await ctx.do(act, "a")
        await ctx.sleep("1m")
        return first + str(await ctx.do(act, "b"))

    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.do(act, "b"))
        ctx.state.said.append(await ctx.run(leaf, {}, no_undo="it lasts"))

    flow = one_node(body)
    world.worker(flow, leaf)
    await world.start(flow)
    world.processes[0].kill()
    await world.pass_(MINUTE)
    world.worker(flow, leaf)
    await world.pass_(5 * MINUTE)
    assert world.outcome()["said"] == [B, A + B]
    assert sorted(plain_key(key.split(":", 3)[-1]) for key in shop.attempts) == ["order/a", "order/b"]


async def test_the_owner_undoes_a_call_that_no_other_run_used(world: World) -> None:
    shop = Receiver()
    act = per_root(shop, undo=True)

    @workflow
    async def leaf(ctx: Context) -> None:
        await ctx.do(act, "a")
        raise Fail("changed its mind")

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.run(leaf, {}, no_undo="it undoes its own")
        except Exception as error:
            ctx.state.said.append(type(error).__name__)
        ctx.state.said.append(await ctx.do(act, "a"))

    flow = one_node(body)
    world.worker(flow, leaf)
    await world.start(flow)
    await world.pass_(QUIET)
    assert world.outcome()["said"] == ["ChildFailed", A]
    (row,) = rows_of(world)
    assert (row.by_run, row.redone) == ("r1", 1), "a new call, under another key at the receiver"
    assert [key.split(":")[2] for key in shop.did if key.endswith("?r1/order/a")] == ["0", "0", "1"]


async def test_the_row_goes_when_no_run_names_it(world: World) -> None:
    act = per_root(Receiver())

    @workflow
    async def leaf(ctx: Context) -> str:
        return str(await ctx.do(act, "a"))

    async def body(ctx: Ctx) -> None:
        await ctx.run(leaf, {}, no_undo="it lasts")

    flow = one_node(body)
    world.worker(flow, leaf)
    await world.start(flow)
    await world.pass_(QUIET)
    await world.store.purge(0, 100)
    assert len(rows_of(world)) == 1, "it is settled, and two runs name it"
    assert await world.store.purge(world.time.wall() + 1, 100) == 2
    await world.store.purge(0, 100)
    assert rows_of(world) == []


# --- forks ---------------------------------------------------------------------------------------
WRITES: list[str] = []


@pytest.fixture(autouse=True)
def no_writes() -> None:
    WRITES.clear()


@activity(key="stamp/{item}", once_per="root", no_undo="ink stays")
async def stamp(item: str) -> str:
    WRITES.append(item)
    return f"stamp {len(WRITES)}"


@workflow
async def stamps(ctx: Context, item: str) -> str:
    return await ctx.do(stamp, item)


parcels = Workflow("parcels", state=State)


@parcels.node(start=True)
async def first_stamp(ctx: Ctx) -> Literal["second_stamp"]:
    ctx.state.said.append(await ctx.do(stamp, "early"))
    return "second_stamp"


@parcels.node
async def second_stamp(ctx: Ctx) -> None:
    await ctx.receive("go", Go)
    ctx.state.said.append(await ctx.do(stamp, "early"))
    ctx.state.said.append(await ctx.run(stamps, stamps.arguments(item="late"), no_undo="ink stays"))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_fork_and_its_children_share_the_calls_of_the_tree(kind: str, outlast_app: Callable[..., App]) -> None:
    """Both go on: one of them makes each call, the other and its child use the answer."""
    app = outlast_app(parcels, stamps, store=kind)
    run = app.start(parcels, {})
    asked = ForkRequest(run.id, "second_stamp", both_go_on="the customer asked for both", effects="live")
    tenant = app.runtime.operations.tenant
    made = app.do(fork_start.fork(app.store, parcels, asked, tenant=tenant, actor="ana", run="fork-1"))
    app.settle()
    forked = AppRun(app, parcels, made.run)
    for each in (run, forked):
        each.signal("go", Go())
    app.settle()
    said = ["stamp 1", "stamp 1", "stamp 2"]
    assert [(each.status, each.state.said) for each in (run, forked)] == [("completed", said)] * 2
    assert WRITES == ["early", "late"]


families = Workflow("stamp_families", state=State)


@families.node(start=True)
async def family_first(ctx: Ctx) -> Literal["family_second"]:
    ctx.state.said.append(await ctx.run(stamps, stamps.arguments(item="early"), key="a", no_undo="ink stays"))
    return "family_second"


@families.node
async def family_second(ctx: Ctx) -> None:
    await ctx.receive("go", Go)
    ctx.state.said.append(await ctx.run(stamps, stamps.arguments(item="early"), key="b", no_undo="ink stays"))


def test_a_child_of_a_fork_uses_the_call_of_a_child_of_the_ancestor(outlast_app: Callable[..., App]) -> None:
    """The ancestor itself never asked for the call, so the fork has no copy of it."""
    app = outlast_app(families, stamps, store="memory")
    run = app.start(families, {})
    run.signal("go", Go())
    app.settle()
    assert (run.status, WRITES) == ("completed", ["early"])
    asked = ForkRequest(run.id, "family_second", effects="live")
    tenant = app.runtime.operations.tenant
    made = app.do(fork_start.fork(app.store, families, asked, tenant=tenant, actor="ana", run="fork-1"))
    app.settle()
    forked = AppRun(app, families, made.run)
    forked.signal("go", Go())
    app.settle()
    assert (forked.status, forked.state.said, WRITES) == ("completed", ["stamp 1", "stamp 1"], ["early"])


def test_a_lookup_counts_in_no_tree() -> None:
    with pytest.raises(DefinitionError, match="runs share answers of writes alone"):

        @lookup(key="a", once_per="root")
        async def look() -> None: ...


def test_a_row_of_a_tree_tells_its_scope() -> None:
    assert [scope_of_shared(key) for key in (tree_key("r", "a/b"), "a/b")] == ["root", "tenant"]
    assert plain_key(tree_key("r", "a/b")) == "a/b"

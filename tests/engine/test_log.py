"""ctx.log: entries are in the history while the node still runs, once per key and visit."""

import json
from typing import Any, Literal

import pytest

from outlast.core.rows.run_rows import Run
from outlast.errors import InvalidInput, OutlastError
from outlast.flow import Context, Workflow
from tests.engine.world import MINUTE, QUIET, Receiver, Slow, State, World, one_node, write

Ctx = Context[State]


def texts(world: World, run: str = "r1") -> list[str]:
    bodies = [json.loads(e.body) for e in world.events(run)]
    return [body["data"]["text"] for body in bodies if body["type"] == "dev.outlast.run.logged"]


@pytest.mark.every_store
async def test_an_entry_is_in_the_history_while_the_node_still_runs(world: World) -> None:
    slow = Slow()
    order = write(Receiver(slow, "ok"))

    async def body(ctx: Ctx) -> None:
        ctx.log("asks", "asks the shop", n=1)
        ctx.log("asks", "a second entry of one key", n=2)
        await ctx.do(order, "a")
        ctx.log("asked", "the shop answered")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert (texts(world), world.status()) == (["asks the shop"], "running")
    slow.go.set()
    await world.pass_(MINUTE)
    assert (texts(world), world.status()) == (["asks the shop", "the shop answered"], "completed")


@pytest.mark.req("RUN-3", "REC-1")
@pytest.mark.every_store
async def test_a_takeover_keeps_the_entries_and_repeats_none(world: World) -> None:
    """The successor checks that the last event belongs to the run row; here it is an entry."""
    slow = Slow()
    order = write(Receiver(slow, "ok"), mode="reconcile")

    async def body(ctx: Ctx) -> None:
        ctx.log("asks", f"asks the shop in visit {ctx.visit}")
        await ctx.do(order, "a")
        ctx.log("asked", "the shop answered")
        await ctx.do(order, "b")

    flow = one_node(body)
    first = world.worker(flow)
    await world.start(flow)
    assert texts(world) == ["asks the shop in visit 1"]
    first.kill()
    world.worker(flow)
    await world.pass_(2 * QUIET)
    assert (world.status(), world.reasons()) == ("completed", [])
    assert texts(world) == ["asks the shop in visit 1", "the shop answered"]
    seen = [(e.seq, json.loads(e.body)["data"]["version"]) for e in world.events()]
    assert [seq for seq, _ in seen] == list(range(1, len(seen) + 1)) and seen[-1][1] == world.run().version


async def test_entries_of_one_turn_land_together_and_those_before_the_return_with_it(world: World) -> None:
    """A node without entries pays nothing; a node that returns at once pays no commit for them."""
    order = write(Receiver())

    def flow(name: str, *, before: int, after: int) -> Workflow[Any]:
        made = Workflow(name, state=State)

        @made.node(start=True)
        async def one(ctx: Ctx) -> Literal["two"]:
            for n in range(before):
                ctx.log(f"before-{n}", "a line")
            await ctx.do(order, name)
            for n in range(after):
                ctx.log(f"after-{n}", "a line")
            return "two"

        @made.node
        async def two(ctx: Ctx) -> None: ...

        return made.validate()

    flows = {name: flow(name, before=b, after=a) for name, b, a in (("no", 0, 0), ("b", 9, 0), ("a", 0, 9))}
    world.worker(*flows.values())
    versions: dict[str, int] = {}
    for name, made in flows.items():
        await world.start(made, name)
        assert world.status(name) == "completed"
        run: Run = world.run(name)
        versions[name] = run.version
        assert len(texts(world, name)) == (0 if name == "no" else 9)
    assert versions["a"] == versions["no"] and versions["b"] == versions["no"] + 1


@pytest.mark.parametrize(
    ("key", "data"), [("", {}), ("a\nb", {}), ("\0", {}), ("x" * 501, {}), ("k", {"version": 3}), ("k", {"text": "t"})]
)
async def test_an_entry_that_cannot_be_stored_is_refused_in_its_line(world: World, key: str, data: Any) -> None:
    found: list[OutlastError] = []

    async def body(ctx: Ctx) -> None:
        try:
            ctx.log(key, "a line", **data)
        except InvalidInput as error:
            found.append(error)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed" and len(found) == 1

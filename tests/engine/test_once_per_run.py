"""A key once per run is found whatever its scope was when it was recorded: an upgrade in the middle of a run (S-18)."""

import json
from typing import Any, Literal

import pytest

from outlast import Context, Workflow, activity, role
from outlast.agent import ModelAnswer, ScriptedModel, ToolCall, agent_workflow
from outlast.core.machine import EffectStatus
from outlast.flow import Perhaps
from tests.engine.world import MINUTE, Go, Receiver, State, World, one_node, write

pytestmark = pytest.mark.req("EFF-1", "GATE-7")


def two_visits(act: Any, *, amount: int = 1, name: str = "flow") -> Workflow[State]:
    """Call `act` in the first visit of a node, wait in the second one, and call it there again."""
    flow = Workflow(name, state=State)

    @flow.node(start=True, max_visits=9)
    async def step(ctx: Context[State]) -> Literal["step"] | None:
        if ctx.visit == 1:
            ctx.state.said.append(await ctx.do(act, "a"))
            return "step"
        await ctx.receive("go", Go)
        ctx.state.said.append(await ctx.do(act, "a", amount))
        return None

    return flow.validate()


async def upgraded(world: World, before: Workflow[Any], after: Workflow[Any]) -> None:
    """Run the first version until it waits, then the second one."""
    world.worker(before)
    await world.start(before)
    await world.off_duty()
    world.worker(after)
    await world.settle()


async def test_a_call_of_an_earlier_visit_is_found(world: World) -> None:
    shop = Receiver()
    await upgraded(world, two_visits(write(shop)), two_visits(write(shop, once_per="run")))
    await world.signal("go")
    assert world.status() == "completed" and world.outcome()["said"] == ["did order/a"] * 2
    assert len(shop.attempts) == 1 and [e.visit for e in world.effects()] == [1]


async def test_other_arguments_under_its_key_contradict(world: World) -> None:
    shop = Receiver()
    await upgraded(world, two_visits(write(shop)), two_visits(write(shop, once_per="run"), amount=2))
    await world.signal("go")
    assert world.reasons() == ["contradiction"] and len(shop.attempts) == 1


async def test_a_call_of_this_visit_is_found(world: World) -> None:
    """Its re-run gets the recorded answer; the run is not held as one that does not fit the code."""
    shop = Receiver()

    def waiting(act: Any) -> Workflow[State]:
        async def body(ctx: Context[State]) -> None:
            ctx.state.said.append(await ctx.do(act, "a"))
            await ctx.receive("go", Go)

        return one_node(body)

    await upgraded(world, waiting(write(shop)), waiting(write(shop, once_per="run")))
    await world.signal("go")
    assert world.status() == "completed" and len(shop.attempts) == 1 and len(world.effects()) == 1


async def test_an_open_call_of_this_visit_is_settled_not_made_beside_it(world: World) -> None:
    shop = Receiver(Perhaps("no answer"))

    def calling(act: Any) -> Workflow[State]:
        async def body(ctx: Context[State]) -> None:
            ctx.state.said.append(await ctx.do(act, "a"))

        return one_node(body)

    await upgraded(world, calling(write(shop)), calling(write(shop, once_per="run")))
    assert world.effect("order/a").status is EffectStatus.UNCERTAIN
    await world.pass_(10 * MINUTE)
    await world.resolve("order/a", "happened", response=b'"by hand"')
    assert world.status() == "completed" and world.outcome()["said"] == ["by hand"]
    assert len(shop.attempts) == 1 and len(world.effects()) == 1


async def test_the_same_key_of_another_activity_is_another_call(world: World) -> None:
    """In an earlier visit. Scopes keep keys apart, so an upgrade connects calls of one activity only."""
    shop, bank = Receiver(), Receiver()
    before = write(shop, name="order", key="x/{what}")
    flow = Workflow("flow", state=State)

    @flow.node(start=True, max_visits=9)
    async def step(ctx: Context[State]) -> Literal["step"] | None:
        await ctx.do(before if ctx.visit == 1 else pay, "a")
        return "step" if ctx.visit == 1 else None

    pay = write(bank, name="pay", key="x/{what}", once_per="run")
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed" and (len(shop.attempts), len(bank.attempts)) == (1, 1)


# --- an agent whose default has changed ---------------------------------------------------------------
def asks(**calls: dict[str, Any]) -> ModelAnswer:
    made = tuple(ToolCall(id=tool, tool=tool, arguments=given) for tool, given in calls.items())
    return ModelAnswer(calls=made)


def case(done: list[str], **ticket: Any) -> Workflow[Any]:
    """An agent that opens a ticket, waits for a person in its second step, and then opens tickets again."""

    @activity(key="ticket/{title}", no_undo="a test", **ticket)
    async def open_ticket(title: str, text: str) -> str:
        """Open a ticket."""
        done.append(title)
        return f"T-{title}"

    @activity(key="restart/{service}", no_undo="a test", once_per="run")
    async def restart(service: str) -> str:
        """Restart."""
        return "restarted"

    script = [
        asks(open_ticket={"title": "a", "text": "slow"}),
        asks(open_ticket={"title": "b", "text": "slow"}, restart={"service": "db"}),
        asks(open_ticket={"title": "a", "text": "slow"}),
        asks(open_ticket={"title": "a", "text": "very slow"}),
        asks(open_ticket={"title": "b", "text": "slow"}),
        "done",
    ]
    approve = {"restart": role("boss")}
    return agent_workflow("case", model=ScriptedModel(script), tools=[open_ticket, restart], approve=approve).validate()


async def test_an_agent_finds_what_it_did_under_the_former_default(world: World) -> None:
    """A ticket of an earlier step, one of the step that waits, and one in other words: each is opened once."""
    done: list[str] = []
    before, after = case(done, once_per="visit"), case(done)
    assert after.activities["open_ticket"].once_per == "run"
    world.worker(before)
    await world.start(before, objective="x")
    assert done == ["a", "b"]
    await world.off_duty()
    world.worker(after)
    await world.settle()
    await world.decide(world.pending())
    assert world.status() == "completed" and done == ["a", "b"]
    messages = after.state_codec.load(world.events()[-2].snapshot or b"").messages
    told = [json.loads(m.text) for m in messages if m.tool == "open_ticket" and "{" in m.text]
    assert [each.get("note", "")[:40] for each in told] == [
        "ticket/a was already done in step 1; it ",
        "",
        "ticket/b was already done in step 2; it ",
    ]
    assert told[1]["error"]["code"] == "conflict"

"""An agent whose options change while it waits for a person."""

import pytest

from outlast.agent import ModelAnswer, ScriptedModel, agent_workflow
from tests.engine.world import World

CUT = ModelAnswer(text="The cause of the incident is", finish="cut", finish_detail="length")


@pytest.mark.req("OUT-4", "GATE-7")
async def test_a_higher_limit_of_tokens_asks_again_after_a_cut_answer(world: World) -> None:
    """The request differs, so the run asks a person whether the recorded answers may be left out."""
    world.worker(before := agent_workflow("agent", model=ScriptedModel([CUT, CUT])))
    await world.start(before, objective="x")
    assert world.reasons() == ["exception"]
    await world.answer("exception", "continue")
    assert world.reasons() == ["exception"]
    await world.off_duty()
    world.worker(agent_workflow("agent", model=ScriptedModel(["done"]), settings={"max_tokens": 8000}))
    await world.settle()
    await world.answer("exception", "continue")
    assert world.reasons() == ["node_diverged"]
    await world.answer("node_diverged", "accept")
    assert world.status() == "completed" and world.outcome() == "done"

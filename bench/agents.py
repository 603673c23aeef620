"""Agents of a measurement: a model that takes two seconds for each answer, and a tool that answers at once."""

import asyncio
import random
from collections.abc import AsyncIterator

from bench.flows import look, stamp
from outlast import this_call
from outlast.agent import ModelAnswer, ModelRequest, ToolCall, agent_workflow

ANSWER_S = 2.0
ANSWERS = 10


class SlowModel:
    """A model that waits, and asks for one call of a tool in each answer but the last. It may print a line first."""

    name = "slow"
    prints = True
    answer_s = ANSWER_S

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Return the next answer after two seconds, more or less."""
        if self.prints:
            stamp(this_call().run_id)
        n = request.answers + 1
        spread = random.Random(f"{this_call().run_id} {n}").uniform(0.5, 1.5)  # so that answers do not come together
        await asyncio.sleep(self.answer_s * spread)
        if n == ANSWERS:
            return ModelAnswer(text="done")
        return ModelAnswer(text="x" * 200, calls=(ToolCall(id=f"c{n}", tool="look", arguments={"n": n}),))

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        """Yield the answer alone."""
        yield await self.request(request)


slow_agents = agent_workflow("bench-agents", model=SlowModel(), tools=[look])

"""Trees of agents for tests of crashes. Their model answers from what it reads."""

import json
from typing import Any, Final

from outlast import Context, Fail, Workflow, role, workflow
from outlast.agent import ModelAnswer, ModelRequest, ScriptedModel, SubAgent, ToolCall, agent_workflow
from tests.crash.trees import Make, Tree


def _booker(request: ModelRequest) -> ModelAnswer | str:
    """Book the place that the objective names, and say what came back."""
    if len(request.messages) == 1:
        return _asks(("tree-place", {"what": request.messages[0].text}))
    return f"booked: {request.messages[-1].text}"


def _asks(*calls: tuple[str, dict[str, Any]]) -> ModelAnswer:
    return ModelAnswer(calls=tuple(ToolCall(id=f"c{n}", tool=tool, arguments=a) for n, (tool, a) in enumerate(calls)))


def _agent(name: str, answers: Any, **options: Any) -> Workflow[Any, Any, Any]:
    return agent_workflow(f"tree-{name}", model=ScriptedModel(answers), description="Books a place.", **options)


def agents_of_an_agent(book: Any) -> Tree:
    """An agent with two sub-agents, of which one waits for an approval."""
    scout = _agent("scout", _booker, tools=[book])
    buyer = _agent("buyer", _booker, tools=[book], approve={"tree-place": role("boss")})

    def lead(request: ModelRequest) -> ModelAnswer | str:
        if len(request.messages) == 1:
            return _asks(("tree-scout", {"objective": "oslo"}), ("tree-buyer", {"objective": "rome"}))
        return "; ".join(m.text for m in request.messages if m.role == "tool")

    agents = [SubAgent(each, no_undo="a place is kept") for each in (scout, buyer)]
    return _agent("lead", lead, agents=agents), scout, buyer


def agents_in_the_background(book: Any) -> Tree:
    """An agent with two sub-agents in the background, which works beside them and reads both ends.

    Each of them ends after an approval, so that the steps of the agent are the same in each case.
    """
    near = _agent("near", _booker, tools=[book], approve={"tree-place": role("boss")})

    @workflow(name="tree-far")
    async def far(ctx: Context, town: str) -> str:
        """Book a place far away."""
        await ctx.do(book, f"{town} inn")
        await ctx.approval(book.plan(town), summary="Book it", by=role("boss"), within="1h")
        await ctx.do(book, town)
        raise Fail("it is too far")

    def lead(request: ModelRequest) -> ModelAnswer | str:
        if len(request.messages) == 1:
            return _asks(("tree-near", {"objective": "oslo"}), ("tree-far", {"town": "perth"}))
        if len(request.messages) == 4:
            return _asks(("tree-place", {"what": "own"}))
        ends = [json.loads(m.text) for m in request.messages[1:] if m.role == "user"]
        told = [str(each.get("result") or each["error"]["code"]) for each in ends]
        return "; ".join(sorted(told)) or "I wait for both"

    agents = [SubAgent(each, background=True, no_undo="a place is kept") for each in (near, far)]
    return _agent("waits", lead, agents=agents, tools=[book]), near, far


AGENT_TREES: Final[dict[str, Make]] = {
    "agents": agents_of_an_agent,
    "background": agents_in_the_background,
}

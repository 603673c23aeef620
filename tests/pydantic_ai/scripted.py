"""Agents whose model is a script, and workflows of one node that run them."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlast import Context, Workflow
from outlast.pydantic_ai import OutlastDurability
from outlast.testing.virtual_runtime import App, AppFactory, AppRun
from tests.pydantic_ai.agents import answers


class Case(BaseModel):
    question: str = "?"
    answer: str = ""


class Script:
    """A model that makes the given calls one turn after another, then repeats the answers of the tools."""

    def __init__(self, *turns: Sequence[ToolCallPart]) -> None:
        self.turns = turns
        self.asked: list[list[ModelMessage]] = []

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked.append(list(messages))
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        if turn < len(self.turns):
            return ModelResponse(parts=list(self.turns[turn]))
        return ModelResponse(parts=[TextPart(" ".join(answers(messages)) or "done")])


def call(tool: str, ident: str = "c1", **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool, arguments, tool_call_id=ident)


def flow_of(
    name: str, body: Callable[[Context[Case]], Any], agents: Sequence[Agent[Any, Any]] = (), **options: Any
) -> Workflow[Case]:
    """Return a workflow of one node, which closes over its agent as a module would have it as a global."""
    flow = Workflow(name, state=Case, **options)

    agent = agents[0] if agents else None

    @flow.node(start=True)
    async def work(ctx: Context[Case]) -> None:
        _ = agent
        await body(ctx)

    return flow


def effects(app: App, run: AppRun[Any]) -> dict[str, str]:
    return {e.key: f"{e.activity} {e.status}" for e in app.rows(run.id).effects}


def tool_agent(
    name: str, model: Script, fn: Callable[..., Any], *, durability: OutlastDurability[Any] | None = None, **more: Any
) -> Agent[Any, str]:
    tools = FunctionToolset[Any](id="tools")
    tools.add_function(fn, **more)
    return Agent(FunctionModel(model), name=name, toolsets=[tools], capabilities=[durability or OutlastDurability()])


def play(app_of: AppFactory, name: str, agent: Agent[Any, str]) -> tuple[App, AppRun[Case]]:
    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run(ctx.state.question)).output
        if ctx.state.question == "slowly":
            await ctx.sleep("1h")

    flow = flow_of(name, body, [agent])
    app = app_of(flow)
    return app, app.start(flow, {"question": "slowly"})

"""Options of another type are refused where they are written, and money and usage are what they can be."""

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from outlast import Budget, Context
from outlast.errors import DefinitionError
from outlast.flow.reach import models_without_price
from outlast.pydantic_ai import DurableTool, OutlastDurability
from outlast.testing.virtual_runtime import AppFactory
from tests.pydantic_ai.scripted import Case, Script, flow_of


@pytest.mark.parametrize(
    "options",
    [
        {"lookup": "yes"}, {"key": None}, {"key": ("a",)}, {"once_per": "node"}, {"once_per": True}, {"undo": "undo"},
        {"undo": lambda answer: None}, {"reconcile": 1}, {"no_undo": ""}, {"timeout": "0s"}, {"timeout": True},
        {"retry": 3}, {"limit": 5}, {"provider": 1}, {"name": None},
    ],
)  # fmt: skip
def test_an_option_of_a_tool_of_another_type_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=next(iter(options))):
        DurableTool(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"stream": 1}, {"deps": "deps"}, {"timeout": "0s"}, {"timeout": None}, {"retry": 3}, {"retry": None},
        {"limit": 5}, {"tools": [DurableTool()]}, {"tools": {"pay": {"key": "pay"}}},
    ],
)  # fmt: skip
def test_an_option_of_an_agent_of_another_type_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=next(iter(options))):
        OutlastDurability(**options)


def openai(name: str) -> OpenAIChatModel:
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url="http://m", api_key="k"))


@pytest.mark.req("RUN-10")
@pytest.mark.parametrize(
    ("model", "without"),
    [
        (openai("gpt-4o"), []),
        (openai("own-model"), ["own-model"]),
        (FallbackModel(openai("gpt-4o"), openai("own-model")), ["own-model"]),
    ],
)
def test_a_model_without_a_list_price_is_known_when_the_workflow_is_loaded(model: Any, without: list[str]) -> None:
    agent = Agent(model, name="priced", capabilities=[OutlastDurability()])

    async def node(ctx: Context[Case]) -> None:
        await agent.run("?")

    assert models_without_price([node]) == without


@pytest.mark.req("RUN-10")
def test_a_money_budget_of_an_agent_without_a_price_starts_no_run(outlast_app: AppFactory) -> None:
    agent = Agent(FunctionModel(Script()), name="blind", capabilities=[OutlastDurability()])

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run("?")).output

    flow = flow_of("agent-blind", body, [agent], budget=Budget(money="5"))
    with pytest.raises(DefinitionError, match="price"):
        outlast_app(flow).start(flow, {})


def test_impossible_usage_is_left_out_and_the_answer_is_kept(outlast_app: AppFactory) -> None:
    """A negative number of tokens lost the paid answer, and stopped the run."""

    async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("done")], usage=RequestUsage(input_tokens=-5, output_tokens=3))

    agent = Agent(FunctionModel(think), name="odd-usage", capabilities=[OutlastDurability()])

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run("?")).output

    flow = flow_of("agent-odd-usage", body, [agent])
    run = outlast_app(flow).start(flow, {})
    assert (run.status, run.attention) == ("completed", [])

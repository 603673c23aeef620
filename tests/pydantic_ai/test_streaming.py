"""Texts of an agent's model go to listeners as they come; the ledger has the whole answer, and a re-run sends none."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from outlast.agent import ModelAnswer, ToolCall
from outlast.core.state.delta_packets import Delta
from outlast.flow import Perhaps
from outlast.pydantic_ai import OutlastDurability
from outlast.pydantic_ai.durable_operations import check_whole
from outlast.store.port import DeltaChannel
from outlast.testing import ModelServer, cuts
from outlast.testing.virtual_runtime import App, AppFactory, AppRun
from tests.pydantic_ai.scripted import Case, Script, call, flow_of, tool_agent

ANSWERS = [
    ModelAnswer(text="I open a ticket now", calls=(ToolCall(id="c1", tool="ticket", arguments={"title": "t"}),)),
    "The ticket is open and on its way",
]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A model whose second answer is cut off at the first attempt."""
    with ModelServer(ANSWERS, misbehave={1: [cuts()]}) as opened:
        yield opened


def model_at(server: ModelServer) -> Model:
    return OpenAIChatModel("gpt-test", provider=OpenAIProvider(base_url=server.url, api_key="of a test"))


def play(app_of: AppFactory, name: str, model: Model, **options: Any) -> tuple[App, AppRun[Case], list[Delta]]:
    """Run an agent in a node that sleeps afterwards, and return what listeners got until then and later."""
    tools = FunctionToolset[None](id="desk")

    @tools.tool_plain
    async def ticket(title: str) -> str:
        return f"opened {title}"

    agent = Agent(model, name=name, toolsets=[tools], capabilities=[OutlastDurability[None](**options)])

    async def body(ctx: Any) -> None:
        ctx.state.answer = (await agent.run("?")).output
        await ctx.sleep("1h")

    flow = flow_of(f"agent-{name}", body, [agent])
    app, heard = app_of(flow), list[Delta]()

    async def listen() -> None:
        assert isinstance(app.store, DeltaChannel)
        app.store.on_deltas(heard.extend)

    app.do(listen())
    return app, app.start(flow, {}), heard


@pytest.mark.req("RUN-7", "GATE-7")
def test_texts_are_streamed_once_and_the_whole_answer_is_stored(server: ModelServer, outlast_app: AppFactory) -> None:
    app, run, heard = play(outlast_app, "streams", model_at(server), stream=True)
    texts: dict[tuple[str, int], str] = {}
    for delta in heard:
        origin = delta.origin.key, delta.origin.attempt
        texts[origin] = texts.get(origin, "") + delta.text
    cut = texts.pop(("streams/1/2", 1), "")
    assert texts == {("streams/1/1", 1): "I open a ticket now", ("streams/1/2", 2): ANSWERS[1]}
    assert ANSWERS[1].startswith(cut) and cut != ANSWERS[1], "the connection broke"
    rows = app.rows(run.id)
    asked = [memo.key for memo in rows.memos if memo.activity in ("outlast.model", "streams.prepare")]
    assert asked == ["streams/1/1", "streams/1/2"], "listeners cost no row"
    assert (server.paid, server.attempts(route="/chat/completions")) == (2, 3), "repeated under one key"
    heard.clear()
    app.clock.skip("1h")
    assert run.outcome["answer"] == ANSWERS[1]
    assert heard == [] and server.attempts(route="/chat/completions") == 3, "the re-run asks and streams nothing"


def test_without_the_option_nothing_is_streamed(server: ModelServer, outlast_app: AppFactory) -> None:
    app, run, heard = play(outlast_app, "silent", model_at(server))
    app.clock.skip("1h")
    assert run.outcome["answer"] == ANSWERS[1] and heard == []


async def words(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for word in ("three ", "small ", "words"):
        yield word


def test_a_handler_of_the_author_gets_the_events_as_well(outlast_app: AppFactory) -> None:
    seen: list[str] = []

    async def handle(ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            seen.append(event.event_kind)
            if event.event_kind == "part_delta":
                break  # the rest of the answer is streamed all the same

    model = FunctionModel(stream_function=words)
    app, run, heard = play(outlast_app, "handled", model, stream=True, event_stream_handler=handle)
    app.clock.skip("1h")
    assert run.outcome["answer"] == "three small words" == "".join(delta.text for delta in heard)
    assert seen[:3] == ["part_start", "final_result", "part_delta"]


def test_outside_of_a_node_the_agent_does_not_stream() -> None:
    """A model that cannot stream shows it."""

    async def ticket(title: str) -> str:
        return f"opened {title}"

    durability = OutlastDurability[None](stream=True)
    agent = tool_agent("outside", Script([call("ticket", title="t")]), ticket, durability=durability)
    assert asyncio.run(agent.run("?")).output == "opened t"


@pytest.mark.parametrize("more", [{}, {"finish_reason": "stop", "state": "incomplete"}])
def test_a_stream_without_an_end_may_have_been_cut(more: Any) -> None:
    with pytest.raises(Perhaps, match="cut off"):
        check_whole(ModelResponse(parts=[TextPart("The tick")], **more))
    check_whole(ModelResponse(parts=[TextPart("The ticket")], finish_reason="stop"))

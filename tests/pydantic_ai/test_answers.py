"""Answers of a model that are no result: cut, filtered, refused and empty ones, and answers that are too large."""

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.exceptions import ContentFilterError, OutputTokenLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from outlast import Context
from outlast.core.limits import RESPONSE_BYTES_MAX
from outlast.pydantic_ai import OutlastDurability
from outlast.pydantic_ai import durable_operations as operations
from outlast.pydantic_ai.recorded_requests import AnswerRefused, fault_of, judge_answer
from outlast.testing.virtual_runtime import App, AppFactory, AppRun
from tests.pydantic_ai.scripted import Case, call, flow_of


def cut(text: str = "The cause is", *calls: ToolCallPart) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text), *calls], finish_reason="length")


def said(text: str = "all of it") -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)], finish_reason="stop")


def filtered(text: str = "", **details: Any) -> ModelResponse:
    parts = [TextPart(text)] if text else []
    return ModelResponse(parts=parts, finish_reason="content_filter", provider_details=details or None)


class Answers:
    """A model that gives answers in order, and its requests."""

    def __init__(self, *answers: ModelResponse) -> None:
        self.left = list(answers)
        self.asked: list[list[ModelMessage]] = []

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked.append(list(messages))
        return self.left.pop(0)

    def note(self) -> str:
        """Return the last message of the last request as text."""
        last = self.asked[-1][-1]
        assert isinstance(last, ModelRequest)
        return str(last.parts[-1].content)


def start(
    app_of: AppFactory, name: str, agent: Agent[Any, Any], caught: Callable[[Exception], str] | None = None
) -> tuple[App, AppRun[Case]]:
    """Run an agent in a node that waits after it, so that its answers are replayed."""

    async def body(ctx: Context[Case]) -> None:
        try:
            ctx.state.answer = str((await agent.run("why?")).output)
        except Exception as error:
            if caught is None:
                raise
            ctx.state.answer = caught(error)
        await ctx.sleep("1h")

    flow = flow_of(name, body, [agent])
    app = app_of(flow)
    run = app.start(flow, {})
    if not run.attention and run.status == "waiting":
        app.clock.skip("1h")
    return app, run


def tooled(name: str, model: Answers, **options: Any) -> tuple[Agent[Any, Any], list[str]]:
    made: list[str] = []
    tools = FunctionToolset[Any](id="tools")

    @tools.tool_plain
    async def pay(order: str) -> str:
        made.append(order)
        return "paid"

    agent = Agent(FunctionModel(model), name=name, toolsets=[tools], capabilities=[OutlastDurability()], **options)
    return agent, made


@pytest.mark.req("OUT-4")
def test_a_cut_answer_is_asked_for_once_more(outlast_app: AppFactory) -> None:
    """The run was completed with «The cause is» as its result."""
    model = Answers(cut(), said())
    agent, _ = tooled("cut-once", model)
    _, run = start(outlast_app, "agent-cut-once", agent)
    assert (run.status, run.outcome["answer"], len(model.asked)) == ("completed", "all of it", 2)
    assert "your answer was cut" in model.note()


@pytest.mark.req("OUT-4")
def test_an_answer_that_is_cut_twice_needs_a_person(outlast_app: AppFactory) -> None:
    model = Answers(cut(), cut("The cause is long"))
    agent, _ = tooled("cut-twice", model)
    app, run = start(outlast_app, "agent-cut-twice", agent)
    assert (run.attention, len(model.asked)) == (["exception"], 2)
    assert "cut twice. It begins: The cause is long" in run.now.attention[0].detail
    assert len([memo for memo in app.rows(run.id).memos if memo.activity == "outlast.model"]) == 2, "both were paid"


@pytest.mark.req("OUT-4", "GATE-7")
def test_no_call_of_a_cut_answer_is_made(outlast_app: AppFactory) -> None:
    model = Answers(cut("I pay", call("pay", order="a")), said())
    agent, made = tooled("cut-calls", model)
    _, run = start(outlast_app, "agent-cut-calls", agent)
    assert (run.status, made) == ("completed", [])
    parts = [part for message in model.asked[1] for part in message.parts]
    assert not any(isinstance(part, ToolCallPart) for part in parts), "a provider refuses a call without an answer"


@pytest.mark.req("OUT-4")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (filtered(refusal="I can't help with that"), "I can't help with that"),
        (filtered("Half of a", finish_reason="SAFETY"), "Half of a"),
        (filtered(finish_reason="SAFETY"), "SAFETY"),
        (filtered(), "it gave no reason"),
    ],
)
def test_a_refused_or_filtered_answer_fails_the_run(outlast_app: AppFactory, answer: ModelResponse, words: str) -> None:
    """It was completed with an empty result, or with the part before the filter."""
    model = Answers(answer)
    agent, _ = tooled("filtered", model)
    _, run = start(outlast_app, "agent-filtered", agent)
    assert (run.status, run.attention, len(model.asked)) == ("failed", [], 1)
    assert words in run.now.reason


@pytest.mark.req("OUT-4")
@pytest.mark.parametrize(
    "parts", [[], [TextPart("")], [TextPart("  \n")], [ThinkingPart("hm")], [ThinkingPart("hm"), TextPart(" ")]]
)
def test_an_empty_answer_is_asked_for_once_more_and_then_fails(outlast_app: AppFactory, parts: Sequence[Any]) -> None:
    empty = ModelResponse(parts=list(parts), finish_reason="stop")
    model = Answers(empty, said())
    agent, _ = tooled("empty-once", model)
    _, run = start(outlast_app, "agent-empty-once", agent)
    assert (run.status, run.outcome["answer"], len(model.asked)) == ("completed", "all of it", 2)
    model = Answers(empty, empty)
    agent, _ = tooled("empty-twice", model)
    _, run = start(outlast_app, "agent-empty-twice", agent)
    assert (run.status, run.attention, len(model.asked)) == ("failed", [], 2)


def test_the_node_may_catch_a_refusal_as_pydantic_ai_raises_it(outlast_app: AppFactory) -> None:
    model = Answers(filtered(refusal="no"))
    agent, _ = tooled("caught", model)
    seen: list[type] = []

    def caught(error: Exception) -> str:
        seen.append(type(error))
        assert isinstance(error, ContentFilterError)
        return "asked someone else"

    _, run = start(outlast_app, "agent-caught", agent, caught)
    assert (run.status, run.outcome["answer"], set(seen)) == ("completed", "asked someone else", {AnswerRefused})


def test_outside_of_a_node_an_answer_is_judged_by_pydantic_ai_alone() -> None:
    agent, _ = tooled("outside", Answers(cut()))
    assert asyncio.run(agent.run("why?")).output == "The cause is"


def test_an_answer_of_an_earlier_version_is_not_judged(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run went on with it, and its later requests are recorded."""
    model = Answers(cut())
    agent, _ = tooled("earlier", model)

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run("why?")).output
        await ctx.sleep("1h")

    flow = flow_of("agent-earlier", body, [agent])
    app = outlast_app(flow)
    with monkeypatch.context() as before:
        before.setattr(operations, "with_outline", lambda payload, outline: payload)
        before.setattr(operations, "request_digest", lambda messages, outline: messages)
        run = app.start(flow, {})
    app.clock.skip("1h")
    assert (run.status, run.outcome["answer"]) == ("completed", "The cause is")


@pytest.mark.req("OUT-4")
def test_an_answer_that_is_too_large_is_cut_and_paid_once(outlast_app: AppFactory) -> None:
    """It stopped the run with OUT-105, and `continue` paid for it again."""
    model = Answers(said("x" * (RESPONSE_BYTES_MAX + 1)), said())
    agent, _ = tooled("large", model)
    app, run = start(outlast_app, "agent-large", agent)
    assert (run.status, run.outcome["answer"], len(model.asked)) == ("completed", "all of it", 2)
    assert "your answer was cut: the answer has 26" in model.note()
    first = min(app.rows(run.id).memos, key=lambda memo: memo.key)
    assert first.response is not None and b"xxxx" in first.response, "the beginning is kept"


class Verdict(BaseModel):
    guilty: bool


def test_a_typed_result_is_judged_the_same(outlast_app: AppFactory) -> None:
    final = ModelResponse(parts=[ToolCallPart("final_result", {"guilty": True}, tool_call_id="f")])
    half = ModelResponse(parts=[ToolCallPart("final_result", '{"guil', tool_call_id="f")], finish_reason="length")
    model = Answers(half, final)
    agent, _ = tooled("typed", model, output_type=Verdict)
    _, run = start(outlast_app, "agent-typed", agent)
    assert (run.status, run.outcome["answer"]) == ("completed", "guilty=True")


def test_the_faults_of_answers() -> None:
    assert [fault_of(each) for each in (said(), cut(), filtered("a"), said(" "))] == ["", "cut", "declined", "empty"]
    assert fault_of(ModelResponse(parts=[TextPart("a")], finish_reason="error")) == "cut"
    assert fault_of(ModelResponse(parts=[TextPart(""), call("pay")])) == ""
    assert judge_answer(said(), ["cut"]) is None
    assert isinstance(judge_answer(cut(), ["cut"]), OutputTokenLimitExceeded)
    assert not isinstance(judge_answer(cut(), ["cut", ""]), OutputTokenLimitExceeded), "only one after another counts"


# --- through the provider of pydantic-ai -----------------------------------------------------------
def openai(*choices: dict[str, Any]) -> OpenAIChatModel:
    """Return a model of pydantic-ai's OpenAI provider whose server gives these answers in order."""
    import httpx2

    left, numbers = list(choices), itertools.count()

    def reply(request: httpx2.Request) -> httpx2.Response:
        choice = {"index": 0, "finish_reason": "stop", **left.pop(0)}
        choice["message"] = {"role": "assistant", "content": None, **choice["message"]}
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
        body = {"id": f"r{next(numbers)}", "object": "chat.completion", "created": 1, "model": "gpt-4o",
                "choices": [choice], "usage": usage}  # fmt: skip
        return httpx2.Response(200, content=json.dumps(body), headers={"content-type": "application/json"})

    client: Any = httpx2.AsyncClient(transport=httpx2.MockTransport(reply))
    return OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url="http://m", api_key="k", http_client=client))


@pytest.mark.req("OUT-4")
@pytest.mark.parametrize(
    ("choices", "status", "answer"),
    [
        ([{"message": {"content": "The cause"}, "finish_reason": "length"}, {"message": {"content": "All"}}],
         "completed", "All"),
        ([{"message": {"refusal": "I can't help"}}], "failed", "I can't help"),
        ([{"message": {"content": ""}, "finish_reason": "content_filter"}], "failed", "filtered"),
        ([{"message": {"content": None}}, {"message": {"content": None}}], "failed", "empty answer twice"),
    ],
)  # fmt: skip
def test_the_openai_provider_gives_its_reasons(
    outlast_app: AppFactory, choices: list[dict[str, Any]], status: str, answer: str
) -> None:
    agent = Agent(openai(*choices), name="provided", capabilities=[OutlastDurability()])
    _, run = start(outlast_app, "agent-provided", agent)
    assert run.status == status, run.attention
    assert answer in (run.outcome["answer"] if status == "completed" else run.now.reason)

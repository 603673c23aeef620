"""Models over HTTP against a local OpenAI-compatible server, and models for tests."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from outlast import Context, lookup, workflow
from outlast.agent import (
    ChatCompletions,
    Message,
    Model,
    ModelAnswer,
    ModelRequest,
    OfferedTool,
    RecordingModel,
    ScriptedModel,
    ToolCall,
    agent_workflow,
    provided,
)
from outlast.agent.pydantic_models import PydanticModel
from outlast.errors import InvalidInput
from outlast.flow.outcomes import Perhaps
from outlast.http import AsyncClient, checked
from outlast.testing import App, ModelServer, cuts, status, times_out, too_many

CALL = ModelAnswer(text="let me see", calls=(ToolCall(id="c1", tool="read", arguments={"n": 2}),))
ASKED = ModelRequest(
    messages=(Message(role="user", text="how many?"),),
    tools=(OfferedTool(name="read", description="Read.", parameters={"type": "object", "properties": {}}),),
    instructions="be brief",
)
THEN = ASKED.model_copy(
    update={"messages": (*ASKED.messages, CALL.message, Message(role="tool", text="2", call_id="c1", tool="read"))}
)


def direct(url: str) -> Model:
    return ChatCompletions("openai:gpt-test", url=url, key="secret", timeout_s=5)


def by_pydantic_ai(url: str) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    made = PydanticModel.__new__(PydanticModel)
    made.__dict__.update(
        name="openai:gpt-test",
        _model=OpenAIChatModel("gpt-test", provider=OpenAIProvider(base_url=url, api_key="secret")),
    )
    return made


@pytest.mark.parametrize("made", [direct, by_pydantic_ai])
def test_a_model_answers_with_words_and_calls(made: Callable[[str], Model]) -> None:
    async def talk(model: Model) -> list[ModelAnswer]:
        return [await model.request(ASKED), await model.request(THEN)]

    with ModelServer([CALL, "two"]) as server:
        first, second = asyncio.run(talk(made(server.url)))
    assert (first.text, first.calls, second.text) == ("let me see", CALL.calls, "two")
    assert first.model == "gpt-test" and first.input_tokens > 0 and first.output_tokens > 0
    assert server.paid == 2


@pytest.mark.parametrize("made", [direct, by_pydantic_ai])
def test_a_model_streams_its_words_and_then_the_whole_answer(made: Callable[[str], Model]) -> None:
    async def talk(model: Model) -> list[Any]:
        return [each async for each in model.stream(ASKED)]

    words = "one two three four five six seven"
    with ModelServer([CALL.model_copy(update={"text": words})]) as server:
        *deltas, whole = asyncio.run(talk(made(server.url)))
    assert "".join(deltas) == words == whole.text and len(deltas) > 1
    assert whole.calls == CALL.calls and whole.input_tokens > 0


@pytest.mark.parametrize(
    ("behaviour", "error", "paid"),
    [
        (too_many(), httpx2.HTTPStatusError, 0),
        (status(500, acts=True), httpx2.HTTPStatusError, 1),
        (cuts(), httpx2.TransportError, 1),
        (times_out(), httpx2.TimeoutException, 1),
    ],
    ids=["429", "500 after billing", "cut", "timeout"],
)
def test_a_misbehaving_provider_raises_the_error_of_the_client(behaviour: Any, error: Any, paid: int) -> None:
    async def talk(url: str) -> None:
        await ChatCompletions("gpt-test", url=url, timeout_s=0.2).request(ASKED)

    with ModelServer(["two"], misbehave={0: [behaviour]}) as server:
        with pytest.raises(error):
            asyncio.run(talk(server.url))
        assert server.paid == paid


def test_a_stream_that_is_cut_may_have_been_paid() -> None:
    async def talk(url: str) -> None:
        async for _ in ChatCompletions("gpt-test", url=url).stream(ASKED):
            pass

    with ModelServer(["two"], misbehave={0: [cuts()]}) as server:
        with pytest.raises((Perhaps, httpx2.TransportError)):
            asyncio.run(talk(server.url))


def test_a_model_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUTLAST_MODEL", "OUTLAST_MODEL_URL", "OUTLAST_MODEL_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidInput, match="no model is named"):
        provided()
    with pytest.raises(InvalidInput, match="nobody:knows"):
        provided("nobody:knows")
    with ModelServer(["hello"]) as server:
        monkeypatch.setenv("OUTLAST_MODEL", "local:tiny")
        assert provided() is provided("local:tiny")
        assert asyncio.run(provided().request(ASKED)).text == "hello"
        assert server.paid == 1


def test_a_script_answers_by_the_place_in_the_transcript() -> None:
    model = ScriptedModel([CALL, "two  words"])

    async def talk() -> list[str | ModelAnswer]:
        assert await model.request(ASKED) == await model.request(ASKED) == CALL
        return [each async for each in model.stream(THEN)]

    assert asyncio.run(talk())[:-1] == ["two  ", "words"], "together they are the text"
    with pytest.raises(IndexError, match="2 answers"):
        asyncio.run(_beyond(model))


async def _beyond(model: ScriptedModel) -> ModelAnswer:
    more = THEN.model_copy(update={"messages": (*THEN.messages, Message(role="assistant", text="two"))})
    return await model.request(more)


def test_a_recording_repeats_without_a_request(tmp_path: Path) -> None:
    inner = ScriptedModel(["two"])
    first = RecordingModel(inner, tmp_path / "answers.jsonl")
    answer = asyncio.run(first.request(ASKED))
    again = RecordingModel(None, tmp_path / "answers.jsonl")
    assert asyncio.run(again.request(ASKED)) == asyncio.run(first.request(ASKED)) == answer
    assert len(inner.requests) == 1
    with pytest.raises(InvalidInput, match="has no answer to this request"):
        asyncio.run(again.request(THEN))


def test_ids_of_calls_are_not_part_of_the_digest() -> None:
    def with_id(name: str) -> ModelRequest:
        call = CALL.calls[0].model_copy(update={"id": name})
        told = CALL.message.model_copy(update={"calls": (call,)})
        return ModelRequest(messages=(told, Message(role="tool", text="2", call_id=name, tool="read")))

    assert with_id("a").digest("m") == with_id("b").digest("m")
    assert ASKED.digest("m") != ASKED.digest("n") and ASKED.digest("m") != THEN.digest("m")


def test_a_repeated_request_of_pydantic_ai_has_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(["two"], misbehave={0: [status(500, acts=True)]}) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "of a test")
        flow = agent_workflow("keyed", model=PydanticModel("openai-chat:gpt-test"))
        app = App((flow,))
        run = app.start(flow, {"objective": "count"})
        app.clock.skip("1h")
        assert run.outcome == "two" and (server.attempts(route="/chat/completions"), server.paid) == (2, 1)
        app.close()


@pytest.mark.parametrize("by", ["url", "pydantic-ai"])
@pytest.mark.parametrize("code", [400, 404])
def test_a_refusal_of_a_model_is_shown_without_a_traceback(
    by: str, code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """40 lines named frames of Outlast and of its client, and the last one said that the name of the model is wrong."""
    with ModelServer(["two"], misbehave={n: [status(code)] for n in range(9)}) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "of a test")
        flow = agent_workflow("refused", model=direct(server.url) if by == "url" else provided("openai-chat:gpt-test"))
        app = App((flow,))
        run = app.start(flow, {"objective": "count"})
        app.clock.skip("1h")
        (item,) = run.now.attention
        assert item.reason == "exception" and f"{code}" in item.detail, item
        assert "Traceback" not in item.detail and len(item.detail.splitlines()) == 1, item.detail
        assert "Traceback" not in caplog.text
        app.close()


def test_an_error_that_passed_the_code_of_an_author_keeps_its_traceback() -> None:
    """Of a lookup of theirs, and of a node that the request was made from: there a line can be corrected."""

    @lookup
    async def stock(url: str) -> int:
        async with AsyncClient() as http:
            return len(checked(await http.get(url)).content)

    @workflow
    async def count(ctx: Context, url: str) -> int:
        return await ctx.do(stock, url)

    with ModelServer(["two"]) as server:
        app = App((count,))
        run = app.start(count, {"url": f"{server.url}/nowhere"})
        app.clock.skip("1h")
        (item,) = run.now.attention
        assert "Traceback" in item.detail and "in stock" in item.detail and "in count" in item.detail, item.detail
        app.close()

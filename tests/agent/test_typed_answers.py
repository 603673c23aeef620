"""Typed answers from a proposal: how a request has the type, how an answer is read, one correction, a refusal."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, RootModel

from outlast import Context, Refused, Workflow
from outlast.agent import (
    ChatCompletions,
    Message,
    Model,
    ModelAnswer,
    ModelRequest,
    OfferedTool,
    Proposal,
    RecordingModel,
    ScriptedModel,
    TypedAnswer,
    agent_workflow,
    propose,
    provided,
)
from outlast.agent.model import WAYS, ResultBy
from outlast.agent.pydantic_models import PydanticModel
from outlast.agent.typed_answers import Flaw, read_text
from outlast.errors import DefinitionError, InvalidInput
from outlast.testing import App, ModelServer, RunEnd, every_crash
from tests.agent.agents import asks, read_log, running

pytestmark = pytest.mark.req("GATE-7", "OUT-4")


class Qualification(BaseModel):
    grade: Literal["A", "B", "C"]
    cents: int = Field(ge=0)


class Note(BaseModel):
    grade: str = ""
    ended: str = ""
    transcript: list[Message] = []


GOOD = '{"grade": "B", "cents": 900}'
VALUE = Qualification(grade="B", cents=900)
BAD = '{"grade": "D", "cents": -1}'
ASKED = [Message(role="user", text="Bolt Works, 120 people")]


def qualifying(model: Model, **options: Any) -> Workflow[Note]:
    """Return a workflow whose node asks for a qualification, and keeps the code of a refusal."""
    flow = Workflow("qualifying", state=Note)

    @flow.node(start=True)
    async def qualify(ctx: Context[Note]) -> None:
        try:
            found = await propose(ctx, model, ASKED, result=Qualification, about="Grade it.", **options)
        except Refused as error:
            ctx.state.ended = f"{error.code}|{error.detail}"
            return
        assert isinstance(found, TypedAnswer)
        ctx.state.grade, ctx.state.transcript = found.result.grade, list(found.messages)

    return flow


def memos(app: App, run: Any) -> int:
    """Return the number of recorded answers of the model."""
    return sum(row.activity == "outlast.model" for row in app.rows(run.id).memos)


# --- the request ---------------------------------------------------------------------------------------
def direct(url: str, result_by: ResultBy) -> Model:
    return ChatCompletions("openai:gpt-test", url=url, result_by=result_by)


def by_pydantic_ai(url: str, result_by: ResultBy) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    made = PydanticModel.__new__(PydanticModel)
    provider = OpenAIProvider(base_url=url, api_key="secret")
    made.__dict__.update(
        name="openai:gpt-test", result_by=result_by, _model=OpenAIChatModel("gpt-4o", provider=provider)
    )
    return made


def schema_in(body: dict[str, Any]) -> list[str]:
    """Return the places of a request that have the schema of the result."""
    places = {"tool": "tools", "response_format": "response_format", "prompt": "messages"}
    return [way for way, field in places.items() if "cents" in json.dumps(body.get(field))]


@pytest.mark.parametrize("made", [direct, by_pydantic_ai])
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", WAYS)
def test_a_request_has_the_schema_where_the_model_declares_it(
    made: Callable[[str, ResultBy], Model], streams: bool, way: ResultBy
) -> None:
    bodies = list[dict[str, Any]]()

    def answer(body: dict[str, Any]) -> ModelAnswer | str:
        bodies.append(body)
        return asks(("final_result", json.loads(GOOD))) if way == "tool" else GOOD

    with ModelServer(answer) as server, running(qualifying(made(server.url, way), stream=streams), {}) as (_, run):
        assert run.state.grade == "B" and server.paid == 1
    assert schema_in(bodies[0]) == [way]
    assert bodies[0]["messages"][0]["role"] == "system" and "Grade it." in bodies[0]["messages"][0]["content"]


def test_a_request_without_a_result_keeps_the_digest_of_earlier_releases() -> None:
    """A recorded answer is found by this digest, so another one would pay again after an upgrade."""
    tool = OfferedTool(name="read", description="Read.", parameters={"type": "object"})
    request = ModelRequest(
        messages=(Message(role="user", text="how many?"),),
        tools=(tool,),
        instructions="be brief",
        settings={"temperature": 0},
    )
    assert request.digest("openai:gpt-5") == "a44497870d800ffc15f4ba14c608e09ed4c21ce0c35f139835706069fa2c9103"


def test_the_way_is_declared_and_never_guessed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    assert ScriptedModel([]).result_by == "tool"
    inner = ScriptedModel([], result_by="prompt")
    assert RecordingModel(inner, tmp_path / "a").result_by == "prompt"
    assert RecordingModel(None, tmp_path / "a", result_by="response_format").result_by == "response_format"
    monkeypatch.setenv("OUTLAST_MODEL_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OUTLAST_MODEL_RESULT_BY", "response_format")
    named = provided("local:m")
    assert isinstance(named, ChatCompletions) and named.result_by == "response_format"
    monkeypatch.setenv("OUTLAST_MODEL_RESULT_BY", "guess")
    with pytest.raises(InvalidInput, match="tool, response_format, prompt"):
        provided("local:m")
    given: Any = "guess"
    with pytest.raises(InvalidInput, match="result_by"):
        ChatCompletions("m", url="http://127.0.0.1:9", result_by=given)


@pytest.mark.parametrize("kind", [str, dict, RootModel[list[str]]], ids=str)
def test_a_result_that_is_no_object_is_refused(kind: Any) -> None:
    flow = Workflow("other", state=Note)

    @flow.node(start=True)
    async def ask(ctx: Context[Note]) -> None:
        with pytest.raises(DefinitionError, match="wrap it in a model"):
            await propose(ctx, ScriptedModel([GOOD]), ASKED, result=kind)
        ctx.state.ended = "refused"

    with running(flow, {}) as (_, run):
        assert run.state.ended == "refused"


# --- how an answer is read ------------------------------------------------------------------------------
UNDERSTOOD = {
    "alone": GOOD,
    "fenced": f"```json\n{GOOD}\n```",
    "in prose": f"I looked at it [see 1]. My grade {{so far}}: {GOOD} – that is all.",
    "beside another object": f'You wrote {{"fit": 80}}, so: {GOOD}',
    "beside the schema": json.dumps(Qualification.model_json_schema()) + GOOD,
    "with a number as text": '{"grade": "B", "cents": "900"}',
}


@pytest.mark.parametrize("text", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_the_only_value_of_the_type_in_a_text_is_its_value(text: str) -> None:
    assert read_text(Qualification, text) == VALUE


UNCLEAR = {
    "words": ("It is a B, about 900.", "no JSON object"),
    "two values": (f'{GOOD} or {{"grade": "A", "cents": 1}}', "2 objects fit"),
    "one value twice": (f"{GOOD}\n{GOOD}", "2 objects fit"),
    "a draft in a broken object": (f'{{"draft": {GOOD}, "final": {{"grade": "A", "ce', "cannot be read"),
    "a draft before a broken object": (f'{GOOD} – no: {{"grade": "A", "cents": 1,}}', "cannot be read"),
    "inside another object": (f'{{"result": {GOOD}}}', "grade: Field required"),
    "a field twice": ('{"grade": "B", "cents": 1, "cents": 2}', "a field twice"),
    "a number that is none": ('{"grade": "B", "cents": NaN}', "JSON has no NaN"),
    "a number that is too large": ('{"grade": "B", "cents": 1e999}', "too large"),
    "a missing field": ('{"grade": "B"}', "cents: Field required"),
    "a forbidden value": (BAD, "grade: Input should be 'A', 'B' or 'C'; cents:"),
    "many levels": ('{"a":' * 30_000, "cannot be read"),
    "many brackets": ("[" * 100_000, "cannot be read"),
}


@pytest.mark.parametrize(("text", "why"), UNCLEAR.values(), ids=UNCLEAR)
def test_any_other_text_has_no_value(text: str, why: str) -> None:
    found = read_text(Qualification, text)
    assert isinstance(found, Flaw) and found.code == "answer_invalid" and why in found.summary


class Loose(BaseModel):
    """A type that any object fits."""

    note: str = ""


def test_a_type_that_any_object_fits_needs_a_text_with_one_object() -> None:
    assert read_text(Loose, 'so {"note": "x"}') == Loose(note="x")
    assert isinstance(read_text(Loose, '{"fit": 80} and {"note": "x"}'), Flaw)


# --- one correction, then a refusal -----------------------------------------------------------------------
def answers(*given: ModelAnswer | str) -> ScriptedModel:
    return ScriptedModel(list(given))


def test_a_correction_has_the_errors_as_data() -> None:
    model = answers(BAD, GOOD)
    with running(qualifying(model), {}) as (app, run):
        assert run.state.grade == "B" and memos(app, run) == 2 and run.now.visit == 1
        shown = [m.role for m in run.state.transcript]
    answer, given = model.requests[1].messages[-2:]
    assert (
        answer == Message(role="assistant", text=BAD)
        and given.role == "user"
        and shown == ["assistant", "user", "assistant"]
    )
    error = json.loads(given.text)["error"]
    assert error["code"] == "answer_invalid"
    assert [each["path"] for each in error["problems"]] == ["grade", "cents"]


def test_a_correction_of_a_call_answers_the_call() -> None:
    """A provider refuses a transcript with a call that has no result."""
    model = answers(asks(("final_result", json.loads(BAD))), asks(("final_result", json.loads(GOOD))))
    with running(qualifying(model), {}) as (_, run):
        assert [m.role for m in run.state.transcript] == ["assistant", "tool", "assistant", "tool"]
    given = model.requests[1].messages[-1]
    assert (given.role, given.call_id, given.tool) == ("tool", "c0", "final_result") and "grade" in given.text


CUT = ModelAnswer(text=GOOD, finish="cut")
FILTERED = ModelAnswer(text=GOOD, finish="filtered", finish_detail="SAFETY")
DECLINED = ModelAnswer(finish="refusal", finish_detail="I will not.")
REFUSED: dict[str, tuple[Sequence[ModelAnswer | str], int, str, str]] = {
    "two that do not fit": ([BAD, "It is a B."], 2, "answer_invalid", "It is a B."),
    "two that are cut": ([CUT] * 2, 2, "answer_cut", GOOD),
    "one that is cut, one that does not fit": ([CUT, BAD], 2, "answer_invalid", BAD),
    "two that are empty": ([ModelAnswer(), ModelAnswer(text=" ")], 2, "answer_empty", "empty"),
    "one that is filtered": (
        [ModelAnswer(text=GOOD, finish="filtered", finish_detail="SAFETY")],
        1,
        "answer_filtered",
        "SAFETY",
    ),
    "one that is refused": (
        [ModelAnswer(finish="refusal", finish_detail="I will not.")],
        1,
        "answer_refused",
        "I will not.",
    ),
    "a call of no tool, twice": ([asks(("sell", {}))] * 2, 2, "answer_invalid", "there is no such tool"),
    "two results": ([asks(*[("final_result", json.loads(GOOD))] * 2)] * 2, 2, "answer_invalid", "call it alone"),
    "a long answer": ([f"{'x' * 9_000}"] * 2, 2, "answer_invalid", "x" * 900),
}


@pytest.mark.parametrize(("given", "paid", "code", "shown"), REFUSED.values(), ids=REFUSED)
def test_then_it_is_a_refusal_with_the_last_answer(
    given: Sequence[ModelAnswer | str], paid: int, code: str, shown: str
) -> None:
    model = answers(*given)
    with running(qualifying(model), {}) as (app, run):
        found, _, detail = run.state.ended.partition("|")
        assert (found, memos(app, run), len(model.requests)) == (code, paid, paid)
        assert shown in detail and len(detail) <= 2_000


@pytest.mark.parametrize("first", [CUT, ModelAnswer(), BAD], ids=["cut", "empty", "bad"])
def test_a_second_answer_that_fits_is_taken(first: ModelAnswer | str) -> None:
    with running(qualifying(answers(first, f"Sorry: {GOOD}")), {}) as (_, run):
        assert run.state.grade == "B"


# --- with tools ------------------------------------------------------------------------------------------
def reading(model: Model) -> Workflow[Note]:
    """Return a workflow whose node offers a lookup beside the result."""
    flow = Workflow("reading", state=Note)

    @flow.node(start=True)
    async def qualify(ctx: Context[Note]) -> None:
        first = await propose(ctx, model, ASKED, tools=[read_log], result=Qualification)
        assert isinstance(first, Proposal)
        given = [*ASKED, *first.messages, Message(role="tool", text="0000", call_id="c0", tool="read_log")]
        second = await propose(ctx, model, given, tools=[read_log], result=Qualification)
        assert isinstance(second, TypedAnswer)
        ctx.state.grade, ctx.state.transcript = second.result.grade, [*given, *second.messages]

    return flow


@pytest.mark.parametrize("first", [[], [BAD]], ids=["at once", "after a correction"])
def test_a_model_with_tools_may_ask_for_calls_first(first: list[str]) -> None:
    """The transcript keeps what was corrected, so that the model sees what it has answered."""
    model = answers(*first, asks(("read_log", {"lines": 1})), asks(("final_result", json.loads(GOOD))))
    with running(reading(model), {}) as (_, run):
        assert run.state.grade == "B"
        assert [m.text for m in run.state.transcript][1 : 1 + len(first)] == first
        assert tuple(run.state.transcript[: len(model.requests[-1].messages)]) == model.requests[-1].messages


def test_a_result_beside_other_calls_is_corrected() -> None:
    both = asks(("read_log", {"lines": 1}), ("final_result", json.loads(GOOD)))
    model = answers(both, asks(("read_log", {"lines": 1})), GOOD)
    with running(reading(model), {}) as (_, run):
        assert run.state.grade == "B"
    assert [m.call_id for m in model.requests[1].messages[-2:]] == ["c0", "c1"]
    assert "call it alone" in model.requests[1].messages[-2].text


# --- agents --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", WAYS)
def test_a_request_of_an_agent_has_its_type_in_the_same_way(way: ResultBy) -> None:
    model = ScriptedModel([f"I have it. ```json\n{GOOD}\n```"], result_by=way)
    with running(agent_workflow("agent", model=model, result=Qualification)) as (_, run):
        assert run.outcome == {"grade": "B", "cents": 900}
    [request] = model.requests
    assert request.result is not None and request.result.by == way
    assert ([tool.name for tool in request.tools] == ["final_result"]) is (way == "tool")
    assert ("cents" in request.instructions) is (way == "prompt")


# --- crashes ---------------------------------------------------------------------------------------------
world = ModelServer([BAD, GOOD], env="TYPED_WORLD").start()
graded = qualifying(ChatCompletions("scripted", url=world.url))


@every_crash(graded, {}, receivers=world, cases=6, seed=1)
@pytest.mark.req("GATE-7", "RUN-1")
def test_a_crash_between_answer_and_correction_pays_nothing_twice(end: RunEnd) -> None:
    assert end.status == "completed" and end.receivers.executed(route="/chat/completions") == 2

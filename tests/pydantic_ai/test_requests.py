"""Requests to a model in a re-run: other instructions, other messages, and answers that are hard to store."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import ToolDefinition

from outlast import Context
from outlast.core.limits import RESPONSE_BYTES_MAX
from outlast.pydantic_ai import DurableTool, OutlastDurability
from outlast.pydantic_ai import durable_operations as operations
from outlast.pydantic_ai.recorded_requests import difference, other_instructions, outline_of, with_outline
from outlast.testing.virtual_runtime import App, AppFactory, AppRun
from tests.pydantic_ai.scripted import Case, Script, call, effects, flow_of, tool_agent


async def note(text: str) -> str:
    return f"noted {text}"


def noter(name: str, model: Script) -> Agent[Any, str]:
    return tool_agent(name, model, note, metadata={"outlast": DurableTool(key="note/{text}")})


def start(
    app_of: AppFactory, name: str, agent: Agent[Any, str], prompt: Callable[[], str] = lambda: "?", waits: int = 3
) -> tuple[App, AppRun[Case]]:
    """Start a run that waits three times after its agent, so that each execution of the node asks the agent again."""

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run(prompt())).output
        for n in range(waits):
            await ctx.sleep("1h", name=f"n{n}")

    flow = flow_of(name, body, [agent])
    app = app_of(flow)
    return app, app.start(flow, {})


def wait_out(app: App, run: AppRun[Case]) -> None:
    """Let the time of each wait pass, one execution of the node after another."""
    while run.status == "waiting" and not run.attention:
        app.clock.skip("1h")


def days() -> Iterator[str]:
    return (f"Today is day {n}" for n in itertools.count(1))


def logged(app: App, run: AppRun[Any]) -> list[str]:
    return [str(e.data()["text"]) for e in app.events(run.id) if "request " in str(e.data().get("text"))]


@pytest.mark.parametrize("part", ["instructions", "system_prompt"])
def test_a_date_in_the_instructions_uses_the_recorded_answers(outlast_app: AppFactory, part: str) -> None:
    """It was a contradiction after each wait, and `use_recorded` held for one day only."""
    model, day = Script([call("note", text="a")]), days()
    agent = noter("dated", model)
    decorate = agent.instructions if part == "instructions" else agent.system_prompt

    @decorate
    def today() -> str:
        return next(day)

    app, run = start(outlast_app, f"agent-dated-{part}", agent)
    wait_out(app, run)
    assert (run.status, run.attention, len(model.asked)) == ("completed", [], 2), "each answer is paid once"
    (text,) = logged(app, run)
    assert text.startswith("request dated/1/1 was answered before, and its recorded answer is used: the instructions")
    assert "recorded «Today is day 1», now «Today is day " in text, "the first difference is logged, once"


def test_other_settings_use_the_recorded_answer(outlast_app: AppFactory) -> None:
    model, warmth = Script(), itertools.count()

    def settings(ctx: object) -> Any:
        return {"temperature": next(warmth) / 10}

    agent = Agent(FunctionModel(model), name="warm", model_settings=settings, capabilities=[OutlastDurability()])
    app, run = start(outlast_app, "agent-warm", agent)
    wait_out(app, run)
    assert (run.status, len(model.asked)) == ("completed", 1)
    assert "the settings of the model differ" in logged(app, run)[0]


def test_another_prompt_is_a_contradiction_with_the_differing_lines(outlast_app: AppFactory) -> None:
    model, day = Script(), days()
    agent = Agent(FunctionModel(model), name="prompted", capabilities=[OutlastDurability()])
    app, run = start(outlast_app, "agent-prompted", agent, lambda: f"Look at this.\n{next(day)}: what is due?")
    app.clock.skip("1h")
    assert run.attention == ["contradiction"]
    (found,) = run.now.attention
    assert "the last message differs in line 2: recorded «Today is day 1: what is due?», now «Today is day 2" in (
        found.detail
    )


def test_another_tool_is_a_contradiction(outlast_app: AppFactory) -> None:
    model = Script()
    agent = noter("tooled", model)
    app, run = start(outlast_app, "agent-tooled", agent)
    agent.tool_plain(note, name="note_again")  # type: ignore[call-overload]
    app.clock.skip("1h")
    assert run.attention == ["contradiction"]
    assert "the tool note_again was not offered when the answer was recorded" in run.now.attention[0].detail


def test_use_recorded_holds_for_the_rest_of_the_visit(outlast_app: AppFactory) -> None:
    """It held for one digest, so a time of day in the prompt asked a person after each wait."""
    model, day = Script(), days()
    agent = Agent(FunctionModel(model), name="answered", capabilities=[OutlastDurability()])
    app, run = start(outlast_app, "agent-answered", agent, lambda: next(day))
    app.clock.skip("1h")
    assert run.attention == ["contradiction"]
    run.answer("contradiction", "use_recorded")
    wait_out(app, run)
    assert (run.status, run.attention, len(model.asked)) == ("completed", [], 1)


def test_an_answer_that_was_recorded_without_an_outline_is_used(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of the version before goes on: with the same request at once, with another one after an answer."""
    day = days()
    for n, prompt in enumerate((lambda: "the same", lambda: next(day))):
        model = Script()
        agent = Agent(FunctionModel(model), name="older", capabilities=[OutlastDurability()])
        with monkeypatch.context() as before:
            before.setattr(operations, "request_digest", lambda messages, outline: messages)
            before.setattr(operations, "with_outline", lambda payload, outline: payload)
            app, run = start(outlast_app, f"agent-older-{n}", agent, prompt)
        app.clock.skip("1h")
        if n:
            assert run.attention == ["contradiction"]
            run.answer("contradiction", "use_recorded")
        wait_out(app, run)
        assert (run.status, run.attention, len(model.asked)) == ("completed", [], 1)


def test_the_outlines_of_two_requests_are_compared() -> None:
    def outline(prompt: str = "hi", tools: dict[str, Any] | None = None, **fields: Any) -> Any:
        offered = [
            ToolDefinition(name=name, parameters_json_schema=schema, description=fields.pop("of", ""))
            for name, schema in (tools or {}).items()
        ]
        messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(prompt)], **fields)]
        return outline_of(messages, ModelRequestParameters(function_tools=offered), None)

    text, number = {"a": {"type": "string"}}, {"a": {"type": "number"}}
    assert difference(outline(), outline()) == ""
    assert difference(outline(instructions="a"), outline(instructions="b")) == ""
    assert difference(outline(tools={"t": text}), outline(tools={"t": text}, of="other words")) == ""
    assert "the tool t had other parameters" in difference(outline(tools={"t": text}), outline(tools={"t": number}))
    assert "the tool t was not offered" in difference(outline(), outline(tools={"t": text}))
    assert "is not offered now" in difference(outline(tools={"t": text}), outline())
    long = "x" * 5_000
    assert "after the first 4,000 characters" in difference(outline(long), outline(long + "y"))
    shown = difference(outline("y" * 500 + "1"), outline("y" * 500 + "2"))
    assert "1»" in shown and "2»" in shown, "a long line is shown where it differs"
    assert other_instructions(outline(instructions="a"), outline(instructions="b")).endswith("«a», now «b»")
    older = outline_of([ModelRequest(parts=[UserPromptPart("a")])] * 2, None, None)
    newer = outline_of([ModelRequest(parts=[UserPromptPart(p)]) for p in "ba"], None, None)
    assert "message 1 of 2" in difference(older, newer)
    assert "has 2 messages, and this one has 1" in difference(older, outline("a"))


# --- answers that are hard to store ------------------------------------------------------------------
def test_an_answer_with_half_a_character_is_stored(outlast_app: AppFactory) -> None:
    """A lone surrogate in a paid answer stopped the run, and the answer was paid again."""
    asked: list[int] = []

    def think(messages: list[ModelMessage], info: object) -> ModelResponse:
        asked.append(1)
        return ModelResponse(parts=[TextPart("good \ud83d, and \ud83d\ude00")])

    agent = Agent(FunctionModel(think), name="halves", capabilities=[OutlastDurability()])
    app, run = start(outlast_app, "agent-halves", agent)
    wait_out(app, run)
    assert (run.status, run.attention, asked) == ("completed", [], [1])
    assert run.outcome["answer"] == "good \ufffd, and \U0001f600"


def test_a_number_that_json_cannot_say_is_told_to_the_model(outlast_app: AppFactory) -> None:
    """NaN became null in the recorded answer, so the tool got another argument, or stopped the run."""
    paid: list[object] = []

    async def pay(cents: float | None) -> str:
        paid.append(cents)
        return "paid"

    for arguments in ({"cents": float("nan")}, '{"cents": Infinity}'):
        model = Script([call("pay")], [call("pay", "c2", cents=1.5)])
        model.turns[0][0].args = arguments
        _, run = start(outlast_app, "agent-nan", tool_agent("nan", model, pay), waits=0)
        assert (run.status, run.attention) == ("completed", [])
        assert "refused: invalid_arguments" in run.outcome["answer"]
    assert paid == [1.5, 1.5]


@pytest.mark.parametrize("ident", ["x" * 600, "é" * 200, "half \ud83d"], ids=["long", "not-ascii", "half"])
def test_a_call_id_that_no_key_can_hold_is_one_call(outlast_app: AppFactory, ident: str) -> None:
    """It stopped the run, because a key has at most 500 bytes."""
    model = Script([call("note", ident, text="a")])
    agent = tool_agent("ids", model, note)
    app, run = start(outlast_app, "agent-ids", agent)
    wait_out(app, run)
    assert (run.status, run.attention, len(model.asked)) == ("completed", [], 2)
    assert run.outcome["answer"] == "noted a" and len(effects(app, run)) == 1


def test_surrogates_in_arguments_are_told_to_the_model(outlast_app: AppFactory) -> None:
    model = Script([call("note")])
    model.turns[0][0].args = '{"text": "a\\ud83d"}'
    agent = noter("args", model)
    _, run = start(outlast_app, "agent-args", agent, waits=0)
    assert (run.status, run.attention) == ("completed", [])


def test_an_answer_that_is_too_large_is_kept_as_a_cut_one() -> None:
    texts = [{"part_kind": "text", "content": "é" * RESPONSE_BYTES_MAX, "id": None}]
    calls = [{"part_kind": "tool-call", "tool_name": "pay", "args": "{}"}]
    payload = {"parts": texts + calls, "usage": {"input_tokens": 1}, "model_name": "m", "timestamp": "t", "kind": "r"}
    outline = outline_of([ModelRequest(parts=[UserPromptPart("a" * 9_000)])] * 900, None, None)
    kept = with_outline(payload, outline)
    assert kept["finish_reason"] == "length" and [part["part_kind"] for part in kept["parts"]] == ["text"]
    assert kept["usage"] == {"input_tokens": 1} and kept["outlast"]
    assert len(operations.JSON_CODEC.dump(object, kept)) and len(str(kept).encode()) < RESPONSE_BYTES_MAX


def test_two_lists_of_a_visit_have_different_keys(outlast_app: AppFactory) -> None:
    """The name in the key was cut to 200 characters, so two long ids of calls were one."""
    tools = FunctionToolset[None](id="tools")
    tools.add_function(note)
    ids = ["x" * 250 + end for end in "ab"]
    model = Script([call("note", ids[0], text="a"), call("note", ids[1], text="b")])
    agent = Agent(FunctionModel(model), name="lists", toolsets=[tools], capabilities=[OutlastDurability()])
    app, run = start(outlast_app, "agent-lists", agent)
    wait_out(app, run)
    assert (run.status, run.outcome["answer"]) == ("completed", "noted a noted b")

"""Requests to models: digests of their texts, time and end in the row of usage, and each text stored once."""

from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest as SentRequest
from pydantic_ai.messages import SystemPromptPart, UserPromptPart

from outlast.agent import ModelAnswer, ModelRequest, ScriptedModel, agent_workflow
from outlast.core.durations import DAY
from outlast.core.model_texts import SPARE, texts_of_request
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.text_rows import MODEL_TEXT, StoredModelText
from outlast.core.usage import CallUsage
from outlast.engine.model_text_writer import forget_unused
from outlast.pydantic_ai.recorded_requests import texts_of
from outlast.testing import App
from tests.agent.agents import TOOLS, asks, running

pytestmark = pytest.mark.req("OBS-5", "GATE-7")
ABOUT = "Mend what is broken."
GIVEN = {"objective": "fix it"}


def requests(app: App) -> list[CallUsage]:
    return [row for row in app.do(app.store.rows(CALL_USAGE, ())) if row.model]


def texts(app: App) -> list[StoredModelText]:
    return [*app.do(app.store.rows(MODEL_TEXT, ()))]


def test_a_request_names_its_texts_and_each_is_stored_once() -> None:
    """Two runs with two requests each: one row of instructions, one of tools."""
    model = ScriptedModel([asks(("read_log", {"lines": 1})), "done"])
    flow = agent_workflow("noted", model=model, tools=TOOLS, instructions=ABOUT)
    with running(flow) as (app, run):
        assert run.outcome == app.start(flow, GIVEN).outcome == "done"
        rows, stored = requests(app), texts(app)
        prompt, tools = texts_of_request(ABOUT, [tool.model_dump(mode="json") for tool in model.requests[0].tools])
        assert {(row.prompt, row.tools, row.outcome) for row in rows} == {(prompt.digest, tools.digest, "")}
        assert len(rows) == 4 and all(row.ms > 0 for row in rows)
        assert {row.kind: row.text for row in stored} == {"instructions": ABOUT, "tools": tools.text}
        assert {(row.lane, row.version) for row in stored} == {("noted@1", 1)}
        assert all(ABOUT.encode() not in (memo.response or b"") for memo in app.rows(run.id).memos)


def test_a_request_that_fails_and_an_answer_that_is_refused_have_an_outcome() -> None:
    """A failed attempt counts no usage towards a budget, and its texts are stored."""
    given = iter([ConnectionError("away"), ModelAnswer(text="no", finish="refusal", input_tokens=3)])

    def answer(request: ModelRequest) -> ModelAnswer:
        if isinstance(found := next(given), Exception):
            raise found
        return found

    with running(agent_workflow("refusing", model=ScriptedModel(answer), instructions=ABOUT)) as (app, run):
        assert run.status == "failed"
        failed, refused = requests(app)
        assert (failed.outcome, failed.tokens, failed.calls) == ("ConnectionError", 0, 0)
        assert (refused.outcome, refused.tokens, refused.calls) == ("refusal", 3, 1)
        assert run.now.used.calls == 1
        assert [row.text for row in texts(app)] == [ABOUT]


def test_a_text_goes_when_no_request_has_used_it_for_the_time_of_runs() -> None:
    """A later use gives its row a new instant, once a day."""
    flow = agent_workflow("used", model=ScriptedModel(["done"]), instructions=ABOUT)
    with running(flow) as (app, _):
        (first,) = texts(app)
        app.clock.skip("2h")
        app.start(flow, GIVEN)
        assert texts(app) == [first]
        app.clock.skip("25h")
        app.start(flow, GIVEN)
        (again,) = texts(app)
        assert (again.since, again.version) == (first.since, 2) and again.at > first.at + DAY
        assert app.do(forget_unused(app.store, again.at + SPARE)) == 0 and texts(app) == [again]
        assert app.do(forget_unused(app.store, again.at + SPARE + 1)) == 1 and not texts(app)


def test_instructions_that_differ_in_each_request_fill_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.engine.model_text_writer.MODEL_TEXTS_PER_DAY_MAX", 3)
    model = ScriptedModel(["done"])
    flows = [agent_workflow(f"dated{n}", model=model, instructions=f"Today is day {n}.") for n in range(5)]
    app = App(tuple(flows))
    try:
        for flow in flows:
            app.start(flow, GIVEN)
        assert len(texts(app)) == 3 and len({row.prompt for row in requests(app)}) == 5
    finally:
        app.close()


def test_an_agent_of_pydantic_ai_has_its_parts_once_in_each_turn() -> None:
    """Each message of a transcript repeats the instructions; the digest is that of one turn."""
    turn: Any = SentRequest([SystemPromptPart("Be brief."), UserPromptPart("?")], instructions=ABOUT)
    later: Any = SentRequest([UserPromptPart("and?")], instructions=ABOUT)
    one, more = (texts_of(messages, None)[0] for messages in ([turn], [turn, later]))
    assert one == more and one.text == f"Be brief.\n{ABOUT}"

"""Answers of models that are cut, empty, filtered, refused or too large, over HTTP and from scripts (OUT-4, GATE-7)."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from outlast import Context, Workflow, role
from outlast.agent import ChatCompletions, Model, ModelAnswer, Price, ScriptedModel, admit, agent_workflow, propose
from outlast.flow import Perhaps
from outlast.testing import App, FakeReceivers, ModelServer
from tests.agent.agents import DONE, TOOLS, asks, open_ticket, results, running
from tests.agent.test_agent_workflow import Report
from tests.agent.test_models import ASKED, by_pydantic_ai, direct

pytestmark = pytest.mark.req("OUT-4", "GATE-7")
TICKET = ("open_ticket", {"title": "a"})
CUT = ModelAnswer(text="The cause of the incident is", finish="cut", finish_detail="length")
EMPTY, UNSEEN = ModelAnswer(text="  \n"), ModelAnswer(text="\u3164\u200b")


def agent(*script: ModelAnswer | str, **options: Any) -> Any:
    return agent_workflow("agent", model=ScriptedModel(list(script)), **{"tools": TOOLS, **options})


def told(run: Any) -> list[str]:
    """Return what the agent itself says to the model."""
    return [m.text for m in run.state.messages if m.role == "user"][1:]


# --- what the providers say ----------------------------------------------------------------------
ENDS = [
    (ModelAnswer(text="words"), "stop", ""),
    (asks(TICKET), "tool_calls", ""),
    (CUT, "cut", "length"),
    (ModelAnswer(text="", finish="filtered"), "filtered", "content_filter"),
    (ModelAnswer(finish="refusal", finish_detail="I can't help with that."), "refusal", "I can't help with that."),
    (asks(TICKET).model_copy(update={"finish": "cut"}), "cut", "length"),
    (ModelAnswer(), "empty", ""),
]


@pytest.mark.parametrize("made", [direct, by_pydantic_ai])
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("given", "end", "detail"), ENDS, ids=[f"{end}{n}" for n, (_, end, _) in enumerate(ENDS)])
def test_an_answer_says_why_it_ends(
    made: Callable[[str], Model], streams: bool, given: ModelAnswer, end: str, detail: str
) -> None:
    async def ask(model: Model) -> Any:
        if not streams:
            return await model.request(ASKED)
        return [each async for each in model.stream(ASKED)][-1]

    with ModelServer([given]) as server:
        answer = asyncio.run(ask(made(server.url)))
    assert (answer.end, answer.finish_detail) == (end, detail)


WORDS = [
    ("max_tokens", "cut"),
    ("MAX_TOKENS", "cut"),
    ("model_length", "cut"),
    ("error", "cut"),
    ("network_error", "cut"),
    ("SAFETY", "filtered"),
    ("end_turn", "stop"),
    ("of a later version", "stop"),
    (None, "stop"),
]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("said", "end"), WORDS, ids=str)
def test_the_words_of_other_providers_are_understood(said: str | None, end: str, streams: bool) -> None:
    """Gateways pass on the words of the provider behind them."""
    choice = {"index": 0, "finish_reason": said}
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    body: Any = {"choices": [{**choice, "message": {"content": "half"}}], "usage": usage}
    if streams:
        body = [{"choices": [{"index": 0, "delta": {"content": "half"}}]}, {"choices": [{**choice, "delta": {}}]}]
        body.append({"choices": [], "usage": usage})
    assert asked_of(body).end == end


MISSING = [
    {"finish_reason": "tool_calls", "message": {"content": "I open a ticket."}},
    {"finish_reason": "function_call", "message": {"content": "I do.", "function_call": {"name": "open_ticket"}}},
    {"finish_reason": "stop", "message": {"content": "I do.", "tool_calls": "open_ticket"}},
    {"finish_reason": "stop", "message": {"content": "I do.", "tool_calls": {"name": "open_ticket"}}},
    {"finish_reason": "stop", "message": {"content": "I do.", "tool_calls": [None]}},
]


@pytest.mark.parametrize("choice", MISSING, ids=str)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_an_answer_whose_calls_are_missing_is_cut(choice: dict[str, Any], streams: bool) -> None:
    """Its words say what the model does next, so they are no result."""
    given = {"finish_reason": choice["finish_reason"], "delta": choice["message"]}
    answer = asked_of([{"choices": [given]}] if streams else {"choices": [choice]})
    assert (answer.end, answer.finish_detail, answer.calls) == ("cut", "its calls are missing", ())


def test_a_refusal_may_be_a_part_of_the_content() -> None:
    parts = [{"type": "refusal", "refusal": "I can't help with that."}]
    for streams in (False, True):
        given = {"finish_reason": "stop", "delta" if streams else "message": {"content": parts}}
        answer = asked_of([{"choices": [given]}] if streams else {"choices": [given]})
        assert (answer.end, answer.finish_detail) == ("refusal", "I can't help with that.")


WORD = {"choices": [{"delta": {"content": "The cause is"}}]}
BROKEN = [[WORD], [WORD, {"error": {"message": "overloaded"}}, {"choices": [{"delta": {}, "finish_reason": "stop"}]}]]


@pytest.mark.parametrize("chunks", BROKEN, ids=["no_reason", "error"])
def test_a_stream_without_its_end_is_no_answer(chunks: list[Any]) -> None:
    with pytest.raises(Perhaps, match=r"cut off|overloaded"):
        asked_of(chunks)


def asked_of(body: Any) -> ModelAnswer:
    """Return the answer of a provider that answers with this JSON, or with these chunks of a stream."""
    streams = isinstance(body, list)
    lines = [*(json.dumps(each) for each in body), "[DONE]"] if streams else []
    encoded = "".join(f"data: {line}\n\n" for line in lines).encode() or json.dumps(body).encode()
    given = FakeReceivers().route("/chat/completions", reply=lambda request: {}, encoded=lambda *_: encoded)

    async def ask(model: Model) -> Any:
        return [each async for each in model.stream(ASKED)][-1] if streams else await model.request(ASKED)

    with given as provider:
        answer: ModelAnswer = asyncio.run(ask(ChatCompletions("local:m", url=provider.url)))
        return answer


# --- what an agent does ------------------------------------------------------------------------------
@pytest.mark.parametrize("first", [CUT, EMPTY, UNSEEN, asks(TICKET).model_copy(update={"finish": "cut"})])
def test_a_cut_or_empty_answer_is_asked_for_once_more(first: ModelAnswer) -> None:
    """No call of it is made, its words stay in the transcript, and each answer is stored."""
    with running(agent(first, "done")) as (app, run):
        assert run.outcome == "done" and DONE == []
        said = next(m.text for m in run.state.messages if m.role == "assistant")
        assert said == (first.text if first is CUT else "(no words)"), "a provider may refuse an empty message"
        assert len(told(run)) == 1 and ("cut" if first.finish == "cut" else "empty") in told(run)[0]
        stored = [row for row in app.rows(run.id).memos if row.activity == "outlast.model"]
        assert len(stored) == 2 and run.now.visit == 1


def test_an_answer_that_is_cut_twice_needs_a_person() -> None:
    """The person sees how it begins. After a higher limit, `continue` asks again."""
    with running(agent(CUT, CUT)) as (_, run):
        (entry,) = run.now.attention
        assert entry.reason == "exception" and "The cause of the incident is" in entry.detail
        assert "max_tokens" in entry.detail and DONE == []


def test_an_answer_that_is_empty_twice_fails_the_run() -> None:
    with running(agent(EMPTY, ModelAnswer())) as (_, run):
        assert run.status == "failed" and "empty again" in run.now.reason


def test_each_step_may_be_asked_for_once_more() -> None:
    with running(agent(CUT, asks(TICKET), EMPTY, "done")) as (_, run):
        assert run.outcome == "done" and len(DONE) == 1 and len(told(run)) == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ModelAnswer(text="half of it", finish="filtered", finish_detail="content_filter"), "content_filter"),
        (ModelAnswer(finish="refusal", finish_detail="I can't help with that."), "I can't help with that."),
        (asks(TICKET).model_copy(update={"finish": "filtered", "finish_detail": "hate"}), "hate"),
    ],
    ids=["filtered", "refusal", "filtered_calls"],
)
def test_a_filtered_or_refused_answer_fails_with_the_words_of_the_provider(answer: ModelAnswer, words: str) -> None:
    with running(agent(answer)) as (_, run):
        assert run.status == "failed" and words in run.now.reason and DONE == []


def test_the_rule_holds_for_a_result_of_a_type() -> None:
    """An empty answer does not go back to the model until `max_steps`, and a cut result is no result."""
    whole = asks(("final_result", {"cause": "disk", "tickets": 1}))
    with running(agent(whole.model_copy(update={"finish": "cut"}), whole, result=Report)) as (_, run):
        assert run.outcome == {"cause": "disk", "tickets": 1} and len(told(run)) == 1
    with running(agent(EMPTY, EMPTY, result=Report)) as (_, run):
        assert run.status == "failed"


def test_a_loop_of_the_author_admits_no_call_of_a_cut_answer() -> None:
    seen: list[Any] = []
    flow = Workflow("own", state=Report)

    @flow.node(start=True)
    async def decide(ctx: Context[Report]) -> None:
        cut = asks(TICKET).model_copy(update={"finish": "cut"})
        seen[:] = await admit(ctx, await propose(ctx, ScriptedModel([cut]), [], tools=[open_ticket]))

    with running(flow, {"cause": "", "tickets": 0}) as (_, run):
        assert run.status == "completed"
    assert [each.code for each in seen] == ["unfinished_answer"]


# --- paid answers that cannot be used ---------------------------------------------------------------
LARGE = [
    ModelAnswer(text="head of it " + "x" * 9_000_000),
    asks(("open_ticket", {"title": "t" * 3_000_000})),
    asks(*[("open_ticket", {"title": f"{n}" + "t" * 30_000}) for n in range(20)]),
]


@pytest.mark.parametrize("answer", LARGE, ids=["text", "arguments", "many_calls"])
def test_an_answer_that_is_too_large_is_kept_and_told(answer: ModelAnswer) -> None:
    """Its head is in the ledger, with what it cost, and nothing of it is done."""
    with running(agent(answer, "done")) as (app, run):
        assert run.outcome == "done" and DONE == []
        assert "too large" in told(run)[0] and "bytes" in told(run)[0]
        stored = [json.loads(row.response or b"") for row in app.rows(run.id).memos if row.activity == "outlast.model"]
        assert stored[0]["finish"] == "too_large" and stored[0]["text"]
        assert stored[0]["input_tokens"] == answer.input_tokens


def raw(body: Any) -> FakeReceivers:
    """Return a provider that answers each request with this JSON, whatever it says."""
    return FakeReceivers().route("/chat/completions", reply=lambda request: body)


def message(**parts: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", **parts}, "finish_reason": "stop"}], "model": "m"}


USAGES = [
    {"prompt_tokens": -5, "completion_tokens": 3},
    {"prompt_tokens": 10**18, "completion_tokens": 3},
    {"prompt_tokens": "many", "completion_tokens": 3},
    {"prompt_tokens": 1.5, "completion_tokens": True},
    "many",
    [1],
    7,
]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("usage", USAGES, ids=["negative", "huge", "text", "fraction", "word", "list", "number"])
def test_impossible_usage_is_dropped_with_a_note(usage: Any, streams: bool) -> None:
    """A gateway that reports nonsense costs no answer. The history says what is not counted, the sum that it lacks."""
    body = {**message(content="done"), "usage": usage}
    chunk = {"choices": [{"delta": {"content": "done"}, "finish_reason": "stop"}], "usage": usage}
    lines = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    encoded = lines if streams else json.dumps(body).encode()
    given = FakeReceivers().route("/chat/completions", reply=lambda request: body, encoded=lambda *_: encoded)
    with given as provider:
        model = ChatCompletions("local:m", url=provider.url, price=Price(1, 1))
        with running(agent_workflow("agent", model=model, stream=streams)) as (app, run):
            assert run.outcome == "done" and run.now.used.unpriced == 1
            (row,) = [row for row in app.rows(run.id).memos if row.activity == "outlast.model"]
            answer = json.loads(row.response or b"")
            assert (answer["input_tokens"], answer["output_tokens"]) == (0, 0)
            noted = [e.data()["text"] for e in app.events(run.id) if "impossible usage" in e.data().get("text", "")]
            assert len(noted) == 1


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [
        ({"content": [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]}, "in parts"),
        ({"content": "words", "tool_calls": [{"function": {"name": "no_such", "arguments": {"a": 1}}}]}, "told"),
    ],
    ids=["parts", "no_id"],
)
def test_what_can_be_read_of_an_odd_answer_is_used(parts: dict[str, Any], outcome: str) -> None:
    """An answer without the id of a call, with arguments as an object or with parts of text has been paid, too."""
    bodies = [message(**parts), message(content="told")]

    def reply(request: Any) -> Any:
        return bodies[min(1, sum(m["role"] == "assistant" for m in json.loads(request.body)["messages"]))]

    with FakeReceivers().route("/chat/completions", reply=reply) as provider:
        model = ChatCompletions("local:m", url=provider.url)
        with running(agent_workflow("agent", model=model, tools=[open_ticket])) as (_, run):
            assert run.outcome == outcome
            assert "tool_calls" not in parts or "unknown_tool" in results(run)[0]


def test_a_cut_answer_is_asked_for_once_more_after_a_kill() -> None:
    """Both answers are in the ledger, so a re-run of the step pays for none of them again."""
    with ModelServer([CUT, asks(TICKET), "done"]) as server:
        model = ChatCompletions("local:m", url=server.url)
        flow = agent_workflow(
            "agent", model=model, tools=TOOLS, approve={"open_ticket": role("lead")}
        )  # a wait: a re-run
        DONE.clear()
        app = App((flow,))
        try:
            run = app.start(flow, {"objective": "x"})
            run.approve()
            assert run.outcome == "done" and server.paid == 3 and len(DONE) == 1
        finally:
            app.close()

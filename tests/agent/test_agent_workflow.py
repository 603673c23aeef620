"""Agent workflows in virtual time: steps, results, approvals, errors as data, large results, limits."""

import gc
import json
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Allow, Budget, Failures, NeedsApproval, activity, role
from outlast.agent import AgentState, ChatCompletions, ModelRequest, OfferedTool, ScriptedModel, agent_workflow
from outlast.engine.attempts import PendingCall
from outlast.engine.node_execution import NodeExecution
from outlast.errors import DefinitionError
from outlast.flow import PolicyRequest
from outlast.flow.outcomes import NotSent, Perhaps, Refused
from outlast.testing import ModelServer, resets, status, too_many
from tests.agent.agents import DONE, TOOLS, asks, broken, history, open_ticket, read_log, refund, results, running

LEAD = role("lead")


class Report(BaseModel):
    cause: str
    tickets: int


def agent(script: Any, **options: Any) -> Any:
    model = ScriptedModel(script) if isinstance(script, list) else script
    return agent_workflow("agent", model=model, **{"tools": TOOLS, **options})


def errors(run: Any) -> list[str]:
    return [json.loads(text)["error"]["code"] for text in results(run) if text.startswith('{"error"')]


def test_a_model_works_with_tools_until_it_answers() -> None:
    model = ScriptedModel([asks(("read_log", {"lines": 1}), ("open_ticket", {"title": "disk"})), "done"])
    with running(agent(model, instructions="be careful")) as (_, run):
        assert run.outcome == "done"
        assert [m.role for m in run.state.messages] == ["user", "assistant", "tool", "tool", "assistant"]
        assert results(run) == ["0000000 ", '{"id":"T-disk"}']
        assert run.now.objective == "fix it" and run.now.visit == 2
    first = model.requests[0]
    assert (first.instructions, [m.text for m in first.messages]) == ("be careful", ["fix it"])
    ticket = next(tool for tool in first.tools if tool.name == "open_ticket")
    assert ticket.description == "Open a ticket with a title.\n\nA second ticket needs another title."
    assert ticket.parameters["required"] == ["title"] and ticket.parameters["additionalProperties"] is False


def executions() -> list[object]:
    return [each for each in gc.get_objects() if type(each) in (PendingCall, NodeExecution)]


def test_a_step_leaves_nothing_to_the_garbage_collector() -> None:
    """A reference cycle would keep the transcript of every step, and the collector would stop the loop for 100 ms."""
    flow = agent([asks(("read_log", {"lines": 1}), ("open_ticket", {"title": "disk"})), "done"])
    gc.collect()
    before = executions()  # of other tests in this process
    gc.disable()
    try:
        with running(flow) as (_, run):
            assert run.outcome == "done"
            assert {*map(id, executions())} <= {*map(id, before)}
    finally:
        gc.enable()


def test_the_context_of_a_task_is_part_of_the_first_message() -> None:
    with running(agent(["ok"]), {"objective": "look", "context": {"incident": "INC-42"}}) as (_, run):
        assert run.state.messages[0].text == 'look\n\nContext:\n{"incident":"INC-42"}'


def test_a_result_must_fit_its_model() -> None:
    good = {"cause": "disk", "tickets": 1}
    script = [
        asks(("final_result", {"cause": "disk"})),
        "it was the disk",
        asks(("final_result", good), ("read_log", {"lines": 1})),
        asks(("final_result", good)),
    ]
    with running(agent(script, result=Report)) as (_, run):
        assert run.outcome == good
        assert errors(run) == ["invalid_result", "not_now"]
        assert "does not fit" in run.state.messages[4].text and run.state.messages[4].role == "user"
    with running(agent([json.dumps(good)], result=Report)) as (_, run):
        assert run.outcome == good


def test_an_approval_covers_exactly_the_proposed_call() -> None:
    calls = asks(("open_ticket", {"title": "a"}), ("read_log", {"lines": 1}))
    with running(agent([calls, "done"], approve={"open_ticket": LEAD})) as (_, run):
        assert run.now.shown == "WAITING_FOR_APPROVAL" and DONE == [("log", 1)]
        run.approve()
        assert run.outcome == "done" and DONE == [("log", 1), ("ticket", "a", False)]


def test_a_rejection_is_data_for_the_model() -> None:
    with running(agent([asks(("open_ticket", {"title": "a"})), "done"], approve={"open_ticket": LEAD})) as (_, run):
        run.reject("not today")
        assert run.outcome == "done" and DONE == []
        assert errors(run) == ["approval_rejected"] and "not today" in results(run)[0]


def test_two_calls_of_one_tool_are_two_approvals() -> None:
    twice = asks(("open_ticket", {"title": "a"}), ("open_ticket", {"title": "b"}), ("open_ticket", {"title": "a"}))
    with running(agent([twice, "done"], approve={"open_ticket": LEAD})) as (_, run):
        run.approve()
        run.approve()
        assert run.outcome == "done" and sorted(DONE) == [("ticket", "a", False), ("ticket", "b", False)]
        assert results(run) == ['{"id":"T-a"}', '{"id":"T-b"}', '{"id":"T-a"}']


@activity(key="restart/{service}", no_undo="a restart is over")
async def restart(service: str) -> str:
    """Restart a service."""
    DONE.append(("restart", service))
    if service == "refuses":
        raise Refused("busy", "another restart runs")
    if service == "unknown":
        raise Perhaps("no answer")
    if service == "away":
        raise NotSent("no connection")
    return "restarted"


def test_a_refused_call_and_a_lookup_without_answer_are_data() -> None:
    calls = asks(("restart", {"service": "refuses"}), ("broken", {"why": "no route"}))
    with running(agent([calls, "done"], tools=[restart, *TOOLS])) as (_, run):
        assert run.outcome == "done"
        assert errors(run) == ["busy", "no_answer"]


@pytest.mark.req("GATE-6")
@pytest.mark.parametrize("occasion", ["proposal", "commit"])
@pytest.mark.parametrize("error", [ConnectionResetError("no directory"), NotSent("no directory")])
def test_the_failure_of_a_policy_is_no_result_of_a_tool(occasion: str, error: Exception) -> None:
    """A policy that asks a service may get the errors that a lookup gets."""

    def policy(asked: PolicyRequest) -> Allow:
        if asked.occasion == occasion:
            raise error
        return Allow("open")

    with running(agent([asks(("open_ticket", {"title": "a"})), "done"], policy=policy)) as (_, run):
        assert run.attention == ["exception"] and DONE == []
        assert "no directory" in run.now.attention[0].detail


@pytest.mark.req("GATE-6", "GATE-9")
def test_an_allowed_call_is_put_to_the_approvers_of_an_earlier_call_of_its_tool() -> None:
    def policy(asked: PolicyRequest) -> Allow | NeedsApproval:
        large = asked.occasion != "offer" and asked.arguments["order"] == "1"
        return NeedsApproval("large", LEAD) if large else Allow("small")

    calls = [asks(("refund", {"order": order, "cents": 5})) for order in "123"]
    with running(agent([*calls, "done"], tools=[refund], policy=policy)) as (_, run):
        run.approve()
        assert DONE == [("refund", "1", 5)] and run.now.shown == "WAITING_FOR_APPROVAL"
        run.approve()
        run.reject("one is enough")
        assert run.outcome == "done" and DONE == [("refund", "1", 5), ("refund", "2", 5)]
        assert errors(run) == ["approval_rejected"]


@pytest.mark.req("OUT-4")
def test_a_run_whose_calls_failed_broadly_fails() -> None:
    calls = [("restart", {"service": "refuses"}), ("broken", {"why": "no route"})]
    limit = Failures(0.5, at_least=2, of=[restart, broken])
    with running(agent([asks(*calls), "done"], tools=[restart, broken], fails_if=limit)) as (_, run):
        assert run.status == "failed"
    with running(agent([asks(*calls), "done"], tools=[restart, broken], when_empty="ask_person")) as (_, run):
        assert run.attention == ["results_missing"]


def test_an_uncertain_call_asks_a_person() -> None:
    with running(agent([asks(("restart", {"service": "unknown"})), "done"], tools=[restart])) as (_, run):
        assert run.attention == ["effect_uncertain"]
        run.resolve("restart/unknown", "happened", "restarted by hand")
        assert run.outcome == "done" and results(run) == ["restarted by hand"]
        assert DONE == [("restart", "unknown")]


def test_a_large_result_is_read_in_pages() -> None:
    whole = "".join(f"{n:07d} " for n in range(20_000))

    def script(request: ModelRequest) -> Any:
        told = [m.text for m in request.messages if m.role == "tool"]
        if not told:
            assert "read_result" not in {tool.name for tool in request.tools}
            return asks(("read_log", {"lines": 20_000}))
        page = json.loads(told[-1])
        end = page["offset"] + len(page["text"])
        if "next" in page:
            return asks(("read_result", {"handle": page["handle"], "offset": end}))
        assert "".join(json.loads(text)["text"] for text in told) == whole
        return str(end)

    with running(agent(ScriptedModel(script))) as (app, run):
        assert run.outcome == str(len(whole))
        assert DONE == [("log", 20_000)]
        stored = [row for row in app.rows(run.id).memos if row.activity == "read_log"]
        assert len(stored) == 1


def test_a_handle_that_no_result_has_is_an_error_for_the_model() -> None:
    wrong = asks(("read_result", {"handle": "x"}), ("read_result", {"handle": 1}), ("read_result", "{"))
    with running(agent([asks(("read_log", {"lines": 20_000})), wrong, "done"])) as (_, run):
        assert run.outcome == "done" and errors(run) == ["invalid_arguments"] * 3


def test_more_steps_than_allowed_go_to_attention() -> None:
    loop = ScriptedModel(lambda request: asks(("read_log", {"lines": 1})))
    with running(agent(loop, max_steps=3)) as (_, run):
        assert run.attention == ["visits_exhausted"] and len(loop.requests) == 3


@pytest.mark.req("RUN-10")
def test_the_tokens_of_answers_count_towards_the_budget() -> None:
    model = ScriptedModel([asks(("read_log", {"lines": 1})), asks(("read_log", {"lines": 2})), "done"])
    with running(agent(model, budget=Budget(tokens=200))) as (_, run):
        assert run.attention == ["budget_exhausted"] and len(model.requests) == 2


def test_mistakes_of_a_definition_are_named() -> None:
    with pytest.raises(DefinitionError, match="none of the tools"):
        agent(["x"], tools=[read_log], approve={"open_ticket": LEAD})
    with pytest.raises(DefinitionError, match="changes nothing"):
        agent(["x"], approve={"read_log": LEAD})
    with pytest.raises(DefinitionError, match="a pydantic model"):
        agent(["x"], result=int)
    assert agent(["x"], result=str).decode_outcome("x") == agent(["x"]).decode_outcome("x") == "x"


def test_an_agent_workflow_knows_its_tools_and_its_place() -> None:
    flow = agent(["x"], tools=[open_ticket])
    assert {"open_ticket", "outlast.model"} <= flow.activities.keys()
    assert "test_agent_workflow.py" in flow.where
    assert flow.state is AgentState and OfferedTool is not None


@pytest.mark.parametrize("duplicates", ["answer", "act"])
def test_at_most_one_attempt_that_may_have_been_paid_is_asked_again(duplicates: Any) -> None:
    billed = status(500, acts=True)
    with ModelServer(["done"], misbehave={0: [billed]}, duplicates=duplicates) as server:
        with running(agent(ChatCompletions("m", url=server.url))) as (app, run):
            assert run.outcome == "done"
            assert server.paid == (1 if duplicates == "answer" else 2)
            assert [text for text in history(app, run) if "may have been paid" in text] == [
                "outlast.model: attempt 1 may have been paid, and no answer came"
            ]
    with ModelServer(["done"], misbehave={0: [billed] * 9}, duplicates=duplicates) as server:
        with running(agent(ChatCompletions("m", url=server.url))) as (_, run):
            assert run.attention == ["exception"] and server.attempts(route="/chat/completions") == 2


def test_a_provider_that_has_not_worked_is_asked_again() -> None:
    later = [too_many(), status(503), resets(acts=False)]
    with ModelServer(["done"], misbehave={0: later}) as server:
        with running(agent(ChatCompletions("m", url=server.url))) as (_, run):
            assert run.outcome == "done" and server.paid == 1

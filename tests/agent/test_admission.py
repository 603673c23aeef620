"""Proposals become calls only if they are admitted; a refusal is a row and goes back as data (GATE-7)."""

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import Allow, Context, Deny, DidNotHappen, Workflow, activity
from outlast.agent import (
    Admission,
    Admitted,
    Message,
    ModelAnswer,
    Proposal,
    Rejected,
    ScriptedModel,
    ToolCall,
    admit,
    agent_workflow,
    propose,
)
from outlast.agent import proposal as proposal_module
from outlast.errors import DefinitionError
from outlast.flow import PolicyRequest
from outlast.testing import App, node
from tests.agent.agents import DONE, TOOLS, admissions, asks, history, open_ticket, refund, results, running


class Empty(BaseModel):
    pass


SEEN: list[Admission] = []
KEPT: list[Proposal] = []


def policy(request: PolicyRequest) -> Allow | Deny:
    if request.occasion == "offer" and request.activity == "refund":
        return Deny("no_refunds")
    if request.occasion == "proposal" and request.arguments.get("title") == "forbidden":
        return Deny("title", f"{request.proposed_by} may not")
    return Allow("others")


def outcome(*given: tuple[str, Any], policy: Any = None) -> tuple[list[Admission], App, Any]:
    """Propose these calls in one visit and return how each was decided."""
    model = ScriptedModel([asks(*given)], name="vendor:m-1")
    flow = Workflow("decides", state=Empty, policy=policy)

    @flow.node(start=True)
    async def decide(ctx: Context[Empty]) -> None:
        SEEN[:] = await admit(ctx, await propose(ctx, model, [Message(role="user", text="go")], tools=TOOLS))

    with running(flow, {}) as (app, run):
        assert run.status == "completed", (run.status, run.attention)
        return list(SEEN), app, (admissions(app, run), history(app, run))


MATRIX = [
    ("nothing", {}, "unknown_tool"),
    ("x" * 5_000, {}, "unknown_tool"),
    ("open_ticket", "not json", "invalid_arguments"),
    ("open_ticket", {}, "invalid_arguments"),
    ("open_ticket", {"title": 5}, "invalid_arguments"),
    ("open_ticket", {"title": "a", "urgent": "yes"}, "invalid_arguments"),
    ("open_ticket", {"title": "a", "note": "b"}, "invalid_arguments"),
    ("read_log", {"lines": "5"}, "invalid_arguments"),
    ("read_log", {"lines": 5.5}, "invalid_arguments"),
    ("open_ticket", {"title": ""}, ""),
    ("open_ticket", {"title": "a"}, ""),
    ("open_ticket", {"title": "a", "urgent": True}, ""),
    ("read_log", {"lines": 5}, ""),
]


@pytest.mark.req("GATE-7")
def test_each_call_is_decided_alone_and_each_outcome_is_a_row() -> None:
    for tool, arguments, code in MATRIX:
        [decided], _, (rows, told) = outcome((tool, arguments))
        assert (decided.code if isinstance(decided, Rejected) else "") == code, (tool, arguments, decided)
        assert isinstance(decided, Rejected) == bool(code)
        assert [(row["code"], row["proposed_by"]) for row in rows] == [(code, "vendor:m-1")]
        assert rows[0]["arguments"] == (arguments if isinstance(arguments, str) else json.dumps(arguments))[:500]
        assert len(told) == bool(code)


@pytest.mark.req("GATE-7")
def test_a_default_may_be_left_out_and_is_part_of_the_plan() -> None:
    [decided], _, _ = outcome(("open_ticket", {"title": "a"}))
    assert isinstance(decided, Admitted)
    assert decided.plan == open_ticket.plan("a") == open_ticket.plan("a", urgent=False)


@pytest.mark.req("GATE-6", "GATE-7")
def test_policy_withholds_tools_and_refuses_proposals() -> None:
    wrong = [("refund", {"order": "1", "cents": 5}), ("open_ticket", {"title": "forbidden"})]
    decided, _, (rows, told) = outcome(*wrong, ("read_log", {"lines": 1}), policy=policy)
    codes = [each.code if isinstance(each, Rejected) else "" for each in decided]
    assert codes == [row["code"] for row in rows] == ["not_offered", "denied", ""]
    assert isinstance(decided[1], Rejected) and decided[1].reason == "title: vendor:m-1 may not"
    assert len(told) == 2  # the denial is the engine's own entry


@pytest.mark.req("GATE-7")
def test_a_key_is_not_used_for_two_different_calls() -> None:
    given = [("open_ticket", {"title": "a"}), ("open_ticket", {"title": "a", "urgent": True})]
    first, second = outcome(*given)[0]
    assert isinstance(first, Admitted) and isinstance(second, Rejected) and second.code == "conflict"


@pytest.mark.req("GATE-6", "GATE-7")
def test_a_call_that_was_refused_leaves_its_key_to_another_one_of_the_same_answer() -> None:
    """It has not been attempted: only calls that may be made are in each other's way."""

    def urgent_only(request: PolicyRequest) -> Allow | Deny:
        small = request.occasion == "proposal" and not request.arguments["urgent"]
        return Deny("urgent", "only those") if small else Allow("others")

    ticket = {"title": "a"}
    given = [("open_ticket", {**ticket, "urgent": urgent}) for urgent in (False, True, False, True)]
    decided, _, (rows, _) = outcome(*given, policy=urgent_only)
    assert [row["code"] for row in rows] == ["denied", "", "conflict", ""]
    assert [isinstance(each, Admitted) for each in decided] == [False, True, False, True]


@pytest.mark.req("GATE-7")
def test_one_answer_may_ask_for_fifty_calls() -> None:
    decided, _, (rows, told) = outcome(*[("read_log", {"lines": n}) for n in range(60)])
    assert [isinstance(each, Admitted) for each in decided] == [True] * 50 + [False] * 10
    assert len(rows) == 60 and len(told) == 10


@pytest.mark.req("GATE-7")
def test_a_proposal_is_refused_in_another_visit() -> None:
    model = ScriptedModel([asks(("open_ticket", {"title": "late"}))])
    flow = Workflow("keeps", state=Empty)

    @flow.node(start=True, max_visits=3)
    async def twice(ctx: Context[Empty]) -> Literal["twice"] | None:
        if ctx.visit == 1:
            KEPT[:] = [await propose(ctx, model, [], tools=TOOLS)]
            return "twice"
        SEEN[:] = await admit(ctx, KEPT[0])
        return None

    with running(flow, {}) as (_, run):
        assert run.status == "completed"
    [decided] = SEEN
    assert isinstance(decided, Rejected) and decided.code == "other_visit"


@pytest.mark.req("GATE-7")
def test_a_call_that_was_done_is_answered_from_the_ledger() -> None:
    again = asks(("open_ticket", {"title": "a"}), ("refund", {"order": "1", "cents": 5}), ("read_log", {"lines": 1}))
    with running(agent_workflow("agent", model=ScriptedModel([again, again, "done"]), tools=TOOLS)) as (app, run):
        assert run.outcome == "done"
        assert sorted(DONE) == [("log", 1), ("log", 1), ("refund", "1", 5), ("ticket", "a", False)]  # a lookup twice
        assert results(run)[:3] == ['{"id":"T-a"}', "R-1", "0000000 "] and results(run)[5] == "0000000 "
        ticket, refunded = map(json.loads, results(run)[3:5])
        assert ticket == {
            "note": "ticket/a was already done in step 1; it was not done again",
            "result": {"id": "T-a"},
        }
        assert refunded == {"note": "refund/1 was already done in step 1; it was not done again", "result": "R-1"}
        outcomes = [row["outcome"] for row in admissions(app, run)]
        assert outcomes == ["admitted"] * 3 + ["already_done"] * 2 + ["admitted"]


@pytest.mark.req("GATE-7")
def test_a_key_once_per_run_is_not_used_for_other_arguments_later() -> None:
    script = [asks(("refund", {"order": "1", "cents": 5})), asks(("refund", {"order": "1", "cents": 500})), "done"]
    with running(agent_workflow("agent", model=ScriptedModel(script), tools=TOOLS)) as (_, run):
        assert run.outcome == "done"
        assert DONE == [("refund", "1", 5)]
        assert json.loads(results(run)[1])["error"]["code"] == "conflict"


def test_two_tools_of_one_name_are_a_mistake() -> None:
    @activity(key="x", name="refund", no_undo="none")
    async def other_refund() -> None:
        """Do nothing."""

    with pytest.raises(DefinitionError, match="two tools have the name"):
        agent_workflow("agent", tools=[refund, other_refund])


def test_a_node_is_tested_alone_with_the_answer_of_a_model() -> None:
    told: list[str] = []
    flow = Workflow("alone", state=Empty)

    @flow.node(start=True)
    async def decide(ctx: Context[Empty]) -> None:
        proposal = await propose(ctx, ScriptedModel([]), [], tools=TOOLS)
        told.extend(type(each).__name__ for each in await admit(ctx, proposal))

    answers = {"outlast.model": asks(("open_ticket", {"title": "a"}), ("nothing", {}))}
    done = node(decide, Empty(), answers=answers, workflow=flow)
    assert done.status == "completed" and told == ["Admitted", "Rejected"]
    assert [call.activity for call in done.called] == ["outlast.model"]


# --- once per run ------------------------------------------------------------------------------------
@activity(key="restart/{service}", once_per="visit", no_undo="a restart is over")
async def restart(service: str) -> str:
    """Restart a service, each time that a step asks for it."""
    DONE.append(("restart", service))
    return "restarted"


@pytest.mark.req("GATE-7", "EFF-1")
@pytest.mark.parametrize("second", [{"title": "a", "urgent": True}, {"title": "a", "urgent": False}])
def test_a_write_of_an_agent_is_once_per_run_by_default(second: dict[str, Any]) -> None:
    """In other words under the same key it is a conflict, in the same words it is already done: never twice."""
    script = [asks(("open_ticket", {"title": "a"})), asks(("open_ticket", second)), "done"]
    with running(agent_workflow("agent", model=ScriptedModel(script), tools=TOOLS)) as (app, run):
        assert run.outcome == "done" and DONE == [("ticket", "a", False)]
        (effect,) = app.rows(run.id).effects
        assert (effect.visit, effect.first_visit) == (0, 1)
        last = json.loads(results(run)[1])
        if second["urgent"]:
            assert last["error"]["code"] == "conflict"
            assert "with other arguments in step 1" in last["error"]["reason"]
            assert "nothing was done now" in last["error"]["reason"]
        else:
            assert "already done in step 1; it was not done again" in last["note"]


@pytest.mark.req("GATE-7")
def test_a_declared_visit_stays_a_visit() -> None:
    """Other arguments under the key are new in the next step, and the same ones are still not repeated."""
    script = [asks(("restart", {"service": "db"})), asks(("restart", {"service": "db"})), "done"]
    with running(agent_workflow("agent", model=ScriptedModel(script), tools=[restart])) as (app, run):
        assert run.outcome == "done" and DONE == [("restart", "db")]
        assert [effect.visit for effect in app.rows(run.id).effects] == [1]


def test_the_default_of_a_tool_is_its_own_outside_of_an_agent() -> None:
    """The agent uses a copy: a graph in the same module keeps the visit, also for what is declared later."""

    @activity(key="late/{n}", if_uncertain="reconcile")
    async def late(n: int) -> int:
        """Do something."""
        return n

    flow = agent_workflow("agent", model=ScriptedModel(["done"]), tools=[late])

    @late.reconcile
    async def find(n: int) -> DidNotHappen:
        return DidNotHappen()

    @late.undo
    async def take_back(done: int, n: int) -> None: ...

    own = flow.activities["late"]
    assert (late.once_per, own.once_per) == ("visit", "run")
    assert own.reconcile_fn is find and own.undo_fn is take_back


@pytest.mark.req("GATE-7")
def test_the_model_is_told_that_a_call_without_a_stored_answer_was_done() -> None:
    @activity(key="dump/{of}", no_undo="a file stays")
    async def dump(of: str) -> str:
        """Write a file and return it."""
        DONE.append(("dump", of))
        return "head of it " + "x" * 300_000

    again = asks(("dump", {"of": "db"}))
    with running(agent_workflow("agent", model=ScriptedModel([again, again, "done"]), tools=[dump])) as (_, run):
        assert run.outcome == "done" and DONE == [("dump", "db")]
        first, second = (json.loads(text)["error"] for text in results(run))
        assert first["code"] == "answer_not_stored" and "dump/db was done" in first["reason"]
        assert "head of it" in first["reason"]
        assert second["code"] == "already_done" and "it was not done again" in second["reason"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [({}, "51ca4f076027eaa5e6eefa6fee546268"), ({"money": 0.25}, "0fd5caf4b006f0db714c9069fbeaf208")],
)
def test_admissions_of_an_earlier_version_are_found(more: dict[str, Any], expected: str) -> None:
    """Their key is a digest of the answer, as the version before `ModelAnswer.finish` computed it."""
    answer = ModelAnswer(
        text="w",
        calls=(ToolCall(id="1", tool="t", arguments={"a": [1]}),),
        model="m",
        input_tokens=3,
        output_tokens=4,
        **more,
    )
    assert proposal_module._digest(answer) == expected

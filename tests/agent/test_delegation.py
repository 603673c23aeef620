"""Agents that call agents: each is a tool with an address, and its call starts a child run."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Allow, Budget, Context, Deny, Fail, NeedsApproval, Workflow, role, workflow
from outlast.agent import ScriptedModel, SubAgent, agent_workflow
from outlast.errors import DefinitionError
from outlast.flow import PolicyRequest
from outlast.testing import App
from tests.agent.agents import DONE, TOOLS, admissions, asks, open_ticket, read_log, results

pytestmark = pytest.mark.req("GATE-7", "RUN-13")
LEAD = role("lead")
WRITES = "a ticket stays"


@workflow
async def assay(ctx: Context, metal: str, grams: int = 1) -> dict[str, Any]:
    """Find the purity of a metal."""
    await ctx.sleep("1m")
    if metal == "lead":
        raise Fail("no sample")
    return {"metal": metal, "grams": grams}


def helper(script: list[Any], name: str = "helper", **options: Any) -> Any:
    return agent_workflow(name, model=ScriptedModel(script), description="Helps with one thing.", **options)


@contextmanager
def leading(script: Any, *agents: Any, also: tuple[Workflow[Any], ...] = (), **options: Any) -> Iterator[Any]:
    """Start an agent that may call others, and yield the app, the run and the model."""
    DONE.clear()
    model = ScriptedModel(script)
    flow = agent_workflow("leader", model=model, agents=agents, **options)
    served = [each.workflow if isinstance(each, SubAgent) else each for each in agents]
    app = App((flow, *served, *also))
    try:
        yield app, app.start(flow, {"objective": "go"}), model
    finally:
        app.close()


def children(app: App, run: Any) -> list[Any]:
    return [row for row in app.rows(run.id).effects if row.child_text]


def test_an_agent_is_a_tool_whose_result_is_the_outcome_of_a_child() -> None:
    inner = helper(["tin is 3 euros"])
    script = [asks(("helper", {"objective": "price of tin"}), ("assay", {"metal": "tin", "grams": 5})), "done"]
    with leading(script, inner, assay, tools=[read_log]) as (app, run, model):
        assert run.waiting_for and run.outcome is None
        app.clock.skip("2m")
        assert run.outcome == "done", run.now
        assert results(run) == ["tin is 3 euros", '{"grams":5,"metal":"tin"}']
        rows = children(app, run)
        assert sorted((row.activity, row.visit, row.status.value) for row in rows) == [
            ("assay", 1, "done"), ("helper", 1, "done"),
        ]  # fmt: skip
        assert app.do(app.runtime.get(rows[0].external_id)).parent == run.id
    offered = {tool.name: tool for tool in model.requests[0].tools}
    assert sorted(offered) == ["assay", "helper", "read_log"]
    assert offered["helper"].description == "Helps with one thing."
    assert offered["assay"].description == "Find the purity of a metal."
    assert offered["assay"].parameters["required"] == ["metal"]
    assert offered["assay"].parameters["additionalProperties"] is False
    assert sorted(offered["helper"].parameters["properties"]) == ["context", "objective"]


def test_a_failed_agent_is_an_answer_for_the_model_and_may_be_asked_again_in_a_later_step() -> None:
    again = asks(("assay", {"metal": "lead"}))
    with leading([again, again, "there is no sample"], assay) as (app, run, _):
        app.clock.skip("2m")
        app.clock.skip("2m")
        assert run.outcome == "there is no sample"
        errors = [json.loads(text)["error"] for text in results(run)]
        assert [each["code"] for each in errors] == ["failed", "failed"]
        assert "no sample" in errors[0]["reason"]
        assert len({row.external_id for row in children(app, run)}) == 2


def test_the_same_work_is_not_done_twice() -> None:
    again = asks(("assay", {"metal": "tin"}))
    with leading([again, again, "done"], assay) as (app, run, _):
        app.clock.skip("5m")
        assert run.outcome == "done" and len(children(app, run)) == 1
        assert [each["outcome"] for each in admissions(app, run)] == ["admitted", "already_done"]
        assert "was already done in step 1" in results(run)[1]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"metal": 5}, "invalid_arguments"),
        ({"metal": "tin", "grams": "5"}, "invalid_arguments"),
        ({"metal": "tin", "colour": "grey"}, "invalid_arguments"),
        ({}, "invalid_arguments"),
    ],
)
def test_arguments_must_be_the_input_of_the_agent(given: dict[str, Any], code: str) -> None:
    with leading([asks(("assay", given)), "done"], assay) as (app, run, _):
        assert run.outcome == "done" and not children(app, run)
        assert [each["code"] for each in admissions(app, run)] == [code]


def test_policy_is_asked_before_an_agent_is_offered_and_before_it_starts() -> None:
    asked: list[tuple[str, str, dict[str, Any]]] = []

    def policy(request: PolicyRequest) -> Any:
        asked.append((request.occasion, request.activity, dict(request.arguments)))
        if request.activity == "helper":
            return Deny("no-helpers", "not today") if request.occasion == "offer" else Allow()
        if request.activity == "assay" and request.occasion != "offer":
            return Deny("no-lead", "lead is heavy") if request.arguments["metal"] == "lead" else Allow()
        return Allow()

    inner = helper(["x"])
    script = [asks(("helper", {"objective": "x"}), ("assay", {"metal": "lead"}), ("assay", {"metal": "tin"})), "done"]
    with leading(script, inner, assay, policy=policy) as (app, run, model):
        app.clock.skip("2m")
        assert run.outcome == "done"
        assert [each["code"] for each in admissions(app, run)] == ["not_offered", "denied", ""]
        assert [row.args for row in children(app, run)] == [b'{"metal":"tin"}']
        assert [tool.name for tool in model.requests[0].tools] == ["assay"]
        assert ("commit", "assay", {"metal": "tin"}) in asked


def test_a_denial_at_the_last_instant_is_an_answer_for_the_model() -> None:
    def policy(request: PolicyRequest) -> Any:
        return Deny("late", "not now") if request.occasion == "commit" else Allow()

    with leading([asks(("assay", {"metal": "tin"})), "done"], assay, policy=policy) as (app, run, _):
        assert run.outcome == "done" and not children(app, run)
        assert json.loads(results(run)[0])["error"]["code"] == "policy_denied"


@pytest.mark.parametrize("by_policy", [False, True])
@pytest.mark.parametrize("approved", [True, False])
def test_an_agent_may_need_an_approval(*, by_policy: bool, approved: bool) -> None:
    def policy(request: PolicyRequest) -> Any:
        return Allow() if request.occasion == "offer" else NeedsApproval("costly", by=LEAD)

    options: dict[str, Any] = {"policy": policy} if by_policy else {"approve": {"assay": LEAD}}
    with leading([asks(("assay", {"metal": "tin"})), "done"], assay, **options) as (app, run, _):
        assert run.waiting_for[0].startswith("approval") and not children(app, run)
        if approved:
            run.approve()
            app.clock.skip("2m")
            (row,) = children(app, run)
            (approval,) = app.rows(run.id).approvals
            assert approval.consumed_by == f"1:{row.key}" and row.approval == approval.id
            assert approval.id in row.allowed_by
        else:
            run.reject()
            assert not children(app, run)
            assert json.loads(results(run)[0])["error"]["code"] == "approval_rejected"
        assert run.outcome == "done"


def test_an_approval_permits_one_start() -> None:
    """S-20: another call of the agent waits for another approval."""
    first, second = asks(("assay", {"metal": "tin"})), asks(("assay", {"metal": "zinc"}))
    with leading([first, second, "done"], assay, approve={"assay": LEAD}) as (app, run, _):
        run.approve()
        app.clock.skip("2m")
        assert len(children(app, run)) == 1 and run.waiting_for[0].startswith("approval")
        run.approve()
        app.clock.skip("2m")
        assert run.outcome == "done" and len(children(app, run)) == 2


def test_depth_is_an_answer_for_the_model() -> None:
    flow: Any = helper(["the end"], "level9")
    flows = [flow]
    for n in reversed(range(9)):
        script = [asks((flow.name, {"objective": "deeper"})), f"level {n} is done"]
        flow = helper(script, f"level{n}", agents=[flow])
        flows.append(flow)
    app = App(tuple(flows))
    try:
        run = app.start(flow, {"objective": "go"})
        assert run.outcome == "level 0 is done"
        rows = app.do(app.runtime.operations.runs(root=run.id, limit=50)).runs
        assert len(rows) == 8
        deepest = next(each for each in rows if each.workflow == "level8")
        messages = app.state_of(deepest.run, flows[1]).messages
        assert json.loads(messages[2].text)["error"]["code"] == "limit_exceeded"
    finally:
        app.close()


def test_a_budget_of_children_is_an_answer_for_the_model() -> None:
    calls = asks(*(("assay", {"metal": metal}) for metal in ("tin", "zinc", "iron")))
    with leading([calls, asks(("assay", {"metal": "gold"})), "done"], assay, budget=Budget(children=2)) as found:
        app, run, _ = found
        app.clock.skip("2m")
        assert run.outcome == "done" and not run.attention and len(children(app, run)) == 2
        codes = [json.loads(text).get("error", {}).get("code", "") for text in results(run)]
        assert sorted(codes[:3]) == ["", "", "limit_exceeded"] and codes[3] == "limit_exceeded"
        assert "2 of 2 child runs" in json.loads(results(run)[-1])["error"]["reason"]
        assert run.now.used.children == 2 and run.now.budget.children == 2


def test_the_budget_of_a_tree_limits_the_agents_below_its_root() -> None:
    """Two agents of a root want two runs each, and the budget of the root allows four runs in all."""
    wants = asks(("assay", {"metal": "tin"}), ("assay", {"metal": "zinc"}))
    twins = [helper([wants, "all there is"], name, agents=[assay]) for name in ("left", "right")]
    script = [asks(*((each.name, {"objective": each.name}) for each in twins)), "done"]
    with leading(script, *twins, also=(assay,), budget=Budget(children=4)) as (app, run, _):
        app.clock.skip("2m")
        assert run.outcome == "done" and not run.attention
        below = app.do(app.runtime.operations.runs(root=run.id, limit=50)).runs
        assert sorted(each.workflow for each in below) == ["assay", "assay", "left", "right"]
        assert run.now.used_by_tree.children == 4


def test_tokens_of_agents_count_for_the_root() -> None:
    inner = helper([asks(("read_log", {"lines": 1})), "read"], tools=[read_log])
    script = [asks(("helper", {"objective": "x"})), "done"]
    with leading(script, inner, budget=Budget(tokens=200)) as (app, run, _):
        assert run.attention == ["budget_exhausted"] and run.outcome is None
        (row,) = children(app, run)
        assert app.do(app.runtime.get(row.external_id)).waiting_for[0].kind == "budget"
        app.do(app.runtime.operations.raise_budget(run.id, tokens=1_000, reason="go on"))
        app.settle()
        assert run.outcome == "done"


def test_an_agent_that_writes_says_why_nothing_is_undone() -> None:
    inner = helper([asks(("open_ticket", {"title": "a"})), "opened"], tools=[open_ticket])
    with pytest.raises(DefinitionError, match="does not say what undoes it") as caught:
        agent_workflow("leader", agents=[inner], model=ScriptedModel([])).validate()
    assert "SubAgent(helper, no_undo=" in caught.value.fix
    script = [asks(("helper", {"objective": "x"})), "done"]
    with leading(script, SubAgent(inner, no_undo=WRITES)) as (app, run, _):
        assert run.outcome == "done" and DONE == [("ticket", "a", False)]
        assert children(app, run)[0].undo == f"no: {WRITES}"


class Nothing(BaseModel):
    pass


def test_mistakes_of_a_declaration_say_what_to_write() -> None:
    silent = agent_workflow("silent", model=ScriptedModel([]))
    with pytest.raises(DefinitionError, match="has no description") as caught:
        agent_workflow("leader", agents=[silent], model=ScriptedModel([])).validate()
    assert 'SubAgent(silent, description="…")' in caught.value.fix
    agent_workflow("leader", agents=[SubAgent(silent, description="Sleeps.")], model=ScriptedModel([])).validate()
    for wrong in ("silent", [silent.name], [read_log]):
        with pytest.raises(DefinitionError, match="agents"):
            agent_workflow("leader", agents=wrong, model=ScriptedModel([]))  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="two tools have the name"):
        agent_workflow("leader", agents=[assay, assay], model=ScriptedModel([]))
    with pytest.raises(DefinitionError, match="workflow"):
        SubAgent("assay")  # type: ignore[arg-type]


def test_writes_of_an_agent_are_known_to_its_parent() -> None:
    inner = agent_workflow("inner", model=ScriptedModel([]), tools=TOOLS, description="Writes.")
    outer = agent_workflow("outer", model=ScriptedModel([]), agents=[SubAgent(inner, no_undo=WRITES)])
    assert inner.writes == outer.writes == ("open_ticket", "refund")


def test_an_agent_that_is_called_twice_in_one_answer_runs_once() -> None:
    twice = asks(("assay", {"metal": "tin"}), ("assay", {"metal": "tin"}))
    with leading([twice, "done"], assay) as (app, run, _):
        app.clock.skip("2m")
        assert run.outcome == "done" and len(children(app, run)) == 1
        assert len(results(run)) == 2 and len(set(results(run))) == 1


def test_a_cancelled_leader_cancels_its_agents() -> None:
    with leading([asks(("assay", {"metal": "tin"})), "done"], assay) as (app, run, _):
        (row,) = children(app, run)
        run.cancel()
        assert run.status == "cancelled"
        assert app.do(app.runtime.get(row.external_id)).status == "cancelled"


def test_an_operator_pauses_an_agent_as_any_tool() -> None:
    with leading(["done"], assay) as (app, _, model):
        app.do(app.runtime.operations.pause("activity", "assay", reason="too slow"))
        app.clock.advance("1m")  # until the worker knows of it
        model._answers = [asks(("assay", {"metal": "tin"})), "done"]
        run = app.start(app._workflows[0], {"objective": "go"})
        assert not children(app, run) and run.waiting_for[0].startswith("pause")

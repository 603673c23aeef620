"""An agent whose tool runs another durable agent as a child run."""

from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.function import FunctionModel

from outlast import Budget, ChildFailed, Context, Fail, Workflow, role
from outlast.pydantic_ai import OutlastApprovals, OutlastDurability
from outlast.testing.virtual_runtime import AppFactory
from tests.pydantic_ai.scripted import Case, Script, call, effects, flow_of

pytestmark = pytest.mark.req("GATE-7", "RUN-13")


def inner_flow(name: str, made: list[str], *, fails: bool = False) -> Workflow[Case]:
    """Return a workflow whose agent pays after an approval, and answers with what its tool returned."""
    lead = OutlastApprovals(by=role("lead"), within="96h")
    agent = Agent[None, str](
        FunctionModel(Script([call("pay", order="o-1")])), name=name, capabilities=[OutlastDurability[None](), lead]
    )

    @agent.tool_plain(requires_approval=True)
    async def pay(order: str) -> str:
        made.append(order)
        return f"paid {order}"

    async def body(ctx: Context[Case]) -> None:
        if fails:
            raise Fail("no money")
        ctx.state.answer = (await agent.run(ctx.state.question)).output

    return flow_of(f"inner-{name}", body, [agent])


def outer_flow(name: str, inner: Workflow[Case], model: Script, **options: Any) -> Workflow[Case]:
    """Return a workflow whose agent has a tool that runs the inner one."""
    agent = Agent[Context[Case], str](
        FunctionModel(model), name=name, deps_type=Context, capabilities=[OutlastDurability[Context[Case]]()]
    )

    @agent.tool(metadata={"outlast": False})
    async def cashier(context: RunContext[Context[Case]], question: str) -> str:
        """Pay an order."""
        try:
            end = await context.deps.run(inner, Case(question=question), key=question, no_undo="a payment stays")
        except ChildFailed as failed:
            return f"failed: {failed.detail}"
        return str(end.answer)

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run(ctx.state.question, deps=ctx)).output

    return flow_of(f"outer-{name}", body, [agent], **options)


def test_a_tool_runs_an_agent_as_a_child_that_waits_for_a_person(outlast_app: AppFactory) -> None:
    made: list[str] = []
    model = Script([call("cashier", question="pay o-1")])
    inner = inner_flow("teller", made)
    outer = outer_flow("asker", inner, model)
    app = outlast_app(outer, inner)
    run = app.start(outer, {})
    assert run.waiting_for == ["child inner-teller pay o-1"] and made == []
    (row,) = app.rows(run.id).effects
    (approval,) = app.rows(row.external_id).approvals
    detail = app.do(app.runtime.operations.approval(approval.id))
    assert [each.run for each in detail.path] == [run.id] and detail.workflow == "inner-teller"
    app.clock.skip("20h")
    app.do(app.runtime.operations.approve(approval.id, reason="in order"))
    app.settle()
    assert run.outcome["answer"] == "paid o-1" and made == ["o-1"] and len(model.asked) == 2
    assert effects(app, run) == {"pay o-1": "inner-teller done"}


def test_a_child_that_fails_is_an_answer_of_the_tool(outlast_app: AppFactory) -> None:
    inner = inner_flow("poor", [], fails=True)
    outer = outer_flow("hopes", inner, Script([call("cashier", question="pay o-2")]))
    run = outlast_app(outer, inner).start(outer, {})
    assert run.outcome["answer"] == "failed: no money"


def test_two_calls_of_one_answer_are_two_children_at_once(outlast_app: AppFactory) -> None:
    made: list[str] = []
    calls = [call("cashier", "c1", question="pay a"), call("cashier", "c2", question="pay b")]
    inner = inner_flow("pair", made)
    outer = outer_flow("both", inner, Script(calls), budget=Budget(children=5))
    app = outlast_app(outer, inner)
    run = app.start(outer, {})
    assert len(run.waiting_for) == 2
    for row in app.rows(run.id).effects:
        (approval,) = app.rows(row.external_id).approvals
        app.do(app.runtime.operations.approve(approval.id, reason="in order"))
        app.settle()
    assert run.outcome["answer"] == "paid o-1 paid o-1" and made == ["o-1", "o-1"]

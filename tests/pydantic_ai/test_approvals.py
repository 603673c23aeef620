"""Approvals of tool calls: names by the whole key, the same call again, changes by an approver, and mistakes."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import DynamicToolset

from outlast import Context, role
from outlast.errors import Conflict, DefinitionError
from outlast.pydantic_ai import DurableTool, OutlastApprovals, OutlastDurability
from outlast.pydantic_ai import approved_tools as approvals
from outlast.testing.virtual_runtime import App, AppFactory, AppRun
from tests.pydantic_ai.scripted import Case, Script, call, flow_of

ANN, BOB = {"who": "ann", "month": 5}, {"who": "bob", "month": 5}
KEYED = {"outlast": DurableTool(key="pay/{who}/{month}")}


def payer(
    name: str,
    model: Script,
    metadata: Mapping[str, Any] | None = None,
    editable: Sequence[str] = (),
) -> tuple[Agent[None, str], list[tuple[str, int, int]]]:
    """Return an agent whose only tool pays after an approval, and the payments that were made."""
    paid: list[tuple[str, int, int]] = []
    tools = FunctionToolset[None](id="bank")

    @tools.tool_plain(requires_approval=True, metadata=dict(metadata or {}))
    async def pay(who: str, month: int, cents: int = 100) -> str:
        paid.append((who, month, cents))
        return f"paid {who}"

    lead = OutlastApprovals[None](by=role("lead"), within="96h", editable=editable)
    return Agent(
        FunctionModel(model), name=name, toolsets=[tools], capabilities=[OutlastDurability[None](), lead]
    ), paid


def start(app_of: AppFactory, name: str, agent: Agent[Any, str]) -> tuple[App, AppRun[Case]]:
    """Start a run of a workflow whose only node runs the agent."""

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run(ctx.state.question)).output

    flow = flow_of(name, body, [agent])
    app = app_of(flow)
    return app, app.start(flow, {})


def approve_all(run: AppRun[Case]) -> int:
    """Approve all that the run waits for, one after another, and return how many approvals it took."""
    given = 0
    while run.waiting_for:
        run.approve()
        given += 1
    return given


def calls(*turns: Sequence[dict[str, Any]]) -> Script:
    return Script(*([call("pay", f"c{n}{m}", **one) for m, one in enumerate(turn)] for n, turn in enumerate(turns)))


@pytest.mark.req("GATE-7", "GATE-1")
@pytest.mark.parametrize(
    ("turns", "asked", "paid"),
    [
        pytest.param([[ANN, BOB]], 2, ["ann", "bob"], id="both-at-once"),
        pytest.param([[ANN], [BOB]], 2, ["ann", "bob"], id="one-after-the-other"),
        pytest.param([[ANN], [ANN]], 1, ["ann"], id="the-same-again"),
        pytest.param([[ANN, ANN]], 1, ["ann"], id="the-same-twice-at-once"),
        pytest.param([[ANN, BOB, ANN], [BOB, ANN]], 2, ["ann", "bob"], id="mixed"),
    ],
)
def test_each_key_is_asked_for_once(
    outlast_app: AppFactory, turns: list[list[dict[str, Any]]], asked: int, paid: list[str]
) -> None:
    """Only the last part of the key was in the name, so that pay/ann/5 and pay/bob/5 could not both be asked for."""
    agent, made = payer("keyed", calls(*turns), KEYED)
    _, run = start(outlast_app, "agent-keyed", agent)
    assert approve_all(run) == asked
    assert (run.status, run.attention) == ("completed", [])
    assert sorted(who for who, _, _ in made) == paid


def test_other_arguments_under_a_key_are_a_conflict_after_an_approval(outlast_app: AppFactory) -> None:
    for turns in ([[ANN, {**ANN, "cents": 500}]], [[ANN], [{**ANN, "cents": 500}]]):
        agent, made = payer("conflicts", calls(*turns), KEYED)
        _, run = start(outlast_app, "agent-conflicts", agent)
        assert approve_all(run) == 1
        assert (run.status, run.attention, made) == ("completed", [], [("ann", 5, 100)])
        assert "refused: conflict: conflicts.pay was called as pay/ann/5" in run.outcome["answer"]


def test_after_a_rejection_other_arguments_are_asked_for_and_the_same_are_not(outlast_app: AppFactory) -> None:
    model = calls([{**ANN, "cents": 500}], [{**ANN, "cents": 500}], [ANN])
    agent, made = payer("again", model, KEYED)
    _, run = start(outlast_app, "agent-again", agent)
    run.reject("too much")
    (waiting,) = run.waiting_for
    assert waiting.endswith('pay {"who":"ann","month":5}»'), "the second proposal got the first one's answer"
    assert approve_all(run) == 1
    assert (run.outcome["answer"], made) == ("too much too much paid ann", [("ann", 5, 100)])


def test_an_approval_that_waits_under_its_former_name_is_found(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, made = payer("before", calls([ANN]), KEYED)
    with monkeypatch.context() as former:
        former.setattr(approvals, "approval_name", lambda plan, number: approvals._former_name(plan))
        app, run = start(outlast_app, "agent-before", agent)
    (before,) = app.rows(run.id).approvals
    assert before.wait == "before.pay-5"
    run.approve()
    assert (run.status, made) == ("completed", [("ann", 5, 100)])
    assert [each.id for each in app.rows(run.id).approvals] == [before.id], "the lead is not asked twice"


def test_another_call_does_not_take_the_approval_of_a_former_name(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, made = payer("former", calls([ANN], [BOB]), KEYED)
    with monkeypatch.context() as former:
        former.setattr(approvals, "approval_name", lambda plan, number: approvals._former_name(plan))
        _, run = start(outlast_app, "agent-former", agent)
    assert approve_all(run) == 2
    assert made == [("ann", 5, 100), ("bob", 5, 100)]


# --- changes by an approver ----- -------------------------------------------------------------------
def change(run: AppRun[Case], **changes: Any) -> None:
    person, approval = run._person("ana")
    run._act(person.approve(approval, changes=changes))


@pytest.mark.req("GATE-1")
def test_only_the_parameters_of_editable_may_be_changed(outlast_app: AppFactory) -> None:
    """`editable` was a bool, so that ("cents",) let an approver change the payee."""
    agent, made = payer("edited", calls([ANN]), editable=("cents", "of_another_tool"))
    _, run = start(outlast_app, "agent-edited", agent)
    with pytest.raises(Conflict, match="does not allow a change of who"):
        change(run, who="eve")
    change(run, cents=90)
    assert (run.status, made) == ("completed", [("ann", 5, 90)])


@pytest.mark.req("GATE-1")
def test_nothing_may_be_changed_without_editable(outlast_app: AppFactory) -> None:
    assert OutlastApprovals[None](by=role("lead"), within="96h").editable == ()
    agent, _ = payer("unedited", calls([ANN]))
    _, run = start(outlast_app, "agent-unedited", agent)
    with pytest.raises(Conflict, match="does not allow a change of cents"):
        change(run, cents=90)


def test_the_same_call_again_gets_the_answer_of_the_changed_one(outlast_app: AppFactory) -> None:
    agent, made = payer("changed", calls([ANN], [ANN]), KEYED, editable=("cents",))
    _, run = start(outlast_app, "agent-changed", agent)
    change(run, cents=90)
    assert (run.status, run.attention, made) == ("completed", [], [("ann", 5, 90)])


def test_the_arguments_of_a_listed_tool_may_be_changed_and_its_name_may_not(outlast_app: AppFactory) -> None:
    built: list[str] = []

    def toolset(ctx: RunContext[None]) -> FunctionToolset[None]:
        tools = FunctionToolset[None]()

        @tools.tool_plain(requires_approval=True)
        async def build(what: str) -> str:
            built.append(what)
            return f"built {what}"

        return tools

    lead = OutlastApprovals[None](by=role("lead"), within="96h", editable=("tool", "arguments"))
    agent = Agent(
        FunctionModel(Script([call("build", what="api")])), name="listed",
        capabilities=[OutlastDurability[None](), lead], toolsets=[DynamicToolset(toolset, id="ci")],
    )  # fmt: skip
    _, run = start(outlast_app, "agent-listed", agent)
    with pytest.raises(Conflict, match="does not allow a change of tool"):
        change(run, tool="deploy")
    change(run, arguments={"what": "web"})
    assert (run.status, built) == ("completed", ["web"])


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("editable", True, "a tuple of names"),
        ("editable", "cents", "a tuple of names"),
        ("editable", ("cents", 1), "a tuple of names"),
        ("editable", ("",), "a tuple of names"),
        ("quorum", 0, "from 1 to"),
        ("quorum", True, "from 1 to"),
        ("not_requester", "no", "True or False"),
        ("risk", "huge", "'low', 'medium', 'high'"),
        ("within", "0s", "above zero"),
        ("within", None, "a duration"),
        ("valid_for", -1, "a duration"),
        ("by", "lead", "roles and persons"),
        ("by", None, "roles and persons"),
        ("summary", "text", "a function"),
    ],
)
def test_an_option_of_another_type_is_refused_where_it_is_written(option: str, value: object, why: str) -> None:
    given: dict[str, Any] = {"by": role("lead"), "within": "96h", option: value}
    with pytest.raises(DefinitionError, match=why) as refused:
        OutlastApprovals(**given)
    assert "test_approvals.py" in refused.value.where or option in ("by", "within", "valid_for")


def test_outside_of_a_node_nobody_is_asked() -> None:
    agent, made = payer("outside", calls([ANN]), KEYED)
    with pytest.raises(Exception, match="deferred"):
        asyncio.run(agent.run("?"))
    assert made == []


def test_the_effect_has_exactly_what_was_approved(outlast_app: AppFactory) -> None:
    agent, _ = payer("exact", calls([ANN]), KEYED, editable=("cents",))
    app, run = start(outlast_app, "agent-exact", agent)
    change(run, cents=90)
    (effect,) = app.rows(run.id).effects
    assert json.loads(effect.args) == {**ANN, "cents": 90}

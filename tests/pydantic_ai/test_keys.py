"""Keys of tools: once per run by default, calls that were done before, conflicts, and tools without a key."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlast import Context, Refused, Workflow, role
from outlast.flow.calls import Plan, RecordedCall
from outlast.pydantic_ai import DurableTool, OutlastApprovals, OutlastDurability
from outlast.pydantic_ai.tool_activities import standing_of
from outlast.testing.virtual_runtime import App, AppFactory, AppRun
from tests.pydantic_ai.agents import answers
from tests.pydantic_ai.scripted import call, effects

PAY = DurableTool(key="pay/{order}")
NAMED = DurableTool(key="pay/{order}", name="tree-keys.pay")


class Bank:
    """Records the payments that a tool makes."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    async def pay(self, order: str, cents: int = 100) -> str:
        """Pay, unless the amount is refused."""
        if cents > 1_000:
            raise Refused("limit", "too much")
        self.paid.append((order, cents))
        return f"receipt {len(self.paid)}"


def payer(
    name: str, bank: Bank, proposals: Sequence[ToolCallPart], terms: DurableTool = PAY, *, approved: bool = False
) -> Agent[Any, str]:
    """Return an agent that makes one proposal in each of its runs, in order, and then repeats the answers."""
    left = list(proposals)

    async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(isinstance(message, ModelResponse) for message in messages):
            return ModelResponse(parts=[TextPart(" ".join(answers(messages)))])
        return ModelResponse(parts=[left.pop(0)])

    tools = FunctionToolset[Any](id="bank")

    @tools.tool_plain(metadata={"outlast": terms}, requires_approval=approved)
    async def pay(order: str, cents: int = 100) -> str:
        return await bank.pay(order, cents)

    lead = OutlastApprovals[Any](by=role("lead"), within="96h")
    return Agent(FunctionModel(think), name=name, toolsets=[tools], capabilities=[OutlastDurability(), lead])


class Steps(BaseModel):
    """State of a run that has an agent run in each visit."""

    said: list[str] = []


def stepwise(name: str, agent: Agent[Any, str], visits: int) -> Workflow[Steps]:
    """Return a workflow whose node runs the agent once in each visit, and waits once after it."""
    flow = Workflow(name, state=Steps)

    @flow.node(start=True, max_visits=9)
    async def step(ctx: Context[Steps]) -> Literal["step"] | None:
        ctx.state.said.append((await agent.run("?")).output)
        await ctx.sleep("1h")
        return "step" if ctx.visit < visits else None

    return flow


def end_of(app: App, run: AppRun[Any]) -> list[str]:
    while run.status == "waiting" and not run.attention and not any("approval" in w for w in run.waiting_for):
        app.clock.skip("1h")
    return [] if run.attention or run.status == "waiting" else list(run.outcome["said"])


SAME = [call("pay", "c1", order="a"), call("pay", "c2", order="a")]
OTHER = [call("pay", "c1", order="a"), call("pay", "c2", order="a", cents=500)]


@pytest.mark.req("EFF-1", "EFF-2")
def test_a_key_counts_in_the_run_and_the_model_is_told(outlast_app: AppFactory) -> None:
    """Each visit acted again, because a key counted in its visit."""
    bank = Bank()
    flow = stepwise("agent-run-keys", payer("run-keys", bank, SAME), 2)
    app = outlast_app(flow)
    run = app.start(flow, {})
    said = end_of(app, run)
    assert bank.paid == [("a", 100)] and said[0] == "receipt 1"
    assert "run-keys.pay was already done as pay/a in step 1; it was not done again" in said[1]
    assert "receipt 1" in said[1]
    assert [each.visit for each in app.rows(run.id).effects] == [0]


@pytest.mark.req("EFF-1", "EFF-2")
def test_other_arguments_under_a_key_of_an_earlier_visit_are_a_conflict(outlast_app: AppFactory) -> None:
    """It was a contradiction, which stopped the run, and not an answer for the model."""
    bank = Bank()
    flow = stepwise("agent-conflict-keys", payer("conflict-keys", bank, OTHER), 2)
    app = outlast_app(flow)
    run = app.start(flow, {})
    said = end_of(app, run)
    assert bank.paid == [("a", 100)]
    assert "refused: conflict: conflict-keys.pay was called as pay/a with other arguments" in said[1]


@pytest.mark.req("EFF-1")
def test_a_refusal_of_an_earlier_visit_is_not_asked_for_again(outlast_app: AppFactory) -> None:
    bank = Bank()
    twice = [call("pay", ident, order="a", cents=5_000) for ident in ("c1", "c2")]
    flow = stepwise("agent-refused-keys", payer("refused-keys", bank, twice), 2)
    app = outlast_app(flow)
    assert end_of(app, app.start(flow, {})) == ["refused: limit: too much"] * 2


@pytest.mark.req("EFF-1", "EFF-2")
def test_a_key_counts_in_the_tree_of_a_child(outlast_app: AppFactory) -> None:
    """Two sub-agents pay once, and the model of the first one is told in its next step, as in a root."""
    bank = Bank()
    first = stepwise("agent-tree-keys", payer("tree-keys", bank, SAME), 2)
    second = stepwise("agent-other-tree-keys", payer("tree-keys-2", bank, SAME[:1], NAMED), 1)
    root = Workflow("agents-of-a-tree", state=Steps)

    @root.node(start=True)
    async def lead(ctx: Context[Steps]) -> None:
        for each in (first, second):
            ctx.state.said += (await ctx.run(each, Steps(), key=each.name, no_undo="it is paid")).said

    app = outlast_app(root, first, second)
    run = app.start(root, {})
    said = end_of(app, run)
    assert bank.paid == [("a", 100)]
    assert (said[0], said[2]) == ("receipt 1", "receipt 1")
    assert "was already done as pay/a in step 1; it was not done again" in said[1]


def test_an_explicit_scope_stays(outlast_app: AppFactory) -> None:
    bank = Bank()
    terms = DurableTool(key="pay/{order}", once_per="visit")
    flow = stepwise("agent-visit-keys", payer("visit-keys", bank, SAME, terms), 2)
    app = outlast_app(flow)
    assert end_of(app, app.start(flow, {})) == ["receipt 1", "receipt 2"]


def test_a_lookup_with_a_key_is_made_in_each_visit(outlast_app: AppFactory) -> None:
    bank = Bank()
    terms = DurableTool(key="pay/{order}", lookup=True)
    flow = stepwise("agent-lookup-keys", payer("lookup-keys", bank, SAME, terms), 2)
    app = outlast_app(flow)
    assert end_of(app, app.start(flow, {})) == ["receipt 1", "receipt 2"]


def test_a_call_that_was_done_is_not_put_to_an_approver_again(outlast_app: AppFactory) -> None:
    bank = Bank()
    for proposals, told in ((SAME, "was not done again"), (OTHER, "refused: conflict")):
        flow = stepwise("agent-approved-keys", payer("approved-keys", bank, proposals, approved=True), 2)
        app = outlast_app(flow)
        run = app.start(flow, {})
        run.approve()
        assert told in end_of(app, run)[1]
    assert bank.paid == [("a", 100)] * 2


@pytest.mark.req("EFF-1", "EFF-2")
@pytest.mark.parametrize("turns", [[SAME], [[SAME[0]], [SAME[1]]], [OTHER], [[OTHER[0]], [OTHER[1]]]])
def test_calls_of_one_agent_run_under_one_key(outlast_app: AppFactory, turns: list[list[ToolCallPart]]) -> None:
    bank, other = Bank(), any(part.args_as_dict().get("cents") for turn in turns for part in turn)

    async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=list(turns[turn]) if turn < len(turns) else [TextPart(" ".join(answers(messages)))])

    tools = FunctionToolset[Any](id="bank")
    tools.add_function(bank.pay, name="pay", metadata={"outlast": PAY})
    agent = Agent(FunctionModel(think), name="one-run", toolsets=[tools], capabilities=[OutlastDurability()])
    flow = stepwise("agent-one-run", agent, 1)
    app = outlast_app(flow)
    run = app.start(flow, {})
    (said,) = end_of(app, run)
    assert (run.attention, bank.paid) == ([], [("a", 100)])
    assert ("refused: conflict" if other else "it was not done again") in said
    assert len(effects(app, run)) == 1


@pytest.mark.req("EFF-1")
@pytest.mark.parametrize("visits", [1, 2])
def test_a_run_goes_on_after_the_default_became_the_run(tmp_path: Path, visits: int) -> None:
    """An upgrade in the middle of a run: its calls were recorded for a visit, and are found."""
    bank, store = Bank(), f"sqlite:{tmp_path / 'outlast.db'}"
    before = payer("upgraded", bank, SAME, DurableTool(key="pay/{order}", once_per="visit"))
    flow = stepwise("agent-upgraded", before, visits)
    app = App((flow,), store=store)
    run = app.start(flow, {})
    assert bank.paid == [("a", 100)]
    app.close()
    after = stepwise("agent-upgraded", payer("upgraded", bank, SAME[1:]), visits)
    app = App((after,), store=store)
    try:
        again = AppRun(app, after, run.id)
        said = end_of(app, again)
        assert (again.attention, bank.paid, said[0]) == ([], [("a", 100)], "receipt 1")
        assert visits == 1 or "in step 1; it was not done again" in said[1]
    finally:
        app.close()


def test_the_standing_of_a_call() -> None:
    plan: Plan[Any] = Plan("pay", "k", b"{}", "mine")

    def row(*, same: bool = True, done: bool = True, made_in: int = 1, visit: int = 0) -> RecordedCall[Any]:
        return RecordedCall(visit, same, done, "r" if done else None, None, made_in)

    def standing(*rows: RecordedCall[Any], visit: int = 2, scope: Any = "run", first: str = "mine") -> Any:
        return standing_of(plan, rows, scope, visit, first)

    assert standing() == (False, False, None)
    assert standing(first="other").conflict
    assert standing(row()).done == row() and not standing(row()).conflict
    assert standing(row(done=False)) == (False, True, None), "it is settled, or its refusal is told"
    assert standing(row(same=False)).conflict and standing(row(same=False)).earlier
    assert standing(row(made_in=2), first="other") == (False, False, None), "the ledger answers it"
    assert standing(row(made_in=2, same=False)).conflict
    assert standing(row(made_in=0)) == (False, False, None), "recorded by an earlier version, or by another run"
    assert standing(row(made_in=0, same=False)).conflict
    assert standing(row(made_in=1, visit=1), scope="visit") == (False, False, None)
    assert standing(row(made_in=2, visit=2, same=False), scope="visit").conflict


# --- tools without a key -----------------------------------------------------------------------------
def reported(caplog: pytest.LogCaptureFixture, terms: DurableTool | Literal[False] | None) -> list[str]:
    agent = Agent(FunctionModel(lambda messages, info: ModelResponse(parts=[])), name="writer",
                  capabilities=[OutlastDurability[None]()])  # fmt: skip

    @agent.tool_plain(metadata=None if terms is None else {"outlast": terms})
    async def send(to: str, text: str) -> str:
        return ""

    caplog.clear()
    flow = stepwise("agent-writer", agent, 1)
    with caplog.at_level(logging.WARNING, "outlast.pydantic_ai"):
        flow.validate()
        flow.validate()
    return [record.getMessage() for record in caplog.records if record.name == "outlast.pydantic_ai"]


def test_a_tool_that_acts_without_a_key_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    (text,) = reported(caplog, None)
    assert 'the tool "send" of agent "writer" (tests/pydantic_ai/test_keys.py:' in text
    assert "each proposal of the model is a new call" in text and 'DurableTool(key="send/{to}")' in text
    assert len(reported(caplog, DurableTool())) == 1
    for terms in (DurableTool(key="send/{to}"), DurableTool(lookup=True), DurableTool(once_per="visit"), False):
        assert reported(caplog, terms) == [], terms


def test_without_a_key_each_proposal_is_a_new_call(outlast_app: AppFactory) -> None:
    bank = Bank()
    flow = stepwise("agent-unkeyed", payer("unkeyed", bank, SAME, DurableTool()), 2)
    app = outlast_app(flow)
    assert end_of(app, app.start(flow, {})) == ["receipt 1", "receipt 2"]


# --- answers that cannot be stored -------------------------------------------------------------------
async def large(order: str) -> str:
    return "x" * 300_000


async def half(order: str) -> str:
    return "half \ud83d"


async def number(order: str) -> Any:
    return {"rate": float("nan"), "of": object()}


@pytest.mark.req("EFF-2")
@pytest.mark.parametrize("fn", [large, half, number])
@pytest.mark.parametrize("visits", [1, 2])
def test_a_call_whose_answer_cannot_be_stored_is_told_as_done(
    outlast_app: AppFactory, fn: Callable[..., Any], visits: int
) -> None:
    """The effect was uncertain, and a person was asked about a call that was known to be done."""
    made: list[str] = []

    async def act(order: str) -> Any:
        made.append(order)
        return await fn(order)

    async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(isinstance(message, ModelResponse) for message in messages):
            return ModelResponse(parts=[TextPart(" ".join(answers(messages)))])
        return ModelResponse(parts=[call("act", "c1", order="a")])

    tools = FunctionToolset[Any](id="tools")
    tools.add_function(act, metadata={"outlast": DurableTool(key="act/{order}")})
    agent = Agent(FunctionModel(think), name="unstored", toolsets=[tools], capabilities=[OutlastDurability()])
    flow = stepwise("agent-unstored", agent, visits)
    app = outlast_app(flow)
    run = app.start(flow, {})
    said = end_of(app, run)
    assert (run.status, run.attention, made) == ("completed", [], ["a"])
    assert all("the call was done, and its answer is missing" in text for text in said)


def test_a_tool_that_asks_the_model_again_has_acted_under_its_key(outlast_app: AppFactory) -> None:
    tried: list[str] = []

    async def act(order: str) -> str:
        tried.append(order)
        raise ModelRetry("name the customer")

    async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=[call("act", f"c{turn}", order="a")] if turn < 1 else [TextPart("done")])

    tools = FunctionToolset[Any](id="tools")
    tools.add_function(act, metadata={"outlast": DurableTool(key="act/{order}")})
    agent = Agent(FunctionModel(think), name="retried", toolsets=[tools], capabilities=[OutlastDurability()])
    flow = stepwise("agent-retried", agent, 1)
    app = outlast_app(flow)
    assert end_of(app, app.start(flow, {})) == ["done"] and tried == ["a"]

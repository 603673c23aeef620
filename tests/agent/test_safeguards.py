"""Each safeguard of agents removed once: the failure that it prevents happens, so its tests are not empty."""

import contextlib
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlast import Allow, Budget, Context, Deny, NeedsApproval, Workflow, activity, role, workflow
from outlast.agent import ChatCompletions, Message, ModelAnswer, Proposal, ScriptedModel, admit, agent_workflow, propose
from outlast.errors import DefinitionError
from outlast.flow import PolicyRequest
from outlast.pydantic_ai import DurableTool, OutlastApprovals, OutlastDurability
from outlast.testing import App, AppFactory
from tests.agent.agents import DONE, TOOLS, admissions, asks, read_log, refund, results, running
from tests.mutants import remove

LEAD = role("lead")
TICKET = ("open_ticket", {"title": "a"})
REFUND = ("refund", {"order": "1", "cents": 5})


@pytest.fixture(params=[True, False], ids=["guarded", "removed"])
def guarded(request: pytest.FixtureRequest) -> bool:
    """True with the safeguard, False without it."""
    return bool(request.param)


class Note(BaseModel):
    said: list[str] = []


def codes(app: Any, run: Any) -> list[str]:
    return [row["code"] for row in admissions(app, run)]


# --- the proposal -------------------------------------------------------------------------------
@pytest.mark.req("GATE-6")
def test_without_the_offer_a_model_sees_a_tool_that_policy_withholds(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("tools_not_withheld", monkeypatch)

    def policy(asked: PolicyRequest) -> Allow | Deny:
        return Deny("none") if (asked.occasion, asked.activity) == ("offer", "refund") else Allow("others")

    model = ScriptedModel([asks(REFUND), "done"])
    with running(agent_workflow("agent", model=model, tools=TOOLS, policy=policy)) as (app, run):
        assert ("refund" in {tool.name for tool in model.requests[0].tools}) is not guarded
        assert codes(app, run) == ["not_offered" if guarded else ""] and len(DONE) == (not guarded)


@pytest.mark.req("GATE-7", "RUN-1")
def test_without_the_stored_answer_each_re_run_pays_again(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        remove("answers_not_stored", monkeypatch)
    model = ScriptedModel([asks(REFUND), "done"])
    with running(agent_workflow("agent", model=model, tools=TOOLS, approve={"refund": LEAD})) as (_, run):
        run.approve()
        assert run.outcome == "done" and len(model.requests) == (2 if guarded else 3)


@pytest.mark.req("GATE-7")
def test_without_the_digest_a_request_gets_the_answer_of_another(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("requests_share_a_key", monkeypatch)
    model = ScriptedModel(lambda request: f"about {request.messages[0].text}")
    flow = Workflow("two-requests", state=Note)

    @flow.node(start=True)
    async def two(ctx: Context[Note]) -> None:
        for text in ("tea", "coffee"):
            proposal = await propose(ctx, model, [Message(role="user", text=text)])
            ctx.state.said.append(proposal.answer.text)

    with running(flow, {}) as (_, run):
        assert run.state.said == ["about tea", "about coffee" if guarded else "about tea"]


# --- the questions of `admit` -----------------------------------------------------------------------
@pytest.mark.req("GATE-7")
@pytest.mark.parametrize("arguments", [{"title": "a", "urgent": "yes"}, {"title": "a", "note": "b"}])
def test_without_strict_arguments_a_call_is_made_that_the_model_did_not_write(
    monkeypatch: pytest.MonkeyPatch, guarded: bool, arguments: Any
) -> None:
    if not guarded:
        remove("lenient_arguments", monkeypatch)
    model = ScriptedModel([asks(("open_ticket", arguments)), "done"])
    with running(agent_workflow("agent", model=model, tools=TOOLS)) as (app, run):
        assert codes(app, run) == ["invalid_arguments" if guarded else ""] and len(DONE) == (not guarded)


@pytest.mark.req("GATE-7")
def test_without_the_visit_an_old_proposal_is_made(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        remove("proposals_of_any_visit", monkeypatch)
    kept: list[Proposal] = []
    seen: list[str] = []
    flow = Workflow("keeps-a-proposal", state=Note)

    @flow.node(start=True, max_visits=3)
    async def twice(ctx: Context[Note]) -> Literal["twice"] | None:
        if ctx.visit == 1:
            kept[:] = [await propose(ctx, ScriptedModel([asks(TICKET)]), [], tools=TOOLS)]
            return "twice"
        seen[:] = [type(each).__name__ for each in await admit(ctx, kept[0])]
        return None

    with running(flow, {}) as (_, run):
        assert run.status == "completed" and seen == ["Rejected" if guarded else "Admitted"]


@pytest.mark.req("GATE-7", "EFF-2")
def test_without_the_question_whether_it_was_done_a_ticket_is_opened_twice(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("already_done_not_asked", monkeypatch)

    @activity(key="ticket/{title}", once_per="visit", no_undo="a ticket stays")
    async def open_ticket(title: str) -> str:
        """Open a ticket."""
        DONE.append(title)
        return title

    model = ScriptedModel([asks(TICKET), asks(TICKET), "done"])
    with running(agent_workflow("agent", model=model, tools=[open_ticket])) as (_, run):
        assert run.outcome == "done" and len(DONE) == (1 if guarded else 2)


@pytest.mark.req("GATE-7", "EFF-4")
def test_without_the_question_about_its_key_a_contradiction_stops_the_run(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("conflicts_not_asked", monkeypatch)
    both = asks(TICKET, ("open_ticket", {"title": "a", "urgent": True}))
    with running(agent_workflow("agent", model=ScriptedModel([both, "done"]), tools=TOOLS)) as (_, run):
        assert run.attention == ([] if guarded else ["contradiction"])


@pytest.mark.req("GATE-6", "GATE-7")
def test_without_policy_after_the_model_a_proposal_that_it_denies_is_made(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("proposals_not_judged", monkeypatch)

    def policy(asked: PolicyRequest) -> Allow | Deny:
        return Deny("m-1") if asked.proposed_by == "vendor:m-1" else Allow("others")

    model = ScriptedModel([asks(TICKET), "done"], name="vendor:m-1")
    with running(agent_workflow("agent", model=model, tools=TOOLS, policy=policy)) as (app, run):
        assert codes(app, run) == ["denied" if guarded else ""] and len(DONE) == (not guarded)


@pytest.mark.req("GATE-6")
def test_without_the_recorded_denial_a_re_run_makes_the_call_that_the_model_was_refused(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Policy denies the first of two approved calls, and has changed its mind when the second is decided."""
    if not guarded:
        remove("denials_not_remembered", monkeypatch)
    closed: list[str] = []

    def policy(asked: PolicyRequest) -> Allow | Deny:
        return Deny("closed") if asked.occasion == "consume" and closed else Allow("open")

    model = ScriptedModel([asks(REFUND, ("refund", {"order": "2", "cents": 5})), "done"])
    flow = agent_workflow("agent", model=model, tools=[refund], policy=policy, approve={"refund": LEAD})
    with running(flow) as (_, run):
        closed.append("on Sundays")
        run.approve()
        assert DONE == []
        closed.clear()
        run.approve()
        assert run.outcome == "done" and len(DONE) == (1 if guarded else 2)


@pytest.mark.req("GATE-6", "GATE-9")
def test_without_s_20_a_call_like_a_rejected_one_is_made(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        remove("asked_once_then_free", monkeypatch)

    def policy(asked: PolicyRequest) -> Allow | NeedsApproval:
        large = asked.occasion != "offer" and asked.arguments["order"] == "1"
        return NeedsApproval("large", LEAD) if large else Allow("small")

    model = ScriptedModel([asks(REFUND), asks(("refund", {"order": "1b", "cents": 5})), "done"])
    with running(agent_workflow("agent", model=model, tools=[refund], policy=policy)) as (_, run):
        run.reject("no refund")
        assert len(DONE) == (not guarded) and (run.status == "waiting") is guarded


# --- the step -------------------------------------------------------------------------------------
@pytest.mark.req("GATE-1")
def test_without_its_approval_a_call_is_made_at_once(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        remove("approve_ignored", monkeypatch)
    flow = agent_workflow(
        "agent", model=ScriptedModel([asks(REFUND), "done"]), tools=[refund], approve={"refund": LEAD}
    )
    with running(flow) as (_, run):
        assert len(DONE) == (not guarded) and (run.status == "waiting") is guarded


def test_without_the_limit_a_large_result_is_in_each_request(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        remove("large_results_in_the_transcript", monkeypatch)
    model = ScriptedModel([asks(("read_log", {"lines": 20_000})), "done"])
    with running(agent_workflow("agent", model=model, tools=[read_log])) as (_, run):
        assert run.outcome == "done" and (len(results(run)[0]) < 20_000) is guarded


# --- answers, keys and money ----------------------------------------------------------------------
@pytest.mark.req("EFF-1", "GATE-7")
def test_without_the_scope_of_the_run_a_reworded_call_opens_a_second_ticket(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("keys_of_a_step", monkeypatch)
    again = ("open_ticket", {"title": "a", "urgent": True})
    with running(agent_workflow("agent", model=ScriptedModel([asks(TICKET), asks(again), "done"]), tools=TOOLS)) as (
        _,
        run,
    ):
        assert run.outcome == "done" and len(DONE) == (1 if guarded else 2)


@pytest.mark.req("OUT-4", "GATE-7")
def test_without_the_end_of_an_answer_a_cut_one_is_the_result(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        remove("cut_answers_used", monkeypatch)
    cut = ModelAnswer(text="The cause is", finish="cut", finish_detail="length")
    with running(agent_workflow("agent", model=ScriptedModel([cut, cut]))) as (_, run):
        assert (run.status, run.attention) == (("waiting", ["exception"]) if guarded else ("completed", []))


@pytest.mark.req("GATE-7", "OUT-4")
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("drafts_of_typed_answers_used", 'First {"said": ["draft"]}, then {"said": ["other"]}'),
        ("typed_answers_of_any_end", ModelAnswer(text='{"said": ["draft"]}', finish="cut")),
    ],
)
def test_without_the_rules_of_typed_answers_a_draft_is_the_result(
    monkeypatch: pytest.MonkeyPatch, guarded: bool, name: str, first: ModelAnswer | str
) -> None:
    if not guarded:
        remove(name, monkeypatch)
    flow = Workflow("typed", state=Note)

    @flow.node(start=True)
    async def ask(ctx: Context[Note]) -> None:
        model = ScriptedModel([first, '{"said": ["whole"]}'])
        ctx.state.said = (await propose(ctx, model, [Message(role="user", text="say")], result=Note)).result.said

    with running(flow, {}) as (_, run):
        assert run.state.said == ["whole" if guarded else "draft"]


@pytest.mark.req("RUN-10")
def test_without_the_question_about_its_price_a_budget_of_money_counts_nothing(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("money_without_a_price", monkeypatch)
    model = ChatCompletions("m", url="http://127.0.0.1:9/v1")
    flow = agent_workflow("agent", model=model, budget=Budget(money="0.01"))
    refused = pytest.raises(DefinitionError, match="budget of money") if guarded else contextlib.nullcontext()
    with refused, running(flow):
        pass


# --- pydantic-ai -----------------------------------------------------------------------------------
def scripted(name: str, *calls: ToolCallPart, approval: bool) -> tuple[Workflow[Note], list[int]]:
    """Return a workflow of an agent of pydantic-ai that makes these calls in one turn, and the amounts it has paid."""
    paid: list[int] = []
    bank = FunctionToolset[None](id="bank")

    @bank.tool_plain(requires_approval=approval)
    async def pay(cents: int) -> str:
        paid.append(cents)
        return f"paid {cents}"

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = any(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=[TextPart("done")] if asked else list(calls))

    capabilities = [OutlastDurability[None](), OutlastApprovals[None](by=LEAD, within="4h", editable=("cents",))]
    agent = Agent(FunctionModel(answer), name=name, toolsets=[bank], capabilities=capabilities)
    flow = Workflow(f"runs-{name}", state=Note)

    @flow.node(start=True)
    async def work(ctx: Context[Note]) -> None:
        ctx.state.said.append((await agent.run("go")).output)

    return flow, paid


@pytest.mark.req("EFF-4")
def test_without_the_id_of_a_call_two_equal_calls_are_one(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("calls_without_their_id", monkeypatch)
    calls = [ToolCallPart("pay", {"cents": 5}, tool_call_id=ident) for ident in ("c1", "c2")]
    flow, paid = scripted(f"pays-twice-{guarded}", *calls, approval=False)
    run = outlast_app(flow).start(flow, {})
    assert run.outcome == {"said": ["done"]} and paid == [5] * (2 if guarded else 1)


@pytest.mark.req("GATE-9")
def test_without_the_edited_arguments_the_approval_covers_no_call(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The approver has allowed 3 instead of 5; a call of 5 needs another approval."""
    if not guarded:
        remove("edited_arguments_dropped", monkeypatch)
    flow, paid = scripted(f"edits-{guarded}", ToolCallPart("pay", {"cents": 5}, tool_call_id="c1"), approval=True)
    run = outlast_app(flow).start(flow, {})
    person, approval = run._person("ana")
    run._act(person.approve(approval, changes={"cents": 3}))
    assert paid == ([3] if guarded else [])
    assert (run.status == "completed") is guarded


def keyed(
    name: str, *turns: list[ToolCallPart], visits: int = 1, approval: bool = False, cut: int = 0
) -> tuple[Any, Any]:
    """Return a workflow that runs an agent once in each visit, and what its tool has paid.

    Each turn of the model makes the given calls; the first `cut` answers are cut off.
    """
    paid: list[str] = []
    bank = FunctionToolset[None](id="bank")
    left = list(turns)

    @bank.tool_plain(requires_approval=approval, metadata={"outlast": DurableTool(key="pay/{who}/{month}")})
    async def pay(who: str, month: int, cents: int = 100) -> str:
        paid.append(who)
        return f"paid {who}"

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if not left or (visits > 1 and any(isinstance(message, ModelResponse) for message in messages)):
            return ModelResponse(parts=[TextPart("done")])
        reason = "length" if len(turns) - len(left) < cut else "stop"
        return ModelResponse(parts=left.pop(0), finish_reason=reason)

    capabilities = [OutlastDurability[None](), OutlastApprovals[None](by=LEAD, within="4h")]
    agent = Agent(FunctionModel(answer), name=name, toolsets=[bank], capabilities=capabilities)
    flow = Workflow(f"runs-{name}", state=Note)

    @flow.node(start=True, max_visits=3)
    async def work(ctx: Context[Note]) -> Literal["work"] | None:
        ctx.state.said.append((await agent.run("go")).output)
        return "work" if ctx.visit < visits else None

    return flow, paid


def pays(ident: str, who: str) -> list[ToolCallPart]:
    return [ToolCallPart("pay", {"who": who, "month": 5}, tool_call_id=ident)]


@pytest.mark.req("EFF-1", "EFF-2")
def test_without_the_scope_of_the_run_a_key_pays_in_each_visit(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("keys_of_a_visit", monkeypatch)
    flow, paid = keyed(f"per-run-{guarded}", pays("c1", "ann"), pays("c2", "ann"), visits=2)
    run = outlast_app(flow).start(flow, {})
    assert run.status == "completed" and paid == ["ann"] * (1 if guarded else 2)


@pytest.mark.req("OUT-4", "GATE-7")
def test_without_its_fault_the_calls_of_a_cut_answer_are_made(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("cut_responses_used", monkeypatch)
    flow, paid = keyed(f"cut-{guarded}", pays("c1", "ann"), cut=1)
    run = outlast_app(flow).start(flow, {})
    assert run.status == "completed" and paid == ([] if guarded else ["ann"])


@pytest.mark.req("GATE-1", "GATE-7")
def test_without_the_whole_key_two_approvals_have_one_name(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("approvals_named_by_the_end_of_the_key", monkeypatch)
    flow, paid = keyed(f"named-{guarded}", [*pays("c1", "ann"), *pays("c2", "bob")], approval=True)
    run = outlast_app(flow).start(flow, {})
    while not run.attention and run.waiting_for:
        run.approve()
    assert (run.status, paid) == (("completed", ["ann", "bob"]) if guarded else ("waiting", []))


# --- agents that call agents ----------------------------------------------------------------------------
@workflow
async def delegated(ctx: Context, metal: str) -> str:
    """Say the name of a metal."""
    return metal


def delegating(script: list[Any], **options: Any) -> tuple[App, Any]:
    flow = agent_workflow("agent", model=ScriptedModel(script), agents=[delegated], **options)
    app = App((flow, delegated))
    return app, app.start(flow, {"objective": "go"})


@pytest.mark.req("GATE-6", "RUN-13")
def test_without_the_question_an_agent_starts_another_against_policy(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("agents_start_unasked", monkeypatch)

    def policy(asked: PolicyRequest) -> Allow | Deny:
        return Deny("late") if asked.occasion == "commit" else Allow()

    app, run = delegating([asks(("delegated", {"metal": "tin"})), "done"], policy=policy)
    assert run.outcome == "done"
    assert len([row for row in app.rows(run.id).effects if row.child_text]) == (not guarded)
    app.close()


@pytest.mark.req("GATE-7", "RUN-13")
def test_without_its_use_an_approval_stays_open(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        remove("start_keeps_its_approval", monkeypatch)
    app, run = delegating([asks(("delegated", {"metal": "tin"})), "done"], approve={"delegated": LEAD})
    run.approve()
    assert run.outcome == "done"
    assert [bool(each.consumed_by) for each in app.rows(run.id).approvals] == [guarded]
    app.close()

"""Runs of agents in nodes: approvals, refusals, retries, several agents, and agents outside of a node."""

import asyncio
import json
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import DynamicToolset

from outlast import Allow, Context, Deny, Happened, Refused, Workflow, role
from outlast.errors import DefinitionError
from outlast.flow import NotSent, PolicyRequest
from outlast.pydantic_ai import DurableTool, OutlastApprovals, OutlastDurability
from outlast.testing.virtual_runtime import AppFactory
from tests.pydantic_ai.scripted import Case, Script, call, effects, flow_of, play, tool_agent

LEAD = OutlastApprovals(by=role("lead"), within="96h", editable=("cents", "note"))


def refunds(name: str, model: Script) -> tuple[Agent[None, str], list[int]]:
    made: list[int] = []
    tools = FunctionToolset[None](id="bank")

    @tools.tool_plain(requires_approval=True)
    async def refund(cents: int, note: Annotated[str, AfterValidator(str.upper)] = "") -> str:
        made.append(cents)
        return f"refunded {cents}{note}"

    capabilities = [OutlastDurability[None](), LEAD]
    return Agent(FunctionModel(model), name=name, toolsets=[tools], capabilities=capabilities), made


@pytest.mark.req("GATE-7", "GATE-1")
def test_a_call_waits_for_a_person_and_the_model_is_not_asked_again(outlast_app: AppFactory) -> None:
    model = Script([call("refund", cents=500)])
    agent, made = refunds("waits", model)

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run(ctx.state.question)).output

    flow = flow_of("agent-waits", body, [agent])
    app = outlast_app(flow)
    run = app.start(flow, {})
    assert [each.partition(" «")[2] for each in run.waiting_for] == ['refund {"cents":500}»']
    app.clock.skip("40h")
    assert made == [] and len(model.asked) == 1
    run.approve()
    assert run.outcome["answer"] == "refunded 500" and made == [500] and len(model.asked) == 2
    assert effects(app, run) == {"waits/refund/c1": "waits.refund done"}


@pytest.mark.req("GATE-7", "GATE-1")
def test_a_person_changes_the_arguments(outlast_app: AppFactory) -> None:
    agent, made = refunds("edits", Script([call("refund", cents=500)]))

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run(ctx.state.question)).output

    flow = flow_of("agent-edits", body, [agent])
    app = outlast_app(flow)
    run = app.start(flow, {})
    person, approval = run._person("ana")
    run._act(person.approve(approval, changes={"cents": 300, "note": " x"}))
    assert run.outcome["answer"] == "refunded 300 X" and made == [300]
    (effect,) = app.rows(run.id).effects
    assert json.loads(effect.args) == {"cents": 300, "note": " x", "tool_call_id": "c1"}, "exactly what was approved"


@pytest.mark.req("GATE-7")
def test_a_rejection_is_an_answer_for_the_model(outlast_app: AppFactory) -> None:
    model = Script([call("refund", cents=500)])
    agent, made = refunds("rejects", model)

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run(ctx.state.question)).output

    flow = flow_of("agent-rejects", body, [agent])
    app = outlast_app(flow)
    run = app.start(flow, {})
    run.reject("the customer is wrong")
    assert run.outcome["answer"] == "the customer is wrong" and made == []


def test_a_refusal_is_an_answer_for_the_model(outlast_app: AppFactory) -> None:
    async def close(ticket: str) -> str:
        raise Refused("closed", f"{ticket} is closed already")

    agent = tool_agent("refusals", Script([call("close", ticket="t-1")]), close)
    app, run = play(outlast_app, "agent-refusals", agent)
    app.clock.skip("1h")
    assert run.outcome["answer"] == "refused: closed: t-1 is closed already"


@pytest.mark.req("EFF-2")
def test_a_retry_that_the_tool_asks_for_is_recorded(outlast_app: AppFactory) -> None:
    tried: list[str] = []

    async def find(name: str) -> str:
        tried.append(name)
        if name == "Bo":
            raise ModelRetry("there are two of that name")
        return f"found {name}"

    model = Script([call("find", "c1", name="Bo")], [call("find", "c2", name="Bo Li")])
    app, run = play(outlast_app, "agent-retries", tool_agent("retries", model, find))
    app.clock.skip("1h")
    assert (
        run.outcome["answer"] == "there are two of that name found Bo Li"
        and tried == ["Bo", "Bo Li"]
        and len(model.asked) == 3
    )


@pytest.mark.req("EFF-2")
def test_a_call_id_that_a_model_uses_twice_is_two_calls(outlast_app: AppFactory) -> None:
    sent: list[str] = []

    async def mail(to: str) -> str:
        sent.append(to)
        return to

    model = Script([call("mail", "call_0", to="ana")], [call("mail", "call_0", to="bo")])
    app, run = play(outlast_app, "agent-same-ids", tool_agent("same-ids", model, mail))
    app.clock.skip("1h")
    assert run.outcome["answer"] == "ana bo" and sent == ["ana", "bo"]
    assert set(effects(app, run)) == {"same-ids/mail/call_0", "same-ids/mail/call_0~2"}


@pytest.mark.req("EFF-2", "FAIL-2")
@pytest.mark.parametrize("error", [TimeoutError("no answer"), ValidationError.from_exception_data("Reply", [])])
def test_a_tool_that_may_have_acted_is_asked_about(outlast_app: AppFactory, error: Exception) -> None:
    acted: list[int] = []

    async def refund(cents: int) -> str:
        acted.append(cents)
        raise error

    model = Script([call("refund", cents=5)])
    app, run = play(outlast_app, "agent-uncertain", tool_agent("uncertain", model, refund, timeout=3))
    app.clock.skip("1m")
    assert run.attention == ["effect_uncertain"] and acted == [5]
    run.resolve("uncertain/refund/c1", "happened", "r-1")
    app.clock.skip("1h")
    assert run.outcome["answer"] == "r-1" and acted == [5] and len(model.asked) == 2


def test_a_timeout_of_a_tool_asks_a_person_and_not_the_model(outlast_app: AppFactory) -> None:
    async def refund(cents: int) -> str:
        await asyncio.Event().wait()
        return "never"

    model = Script([call("refund", cents=5)])
    agent = tool_agent("hangs", model, refund, timeout=3)
    app, run = play(outlast_app, "agent-hangs", agent)
    app.clock.skip("1m")
    assert run.attention == ["effect_uncertain"] and len(model.asked) == 1


def test_arguments_keep_their_types(outlast_app: AppFactory) -> None:
    class Trip(BaseModel):
        to: str
        on: date

    async def book(trip: Trip) -> str:
        return f"{type(trip).__name__} {trip.to} {trip.on.isoformat()}"

    async def remind(on: date, notes: list[str] | None = None) -> str:
        return f"{type(on).__name__} {notes}"

    model = Script([call("book", to="Rome", on="2026-12-01")])
    app, run = play(outlast_app, "agent-types", tool_agent("types", model, book))
    app.clock.skip("1h")
    assert run.outcome["answer"] == "Trip Rome 2026-12-01"
    other = Script([call("remind", on="2026-12-01")])
    app, run = play(outlast_app, "agent-types-2", tool_agent("types-2", other, remind))
    app.clock.skip("1h")
    assert run.outcome["answer"] == "date None"


def test_the_undo_of_a_tool_gets_its_answer_and_arguments(outlast_app: AppFactory) -> None:
    undone: list[tuple[str, int]] = []

    async def book(seats: int) -> str:
        return f"b-{seats}"

    async def unbook(booking: str, seats: int) -> None:
        undone.append((booking, seats))

    model = Script([call("book", seats=2)])
    agent = tool_agent("undoes", model, book, metadata={"outlast": DurableTool(undo=unbook)})
    _, run = play(outlast_app, "agent-undoes", agent)
    run.cancel()
    assert run.status == "cancelled" and undone == [("b-2", 2)]


class Booking(BaseModel):
    kind: str
    seats: int


def test_a_result_that_looks_like_a_record_is_kept_and_undone(outlast_app: AppFactory) -> None:
    undone: list[object] = []

    async def book(seats: int) -> Booking:
        raise TimeoutError

    async def was_booked(seats: int) -> Happened[Booking]:
        return Happened(Booking(kind="tool_failed", seats=seats))

    async def unbook(booking: Booking, seats: int) -> None:
        undone.append(booking)

    model = Script([call("book", seats=2)])
    terms = DurableTool(reconcile=was_booked, undo=unbook)
    app, run = play(outlast_app, "agent-kinds", tool_agent("kinds", model, book, metadata={"outlast": terms}))
    app.clock.skip("1m")
    run.cancel()
    assert run.status == "cancelled" and undone == [Booking(kind="tool_failed", seats=2)]
    (returned,) = model.asked[-1][-1].parts
    assert returned.content == {"kind": "tool_failed", "seats": 2}  # type: ignore[union-attr]


def test_a_lookup_is_a_memo(outlast_app: AppFactory) -> None:
    read: list[str] = []

    async def status(service: str) -> str:
        read.append(service)
        return f"{service} is up ({len(read)})"

    model = Script([call("status", service="api")])
    agent = tool_agent("reads", model, status, metadata={"outlast": {"lookup": True}})
    app, run = play(outlast_app, "agent-reads", agent)
    app.clock.skip("1h")
    assert run.outcome["answer"] == "api is up (1)" and read == ["api"] and effects(app, run) == {}
    assert {m.activity for m in app.rows(run.id).memos} == {"outlast.model", "reads.status"}


def test_two_runs_of_one_agent_and_another_agent_in_a_tool(outlast_app: AppFactory) -> None:
    inner_model, outer_model = Script([call("note", text="a")]), Script([call("delegate", topic="x")])
    noted: list[str] = []

    async def note(text: str) -> str:
        noted.append(text)
        return f"noted {text}"

    inner = tool_agent("inner", inner_model, note)

    async def delegate(topic: str) -> str:
        return (await inner.run(topic)).output

    outer = tool_agent("outer", outer_model, delegate, metadata={"outlast": False})

    async def body(ctx: Context[Case]) -> None:
        both = [(await outer.run("one")).output, (await outer.run("two")).output]
        ctx.state.answer = ", ".join(both)
        await ctx.sleep("1h")

    flow = flow_of("agent-nested", body, [inner, outer])
    app = outlast_app(flow)
    run = app.start(flow, {})
    app.clock.skip("1h")
    assert run.outcome["answer"] == "noted a, noted a" and noted == ["a", "a"]
    assert len(inner_model.asked) == len(outer_model.asked) == 4
    keys = {m.key for m in app.rows(run.id).memos}
    assert keys == {f"{agent}/{n}/{turn}" for agent in ("inner", "outer") for n in (1, 2) for turn in (1, 2)}


def test_outside_of_a_node_the_agent_runs_as_without_the_capability() -> None:
    sent: list[str] = []

    async def mail(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    agent = tool_agent("plain", Script([call("mail", to="ana")]), mail)
    assert asyncio.run(agent.run("?")).output == "sent to ana" and sent == ["ana"]


def test_tools_of_a_toolset_that_is_made_for_each_run(outlast_app: AppFactory) -> None:
    made: list[str] = []

    def toolset(ctx: RunContext[None]) -> FunctionToolset[None]:
        tools = FunctionToolset[None]()

        @tools.tool_plain
        async def build(what: str) -> str:
            made.append(what)
            return f"built {what}"

        @tools.tool_plain
        async def status() -> str:
            return "green"

        return tools

    durability = OutlastDurability[None](tools={"status": DurableTool(lookup=True)})
    model = FunctionModel(Script([call("build", what="api"), call("status", "c2")]))
    agent = Agent(
        model, name="dynamic", capabilities=[durability],
        toolsets=[DynamicToolset(toolset, id="ci")],
    )  # fmt: skip
    app, run = play(outlast_app, "agent-dynamic", agent)
    app.clock.skip("1h")
    assert run.outcome["answer"] == "built api green" and made == ["api"]
    assert effects(app, run) == {"dynamic/build/c1": "dynamic.ci done"}
    assert "dynamic.status" in {memo.activity for memo in app.rows(run.id).memos}


# --- by address ------------------------------------------------------------------------------------
def test_a_call_is_made_by_its_address_alone() -> None:
    """No node runs and no agent has run: a fresh process settles a call of yesterday's."""
    agent = Agent(FunctionModel(Script()), name="later", capabilities=[OutlastDurability()])

    @agent.tool_plain
    async def refund(cents: int) -> str:
        return f"refunded {cents}"

    flow = flow_of("agent-later", lambda ctx: None, [agent]).validate()
    assert set(flow.activities) >= {"later.refund"}
    (args, kwargs) = flow.activity("later.refund").load_args(b'{"cents":7,"tool_call_id":"c1"}')
    assert asyncio.run(_answer(flow.activity("later.refund")(*args, **kwargs))) == "refunded 7"
    elsewhere = flow_of("agent-elsewhere", lambda ctx: None)
    assert elsewhere.activity("later.refund") is flow.activity("later.refund"), "found by its name alone"


async def _answer(awaitable: Any) -> Any:
    return await awaitable


def test_a_call_by_address_makes_the_dependencies_or_says_that_it_cannot() -> None:
    class Deps(BaseModel):
        bank: str

    async def refund(ctx: RunContext[Deps], cents: int) -> str:
        return f"{ctx.deps.bank} {cents}"

    def agent(name: str, durability: OutlastDurability[Deps]) -> Workflow[Case]:
        tools = FunctionToolset[Deps](id="bank")
        tools.add_function(refund)
        made = Agent(FunctionModel(Script()), name=name, deps_type=Deps, toolsets=[tools], capabilities=[durability])
        return flow_of(f"agent-{name}", lambda ctx: None, [made])

    able = agent("able", OutlastDurability(deps=lambda: Deps(bank="b")))
    assert asyncio.run(_answer(able.activity("able.refund")(cents=7, tool_call_id="c1"))) == "b 7"
    unable = agent("unable", OutlastDurability())
    with pytest.raises(NotSent, match="needs dependencies"):
        asyncio.run(_answer(unable.activity("unable.refund")(cents=7, tool_call_id="c1")))


# --- mistakes --------------------------------------------------------------------------------------
def test_mistakes_are_found_when_the_workflow_is_validated() -> None:
    async def refund(cents: int) -> str:
        return ""

    async def other(euros: int) -> str:
        return ""

    def flow(name: str, tool: Any) -> Workflow[Case]:
        return flow_of(
            "agent-wrong", lambda ctx: None, [tool_agent(name, Script(), refund, metadata={"outlast": tool})]
        )

    for name, tool, why in (
        ("Support desk", DurableTool(), "cannot be named so"),
        ("wrong", DurableTool(key="refund/{order}"), "order"),
        ("wrong", {"idempotent": True}, "idempotent"),
        ("wrong", DurableTool(if_uncertain="reconcile"), "reconcile"),
    ):
        with pytest.raises(DefinitionError, match=why):
            flow(name, tool).validate()


@pytest.mark.req("GATE-6", "GATE-7")
def test_a_denial_of_policy_is_an_answer_for_the_model(outlast_app: AppFactory) -> None:
    """It sent the run to attention, although a denied call of an agent is no fault of its node."""
    paid: list[int] = []

    async def pay(cents: int) -> str:
        paid.append(cents)
        return f"paid {cents}"

    model = Script([call("pay", "c1", cents=5), call("pay", "c2", cents=500)])
    agent = tool_agent("denied", model, pay)

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run(ctx.state.question)).output

    def policy(asked: PolicyRequest) -> Allow | Deny:
        cents = asked.arguments["cents"]
        return Allow("small") if isinstance(cents, int) and cents < 100 else Deny("limit", "too much")

    flow = flow_of("agent-denied", body, [agent], policy=policy)
    run = outlast_app(flow).start(flow, {})
    assert (run.status, run.attention, paid) == ("completed", [], [5])
    assert run.outcome["answer"] == "paid 5 refused: policy_denied: limit: too much"

"""The history of a run as steps: what each kind shows, pages, whole texts, and what is left out."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Allow, Context, Deny, NeedsApproval, Workflow, activity, lookup, role
from outlast.agent import ModelAnswer, ScriptedModel, ToolCall, agent_workflow
from outlast.cli.steps_page import step_line
from outlast.core.limits import KIB
from outlast.errors import InvalidInput, NotFound
from outlast.flow import Perhaps, PolicyRequest, Verdict
from outlast.insight.agent_steps import HEAD_CHARS
from outlast.models.steps import Step, StepList
from outlast.testing.virtual_runtime import App, AppFactory, AppRun

SECRET = "sk-abcdefghijklmnop"


@lookup
async def read_log(lines: int) -> str:
    """Read the last lines of the log."""
    return "x" * lines


@activity(key="steps-ticket/{title}", no_undo="a ticket stays")
async def open_ticket(title: str, body: str = "", api_key: str = "") -> dict[str, str]:
    """Open a ticket."""
    return {"id": f"T-{title}"}


@activity(key="steps-restart/{service}", once_per="run", no_undo="a restart cannot be undone")
async def restart(service: str) -> str:
    """Restart a service."""
    raise Perhaps("the connection broke")


def rules(request: PolicyRequest) -> Verdict:
    if request.arguments.get("title") == "forbidden":
        return Deny("no_such_title", f"never, {SECRET}")
    if request.activity == "restart":
        return NeedsApproval("restarts", by=role("sre"))
    return Allow()


def answer(*calls: tuple[str, dict[str, Any]]) -> ModelAnswer:
    made = tuple(ToolCall(id=f"c{n}", tool=tool, arguments=given) for n, (tool, given) in enumerate(calls))
    return ModelAnswer(calls=made, model="scripted-2", input_tokens=10, output_tokens=4)


def steps(app: App, run: AppRun[Any], **filters: Any) -> StepList:
    return app.do(app.runtime.operations.steps(run.id, **filters))


def acts(page: StepList) -> list[Step]:
    """Return the steps of the agent, without those of the course of the run."""
    return [step for step in page.steps if step.kind not in ("start", "wait", "log", "takeover")]


def of(page: StepList, kind: str) -> list[Step]:
    return [step for step in page.steps if step.kind == kind]


def begin(model: ScriptedModel, app_of: AppFactory, **options: Any) -> tuple[App, AppRun[Any]]:
    flow = agent_workflow("agent", model=model, tools=[read_log, open_ticket, restart], policy=rules, **options)
    app = app_of(flow)
    return app, app.start(flow, {"objective": "fix it"})


@pytest.mark.req("OBS-4", "GATE-8")
def test_an_agents_run_is_read_as_five_kinds_of_steps(outlast_app: AppFactory) -> None:
    script = [
        answer(
            ("read_log", {"lines": 2}), ("open_ticket", {"title": "disk"}), ("open_ticket", {"title": "forbidden"}),
            ("format", {}),
        ),
        "done",
    ]  # fmt: skip
    app, run = begin(ScriptedModel(script), outlast_app, approve={"open_ticket": role("lead")})
    (request,) = of(steps(app, run), "approval_request")
    assert (request.status, request.by, request.key, request.ended) == ("pending", "lead", "steps-ticket/disk", None)
    run.approve("it is full", by="ana")
    page = steps(app, run)
    assert [(step.kind, step.status) for step in acts(page)] == [
        ("model_decision", "answered"), ("approval_request", "approved"), ("tool_call", "done"),
        ("approval_response", "approved"), ("tool_call", "done"), ("checkpoint", "saved"),
        ("model_decision", "answered"), ("checkpoint", "completed"),
    ]  # fmt: skip
    decision = acts(page)[0]
    assert [(each.tool, each.outcome, each.code) for each in decision.proposals] == [
        ("read_log", "admitted", ""), ("open_ticket", "admitted", ""), ("open_ticket", "not_admitted", "denied"),
        ("format", "not_admitted", "unknown_tool"),
    ]  # fmt: skip
    assert {each.proposed_by for each in decision.proposals} == {"scripted"}, "who proposed"
    assert decision.proposals[2].reason == "no_such_title: never, [redacted]", "how it was classified"
    assert (decision.model, decision.began, decision.visit, decision.node) == ("scripted-2", None, 1, "step")
    (response,) = of(page, "approval_response")
    assert (response.by, response.detail, response.digest) == ("ana", "it is full", request.digest), "who decided"
    assert json.loads(response.input.text) == {
        "effect": "open_ticket", "key": "steps-ticket/disk", "arguments": {"title": "disk", "body": "", "api_key": ""},
    }, "what exactly"  # fmt: skip
    looked, call = of(page, "tool_call")[:2]
    assert (looked.what, looked.input.text) == ("read_log", '{"lines":2}'), "as the model has proposed it"
    assert (call.what, call.key, call.attempts, call.settled_by) == ("open_ticket", "steps-ticket/disk", 1, "call")
    assert (call.output.text, call.detail, call.approval) == ('{"id":"T-disk"}', "executed", request.approval)
    workers = {event.data()["worker"] for event in app.events(run.id) if event.kind == "run.claimed"}
    assert call.by in workers and call.allowed_by.startswith(f"{request.approval} approved by ana"), "who executed"
    assert [step.visit for step in of(page, "checkpoint")] == [1, 2]
    assert of(page, "checkpoint")[0].detail == "next: step"


@pytest.mark.req("OBS-4")
def test_pages_and_filters_together_give_every_step_once(outlast_app: AppFactory) -> None:
    script = [*(answer(("read_log", {"lines": n}), ("open_ticket", {"title": f"t{n}"})) for n in range(5)), "done"]
    app, run = begin(ScriptedModel(script), outlast_app)
    whole = steps(app, run).steps
    assert len(acts(steps(app, run))) == 6 + 2 * 5 + 6 and len({step.id for step in whole}) == len(whole)
    found: list[Step] = []
    cursor = ""
    while True:
        page = steps(app, run, limit=4, cursor=cursor)
        found += page.steps
        cursor = page.next_cursor
        if not cursor:
            break
    assert found == whole
    assert steps(app, run, kind="checkpoint").steps == [step for step in whole if step.kind == "checkpoint"]
    first = steps(app, run, kind="tool_call", limit=9)
    assert (
        steps(app, run, kind="tool_call", cursor=first.next_cursor).steps
        == [step for step in whole if step.kind == "tool_call"][9:]
    )
    for step in whole:
        assert steps(app, run, step=step.id).steps == [step], step.id


@pytest.mark.req("OBS-4")
def test_a_long_text_is_cut_and_read_whole_by_its_id(outlast_app: AppFactory) -> None:
    given = {"title": "disk", "body": "a" * KIB, "api_key": SECRET}
    app, run = begin(ScriptedModel([answer(("open_ticket", given)), "done"]), outlast_app)
    (call,) = of(steps(app, run), "tool_call")
    assert call.input.cut and len(call.input.text) == HEAD_CHARS and call.input.bytes > KIB
    assert SECRET not in steps(app, run).model_dump_json()
    (whole,) = steps(app, run, step=call.id).steps
    assert not whole.input.cut and "a" * KIB in whole.input.text and SECRET not in whole.model_dump_json()
    assert whole.model_copy(update={"input": call.input, "output": call.output}) == call


@pytest.mark.req("OBS-4", "GATE-8")
def test_an_uncertain_call_shows_how_it_was_settled(outlast_app: AppFactory) -> None:
    app, run = begin(ScriptedModel([answer(("restart", {"service": "db"})), "done"]), outlast_app)
    run.approve(by="ana")
    app.clock.advance("30m")
    (call,) = of(steps(app, run), "tool_call")
    assert (call.status, call.node, call.visit, call.ended) == ("uncertain", "step", 1, None)
    assert call.detail.startswith("UNCERTAIN") and "the connection broke" in call.detail
    run.resolve("steps-restart/db", "happened", response="restarted")
    (call,) = of(steps(app, run), "tool_call")
    assert (call.status, call.settled_by, call.detail) == ("done", "local", "executed (stated by local)")
    assert call.ended is not None and call.output.text == '"restarted"'


class Task(BaseModel):
    title: str = "disk"
    found: str = ""


@pytest.mark.req("OBS-4")
def test_rows_of_the_engine_are_left_out_or_belong_to_a_step(outlast_app: AppFactory) -> None:
    flow = Workflow("task", state=Task, policy=rules)

    @flow.node(start=True)
    async def work(ctx: Context[Task]) -> None:
        ctx.log("began", "a line of the log")
        await ctx.allowed([open_ticket])
        await ctx.sleep("1h")
        verdict = await ctx.check(open_ticket.plan(ctx.state.title), proposed_by="a program")
        if isinstance(verdict, Deny):
            await ctx.do_all([open_ticket.plan(ctx.state.title)], refused="return")

    app = outlast_app(flow)
    run = app.start(flow, Task())
    app.clock.skip("1h")
    page = steps(app, run)
    assert [step.kind for step in acts(page)] == ["checkpoint"]
    (log,), (slept,) = of(page, "log"), [step for step in of(page, "wait") if step.what.startswith("timer")]
    assert (log.what, log.visit) == ("a line of the log", 1)
    assert slept.until is not None and slept.ended is not None and slept.until <= slept.ended
    denied = app.start(flow, Task(title="forbidden"))
    app.clock.skip("1h")
    page = steps(app, denied)
    (call, *_) = acts(page)
    assert (call.kind, call.status) == ("tool_call", "denied")
    assert call.detail == "no_such_title: never, [redacted]"


@pytest.mark.req("OBS-4")
def test_a_denied_proposal_belongs_to_the_answer_of_the_model(outlast_app: AppFactory) -> None:
    """A workflow that asks a model and policy itself, without `admit`."""
    from outlast.agent import Message, ModelRequest, ask

    flow = Workflow("own", state=Task, policy=rules)
    model = ScriptedModel(["open forbidden"])

    @flow.node(start=True)
    async def work(ctx: Context[Task]) -> None:
        await ask(ctx, model, ModelRequest(messages=(Message(role="user", text="what next?"),)))
        await ctx.check(open_ticket.plan("forbidden"), proposed_by="scripted")
        await ctx.check(restart.plan("db"), proposed_by="scripted")

    app = outlast_app(flow)
    (decision,) = of(steps(app, app.start(flow, Task())), "model_decision")
    found = {each.tool: each for each in decision.proposals}
    denied, asked = found.pop("open_ticket"), found.pop("restart")
    assert (denied.outcome, denied.reason) == ("not_admitted", "no_such_title: never, [redacted]")
    assert (asked.outcome, asked.reason, found) == ("needs_approval", "restarts", {})
    assert '"title":"forbidden"' in denied.arguments


@pytest.mark.req("OBS-4", "OUT-4")
@pytest.mark.parametrize(
    ("given", "detail"),
    [
        (ModelAnswer(text="The cause", finish="cut", finish_detail="length"), "cut: length"),
        (ModelAnswer(finish="filtered", finish_detail="SAFETY"), "filtered: SAFETY"),
        (ModelAnswer(finish="refusal", finish_detail="I will not."), "refusal: I will not."),
        (ModelAnswer(text=" "), "empty"),
        (ModelAnswer(text="x" * 300_000), "too_large: it takes 300,"),
        (ModelAnswer(text="done"), ""),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_decision_says_why_its_answer_cannot_be_used(
    outlast_app: AppFactory, given: ModelAnswer, detail: str
) -> None:
    """Each kind is told apart from an answer, in the API and in the line of the command."""
    app, run = begin(ScriptedModel([given] * 2), outlast_app)
    for step in of(steps(app, run), "model_decision"):
        assert step.status == "answered" and step.detail.startswith(detail) and bool(step.detail) is bool(detail)
        assert detail in step_line(step)


@pytest.mark.req("OBS-4")
def test_a_step_that_does_not_exist_is_refused(outlast_app: AppFactory) -> None:
    app, run = begin(ScriptedModel(["done"]), outlast_app)
    operations = app.runtime.operations
    for refused, error in (
        (operations.steps("none"), NotFound),
        (operations.steps(run.id, kind="thought"), InvalidInput),
        (operations.steps(run.id, step="call/9/none"), NotFound),
        (operations.steps(run.id, cursor="none"), InvalidInput),
        (operations.steps(run.id, limit=0), InvalidInput),
    ):
        with pytest.raises(error):
            app.do(refused)


class Item(BaseModel):
    number: str = ""


@activity(key="index/{name}", once_per="tenant", no_undo="an index is harmless")
async def index(name: str) -> str:
    return f"{name}-1"


indexing = Workflow("indexing", state=Item)


@indexing.node(start=True)
async def index_it(ctx: Context[Item]) -> None:
    ctx.state.number = await ctx.do(index, "catalogue")


def test_a_run_that_used_the_call_of_another_run_has_steps(outlast_app: AppFactory) -> None:
    """The memo of the use was read as a verdict of a policy, and the steps of such a run could not be read."""
    app = outlast_app(indexing)
    runs = [app.start(indexing, {}) for _ in range(2)]
    app.clock.skip("1h")
    for run in runs:
        assert run.state.number == "catalogue-1"
        steps = app.do(app.runtime.operations.steps(run.id)).steps
        assert [step.kind for step in steps][-1] == "checkpoint"
        assert not [step for step in steps if step.status == "denied"]

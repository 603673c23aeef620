"""Workflows of agents: decide, admit, act, observe, in a node that returns to itself (GATE-7)."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, Unpack

import httpx2
from pydantic import BaseModel, ConfigDict, JsonValue
from typing_extensions import TypeVar, override

from outlast.agent.model import (
    FINAL,
    Message,
    Model,
    ModelAnswer,
    OfferedTool,
    ToolCall,
    declared_result_by,
    storable,
)
from outlast.agent.model_requests import ask_model
from outlast.agent.prices import has_price
from outlast.agent.proposal import (
    Admission,
    Admitted,
    AlreadyDone,
    ModelQuestion,
    Proposal,
    Rejected,
    Tool,
    admit,
    ask_question,
    by_name,
)
from outlast.agent.provided import NAME, model_of
from outlast.agent.sub_agents import SubAgent, tools_of
from outlast.agent.tool_results import (
    IN_BACKGROUND,
    OFFER,
    READ_RESULT,
    RESULT_CHARS_MAX,
    LargeResult,
    StartedAgent,
    agent_message,
    already_done,
    error_message,
    page,
    read_result,
    result_message,
    text_of_result,
)
from outlast.agent.typed_answers import ALONE, ASK_AGAIN, Flaw, asked_again, read_text
from outlast.core.argument_checks import Arguments
from outlast.core.codec import compact, plain_json
from outlast.core.durations import Term
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.rows.effect_columns import HEAD_CHARS
from outlast.core.rows.run_columns import StatusLabels
from outlast.errors import AnswerNotStored, DefinitionError, LimitExceeded, NotStorable, OutlastError
from outlast.flow.activity import Activity
from outlast.flow.approval_rule import Approvers, rule_of
from outlast.flow.calls import Plan, tool_call
from outlast.flow.child_handle import ChildHandle
from outlast.flow.child_tool import ChildTool
from outlast.flow.context import Context
from outlast.flow.outcomes import ChildFailed, Declared, Fail, Refusal, Refused
from outlast.flow.registry import where_called
from outlast.flow.workflow import Workflow
from outlast.flow.workflow_options import WorkflowOptions
from outlast.telemetry.redact import redact_shown

Out = TypeVar("Out", default=Any)
Result = TypeVar("Result", bound=BaseModel | str, default=str)
"""Text unless `agent_workflow` gets another `result`."""
LABELS: Final = StatusLabels("PLANNING", "WAITING_FOR_TOOL", "WAITING_FOR_APPROVAL")
STEPS_MAX: Final = 100
UNDER_WAY: Final = "agents go on in the background; give the result once you have read theirs"


class AgentTask(BaseModel):
    """Input of an agent's run: the `objective`, and optional `context` as plain data."""

    model_config = ConfigDict(extra="forbid")

    objective: str
    context: JsonValue = None


class AgentState(BaseModel):
    """State of an agent's run.

    - `objective`, `context`: the input.
    - `large`: large results that the model may read on.
    - `started`: agents that go on in the background. `idle`: the model has nothing to do until one of them ends.
    - `result`: the result, once the model has given it.
    - `messages`: the transcript. Nothing is removed from it.
    """

    objective: str
    context: JsonValue = None
    large: list[LargeResult] = []
    started: list[StartedAgent] = []
    idle: bool = False
    result: JsonValue = None
    messages: list[Message] = []


class Agent(NamedTuple):
    """The options of an agent workflow. `result` is None for text."""

    model: Model | str
    tools: tuple[Tool, ...]
    instructions: str
    approve: Mapping[str, Approvers]
    within: Term
    result: type[BaseModel] | None
    settings: Mapping[str, JsonValue]
    stream: bool
    description: str = ""

    def as_used(self) -> "Agent":
        """Return the agent with its tools as it uses them: a write without a declared `once_per` is once per run."""
        return self._replace(tools=tuple(tool.for_agent() for tool in self.tools))

    def models_without_price(self) -> list[str]:
        """Return the name of its model if the price of that is not known."""
        model = (self.model or os.environ.get(NAME, "")) if isinstance(self.model, str) else self.model
        if not model or has_price(model):  # without a name here, the worker that asks it judges
            return []
        return [model if isinstance(model, str) else model.name]

    def built_in(self, state: AgentState) -> list[OfferedTool]:
        """Return the tools of the agent itself that the model may use now."""
        return [OFFER] if state.large else []


class AgentWorkflow(Workflow[AgentState, AgentTask, Out]):
    """A workflow of one node, in which a model decides. Made by `agent_workflow`."""

    def __init__(
        self, name: str, agent: Agent, *, where: str, max_steps: int, options: WorkflowOptions[AgentTask]
    ) -> None:
        self._place: Final = where
        self.agent: Final = agent
        options = {"objective": "{objective}", "when_empty": "complete", **options}
        super().__init__(name, state=AgentState, input=AgentTask, outcome=_result_of, **options)
        self._outcome_type = agent.result or str  # as clients read it; the state holds it as JSON
        self.description = agent.description
        self.node(start=True, status=LABELS, max_visits=max_steps)(_node_of(self))

    @override
    def outcome_of(self, state: AgentState) -> bytes:
        return self._outcome_codec.dump(_result_of(state))

    @override
    def _declared_at(self) -> str:
        return self._place

    @cached_property
    def as_used(self) -> Agent:
        """The agent as its node uses it. The tools are declared completely when it is first used."""
        return self.agent.as_used()

    @override
    def _further_activities(self) -> Sequence[Tool]:
        return (*self.as_used.tools, ask_model)

    @cached_property
    @override
    def writes(self) -> tuple[str, ...]:
        found: set[str] = set()
        for tool in self.agent.tools:
            found.update(tool.workflow.writes if isinstance(tool, ChildTool) else (tool.name,) * (tool.kind == "write"))
        return tuple(sorted(found))

    @override
    def models_without_price(self) -> Sequence[str]:
        return self.agent.models_without_price()


def agent_workflow(
    name: str,
    *,
    result: type[Result] | None = None,
    tools: Sequence[Tool] = (),
    agents: Sequence[Workflow[Any, Any, Any] | SubAgent] = (),
    model: Model | str = "",
    instructions: str = "",
    description: str = "",
    approve: Mapping[str, Approvers] | None = None,
    within: Term = "96h",
    max_steps: int = STEPS_MAX,
    settings: Mapping[str, JsonValue] | None = None,
    stream: bool = False,
    **options: Unpack[WorkflowOptions[AgentTask]],
) -> AgentWorkflow[Result]:
    """Return a workflow in which a model works towards an objective with tools. Its input is an `AgentTask`.

    One step asks the model, admits the calls that it proposes, makes them concurrently and adds their results to the
    transcript. Then a checkpoint is written. A crash repeats no answer of the model and no call.

    - `name`: the stored name.
    - `result`: a pydantic model that the final result must fit (default: the result is text).
    - `tools`: activities and lookups. The docstring of a tool is its description for the model.
    - `agents`: workflows that the model may start as child runs, each under its name. `SubAgent` has further options.
    - `model`: a model or its name (default: `OUTLAST_MODEL`).
    - `instructions`: the system prompt.
    - `description`: what the agent does, for a model of another agent that may start it.
    - `approve`: who must approve each call of a tool or agent, by its name. `within`: the time for that decision.
    - `max_steps`: a further step goes to attention.
    - `settings`: settings of the provider, such as temperature.
    - `stream`: the words of the model go to the listeners of the run as they come.
    - `options`: those of `WorkflowOptions`. The default of `objective` is that of the task. Requests to the model count
      as calls. An agent emits no results, so the default of `when_empty` is "complete".

    Raises DefinitionError.
    """
    where = where_called(1)
    _check_types(where, tools, model, instructions, approve, within, settings, stream, description)
    model_of_result: type[Any] | None = None if result is str else result
    agent = Agent(
        model,
        (*tools, *tools_of(agents, where)),
        instructions,
        dict(approve or {}),
        within,
        model_of_result,
        dict(settings or {}),
        stream,
        description,
    )
    _check(agent, name, where)
    return AgentWorkflow(name, agent, where=where, max_steps=max_steps, options=options)


def _check_types(
    where: str,
    tools: Any,
    model: Any,
    instructions: Any,
    approve: Any,
    within: Any,
    settings: Any,
    stream: Any,
    description: Any,
) -> None:
    """Raise DefinitionError for an option of another type."""
    check = Arguments("agent_workflow", where)
    check.members("tools", tools, Activity, "list activities and lookups: tools=[read_log, restart]")
    check.is_text("instructions", instructions, 'instructions="Answer in one sentence."')
    check.is_text("description", description, 'description="Finds prices of metals."')
    check.mapping("approve", approve, 'approve={"restart": role("sre")}')
    for tool, by in (approve or {}).items():
        rule_of(f"approve= for {tool}", by)
    check.term("within", within)
    check.mapping("settings", settings, 'settings={"temperature": 0}')
    check.flag("stream", stream)
    if not isinstance(model, str) and not callable(getattr(model, "request", None)):
        raise check.wrong("model", model, "it is a model, or the name of one", 'model="openai:gpt-5"')


def _check(agent: Agent, name: str, where: str) -> None:
    def wrong(why: str, reason: str, fix: str) -> DefinitionError:
        return DefinitionError(f'agent workflow "{name}" {why}', reason, fix, where=where)

    kinds = by_name(agent.tools)
    result: object = agent.result  # a caller without a type checker may pass anything
    if result is not None and not (isinstance(result, type) and issubclass(result, BaseModel)):
        raise wrong(f"has result={result!r}", "a result is text or a pydantic model", "wrap it in a model")
    if reserved := kinds.keys() & {FINAL, READ_RESULT}:
        raise wrong(f"has a tool named {min(reserved)}", "the agent itself has one of this name", "rename the tool")
    for tool in agent.approve:
        if tool not in kinds:
            raise wrong(f"has approve= for {tool}", "it is none of the tools", f"name one of {', '.join(kinds)}")
        if kinds[tool].kind == "lookup":
            raise wrong(f"has approve= for {tool}", "a lookup changes nothing", "remove it, or make it an activity")


def _result_of(state: AgentState) -> Any:
    return state.result


def _node_of(workflow: AgentWorkflow[Any]) -> Any:
    async def step(ctx: Context[AgentState]) -> Literal["step"] | None:
        return await take_step(ctx, workflow.as_used)

    return step


# --- one step ---------------------------------------------------------------------------------------
async def take_step(ctx: Context[AgentState], agent: Agent) -> Literal["step"] | None:
    """Take one step of an agent: decide, admit, act, observe. Returns None if the model has given its result.

    Raises Fail for an answer that the provider filtered, the model refused, or that is empty twice;
    AnswerCut for one that is cut twice.
    """
    state = ctx.state
    if not state.messages:
        state.messages.append(Message(role="user", text=_opening(state)))
    if state.started:
        state.messages += await _ends(ctx, agent)
    built_in = agent.built_in(state)
    proposal = await _ask(ctx, agent, built_in)
    if proposal.answer.end in ASK_AGAIN:
        state.messages += asked_again(proposal.answer)
        proposal = await _ask(ctx, agent, built_in)
    _check_end(proposal)
    calls = proposal.answer.calls
    state.messages.append(proposal.message)
    if not calls:
        return _conclude(state, agent, proposal.answer.text, None)
    if agent.result is not None and len(calls) == 1 and calls[0].tool == FINAL:
        given = calls[0].arguments
        return _conclude(state, agent, given if isinstance(given, str) else compact(given), calls[0])
    own = {tool.name for tool in built_in} | ({FINAL} if agent.result is not None else set())
    state.messages += await _act(ctx, agent, proposal, own)
    return "step"


async def _ask(ctx: Context[AgentState], agent: Agent, built_in: Sequence[OfferedTool]) -> Proposal:
    return await ask_question(
        ctx,
        ModelQuestion(
            agent.model,
            ctx.state.messages,
            agent.tools,
            agent.instructions,
            agent.settings,
            built_in,
            agent.stream,
            agent.result,
        ),
    )


class AnswerCut(OutlastError):
    """The model was asked again, and its answer was cut again. `head` is its beginning."""

    def __init__(self, name: str, answer: ModelAnswer) -> None:
        self.head = answer.text[:HEAD_CHARS]
        why = f"{answer.finish_detail}; it begins with: {self.head}" if self.head else answer.finish_detail
        fix = (
            'raise the limit, e.g. settings={"max_tokens": 8000}, continue, and accept the new request (node_diverged)'
        )
        super().__init__(f"the answer of {name} was cut, and cut again when it was asked once more", why, fix)


def _check_end(proposal: Proposal) -> None:
    """Raise Fail or AnswerCut for an answer that the agent cannot use."""
    answer, name = proposal.answer, proposal.proposed_by
    if answer.end == "refusal":
        raise Fail(f"{name} refused: {answer.finish_detail or answer.text[:HEAD_CHARS]}")
    if answer.end == "filtered":
        words = f"{answer.finish_detail} {answer.text[:HEAD_CHARS]}".strip()
        raise Fail(f"the provider of {name} filtered the answer: {words}")
    if answer.end == "empty":
        raise Fail(f"the answer of {name} was empty, and empty again when it was asked once more")
    if answer.end in ASK_AGAIN:
        raise AnswerCut(name, answer)


def _opening(state: AgentState) -> str:
    if state.context is None:
        return state.objective
    return f"{state.objective}\n\nContext:\n{compact(state.context)}"


def _conclude(state: AgentState, agent: Agent, given: str, call: ToolCall | None) -> Literal["step"] | None:
    """Store the result if it fits its type; otherwise tell the model why it does not.

    While agents go on in the background, the answer is none yet: the model reads their results first.
    """
    if state.started:
        state.idle = True
        if call is not None:
            state.messages.append(error_message(call, "under_way", UNDER_WAY))
        return "step"
    if agent.result is None:
        state.result = given
        return None
    read = read_text(agent.result, given)
    if isinstance(read, Flaw):
        by = declared_result_by(model_of(agent.model))
        way = f"give it with {FINAL}" if by == "tool" else "give it as one JSON object"
        why = f"the result does not fit; {way}. {read.summary}"[:TEXT_CHARS_MAX]
        message = error_message(call, "invalid_result", why) if call is not None else Message(role="user", text=why)
        state.messages.append(message)
        return "step"
    state.result = plain_json(read)
    return None


async def _ends(ctx: Context[AgentState], agent: Agent) -> list[Message]:
    """Return a message for each agent that has ended in the background, in the order of their ends."""
    state, tools = ctx.state, by_name(agent.tools)
    living = {each.key: each for each in state.started}
    messages: list[Message] = []
    for child in await ctx.ended([ctx.child(key) for key in living], wait=state.idle):
        started = living.pop(child.key)
        try:
            response = await child.result()
        except ChildFailed as failed:
            error: JsonValue = {"code": failed.code, "reason": redact_shown(str(failed))[:TEXT_CHARS_MAX]}
            messages.append(agent_message(started, error=error))
            continue
        text = text_of_result(tools[started.agent], response)
        if len(text) > RESULT_CHARS_MAX:
            large = started.as_large(f"{ctx.visit}-{len(messages)}-ended")
            state.large.append(large)
            response = json.loads(page(large.handle, text, 0))
        elif not isinstance(response, str):
            response = json.loads(text)
        messages.append(agent_message(started, result=response))
    state.started, state.idle = list(living.values()), False
    return messages


class _Made(NamedTuple):
    """The end of one admitted call: its response, or why it has no response.

    `notice`: it was done before. `started`: the agent goes on in the background.
    """

    plan: Plan[Any]
    visit: int
    response: Any = None
    code: str = ""
    reason: str = ""
    notice: str = ""
    started: StartedAgent | None = None


async def _act(ctx: Context[AgentState], agent: Agent, proposal: Proposal, built_in: set[str]) -> list[Message]:
    """Make the admitted calls concurrently, and return the messages with the results of all calls in order."""
    tools = by_name(agent.tools)
    calls = proposal.answer.calls
    decided = await admit(ctx, proposal.only([call for call in calls if call.tool not in built_in]))
    distinct = {each.plan.digest: each for each in reversed(decided) if isinstance(each, Admitted)}
    ends = await asyncio.gather(*(_make(ctx, agent, tools[each.plan.activity], each) for each in distinct.values()))
    made = dict(zip(distinct, ends, strict=True))
    left = iter(decided)
    messages: list[Message] = []
    for n, call in enumerate(calls):
        if call.tool == READ_RESULT and call.tool in built_in:
            messages.append(await read_result(ctx, ctx.state.large, tools, call))
        elif call.tool in built_in:
            messages.append(error_message(call, "not_now", ALONE))
        else:
            messages.append(_observed(ctx, tools, f"{ctx.visit}-{n}", next(left), made))
    return messages


async def _make(ctx: Context[AgentState], agent: Agent, tool: Tool, admitted: Admitted) -> _Made:
    """Make one call, after its approval if one is required. Runs in a task for this call."""
    plan = admitted.plan
    tool_call.set(admitted.call.id)
    visit = ctx.visit if tool.once_per == "visit" else 0
    if (rule := agent.approve.get(tool.name)) is not None:
        decision = await ctx.approval(
            plan,
            summary=f"{tool.name} {plan.arguments.decode()}"[:TEXT_CHARS_MAX],
            by=rule,
            within=agent.within,
            name=f"{tool.name}.{plan.digest[:12]}",
        )
        if decision.chosen is None:
            return _Made(plan, visit, code="approval_rejected", reason=f"{decision.by}: {decision.reason}")
        plan = decision.chosen
    if isinstance(tool, ChildTool):
        return await _delegate(ctx, tool, plan)
    try:
        [answer] = await ctx.do_all([plan], refused="return", proposed=True)
    except AnswerNotStored as error:
        return _unstored(plan, visit, error)
    except Exception as error:  # of the author's lookup, whatever it is: a lookup changes nothing
        if tool.kind == "write":  # it is the error of a policy: calls of activities raise nothing else
            raise
        return _Made(plan, visit, code=_code_of(error), reason=_reason_of(error))
    if isinstance(answer, Refusal):
        return _Made(plan, visit, code=answer.code, reason=answer.detail)
    return _Made(plan, visit, response=answer)


async def _delegate(ctx: Context[AgentState], tool: ChildTool, plan: Plan[Any]) -> _Made:
    """Start an agent. Wait for its end, unless it goes on in the background. A failure is an answer for the model."""
    visit = ctx.visit
    try:
        answer = await ctx.do(plan, proposed=True)
        if not tool.background:
            return _Made(plan, visit, response=answer)
        child: ChildHandle[Any] = answer
        started = StartedAgent(agent=tool.name, key=plan.key, digest=plan.digest, visit=visit, run=child.run_id)
        return _Made(plan, visit, started=started)
    except ChildFailed as error:
        return _Made(plan, visit, code=error.code, reason=redact_shown(str(error))[:TEXT_CHARS_MAX])
    except Refused as error:
        return _Made(plan, visit, code=error.code, reason=error.detail)
    except LimitExceeded as error:
        return _Made(plan, visit, code="limit_exceeded", reason=f"{error.what}: {error.why}"[:TEXT_CHARS_MAX])


def _unstored(plan: Plan[Any], visit: int, error: AnswerNotStored) -> _Made:
    """Return the end of a call that was done, and whose answer cannot be stored."""
    reason = f"{plan.key} was done, and its answer is missing: {error.why}; it begins with: {error.head}"
    return _Made(plan, visit, code="answer_not_stored", reason=reason[:TEXT_CHARS_MAX])


def _code_of(error: Exception) -> str:
    """Return the code that tells a model why a lookup has no answer."""
    if isinstance(error, LimitExceeded):
        return "too_large"
    if isinstance(error, NotStorable):
        return "not_storable"
    answered = isinstance(error, OSError | httpx2.HTTPError | httpx2.InvalidURL | Declared)
    return "no_answer" if answered else "raised"


def _reason_of(error: Exception) -> str:
    """Return the reason for a model: it may contain no secret, and has a limit."""
    if isinstance(error, LimitExceeded | NotStorable):
        return redact_shown(f"{error.what}: {error.why}")[:TEXT_CHARS_MAX]
    return redact_shown(storable(f"{type(error).__name__}: {error}"))[:TEXT_CHARS_MAX]


def _observed(
    ctx: Context[AgentState], tools: Mapping[str, Tool], handle: str, decided: Admission, made: Mapping[str, _Made]
) -> Message:
    """Return the message with the result of one call. A large result gets a handle."""
    if isinstance(decided, Rejected):
        return error_message(decided.call, decided.code, decided.reason)
    end = made[decided.plan.digest] if isinstance(decided, Admitted) else None
    if isinstance(decided, AlreadyDone):
        if decided.unstored is not None:
            reason = f"{decided.told}. Its answer is missing: {decided.unstored.why}"
            return error_message(decided.call, "already_done", reason[:TEXT_CHARS_MAX])
        end = _Made(decided.plan, decided.visit, response=decided.response, notice=decided.told)
    assert end is not None
    if end.code:
        return error_message(decided.call, end.code, end.reason)
    if end.started is not None:
        if end.started not in ctx.state.started:
            ctx.state.started.append(end.started)
        return result_message(decided.call, compact({"started": end.started.run, "note": IN_BACKGROUND}))
    text = text_of_result(tools[end.plan.activity], end.response)
    if end.notice:
        text = already_done(end.notice, end.response, text)
    if len(text) > RESULT_CHARS_MAX:
        large = LargeResult(
            handle=handle, activity=end.plan.activity, key=end.plan.key, digest=end.plan.digest, visit=end.visit
        )
        ctx.state.large.append(large)
        text = page(handle, text, 0)
    return result_message(decided.call, text)

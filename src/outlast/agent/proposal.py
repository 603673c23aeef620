"""Proposals of a model, and the questions that decide whether one becomes a call (GATE-7)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias, overload

from pydantic import BaseModel, JsonValue

from outlast.agent.model import (
    FINAL,
    Message,
    Model,
    ModelAnswer,
    ModelRequest,
    OfferedTool,
    ToolCall,
    declared_result_by,
)
from outlast.agent.model_requests import ask
from outlast.agent.provided import model_of
from outlast.agent.typed_answers import (
    Flaw,
    M,
    TypedAnswer,
    check_result_type,
    correction,
    judged,
    refused,
    with_result,
)
from outlast.core.argument_checks import Arguments
from outlast.core.codec import canonical, canonical_plain, digest
from outlast.core.keys import ADMISSION
from outlast.errors import AnswerNotStored, DefinitionError, InvalidInput, LimitExceeded, NotStorable
from outlast.flow.activity import Activity, KeyedLookup
from outlast.flow.calls import Plan, RecordedCall
from outlast.flow.context import Context
from outlast.flow.policy import Deny, NeedsApproval

Tool: TypeAlias = Activity[..., Any]
"""An activity or a lookup. Its docstring tells the model what it does."""

ARGUMENTS_SHOWN: Final = 500
"""Characters of refused arguments in the history."""
REASON_CHARS: Final = 1_000
CALLS_PER_ANSWER_MAX: Final = 50
REFUSALS_LOGGED_MAX: Final = 10
"""Refusals of one visit with an entry in the history; all of them have a memo."""

Code = Literal[
    "unknown_tool",
    "not_offered",
    "invalid_arguments",
    "too_many_calls",
    "other_visit",
    "unfinished_answer",
    "conflict",
    "under_way",
    "denied",
]


@dataclass(frozen=True)
class Proposal:
    """The answer of a model in one visit, and the tools that it was offered.

    - `answer`: its words and the calls that it asks for. Nothing of it has happened.
    - `proposed_by`: the name of the model, for policy and history.
    - `run_id`, `visit`: the visit for which it was made. It is refused anywhere else.
    - `offered`, `withheld`: tools by name; the latter exist, and policy does not offer them.
    - `before`: an earlier answer that does not fit the type, and the correction.
    """

    answer: ModelAnswer
    proposed_by: str
    run_id: str
    visit: int
    offered: Mapping[str, Tool]
    withheld: frozenset[str] = frozenset()
    before: tuple[Message, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages with which a transcript goes on. The results of the calls follow them."""
        return (*self.before, self.message)

    @property
    def message(self) -> Message:
        """The answer as a message of the transcript."""
        return self.answer.message

    def only(self, calls: Sequence[ToolCall]) -> "Proposal":
        """Return the proposal with these of its `calls`."""
        return replace(self, answer=self.answer.model_copy(update={"calls": tuple(calls)}))


@dataclass(frozen=True)
class Admitted:
    """A `call` that may be made, as its `plan`: `ctx.do(plan, proposed=True)`, or first `ctx.approval(plan, …)`.

    `approval` is the verdict of a policy that demands one. `ctx.do` asks for it by itself.
    """

    call: ToolCall
    plan: Plan[Any]
    approval: NeedsApproval | None = None


@dataclass(frozen=True)
class Rejected:
    """A `call` that is not made: a `code` for programs and a `reason` for the model."""

    call: ToolCall
    code: Code
    reason: str


@dataclass(frozen=True)
class AlreadyDone:
    """A `call` that this run has made before as exactly this `plan`, and its recorded `response`. It is not made again.

    - `visit`: the visit of its row; 0 for a call once per run.
    - `made_in`: the visit in which it was made; 0 if that is not known.
    - `unstored`: why it has no response, if its answer could not be stored.
    """

    call: ToolCall
    plan: Plan[Any]
    visit: int
    response: Any
    made_in: int = 0
    unstored: AnswerNotStored | None = None

    @property
    def told(self) -> str:
        """The sentence that tells a model that nothing happened now."""
        step = f" in step {self.made_in}" if self.made_in else " in an earlier step"
        return f"{self.plan.key} was already done{step}; it was not done again"


Admission: TypeAlias = Admitted | Rejected | AlreadyDone


class ModelQuestion(NamedTuple):
    """A request of a node to a model. The fields are the arguments of `propose`; `result`: without it, words."""

    model: Model | str
    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    about: str = ""
    settings: Mapping[str, JsonValue] | None = None
    built_in: Sequence[OfferedTool] = ()
    stream: bool = False
    result: type[BaseModel] | None = None


@overload
async def propose(
    ctx: Context[Any],
    model: Model | str,
    messages: Sequence[Message],
    *,
    result: type[M],
    about: str = "",
    settings: Mapping[str, JsonValue] | None = None,
    stream: bool = False,
) -> TypedAnswer[M]: ...
@overload
async def propose(
    ctx: Context[Any],
    model: Model | str,
    messages: Sequence[Message],
    *,
    result: type[M],
    tools: Sequence[Tool] = (),
    about: str = "",
    settings: Mapping[str, JsonValue] | None = None,
    built_in: Sequence[OfferedTool] = (),
    stream: bool = False,
) -> TypedAnswer[M] | Proposal: ...
@overload
async def propose(
    ctx: Context[Any],
    model: Model | str,
    messages: Sequence[Message],
    *,
    tools: Sequence[Tool] = (),
    about: str = "",
    settings: Mapping[str, JsonValue] | None = None,
    built_in: Sequence[OfferedTool] = (),
    stream: bool = False,
) -> Proposal: ...
async def propose(
    ctx: Context[Any],
    model: Model | str,
    messages: Sequence[Message],
    *,
    result: type[BaseModel] | None = None,
    tools: Sequence[Tool] = (),
    about: str = "",
    settings: Mapping[str, JsonValue] | None = None,
    built_in: Sequence[OfferedTool] = (),
    stream: bool = False,
) -> TypedAnswer[Any] | Proposal:
    """Ask a `model` what to do next in the node of `ctx`. The answer is stored before the proposal is returned.

    - `messages`: the transcript so far.
    - `result`: a pydantic model that the answer must fit. Its `result_by` says how a request has the type.
    - `tools`: activities and lookups. Those that policy withholds are not offered.
    - `about`: instructions for the model.
    - `settings`: settings of the provider, such as temperature.
    - `built_in`: further tools that the caller itself handles.
    - `stream`: the words of the answer go to the listeners of the run as they come.

    With `result`, an answer that does not fit, or that is cut or empty, is asked for once more with its problems as
    data. The value comes as a `TypedAnswer`. A model that has tools may ask for calls instead: that is a `Proposal`.

    Raises DefinitionError if two tools have one name, and the errors of the model. With `result`, it raises Refused:
    `answer_invalid`, `answer_cut` or `answer_empty` after the second answer, `answer_filtered` or `answer_refused`.
    """
    question = ModelQuestion(model, messages, tools, about, settings, built_in, stream, result)
    if result is None:
        return await ask_question(ctx, question)
    check_result_type("propose", result)
    by_name(tools, reserved=(FINAL,))
    return await _typed(ctx, question, result)


async def ask_question(ctx: Context[Any], question: ModelQuestion) -> Proposal:
    """Make the request of a question. With a `result`, it tells the model the type, and reads no answer."""
    named = by_name(question.tools)
    asked = model_of(question.model)
    allowed = {tool.name: tool for tool in await ctx.allowed(list(named.values()))} if named else {}
    request = ModelRequest(
        messages=tuple(question.messages),
        tools=(*(offer_of(tool) for tool in allowed.values()), *question.built_in),
        instructions=question.about,
        settings=dict(question.settings or {}),
    )
    if question.result is not None:
        request = with_result(request, question.result, declared_result_by(asked))
    answer = await ask(ctx, asked, request, stream=question.stream)
    return Proposal(answer, asked.name, ctx.run_id, ctx.visit, allowed, frozenset(named.keys() - allowed.keys()))


async def _typed(ctx: Context[Any], question: ModelQuestion, kind: type[M]) -> TypedAnswer[M] | Proposal:
    """Ask for a value of a type, and once more if the answer has none. Each answer has a memo."""
    may_call, before = bool(question.tools or question.built_in), tuple[Message, ...]()
    proposal = await ask_question(ctx, question)
    decided = judged(kind, proposal.answer, may_call=may_call)
    if isinstance(decided, Flaw) and decided.again:
        before = correction(proposal.answer, decided)
        proposal = await ask_question(ctx, question._replace(messages=(*question.messages, *before)))
        decided = judged(kind, proposal.answer, may_call=may_call)
    if isinstance(decided, Flaw):
        raise refused(proposal.proposed_by, proposal.answer, decided)
    if decided is None:
        return replace(proposal, before=before)
    return TypedAnswer(decided, proposal.answer, proposal.proposed_by, before)


def by_name(tools: Sequence[Tool], *, reserved: Sequence[str] = ()) -> dict[str, Tool]:
    """Return tools by name. Raises DefinitionError if two have one name, or one has a `reserved` name."""
    found: dict[str, Tool] = {}
    for tool in Arguments("propose").members("tools", tools, Activity, "list activities and lookups: tools=[restart]"):
        if found.setdefault(tool.name, tool) is not tool:
            raise DefinitionError(
                f'two tools have the name "{tool.name}"',
                f"at {found[tool.name].where} and {tool.where}; a model chooses by name",
                'give one of them another name, e.g. name="mail.send"',
                where=tool.where,
            )
    if taken := found.keys() & set(reserved):
        tool = found[min(taken)]
        what = f'a tool has the name "{tool.name}"'
        raise DefinitionError(what, "the result has one of this name", "rename the tool", where=tool.where)
    return found


@lru_cache(maxsize=1_024)  # because pydantic takes 0.4 ms for the schema, and a step offers each tool
def offer_of(tool: Tool) -> OfferedTool:
    """Return a tool as a model sees it."""
    lines = (tool.__doc__ or "").strip().splitlines()
    return OfferedTool(
        name=tool.name,
        description="\n".join(line.strip() for line in lines),
        parameters=tool.schema_for_caller(),
    )


async def admit(ctx: Context[Any], proposal: Proposal) -> list[Admission]:
    """Return for each call of a `proposal`, in order, whether the node of `ctx` may make it.

    The questions, in this order: does the tool exist and was it offered, do the arguments fit and are they complete, is
    the proposal of this visit, did the answer end as the model meant, has this run made exactly this call, does it
    contradict another call, does policy allow it. Each outcome is recorded, so every re-run gets the same one. A
    refusal is also an entry in the history.
    """
    gate = _Gate(ctx, proposal)
    return [await gate.admit(n, call) for n, call in enumerate(proposal.answer.calls)]


class _Gate:
    """The decisions about the calls of one proposal."""

    def __init__(self, ctx: Context[Any], proposal: Proposal) -> None:
        self._ctx = ctx
        self._proposal = proposal
        self._answer = _digest(proposal.answer)
        self._admitted: dict[tuple[str, str], str] = {}  # tool and key → digest of the call of this proposal
        self._refusals = 0

    async def admit(self, n: int, call: ToolCall) -> Admission:
        """Return the recorded outcome of a call, or decide and record it."""
        decided, plan = await self._decide(n, call)
        outcome = {
            "outcome": _WORDS[type(decided)],
            "tool": call.tool,
            "proposed_by": self._proposal.proposed_by,
            "code": decided.code if isinstance(decided, Rejected) else "",
            "reason": decided.reason if isinstance(decided, Rejected) else "",
            "arguments": head_of(call.arguments),
        }
        kept = await self._ctx.do(record_admission, f"{self._answer}/{n}", outcome)
        if kept["outcome"] == _WORDS[Rejected]:
            decided = Rejected(call, kept["code"], kept["reason"])
            self._log(n, kept)
        elif kept["outcome"] == _WORDS[Admitted] and plan is not None and not isinstance(decided, Admitted):
            # An earlier execution of this visit has made the call since, perhaps as an approver changed it.
            verdict = await self._ctx.check(plan, proposed_by=self._proposal.proposed_by)
            decided = Admitted(call, plan, verdict if isinstance(verdict, NeedsApproval) else None)
        if isinstance(decided, Admitted):
            self._admitted[call.tool, decided.plan.key] = decided.plan.digest
        return decided

    async def _decide(self, n: int, call: ToolCall) -> tuple[Admission, Plan[Any] | None]:
        """Return the outcome, and the plan if the call can be one."""
        tool = self._proposal.offered.get(call.tool)
        if tool is None and call.tool in self._proposal.withheld:
            return Rejected(call, "not_offered", f"policy does not allow {call.tool} here"), None
        if tool is None:
            return Rejected(call, "unknown_tool", f"there is no tool {call.tool[:100]!r}"), None
        if n >= CALLS_PER_ANSWER_MAX:
            return Rejected(call, "too_many_calls", f"one answer may ask for {CALLS_PER_ANSWER_MAX} calls"), None
        if isinstance(call.arguments, str):
            return Rejected(call, "invalid_arguments", "the arguments are not a JSON object"), None
        try:
            plan: Plan[Any] = tool.parse(canonical(call.arguments))
        except (InvalidInput, NotStorable, LimitExceeded) as error:
            return Rejected(call, "invalid_arguments", f"{error.what}: {error.why}"[:REASON_CHARS]), None
        if (self._proposal.run_id, self._proposal.visit) != (self._ctx.run_id, self._ctx.visit):
            made = f"visit {self._proposal.visit} of run {self._proposal.run_id}"
            return Rejected(call, "other_visit", f"it was proposed for {made}, and facts may have changed"), None
        if (end := self._proposal.answer.end) != "tool_calls":
            return Rejected(call, "unfinished_answer", f"the answer is {end}, so none of its calls is made"), None
        return await self._decide_plan(call, tool, plan), plan

    async def _decide_plan(self, call: ToolCall, tool: Tool, plan: Plan[Any]) -> Admission:
        before = await self._ctx.recorded(plan)
        per_visit = tool.once_per == "visit"
        if tool.kind == "write" and (done := _done(before, self._ctx.visit)) is not None:
            return AlreadyDone(call, plan, done.visit, done.response, done.made_in, done.unstored)
        if open_ := [each for each in before if each.same and each.under_way and each.visit != self._ctx.visit]:
            reason = f"{plan.key} was started in step {open_[-1].made_in} and has not ended; it was not started again"
            return Rejected(call, "under_way", reason)
        admitted = self._admitted.get((tool.name, plan.key), plan.digest) != plan.digest
        others = [each for each in before if not each.same and (each.visit == self._ctx.visit or not per_visit)]
        if admitted or others:
            step = f" in step {others[-1].made_in}" if others and others[-1].made_in else ""
            reason = f"{tool.name} was called as {plan.key} with other arguments{step}; a key is used once"
            return Rejected(call, "conflict", f"{reason}, so nothing was done now")
        verdict = await self._ctx.check(plan, proposed_by=self._proposal.proposed_by)
        if isinstance(verdict, Deny):
            return Rejected(call, "denied", f"{verdict.rule}: {verdict.detail}" if verdict.detail else verdict.rule)
        return Admitted(call, plan, verdict if isinstance(verdict, NeedsApproval) else None)

    def _log(self, n: int, kept: dict[str, Any]) -> None:
        """Add a refusal to the history. Policy adds its denials itself."""
        if kept["code"] == "denied" or self._refusals >= REFUSALS_LOGGED_MAX:
            return
        self._refusals += 1
        text = f"{kept['tool'][:100]}: {kept['code']}: {kept['reason']}"
        data = {name: kept[name] for name in ("proposed_by", "code", "arguments")}
        self._ctx.log(f"refused/{self._answer[:8]}/{n}", text, tool=kept["tool"][:100], **data)


def _done(before: list[RecordedCall[Any]], visit: int) -> RecordedCall[Any] | None:
    """Return the latest call of another visit than `visit` that was exactly this one and is done."""
    return next((each for each in reversed(before) if each.same and each.done and each.visit != visit), None)


def _digest(answer: ModelAnswer) -> str:
    """Return the digest under which the admissions of an answer are recorded. Later fields of answers are left out."""
    fields = answer.model_dump(mode="json", include={"text", "calls", "model", "input_tokens", "output_tokens"})
    return digest(canonical_plain({**fields, "money": answer.money or 0.0}))[:32]


_WORDS: Final[Mapping[type, str]] = {Admitted: "admitted", Rejected: "not_admitted", AlreadyDone: "already_done"}


def head_of(arguments: Mapping[str, JsonValue] | str) -> str:
    """Return the beginning of a call's arguments, for the history."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=True)
    return text.encode(errors="replace").decode()[:ARGUMENTS_SHOWN]


async def _record(key: str, outcome: Any) -> dict[str, Any]:
    """Return the outcome, which the ledger keeps."""
    return dict(outcome)


record_admission: Final = KeyedLookup(_record, name=ADMISSION, durable=False)

"""One visit to one node for unit tests: activities are answered in memory, waits by a script, and time passes at once.

There is no second context that could differ from the real one. The engine executes the node over rows in memory,
with a caller that answers instead of calling, so every misuse is rejected as in production.
"""

import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel
from typing_extensions import override

from outlast.core.attributes import NO_ATTRIBUTES
from outlast.core.crash_points import point
from outlast.core.events import EventType
from outlast.core.keys import ADMISSION
from outlast.core.machine import ApprovalStatus, Reason, WaitStatus
from outlast.core.rows.effect_rows import Wait
from outlast.core.rows.run_rows import is_over
from outlast.engine.attempts import ActivityCaller, CallAttempt, PendingCall
from outlast.engine.thread_pool import DaemonPool
from outlast.errors import InvalidInput, NotFound
from outlast.flow.activity import Activity
from outlast.flow.context import Context
from outlast.flow.function_workflow import FunctionWorkflow
from outlast.flow.node import Node
from outlast.flow.workflow import Beginning, Workflow
from outlast.models import milliseconds
from outlast.store.port import RunRows
from outlast.testing.answers import Decide, PendingQuestion, ScriptedAnswer, answer_of, asked_plans, no_answer
from outlast.testing.crash_values import CheckFailed
from outlast.testing.virtual_runtime import App, AppRun

S = TypeVar("S", bound=BaseModel)
Answers = Mapping[Activity[..., Any] | str, Any]
ROUNDS_MAX: Final = 100
ELSEWHERE: Final = "outlast.testing.elsewhere"


@dataclass(frozen=True)
class ActivityCall:
    """A call of the node: an activity, its rendered key, and its arguments by name."""

    activity: str
    key: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class NodeResult(Generic[S]):
    """Result of one visit to a node."""

    next: str | None
    """The next node; None if the run ended or still waits."""
    state: S
    """The state after the visit; the state at entry while the node waits."""
    status: str
    """Status of the run after the visit."""
    reason: str
    """Reason of `Fail` or `Cancel`."""
    called: tuple[ActivityCall, ...]
    """The calls in order. A call that the ledger answered a second time appears once."""
    log: tuple[str, ...]
    """Texts of `ctx.log`."""
    asked: tuple[PendingQuestion, ...]
    """The questions that `decide` got, each once."""
    waiting_for: tuple[str, ...]
    """Items that the node still waits for, each as «kind what»."""
    attention: tuple[str, ...]
    """Reasons why the run requires attention."""
    outcome: Any = None
    """Outcome of the run, as stored, if the visit completed it."""


def node(
    fn: Callable[[Context[S]], Awaitable[Any]] | FunctionWorkflow[..., Any],
    state: S,
    *,
    answers: Answers | None = None,
    decide: Decide = no_answer,
    workflow: Workflow[S, Any, Any] | None = None,
) -> NodeResult[S]:
    """Execute one visit to the node `fn` with this `state`, and return the result.

    `workflow` is needed only if the module of the node does not name it. `answers` has a value for each activity (the
    activity, its name, or one rendered key): its return value, a function of its arguments, or an exception to raise
    (`Refused("…")`, `RetryLater()`). `decide` answers approvals, signals and attention as in `every_crash`. Sleeps end
    at once, and so do deadlines of signals that `decide` does not send.

    A workflow of one function is its own node, its arguments are the state: `node(refund, refund.arguments("A-1"))`.

    Raises every exception of the node's code except `Fail` and `Cancel`, which end the run. Raises LookupError if an
    activity has no answer.
    """
    if isinstance(fn, FunctionWorkflow):
        workflow, fn = fn, fn.start.fn
    home = workflow if workflow is not None else _home(fn)
    shadow = _Alone.of(home.validate(), fn, state)
    app = App((shadow,))
    try:
        caller = _Answering(app, answers or {})
        run = app.start(shadow, {})
        asked = _to_its_end(app, run, decide, caller)
        if caller.unanswered:
            raise LookupError(caller.unanswered)
        if shadow.raised is not None and Reason.EXCEPTION.value in run.attention:
            raise shadow.raised
        return _node_result(app, run, home, caller, asked)
    finally:
        app.close()


def _home(fn: Any) -> Workflow[Any]:
    for value in getattr(fn, "__globals__", {}).values():
        if isinstance(value, Workflow) and any(node.fn is fn for node in value.nodes.values()):
            return value
    raise NotFound(
        f"{getattr(fn, '__name__', fn)} is no node of a workflow that its module names",
        "a node is found beside its workflow",
        "say workflow=…",
    )


class _Alone(Workflow[Any]):
    """A workflow that starts at one node and stops at every other node."""

    given: BaseModel
    first: Node
    raised: BaseException | None

    @classmethod
    def of(cls, workflow: Workflow[Any], fn: Any, state: BaseModel) -> "_Alone":
        found = [each for each in workflow.nodes.values() if each.fn is fn]
        if not found:
            raise NotFound(f"{getattr(fn, '__name__', fn)} is no node of {workflow.title}")
        if not isinstance(state, workflow.state):
            raise InvalidInput(f"the state of {workflow.title} is {workflow.state.__name__}", f"given: {state!r}")
        shadow = copy.copy(workflow)
        shadow.__class__ = cls
        assert isinstance(shadow, cls)
        shadow.given, shadow.raised = state, None
        nodes = {name: _with(each, _elsewhere) for name, each in workflow.nodes.items()}
        nodes[found[0].name] = _with(found[0], shadow._watched(fn))
        vars(shadow)["nodes"] = nodes
        shadow.first = nodes[found[0].name]
        return shadow

    def _watched(self, fn: Any) -> Any:
        async def once(ctx: Context[Any]) -> Any:
            if ctx.visit > 1:
                return await _elsewhere(ctx)
            try:
                return await fn(ctx)
            except BaseException as error:  # the engine handles it, and `node` raises it again
                self.raised = error
                raise

        return once

    def validate(self) -> "_Alone":
        return self

    def begin(self, given: Any) -> Beginning[Any]:
        return Beginning(self.given, "", "", "", NO_ATTRIBUTES)

    @property
    def start(self) -> Node:
        return self.first


def _with(node: Node, fn: Any) -> Node:
    other = copy.copy(node)
    vars(other)["fn"] = fn
    return other


class _Nothing(BaseModel):
    pass


async def _elsewhere(ctx: Context[Any]) -> Any:
    """End the test: the run has reached another node."""
    await ctx.receive(ELSEWHERE, _Nothing)


class _Answering(ActivityCaller):
    """A caller that answers instead of calling."""

    def __init__(self, app: App, answers: Answers) -> None:
        super().__init__(app.time, DaemonPool(1))
        self._answers = {(k.name if isinstance(k, Activity) else k): v for k, v in answers.items()}
        self.called: list[tuple[str, str]] = []
        self.unanswered = ""
        app.answer_with(self)

    @override
    async def _look_up(self, attempt: CallAttempt, call: PendingCall) -> Any:
        return await self._run(attempt)

    @override
    async def _run(self, attempt: CallAttempt) -> Any:
        name = attempt.callee.name
        if name == ADMISSION:  # the engine's own record of a decision, so authors give no answer to it
            return await attempt.callee.fn(*attempt.args, **attempt.kwargs)
        point("call:before", (attempt.label,))
        if (name, attempt.key) not in self.called:
            self.called.append((name, attempt.key))
        found = next((k for k in (attempt.key, name) if k in self._answers), None)
        if found is None:
            self.unanswered = f"{name} was called as {attempt.key} and has no answer: say answers={{{name}: …}}"
            raise LookupError(self.unanswered)
        answer = self._answers[found]
        if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
            raise answer
        return answer(*attempt.args, **attempt.kwargs) if callable(answer) else answer


def _to_its_end(app: App, run: AppRun[Any], decide: Decide, caller: _Answering) -> tuple[PendingQuestion, ...]:
    """Answer questions and let time pass until nothing more can happen."""
    asked: dict[tuple[str, str], PendingQuestion] = {}
    for _ in range(ROUNDS_MAX):
        now = run.now
        if caller.unanswered or now.outcome is not None or now.visit > 1 or not now.waiting_for:
            return tuple(asked.values())
        if _answer_one(app, run, decide, asked):
            continue
        left = [w.until for w in now.waiting_for if w.kind in ("timer", "signal", "retry") and w.until is not None]
        if now.attention or not left or len(left) < len(now.waiting_for):
            return tuple(asked.values())
        app.pass_until(milliseconds(min(left)))
    raise CheckFailed(f"the node still goes on after {ROUNDS_MAX} answers")


def _answer_one(app: App, run: AppRun[Any], decide: Decide, asked: dict[tuple[str, str], PendingQuestion]) -> bool:
    rows = app.rows(run.id)
    for question in _questions(rows, app.state(rows)):
        answer = answer_of(decide, question)
        first = asked.setdefault((question.kind, question.name), question) is question
        if answer is not None and (first or question.kind != "signal"):
            _act(run, question, answer)
            return True
    return False


def _questions(rows: RunRows, state: Any) -> list[PendingQuestion]:
    node, visit = rows.run.node, rows.run.visit
    found = [
        PendingQuestion("approval", a.wait, node, visit, state, a.summary, asked_plans(a.plans))
        for a in rows.approvals
        if a.status is ApprovalStatus.PENDING
    ]
    return found + [PendingQuestion("signal", w.name, node, visit, state) for w in rows.waits if _open_signal(w)]


def _open_signal(wait: Wait) -> bool:
    return wait.kind != "sleep" and wait.status is WaitStatus.OPEN and wait.name != ELSEWHERE


def _act(run: AppRun[Any], question: PendingQuestion, answer: ScriptedAnswer) -> None:
    if question.kind == "signal":
        for payload in answer.given["payloads"]:
            run.signal(question.name, payload)
    elif answer.verb == "approve":
        run.approve(answer.given["reason"], alternative=answer.given["alternative"])
    else:
        run.reject(answer.given["reason"], again=answer.given["again"])


def _node_result(
    app: App, run: AppRun[Any], home: Workflow[S, Any, Any], caller: _Answering, asked: tuple[PendingQuestion, ...]
) -> NodeResult[S]:
    rows, now = app.rows(run.id), run.now
    arguments = {e.key: e.arguments() for e in rows.effects}
    log_texts = [e.data()["text"] for e in app.events(run.id) if e.type == EventType.LOGGED]
    gone = now.visit > 1
    return NodeResult(
        next=now.node if gone else None,
        state=app.state_of(run.id, home),
        status=now.status,
        reason=now.reason or "",
        called=tuple(ActivityCall(name, key, arguments.get(key, {})) for name, key in caller.called),
        log=tuple(log_texts),
        asked=asked,
        waiting_for=() if gone or is_over(rows.run) else tuple(run.waiting_for),
        attention=tuple(run.attention),
        outcome=now.outcome,
    )

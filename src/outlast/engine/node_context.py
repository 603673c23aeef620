"""Context of a node: its verbs, and its calls that were never awaited.

Theory of operation. A verb returns a coroutine, and Python runs nothing of it before it is awaited. Faults of a body,
and how they are found:

1. *A call is never awaited.* It would be forgotten without a trace. `_seen` notes each coroutine with its line, and
   the end of the node looks at those that never started.
2. *A wait is given up or raced*, by a timeout or `asyncio.wait`. A re-run could take the other way. The end of the
   node, and its rest, look at each wait that has not ended.
3. *A verb is called after the node has ended*, by a task that was left behind. It is logged and ignored.
4. *A long loop makes many calls.* The notes of ended ones are dropped when their number has doubled, so that a look
   costs a constant time for each call.
"""

import asyncio
import inspect
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial, wraps
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar
from uuid import UUID

from pydantic import BaseModel, JsonValue
from typing_extensions import override

from outlast.core.approvals import votes_of
from outlast.core.argument_checks import Arguments
from outlast.core.business_days import BusinessDays
from outlast.core.children import signal_key
from outlast.core.codec import canonical, digest
from outlast.core.divergence import signal_name
from outlast.core.durations import CALENDAR_PLACES, Duration, Term
from outlast.core.enough import SetBounds, check_bounds
from outlast.core.events import utc
from outlast.core.first_wait import set_key
from outlast.core.keys import check_given_reason, check_key
from outlast.core.limits import LOG_ENTRIES_MAX, LOG_ENTRY_BYTES_MAX, TEXT_CHARS_MAX
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.columns import stored_text
from outlast.core.rows.effect_rows import Approval, Effect
from outlast.core.run_transition import LogEntry
from outlast.core.terms import length_of
from outlast.engine import context_calls
from outlast.engine.activity_calls import perform, recorded_calls
from outlast.engine.approval_waits import (
    Question,
    answered_before,
    changes_of,
    check_arguments,
    check_question,
    chosen_plan,
    is_new,
    known_name,
    request_approval,
)
from outlast.engine.call_sets import CallSet, fan_out, in_turns
from outlast.engine.child_runs import (
    ChildOptions,
    ChildWait,
    Receiver,
    asked_child,
    check_arguments_only,
    check_child_arguments,
    child_of,
    child_receiver,
    found_workflow,
    held_signal,
    proposed_child,
    send,
    stop,
    value_of,
)
from outlast.engine.context_calls import ASKED_MAX, ContextCall, Given, shown_as
from outlast.engine.ended_children import ENDED, ended_children
from outlast.engine.first_waits import AnyWait, first_ended, name_of, remembered_winner
from outlast.engine.lookups import look_up
from outlast.engine.map_windows import MapWait, asked_map
from outlast.engine.named_waits import NamedWait, wait_key
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.policy_gate import offered, proposed
from outlast.engine.results import ResultBuffer, produced
from outlast.errors import AnswerNotStored, Conflict, InvalidInput, LimitExceeded, Misplaced, WaitTimeout
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.approval_rule import Approvers, Decision, rule_of
from outlast.flow.calls import Plan, RecordedCall
from outlast.flow.child_handle import ChildHandle, ParentHandle
from outlast.flow.child_tool import ChildTool
from outlast.flow.context import SLEEP, Context, executing_context
from outlast.flow.fan_out import FanOut
from outlast.flow.function_workflow import FunctionWorkflow
from outlast.flow.outcomes import Refusal, Refused
from outlast.flow.policy import Verdict
from outlast.flow.workflow import Workflow
from outlast.store.port import Store

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("outlast.engine")
PARENT_SIGNAL_CALL: Final = 'await ctx.parent.signal("found", Found(), id="found-1")'
SIGNAL_CALL: Final = 'await handle.signal("stop", Stop(), id="stop-1")'
OF_EVERY_ENTRY: Final = frozenset({"version", "epoch", "node", "visit", "key", "text"})
"""Fields of the event of a log entry."""


async def _decided(execution: NodeExecution, question: Question) -> Approval:
    """Return a decided approval. Raises Unresolved if the execution waits for the decision.

    So its awaiter waits in `deduplicate`, which sees a body that gives it up.
    """
    row = await request_approval(execution, question)
    if row is None:
        raise Unresolved
    return row


def _seen(
    method: Callable[Concatenate["NodeContext", P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["NodeContext", P], Coroutine[Any, Any, T]]:
    """Record each coroutine of a method, so that the end of the node finds those never awaited."""
    return _seen_from(1, method)


def _seen_from(
    depth: int, method: Callable[Concatenate["NodeContext", P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate["NodeContext", P], Coroutine[Any, Any, T]]:
    """Record each coroutine of a method. The author's line is `depth` frames above the call."""
    name = method.__name__
    waits = name in context_calls.SINGLE_WAITS

    @wraps(method)
    def call(self: "NodeContext", /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        coroutine = method(self, *args, **kwargs)
        frame = sys._getframe(depth)
        given = Given(args, kwargs) if waits else None
        self._see(ContextCall(coroutine, name, frame.f_code.co_filename, frame.f_lineno, given))
        return coroutine

    shown_as(name)(method)
    return call


class NodeContext(Context[Any]):
    """Context of one execution of a node."""

    def __init__(
        self, execution: NodeExecution, state: BaseModel, write_log: Callable[[Iterable[LogEntry]], None]
    ) -> None:
        run = execution.session.held.run
        self._write_log = write_log
        self._log_scheduled = False
        self._execution = execution
        self.state = state
        self.tenant = run.tenant
        self.run_id = run.run
        self.visit = run.visit
        self.entered_at = utc(run.entered_at)
        self.parent = NodeParent(self, run.parent) if run.parent else None
        self.log_entries: dict[str, LogEntry] = {}
        self.results: ResultBuffer | None = None
        self._asked: list[ContextCall] = []
        self._asked_max = ASKED_MAX
        self._unawaited: list[ContextCall] = []
        self._given_up: dict[ContextCall, str] = {}  # waits that the body does not await to their end, each with why
        self.may_give_up = False  # `given_up` is worth a call: there is a call or a wait that it looks at
        self._left_behind: list[ContextCall] = []  # calls that a returned body had not started
        self._returned = False
        self._concluded = False

    @property
    def store(self) -> Store:
        """Return the store of the run, for the nodes of built-in workflows."""
        return self._execution.session.store

    # --- calls that are never awaited --------------------------------------------------------
    def _see(self, asked: ContextCall) -> None:
        if self._concluded:
            log.warning("run %s: %s was called after its node had ended and is ignored", self.run_id, asked)
            return
        self._asked.append(asked)
        if len(self._asked) > self._asked_max:
            self._asked = [each for each in self._asked if each.coroutine.cr_frame is not None]
            self._asked_max = max(ASKED_MAX, 2 * len(self._asked))

    async def execute(self, fn: Callable[[Context[Any]], Awaitable[Any]]) -> Any:
        """Run the node's function; record the calls that it has not awaited when it ends."""
        executing_context.set(self)  # in the context of the node's task
        raises = True
        try:
            value = await fn(self)
            raises = False
            return value
        finally:
            executing_context.set(None)  # otherwise the task and this object refer to each other
            self._returned = True
            left = [each for each in self._asked if each.coroutine.cr_frame is not None]  # the others have finished
            self._unawaited = [each for each in left if each.state == inspect.CORO_CREATED]
            if left and not raises and not self._execution.closing:
                self._given_up |= context_calls.still_open(left)
                self._left_behind, self.may_give_up = self._unawaited, True

    def at_rest(self, body: asyncio.Task[Any], package: str) -> None:
        """Note the open waits that `asyncio.wait` or `wait_for` encloses. `package`: that of the node's function."""
        self._given_up |= context_calls.raced_waits(self._asked, body, package)
        self.may_give_up = True

    def _give_up(self) -> None:
        """Note that the body cancelled the await of the wait that is being cancelled."""
        self._given_up |= context_calls.being_cancelled(self._asked)
        self.may_give_up = True
        self._execution.give_up_wait()

    def given_up(self) -> Misplaced | None:
        """Return an error if the body did not await a wait to its end, else None."""
        if self._left_behind:  # a task of the body may have started a wait since
            self._given_up |= context_calls.still_open(self._left_behind)
        return context_calls.not_awaited_to_the_end(self._given_up) if self._given_up else None

    def conclude(self) -> Misplaced | None:
        """Close the context.

        Return an error if the node never awaited a call, else None.

        A task that the node left behind may have made the call since; then it counts as awaited.
        """
        self._concluded = True
        return context_calls.never_awaited(self._unawaited) if self._unawaited else None

    # --- acting ----------------------------------------------------------------------------
    @override
    @_seen
    async def do(self, call: Activity[Any, Any] | Plan[Any], /, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(call, Plan):
            return await self._perform(call, call.bind(args, kwargs))
        proposed = kwargs.pop("proposed", False)
        if args or kwargs:
            raise InvalidInput(
                f"ctx.do(plan of {call.activity}, …) was given further arguments",
                "a plan holds its arguments already",
                "write ctx.do(plan), or make another plan",
            )
        return await self._do_plan(call, proposed)

    async def _do_plan(self, plan: Plan[Any], proposed: bool) -> Any:
        activity = self._execution.workflow.activity(plan.activity)
        return await self._perform(activity, self._bound(activity, plan, proposed))

    @override
    @_seen
    async def do_all(
        self,
        plans: Mapping[Any, Plan[Any]] | Sequence[Plan[Any]],
        /,
        *,
        at_most: int = 0,
        refused: str = "raise",
        proposed: bool = False,
        min_successful: int | None = None,
        tolerated_failures: int | None = None,
    ) -> Any:
        is_bounded = min_successful is not None or tolerated_failures is not None
        if refused not in ("raise", "return"):
            raise InvalidInput(f"do_all(refused={refused!r})", "it can be left out, or be 'return'", 'refused="return"')
        if is_bounded and refused != "raise":
            why = "with min_successful or tolerated_failures a refused call is one of `failed`"
            raise InvalidInput(f"do_all(refused={refused!r})", why, "leave out refused=")
        if type(at_most) is not int or at_most < 0:
            raise InvalidInput(f"do_all(at_most={at_most!r})", "it is a number of calls, 0 for no limit", "at_most=3")
        each: list[Any] = list(plans.values()) if isinstance(plans, Mapping) else list(plans)
        keys = list(plans) if isinstance(plans, Mapping) else list(range(len(each)))
        for key, plan in zip(keys, each, strict=True):
            if not isinstance(plan, Plan):
                what = f"do_all got {type(plan).__name__} at {key!r}"[:200]
                raise InvalidInput(what, "it makes planned calls", "write ask.plan(…) there")
        if is_bounded:
            bounds = SetBounds(len(each), min_successful, tolerated_failures)
            check_bounds("do_all", bounds)
            make = partial(self._do_plan, proposed=proposed)
            return fan_out(keys, await CallSet(self._execution, each, bounds, at_most, make).end())
        self._execution.count(
            f"{plan.activity}?{plan.key}" for plan in each
        )  # before any begins, so that all fit or none
        answers: list[Any] = [None] * len(each)

        async def make_one(n: int) -> None:
            answers[n] = await self._settled(each[n], proposed)

        await in_turns(range(len(each)), min(at_most or len(each), len(each)), make_one)
        for answer in answers:
            if isinstance(answer, AnswerNotStored) or (refused == "raise" and isinstance(answer, Refused)):
                raise answer
        plain = [Refusal(a.code, a.detail) if isinstance(a, Refused) else a for a in answers]
        return dict(zip(plans, plain, strict=True)) if isinstance(plans, Mapping) else plain

    async def _settled(self, plan: Plan[Any], proposed: bool) -> Any:
        try:
            return await self._do_plan(plan, proposed)
        except (Refused, AnswerNotStored) as failed:
            return failed

    async def _perform(self, activity: Activity[Any, Any], call: BoundCall) -> Any:
        if isinstance(activity, ChildTool):
            return await self._delegate(activity, call)
        self._execution.count((f"{activity.name}?{call.key}",))
        if activity.kind == "lookup":
            return await look_up(self._execution, activity, call)
        return await perform(self._execution, activity, call)

    def _bound(self, activity: Activity[Any, Any], plan: Plan[Any], proposed: bool) -> BoundCall:
        args, kwargs = activity.load_args(plan.arguments)
        return BoundCall(args, kwargs, plan.key, plan.arguments, plan.digest, proposed)

    @override
    @_seen
    async def approval(self, *args: Any, **kwargs: Any) -> Decision[Any]:
        execution = self._execution
        execution.note_progress()
        if execution.closing:
            await execution.never()
        question = self._question(*args, **kwargs)
        self._count_wait(question)
        return await self._decision(question)

    @shown_as("approval")
    def _question(
        self,
        plan: Plan[Any],
        /,
        *,
        summary: str,
        by: Approvers,
        within: Term,
        valid_for: Term = "24h",
        name: str = "",
        alternatives: Sequence[Plan[Any]] = (),
        again: bool | int = False,
        risk: str = "",
        not_requester: bool = False,
        quorum: int = 1,
        editable: Sequence[str] = (),
        formerly: str = "",
        round: int | None = None,
    ) -> Question:
        """Return the request of `ctx.approval` with these arguments. Raises InvalidInput, LimitExceeded."""
        check_arguments(
            f"approval {name or plan.activity}",
            summary=summary,
            alternatives=alternatives,
            again=again,
            risk=risk,
            not_requester=not_requester,
            quorum=quorum,
            editable=editable,
        )
        name = known_name(self._execution, plan, name, formerly) if formerly else name
        question = Question(
            name=wait_key(name or plan.activity, round),
            plans=(plan, *alternatives),
            summary=summary,
            who=str(rule_of(f"approval {name or plan.activity}", by)),
            within=length_of(f"within of approval {name or plan.activity}", within),
            valid_for=length_of(f"valid_for of approval {name or plan.activity}", valid_for),
            risk=risk,
            again=again,
            quorum=quorum,
            not_requester=not_requester,
            editable=tuple(editable),
        )
        check_question(question)
        return question

    async def _decision(self, question: Question) -> Decision[Any]:
        """Return the decision, or wait for it."""
        execution = self._execution
        row = answered_before(execution, question)
        if row is None:
            if execution.lingering:
                await execution.never()
            await self._held_request(question)
            flight = (self.visit, name_of(question))
            row = await execution.deduplicate(flight, partial(_decided, execution, question), self._give_up)
        if row.status in (ApprovalStatus.AGAIN, ApprovalStatus.REJECTED):
            word: Literal["again", "rejected"] = "again" if row.status is ApprovalStatus.AGAIN else "rejected"
            return Decision(word, row.reason, row.decided_by, None)
        chosen = chosen_plan(execution, question, row)
        approvers = tuple(vote.by for vote in votes_of(row))
        return Decision("approved", row.reason, row.decided_by, chosen, approvers, changes_of(row))

    async def _held_request(self, question: Question) -> None:
        """Hold a new request while a recorded call of its activity has not been asked for (EFF-9)."""
        execution, plan = self._execution, question.plans[0]
        expected = execution.expected
        if expected is not None and expected.holds(plan.activity, is_request=True) and is_new(execution, question):
            await expected.hold(plan.activity, plan, is_request=True)

    # --- asking policy ---------------------------------------------------------------------
    @override
    @_seen
    async def allowed(self, activities: Sequence[Activity[..., Any]], /) -> list[Activity[..., Any]]:
        names = sorted({activity.name for activity in activities})
        return list(await self._judged(f"allowed?{','.join(names)}", lambda: offered(self._execution, activities)))

    @override
    @_seen
    async def check(self, plan: Plan[Any], /, *, proposed_by: str = "") -> Verdict:
        verdict: Verdict = await self._judged(
            f"check?{plan.digest}", lambda: proposed(self._execution, plan, stored_text(proposed_by, TEXT_CHARS_MAX))
        )
        return verdict

    async def _judged(self, name: str, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        execution = self._execution
        execution.note_progress()
        if execution.closing or execution.lingering:
            await execution.never()
        execution.count((name,))
        return await execution.deduplicate((self.visit, name), make)

    @override
    @_seen
    async def recorded(self, plan: Plan[Any], /) -> list[RecordedCall[Any]]:
        activity = self._execution.workflow.activity(plan.activity)
        make = partial(recorded_calls, self._execution, activity, plan)
        return list(await self._judged(f"recorded?{plan.digest}", make))

    # --- waiting ---------------------------------------------------------------------------
    @override
    @_seen
    async def sleep(self, *args: Any, **kwargs: Any) -> None:
        await self._wait(self._sleep(*args, **kwargs))

    @shown_as("sleep")
    def _sleep(
        self,
        duration: Duration | None = None,
        /,
        *,
        until: datetime | BusinessDays | None = None,
        name: str = SLEEP,
        round: int | None = None,
    ) -> NamedWait:
        if isinstance(duration, BusinessDays):
            raise InvalidInput(f"ctx.sleep({duration})", CALENDAR_PLACES, "ctx.sleep(until=business_days(…))")
        if duration is None and until is None:
            raise InvalidInput("ctx.sleep() without an end", "it takes a duration or an instant", 'ctx.sleep("12h")')
        return NamedWait(self._execution, "sleep", name, timeout=duration, until=until, number=round)

    @override
    @_seen
    async def receive(self, *args: Any, **kwargs: Any) -> Any:
        return await self._wait(self._receive(*args, **kwargs))

    @shown_as("receive")
    def _receive(
        self,
        name: str,
        model: type[Any],
        /,
        *,
        timeout: Term | None = None,
        until: datetime | BusinessDays | None = None,
        round: int | None = None,
    ) -> NamedWait:
        return NamedWait(self._execution, "receive", name, timeout=timeout, until=until, model=model, number=round)

    @override
    @_seen
    async def collect(self, *args: Any, **kwargs: Any) -> list[Any]:
        wait = self._collect(*args, **kwargs)
        answer: list[Any] = [] if kwargs.get("limit") == 0 else await self._wait(wait)
        return answer

    @shown_as("collect")
    def _collect(
        self,
        name: str,
        model: type[Any],
        /,
        *,
        timeout: Term | None = None,
        until: datetime | BusinessDays | None = None,
        limit: int | None = None,
        round: int | None = None,
    ) -> NamedWait:
        if timeout is None and until is None:
            raise InvalidInput(f"ctx.collect({name!r}) without an end", "it would never return", 'timeout="48h"')
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInput(f"ctx.collect(limit={limit!r})", "it is a number of signals", "limit=5")
        return NamedWait(
            self._execution, "collect", name, timeout=timeout, until=until, model=model, most=limit or 0, number=round
        )

    @override
    @_seen
    async def first(self, *waits: Any) -> Any:
        given = waits[0] if len(waits) == 1 and isinstance(waits[0], Mapping) else dict(enumerate(waits))
        execution = self._execution
        if execution.closing:
            execution.note_progress()
            for each in given.values():
                context_calls.close(each)
            await execution.never()
        calls = context_calls.taken(given.values(), self._asked)
        return await self._first_of({key: self._made(call) for key, call in zip(given, calls, strict=True)})

    async def _first_of(self, made: Mapping[Any, AnyWait]) -> tuple[Any, Any]:
        """Return key and value of the first of these waits."""
        execution = self._execution
        execution.note_progress()
        if execution.closing:
            await execution.never()
        names = {name_of(wait): key for key, wait in made.items()}
        for wait in made.values():
            self._count_wait(wait)
        won = remembered_winner(execution, list(names))
        if won is None:
            if execution.lingering:
                await execution.never()
            for wait in made.values():
                if isinstance(wait, Question):
                    await self._held_request(wait)
                elif isinstance(wait, ChildWait):
                    await wait.held()
            ended = partial(first_ended, execution, {name: made[key] for name, key in names.items()})
            won = await execution.deduplicate((self.visit, set_key(names)), ended, self._give_up)
        wait = made[names[won]]
        if isinstance(wait, ChildWait):
            return names[won], await self._outcome(wait)
        return names[won], await (self._decision(wait) if isinstance(wait, Question) else self._answered(wait))

    def _made(self, call: ContextCall) -> AnyWait:
        """Return the wait of a call of the context that nothing awaits yet."""
        assert call.given is not None
        args, kwargs = call.given.args, call.given.kwargs
        if call.name == "collect" and kwargs.get("limit") == 0:
            raise InvalidInput(
                f"{call} has limit=0", "it would always be first", "leave it out, or give a limit from 1"
            )
        make: dict[str, Callable[..., AnyWait]] = {
            "sleep": self._sleep,
            "receive": self._receive,
            "collect": self._collect,
            "approval": self._question,
            "run": self._asked_child,
            "result": self._result_in_first,
        }
        return make[call.name](*args, **kwargs)

    def _count_wait(self, wait: AnyWait) -> None:
        """Count a wait among those of the execution. Raises Conflict if it was asked for before."""
        execution, name = self._execution, name_of(wait)
        if isinstance(wait, ChildWait):
            if wait.asked is not None:
                execution.count((f"{wait.asked.workflow.name}?{wait.ident[1]}",))
            return
        if name in execution.asked:
            if isinstance(wait, Question):
                raise Conflict(
                    f"approval {wait.name} was asked for twice in one visit",
                    "an approval is known by its name, which is the activity's unless name= says another",
                    "give each a name: ctx.approval(…, name=…)",
                )
            raise Conflict(
                f"ctx.{wait.kind} asked for the wait {wait.key} twice in one visit",
                "a wait is known by its name and its round",
                "in a loop give each its round: round=n; elsewhere give each a name",
            )
        execution.asked.add(name)
        execution.count((f"?{name}",))

    async def _wait(self, wait: NamedWait) -> Any:
        execution = self._execution
        execution.note_progress()
        if execution.closing:
            await execution.never()
        self._count_wait(wait)
        return await self._answered(wait)

    async def _answered(self, wait: NamedWait) -> Any:
        """Return what the node gets from a wait, or wait for it."""
        execution = self._execution
        if (bound := wait.bound()) is not None:
            return wait.value_of(wait.notes_of(bound))
        if execution.lingering:
            await execution.never()
        notes = await execution.deduplicate((self.visit, name_of(wait)), wait.answer, self._give_up)
        return wait.value_of(notes)

    # --- child runs ------------------------------------------------------------------------
    @override
    @_seen
    async def run(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        wait = self._asked_child(workflow, *args, **kwargs)
        await self._may_begin(wait)
        self._count_wait(wait)
        await wait.held()
        return await self._outcome(wait)

    @override
    @_seen
    async def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> ChildHandle[Any]:
        wait = self._asked_child(workflow, *args, **kwargs)
        await self._may_begin(wait)
        self._count_wait(wait)
        await wait.held()
        return NodeChild(self, await wait.opened(within_call=False), wait.workflow)

    @override
    @shown_as("child")
    def child(self, key: str, /) -> ChildHandle[Any]:
        return NodeChild(self, child_of(self._execution, key))

    async def _delegate(self, tool: ChildTool, call: BoundCall) -> Any:
        """Start the child of a tool, and return its outcome, or its handle if it runs in the background."""
        asked = proposed_child(self._execution, tool, call)
        wait = ChildWait(self._execution, asked.ident, asked)
        await self._may_begin(wait)
        self._count_wait(wait)
        await wait.held()
        if tool.background:
            return NodeChild(self, await wait.opened(within_call=False), wait.workflow)
        return await self._outcome(wait)

    @override
    @_seen
    async def ended(
        self, children: Collection[ChildHandle[Any]], /, *, wait: bool = False, round: int | None = None
    ) -> list[ChildHandle[Any]]:
        handles = {each.place: each for each in children if isinstance(each, NodeChild)}
        if len(handles) != len(children):
            why = "it takes handles of children of this run, each once"
            raise InvalidInput("ctx.ended was given other objects", why, "await ctx.ended([await ctx.start(…)])")
        Arguments("ctx.ended", of_call=True).flag("wait", wait)
        execution, key = self._execution, f"{ENDED}?{wait_key('ended', round)}"
        await self._may_ask()
        if key in execution.asked:
            why = "the list of each call is kept under its round"
            raise Conflict("ctx.ended was called twice in one visit", why, "give each its round: round=n")
        execution.asked.add(key)
        execution.count((f"?{key}",))
        make = partial(ended_children, execution, key, list(handles), wait=wait)
        return [handles[place] for place in await execution.deduplicate((self.visit, key), make, self._give_up)]

    @override
    @_seen
    async def map(self, workflow: Any, inputs: Any, /, **options: Any) -> FanOut[str, Any]:
        execution = self._execution
        execution.note_progress()
        if execution.closing:
            await execution.never()
        asked = asked_map(execution, workflow, inputs, **options)
        wait = MapWait(execution, asked.name, asked.workflow)
        if wait.asked_as in execution.asked:
            what = f"ctx.map asked twice for {asked.workflow.name} with the same inputs"
            raise Conflict(what, "within a visit a map is known by its key and its inputs", "give each a key: key=…")
        execution.asked.add(wait.asked_as)
        execution.count((wait.asked_as,))
        if execution.lingering and wait.memo is None:
            await execution.never()
        await wait.held(asked)
        wait.log(asked)
        progress = await execution.deduplicate((self.visit, wait.asked_as), partial(wait.answer, asked), self._give_up)
        wait.log(asked, progress)
        return wait.result(asked, progress)

    def _asked_child(self, workflow: Workflow[Any, Any, Any] | str, /, *args: Any, **kwargs: Any) -> ChildWait:
        found = found_workflow(workflow)
        if isinstance(workflow, FunctionWorkflow) and not workflow.is_input(args, kwargs):
            check_arguments_only(workflow, kwargs)
            args, kwargs = (workflow.arguments(*args, **kwargs),), {}
        check_child_arguments(workflow, args, kwargs)
        asked = asked_child(self._execution, found, args[0], ChildOptions(**kwargs))
        return ChildWait(self._execution, asked.ident, asked)

    async def _may_begin(self, wait: ChildWait) -> None:
        """Never return if the execution is closing, or lingers and the child was not started before."""
        execution = self._execution
        execution.note_progress()
        if execution.closing or (execution.lingering and wait.row() is None):
            await execution.never()

    async def _outcome(self, wait: ChildWait) -> Any:
        """Return the outcome of a child, or wait for it. Raises ChildFailed."""
        row = wait.row()
        if row is None or not row.settled_at or wait.asked is not None:
            if self._execution.lingering and (row is None or not row.settled_at):
                await self._execution.never()
            row = await self._execution.deduplicate((self.visit, name_of(wait)), wait.answer, self._give_up)
        return value_of(row, wait.workflow)

    @partial(_seen_from, 2)
    async def result(self, row: Effect, workflow: Workflow[Any, Any, Any] | None, *, timeout: Term | None) -> Any:
        """Return the outcome of a child: `ChildHandle.result`."""
        wait = ChildWait(self._execution, (row.visit, row.key), workflow=workflow)
        if timeout is None:
            await self._may_begin(wait)
            return await self._outcome(wait)
        deadline = self._sleep(
            timeout if not isinstance(timeout, BusinessDays) else None,
            until=timeout if isinstance(timeout, BusinessDays) else None,
            name=f"result.{digest(*wait.ident)[:16]}",
        )
        won, value = await self._first_of({0: wait, 1: deadline})
        if won == 1:
            what = f"child {row.activity} {row.key} (run {row.external_id}) has not ended in time"
            raise WaitTimeout(what, f"its parent waits for {timeout}", "wait again, or cancel it with handle.cancel()")
        return value

    def _result_in_first(
        self, row: Effect, workflow: Workflow[Any, Any, Any] | None, *, timeout: Term | None
    ) -> ChildWait:
        if timeout is not None:
            why = "the set has one end for all of its waits"
            raise InvalidInput("ctx.first was given result(timeout=…)", why, "ctx.first(handle.result(), ctx.sleep(…))")
        return ChildWait(self._execution, (row.visit, row.key), workflow=workflow)

    async def send_signal(self, to: Receiver, name: str, value: object, signal_id: str) -> None:
        """Send a signal to a child or the parent: `ChildHandle.signal`, `ParentHandle.signal`."""
        call = PARENT_SIGNAL_CALL if to.child is None else SIGNAL_CALL
        check_key("the id of a signal", signal_id, call)
        if not isinstance(value, BaseModel):
            who = "parent" if to.child is None else "child"
            what = f"signal {name} of a {who} has the value {value!r}"[:200]
            raise InvalidInput(what, f"it is a model, as ctx.receive of the {who} names it", call)
        execution = self._execution
        await self._may_ask()
        execution.count((signal_name(signal_key(to.run, signal_id)),))
        await held_signal(execution, to, signal_id)
        make = partial(send, execution, to, name, value, signal_id)
        await execution.deduplicate((self.visit, f"signal?{signal_id}?{to.run}"), make)

    async def stop_child(self, row: Effect, reason: str) -> None:
        """Ask a child to end: `ChildHandle.cancel`."""
        check_given_reason("a cancel", "it appears in the child's history", reason)
        await self._may_ask()
        make = partial(stop, self._execution, (row.visit, row.key), reason)
        await self._execution.deduplicate((self.visit, f"stop?{row.external_id}"), make)

    async def _may_ask(self) -> None:
        execution = self._execution
        execution.note_progress()
        if execution.closing or execution.lingering:
            await execution.never()

    # --- values that stay equal in a visit ---------------------------------------
    @override
    def now(self) -> datetime:
        return self.entered_at

    @override
    @shown_as("uuid")
    def uuid(self, name: str, /) -> UUID:
        return UUID(hex=digest(self.tenant, self.run_id, self.visit, "uuid", name)[:32], version=4)

    @override
    @shown_as("random")
    def random(self, name: str, /) -> float:
        return int(digest(self.tenant, self.run_id, self.visit, "random", name)[:13], 16) / 16**13

    # --- logging ---------------------------------------------------------------------------
    @override
    @shown_as("log")
    def log(self, key: str, text: str, /, **data: JsonValue) -> None:
        check_key("a log entry", key, 'name what it says once per visit, e.g. ctx.log(f"round {n}", …)')
        if taken := sorted(OF_EVERY_ENTRY & data.keys()):
            raise InvalidInput(
                f"a log entry cannot have the field {taken[0]}",
                "each entry has one of this name",
                "choose another name",
            )
        line = canonical({"key": key, "text": text, "data": data})  # raises in the author's line
        if len(self.log_entries) >= LOG_ENTRIES_MAX or len(line) > LOG_ENTRY_BYTES_MAX:
            raise LimitExceeded(
                "too many log entries of one node",
                f"at most {LOG_ENTRIES_MAX} lines of {LOG_ENTRY_BYTES_MAX} bytes",
            )
        if self._concluded:
            log.warning("run %s: ctx.log(%r) was called after its node had ended and is ignored", self.run_id, key)
        elif key not in self.log_entries:
            self.log_entries[key] = LogEntry(**json.loads(line))
            self._schedule_log()

    def _schedule_log(self) -> None:
        """Write the entries when the node next awaits something; those of a node that returns first go with its end."""
        if self._log_scheduled:
            return
        try:
            asyncio.get_running_loop().call_soon(self._flush_log)
        except RuntimeError:  # in a thread: the next entry, or the end of the node, writes this one
            return
        self._log_scheduled = True

    def _flush_log(self) -> None:
        self._log_scheduled = False
        if not self._returned:
            self._write_log(self.log_entries.values())

    # --- showing progress ------------------------------------------------------------------
    @override
    @shown_as("stream")
    def stream(self, text: str, /) -> None:
        if not isinstance(text, str):
            raise InvalidInput(f"ctx.stream({text!r})"[:200], "a stream is of text", "ctx.stream(str(…))")
        if not self._concluded and not self._execution.repeats():
            self._execution.stream(text)

    # --- producing -------------------------------------------------------------------------
    @override
    @_seen
    async def emit(self, result: BaseModel | JsonValue, /, *, key: str, kind: str = "") -> None:
        execution = self._execution
        execution.note_progress()
        if execution.closing or execution.lingering:
            await execution.never()
        if self.results is None:
            self.results = ResultBuffer(execution.session)
        if self.results.add(produced(result, key, kind)):
            await execution.deduplicate((self.visit, f"emit?{key}"), self.results.store)


class NodeChild(ChildHandle[Any]):
    """Handle of a child run in one execution of a node."""

    def __init__(self, context: NodeContext, row: Effect, of: Workflow[Any, Any, Any] | None = None) -> None:
        self._context = context
        self._row = row
        self._of = of
        self.place = (row.visit, row.key)
        self.workflow = row.activity
        self.key = row.key
        self.run_id = row.external_id

    @override
    def result(self, *, timeout: Term | None = None) -> Coroutine[Any, Any, Any]:
        return self._context.result(self._row, self._of, timeout=timeout)

    @override
    async def signal(self, name: str, value: BaseModel, /, *, id: str) -> None:
        await self._context.send_signal(child_receiver(self._row), name, value, id)

    @override
    async def cancel(self, *, reason: str) -> None:
        await self._context.stop_child(self._row, reason)


class NodeParent(ParentHandle):
    """Handle of the parent of a run in one execution of a node."""

    def __init__(self, context: NodeContext, run: str) -> None:
        self._context = context
        self.run_id = run

    @override
    async def signal(self, name: str, value: BaseModel, /, *, id: str) -> None:
        await self._context.send_signal(Receiver(self.run_id, "parent"), name, value, id)

"""The client: reads and actions of one caller in one tenant, the same over a store and over a service.

Here are the only signatures of the operations, for readers and type checkers. A method that is one operation makes its
request and calls `_call`: `Operations` answers it by a handler, `ServiceClient` sends it. Abstract are `_call` and the
methods that no single request describes.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeAlias, TypeVar, overload

from pydantic import BaseModel

from outlast.core.argument_checks import Arguments, check_calls
from outlast.core.durations import Duration, Liveness
from outlast.core.lanes import check_scheduler
from outlast.core.limits import IDEMPOTENCY_KEY_CHARS_MAX, RUNS_PER_READ
from outlast.core.machine import TERMINAL, Choice, EffectStatus, Reason, RunStatus
from outlast.core.rows.run_columns import What
from outlast.core.start_details import NO_DETAILS, StartDetails, StartOptions, stated
from outlast.core.usage import NO_LIMITS, Budget, Money, money_text
from outlast.errors import InvalidInput
from outlast.flow.function_workflow import FunctionWorkflow
from outlast.flow.workflow import Workflow, encoded_input
from outlast.models.agents import PromptDetail, PromptList, ToolCallList, ToolFilter, ToolList
from outlast.models.approvals import ApprovalDetail, ApprovalList, ApprovalSort, ApprovalSummary
from outlast.models.attention import AnsweredRuns, AnswerFor, AnswerList, AttentionList, RunAttention, Verb
from outlast.models.audit_entries import AuditKind, AuditList
from outlast.models.bulk import BulkAnswer, BulkPreview
from outlast.models.causes import Bars, CauseDetail, CauseList
from outlast.models.child_tree import RunTree
from outlast.models.comparison import RunComparison
from outlast.models.effects import EffectList, EffectRecord
from outlast.models.fork_answers import ForkPointList, ForkPreview, RunForked
from outlast.models.measurements import DecisionTimes, RunDurations
from outlast.models.runs import (
    EndedRun,
    EventList,
    ResultList,
    RunDelta,
    RunDetail,
    RunExplanation,
    RunList,
    RunStarted,
    RunState,
    RunSummary,
)
from outlast.models.service import (
    ActivePause,
    BudgetedRunList,
    CallerInfo,
    DailyBudget,
    PauseCreated,
    PauseEnded,
    SlotLimit,
    StatusSummary,
    UsageList,
    VersionStatus,
    WorkerStatus,
)
from outlast.models.steps import StepList
from outlast.models.timeline import Timeline
from outlast.models.views import SavedView
from outlast.operations import agent_operations as agent_ops
from outlast.operations import approval_operations as approval_ops
from outlast.operations import attention_operations as attention_ops
from outlast.operations import audit_operations as audit_ops
from outlast.operations import cause_operations as cause_ops
from outlast.operations import effect_operations as effect_ops
from outlast.operations import fork_operations as fork_ops
from outlast.operations import metric_operations as metric_ops
from outlast.operations import run_operations as run_ops
from outlast.operations import service_operations as service_ops
from outlast.operations import view_operations as view_ops
from outlast.operations.declaration import OperationRequest
from outlast.runtime.run_handle import RunHandle
from outlast.runtime.webhook_client import WebhookClient

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
In = TypeVar("In", bound=BaseModel)
Out = TypeVar("Out")
Given: TypeAlias = bytes | str | dict[str, Any]
"""Input of a run as JSON text, or as the value that it has."""


def end_of(run: RunDetail) -> EndedRun:
    """Return the end of a run that has ended."""
    return EndedRun(RunStatus(run.status), run.outcome, run.reason, tuple(run.not_undone))


class Client(ABC):
    """Reads and actions of one caller in one tenant. Every method raises members of OutlastError.

    Unless stated otherwise, a method that names a run or an approval raises NotFound, and an action raises Conflict if
    the state no longer allows it.

    Parameters of the methods:

    - `run`, `approval`: their ids. `workflow`, `activity`: their names.
    - `reason`: text for the history, shown to people.
    - `version`: of the row that the caller was shown; the action is refused with Conflict (`moved`) if the row has
      changed since. 0: not checked.
    - `cursor`: `next_cursor` of the page before; '' for the first page. `limit`: size of a page.
    - `since`: only rows of this last time.
    - `idempotency_key`: 1 to 255 visible ASCII characters. A repetition of the call under the same key does nothing and
      returns as the first one did; with other arguments it raises Conflict. The key belongs to caller and method, and
      is kept as long as the store. '': a repetition is another call.
    """

    me: str
    """Name of the caller in sentences: "you" at a service."""
    scheduler: str
    """Engine that schedules runs whose start names none; '' is that of the store or service."""
    has_code: bool
    """True if inputs and answers are checked by code loaded in this process; False if the service checks them."""

    _is_closed = False
    """True once `close` was called. Other calls then raise Misplaced."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_calls(Client, cls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def _call(self, request: OperationRequest[R]) -> R:
        """Carry out one operation and return its answer."""

    @property
    @abstractmethod
    def webhooks(self) -> WebhookClient:
        """Client for the webhooks of the tenant."""

    async def close(self) -> None:
        """Release the connections that `connect` opened. Later calls raise Misplaced; a second `close` does nothing."""
        if not self._is_closed:
            self._is_closed = self.webhooks._is_closed = True
            await self._release()

    @abstractmethod
    async def _release(self) -> None:
        """Close the store or the connections."""

    @abstractmethod
    async def now(self) -> datetime:
        """Return the real time: the store's clock, or this machine's with a service."""

    @abstractmethod
    async def until(self, read: Callable[[], Awaitable[T | None]], *, within_s: float | None = None) -> T | None:
        """Call `read` until it returns a value other than None. Return None after `within_s` seconds."""

    # --- runs ----------------------------------------------------------------------------------
    @overload
    async def start(
        self, workflow: FunctionWorkflow[P, Out], /, *args: P.args, **kwargs: P.kwargs
    ) -> RunHandle[Out]: ...
    @overload
    async def start(
        self,
        workflow: Workflow[Any, In, Out],
        input: In,
        /,
        *,
        key: str = "",
        run_id: str = "",
        correlation_id: str = "",
        trace_id: str = "",
        scheduler: str = "",
    ) -> RunHandle[Out]: ...
    @overload
    async def start(
        self,
        workflow: Workflow[Any, Any, Out],
        input: Mapping[str, object],
        /,
        *,
        key: str = "",
        run_id: str = "",
        correlation_id: str = "",
        trace_id: str = "",
        scheduler: str = "",
    ) -> RunHandle[Out]: ...
    @overload
    async def start(
        self,
        workflow: str,
        input: Mapping[str, object] | BaseModel,
        /,
        *,
        key: str = "",
        run_id: str = "",
        correlation_id: str = "",
        trace_id: str = "",
        scheduler: str = "",
    ) -> RunHandle[Any]: ...
    async def start(self, workflow: Workflow[Any, Any, Any] | str, /, *args: Any, **kwargs: Any) -> RunHandle[Any]:
        """Start a run and return its handle once the run is durable. A worker executes it.

        `workflow` is the workflow object or its name; with the object, input and outcome are typed. `input` is its
        input model or a mapping. The same `key` returns the same run, so a repeated call starts nothing; with another
        input it raises Conflict. `run_id` (default: a new one) names the run. `correlation_id` and `trace_id` are shown
        with it and sent with its events. `scheduler` is the engine that decides when and where the run is executed:
        "outlast" (the workers of this package), "temporal" or "langgraph"; default: OUTLAST_SCHEDULER.

        A workflow of one function takes the arguments of the function: `start(refund, "A-1", cents=4200)`. To add a key
        or an id, write `start(refund, refund.arguments("A-1", cents=4200), key="refund-7")`, or give a mapping.

        Raises NotFound for an unknown workflow, InvalidInput with every problem.
        """
        if isinstance(workflow, FunctionWorkflow) and not workflow.is_input(args, kwargs):
            return await self._start(workflow, workflow.arguments(*args, **kwargs))
        if len(args) != 1:
            raise InvalidInput(
                f"start() got {len(args)} inputs", "a run has one input", 'start("order", {"order": "A-1"}, key="A-1")'
            )
        return await self._start(workflow, *args, **kwargs)

    async def _start(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        input: Mapping[str, object] | BaseModel,  # noqa: A002
        /,
        *,
        key: str = "",
        run_id: str = "",
        scheduler: str = "",
        **details: str,
    ) -> RunHandle[Any]:
        for name, text in (("key", key), ("run_id", run_id)):
            if type(text) is not str:
                Arguments("start", of_call=True).is_text(name, text, f'{name}="order-7", or leave it out')
        if len(key) > IDEMPOTENCY_KEY_CHARS_MAX:
            why = f"it has {len(key)} characters, the limit is {IDEMPOTENCY_KEY_CHARS_MAX}"
            raise InvalidInput("the start key is too long", why, "use a hash of it")
        given = encoded_input(workflow, input)
        options = StartOptions(run_id, key, scheduler or self.scheduler, stated(details) if details else NO_DETAILS)
        run, created = await self._begin(workflow, given, options)
        if isinstance(workflow, Workflow):
            return RunHandle(self, run, workflow=workflow.name, created=created, decode=workflow.decode_outcome)
        return RunHandle(self, run, workflow=workflow, created=created)

    async def _begin(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        given: Given,
        options: StartOptions,
    ) -> tuple[str, bool]:
        """Start a run and return its id, and True if it is new. A store overrides this, to read no summary."""
        started = await self._start_run(workflow, given, options)
        return started.run, started.created

    @overload
    def get(self, workflow: Workflow[Any, Any, Out], run: str, /) -> RunHandle[Out]: ...
    @overload
    def get(self, workflow: str, run: str, /) -> RunHandle[Any]: ...
    @overload
    def get(self, run: str, /) -> RunHandle[Any]: ...
    def get(self, workflow: Workflow[Any, Any, Any] | str, run: str = "", /) -> RunHandle[Any]:
        """Return the handle of a run without asking for it: `client.get(orders, "run-id")`, `client.get("run-id")`.

        `workflow` types the outcome. Its name, or `run` as the only argument, gives an outcome of plain JSON. Raises
        InvalidInput for a workflow without a run.
        """
        if isinstance(workflow, Workflow):
            if not run:
                fix = f'client.get({workflow.name}, "run-id")'
                raise InvalidInput("client.get was given a workflow and no run", "a workflow has many runs", fix)
            return RunHandle(self, run, workflow=workflow.name, decode=workflow.decode_outcome)
        return RunHandle(self, run, workflow=workflow) if run else RunHandle(self, workflow)

    async def ended(self, run: str, *, within_s: float | None = None) -> bool:
        """Wait until a `run` has ended; return False after `within_s` seconds. None: wait without a limit."""

        async def is_over() -> bool | None:
            return True if (await self.run_summary(run)).status in TERMINAL else None

        return await self.until(is_over, within_s=within_s) is not None

    async def run_end(self, run: str, *, within_s: float | None = None) -> EndedRun | None:
        """Wait until a `run` has ended and return its end; None after `within_s` seconds."""
        if not await self.ended(run, within_s=within_s):
            return None
        return end_of(await self.run(run))

    async def _seen(self, run: str) -> RunSummary | None:
        """Return a `run` as lists show it, for the text of an error; None if that would take long."""
        return await self.run_summary(run)

    @abstractmethod
    def worker(
        self,
        workflows: Sequence[Workflow[Any, Any, Any]],
        *,
        concurrency: int = 100,
        name: str = "",
        live: Liveness | None = None,
    ) -> AbstractAsyncContextManager[None]:
        """Serve `workflows` in this process while the block runs, then give back the runs that it holds.

        `concurrency` is the maximum of concurrent runs, `name` the display name of the worker, `live` the durations
        after which it counts as dead. The workflows can be started by name afterwards. Needs a store: at a service it
        raises InvalidInput. Raises DefinitionError, and StoreReplaced at the end if the store is gone.
        """

    async def start_run(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        given: bytes | str | dict[str, Any],
        *,
        run_id: str = "",
        key: str = "",
        correlation_id: str = "",
        trace_id: str = "",
        scheduler: str = "",
    ) -> RunStarted:
        """Start a run with JSON input (`given`) and return once it is durable.

        `run_id`, `correlation_id`, `trace_id` and `scheduler` are those of `start`. The same `key` returns the same
        run; with another input it raises Conflict. Raises NotFound for an unknown workflow, InvalidInput with every
        problem.
        """
        details = StartDetails(correlation_id=correlation_id, trace_id=trace_id)
        return await self._start_run(workflow, given, StartOptions(run_id, key, scheduler or self.scheduler, details))

    @abstractmethod
    async def _start_run(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        given: Given,
        options: StartOptions,
    ) -> RunStarted:
        """Start a run as `start_run` does."""

    async def runs(
        self,
        *,
        status: str = "",
        workflow: str = "",
        attention: bool = False,
        waiting_for: str = "",
        q: str = "",
        where: Sequence[str] = (),
        version: int = 0,
        node: str = "",
        reason: str = "",
        cause: str = "",
        started: str = "",
        stopped: str = "",
        ended: str = "",
        flagged: str = "",
        forked_from: str = "",
        parent: str = "",
        root: str = "",
        no_children: bool = False,
        sort: str = "",
        since: Duration | None = None,
        cursor: str = "",
        limit: int = 50,
    ) -> RunList:
        """Return one page of runs, newest first. '', 0, (), False and None do not filter.

        `status`: only runs of this status; `attention`: only runs that need a person; `waiting_for`: only runs with a
        wait of this kind; `q`: only runs with this text in their id, correlation id, objective or attributes,
        or in why they need a person; `where`: only runs with these attributes, as `name=value`; `version`: only runs of
        this version of their workflow;
        `node`: only runs whose present or last node is this; `reason`: only runs that need a person for it; `cause`:
        only runs with this cause; `started`, `stopped`: only runs that started, or that ended or called a person, in
        this ISO 8601 interval; `ended`: only runs that ended in this interval, the latest end first; `flagged`: only
        runs that began to need a person in this interval, answered or not, the latest first, with `reason`, `cause` and
        `version` of that time; `forked_from`: only forks of this run; `parent`: only runs that this run has started;
        `root`: only runs below this run, at any depth, if no run has started it; `no_children`: only runs that no run
        has started; `sort`: `started-asc`, `ended`, `took` or `cost`, the last three also with `-asc`, sorts the newest
        runs that match, at most 1,000; `since`: only runs started within this time. With a filter other than `status`,
        `workflow` and `since`, a page may hold fewer than `limit` runs and still have a cursor.
        """
        return await self._call(
            run_ops.ListRuns(
                status=status,
                workflow=workflow,
                attention=attention,
                waiting_for=waiting_for,
                q=q,
                where=where,
                version=version,
                node=node,
                reason=reason,
                cause=cause,
                started=started,
                stopped=stopped,
                ended=ended,
                flagged=flagged,
                forked_from=forked_from,
                parent=parent,
                root=root,
                no_children=no_children,
                sort=sort,
                since=since,
                cursor=cursor,
                limit=limit,
            )
        )

    async def fork_points(self, run: str) -> ForkPointList:
        """Return the checkpoints from which a `run` can be forked, oldest first, with the calls of each.

        Raises NotFound, and Conflict (`purged`).
        """
        return await self._call(fork_ops.ListForkPoints(run))

    async def fork_preview(
        self,
        run: str,
        point: str,
        *,
        approvers: str = "",
        state: Mapping[str, Any] | None = None,
        effects: Literal["ask", "recorded", "live"] = "ask",
        lookups: Literal["recorded", "live"] = "recorded",
        signals: Sequence[str] = (),
        accept_undone: bool = False,
        both_go_on: str = "",
    ) -> ForkPreview:
        """Return what a fork of a `run` would begin with, read, ask for and send. It starts nothing.

        `point`, `approvers`, `state`, `effects`, `lookups`, `signals`, `accept_undone` and `both_go_on` are those of
        `fork_run`; `effects="live"` is for `fork_run_live`. The field `refused` of the answer has every reason for
        which the start would be refused, but a wrong `state` raises InvalidInput with its fields. The field `state` is
        that of the checkpoint, redacted: a mark that stays in its place in an edited state means its value.

        Raises NotFound, InvalidInput, and Conflict (`purged`).
        """
        return await self._call(
            fork_ops.PreviewFork(
                run,
                point,
                approvers=approvers,
                state=state,
                effects=effects,
                lookups=lookups,
                signals=signals,
                accept_undone=accept_undone,
                both_go_on=both_go_on,
            )
        )

    async def fork_run(
        self,
        run: str,
        point: str,
        *,
        approvers: str,
        state: Mapping[str, Any] | None = None,
        effects: Literal["ask", "recorded"] = "ask",
        lookups: Literal["recorded", "live"] = "recorded",
        signals: Sequence[str] = (),
        accept_undone: bool = False,
        both_go_on: str = "",
        fork_id: str | None = None,
    ) -> RunForked:
        """Start a new run from a checkpoint of a `run`. Its past is copied and never repeated.

        `point` is the number of a checkpoint, or the node that the fork executes first. `state` replaces the state of
        the checkpoint. With `effects="ask"` each write waits for a person; with "recorded" a write that the run made
        after the checkpoint is answered as then, and only others wait. `approvers` is the rule of who approves where
        neither the policy nor the node names approvers. `lookups="live"` makes lookups again. `signals` names signals
        after the checkpoint that the fork gets, or is ("all",). `accept_undone` begins although effects of the past may
        not be in force. `both_go_on` is the reason why a run that has not ended and its fork both go on: both may act.
        `fork_id` names the fork: the same id is the same fork.

        Raises NotFound, InvalidInput, LimitExceeded, and Conflict (`not_ended`, `compensating`, `purged`,
        `undone_effects`).
        """
        return await self._call(
            fork_ops.ForkRun(
                run,
                point,
                approvers=approvers,
                state=state,
                effects=effects,
                lookups=lookups,
                signals=signals,
                accept_undone=accept_undone,
                both_go_on=both_go_on,
                fork_id=fork_id,
            )
        )

    async def fork_run_live(
        self,
        run: str,
        point: str,
        *,
        state: Mapping[str, Any] | None = None,
        lookups: Literal["recorded", "live"] = "recorded",
        signals: Sequence[str] = (),
        accept_undone: bool = False,
        both_go_on: str = "",
        fork_id: str | None = None,
    ) -> RunForked:
        """Start a new run from a checkpoint of a `run`, whose writes the policy alone permits.

        `point`, `state`, `lookups`, `signals`, `accept_undone`, `both_go_on` and `fork_id` are those of `fork_run`. A
        call once per run is shared with the run: what it has done is not done again. Raises as `fork_run`.
        """
        return await self._call(
            fork_ops.ForkRunLive(
                run,
                point,
                state=state,
                lookups=lookups,
                signals=signals,
                accept_undone=accept_undone,
                both_go_on=both_go_on,
                fork_id=fork_id,
            )
        )

    async def run(self, run: str) -> RunDetail:
        """Return a run with visits, counts, takeovers and progress; with outcome and reason once it has ended."""
        return await self._call(run_ops.GetRun(run))

    async def run_summary(self, run: str) -> RunSummary:
        """Return a run with the fields that lists show."""
        return await self._call(run_ops.GetRunSummary(run))

    async def run_input(self, run: str) -> Any:
        """Return the input of a run as its workflow parsed it."""
        return await self._call(run_ops.GetInput(run))

    async def run_state(self, run: str, *, checkpoint: int = 0) -> RunState:
        """Return the state of a run at a checkpoint, without values that look like secrets.

        `checkpoint`: number of the event that wrote it, as `checkpoints` lists them, or 1 for the start; 0 for the last
        one. What the current node has changed since is not in it. Raises NotFound.
        """
        return await self._call(run_ops.GetState(run, checkpoint=checkpoint))

    async def results(self, run: str, *, after: int = 0, limit: int = 1_000) -> ResultList:
        """Return one page of results in the order of first emission, `after` an ordinal."""
        return await self._call(run_ops.ListResults(run, after=after, limit=limit))

    async def steps(self, run: str, *, kind: str = "", step: str = "", cursor: str = "", limit: int = 50) -> StepList:
        """Return one page of steps, oldest first. `kind`: only these; `step`: only this id, with its whole texts."""
        return await self._call(run_ops.ListSteps(run, kind=kind, step=step, cursor=cursor, limit=limit))

    async def compare(
        self, run: str, other: str, *, after: int = 0, limit: int = 50, every: bool = False
    ) -> RunComparison:
        """Return where two runs of one workflow part, with one page of their differences, `after` a number.

        `other`: the run to compare with, of the same version or of another one. `every`: also the visits and calls that
        are equal, in their order. Raises NotFound, InvalidInput.
        """
        return await self._call(run_ops.CompareRuns(run, other, after=after, limit=limit, every=every))

    async def timeline(self, run: str, *, begin: datetime | None = None, end: datetime | None = None) -> Timeline:
        """Return visits, attempts and waits of a run as bars in lanes of nodes, with crashes and takeovers.

        `begin`, `end`: only what overlaps this span of business time. Neighbouring bars are grouped beyond 400. Raises
        InvalidInput.
        """
        return await self._call(run_ops.GetTimeline(run, begin=begin, end=end))

    async def events(self, run: str, *, after: int = 0, limit: int = 200, of_type: str = "") -> EventList:
        """Return one page of events, oldest first, `after` a sequence number.

        `of_type`: only this type, or with a star at its end, all that begin so. Raises NotFound, InvalidInput.
        """
        return await self._call(run_ops.ListEvents(run, after=after, limit=limit, of_type=of_type))

    @abstractmethod
    def follow(self, run: str, *, after: int = 0) -> AsyncGenerator[str]:
        """Yield the stored text of each event of a `run` `after` a number, as it is written, until it has ended."""

    @abstractmethod
    def updates(self, run: str, *, after: int = 0) -> AsyncGenerator[str | RunDelta]:
        """Yield events of a `run` `after` a number as `follow`, and each text that it streams as it comes.

        A caller that lags loses such texts.
        """

    async def tree(self, run: str) -> RunTree:
        """Return the runs that a run has started, and theirs, each after its parent; at most 50. Raises NotFound."""
        return await self._call(run_ops.GetTree(run))

    async def explain(self, run: str) -> RunExplanation:
        """Return the state of a run, its cause and the next step."""
        return await self._call(run_ops.ExplainRun(run))

    async def signal(
        self, run: str, name: str, payload: Mapping[str, Any], *, signal_id: str = "", version: int = 0
    ) -> bool:
        """Send the signal `name` with a `payload`. Return False if one of this `signal_id` was sent before.

        Raises NotStorable.
        """
        return await self._call(run_ops.SignalRun(run, name, payload, signal_id=signal_id, version=version))

    async def cancel(self, run: str, *, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        """Request the cancellation of a run. A worker undoes its effects before it ends. Raises InvalidInput."""
        await self._call(run_ops.CancelRun(run, reason=reason, version=version, idempotency_key=idempotency_key))

    async def detach(self, run: str, *, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        """Let the parent of a child run go on without it. The child goes on, and keeps its attention.

        The parent gets ChildFailed with the code `detached`. Again changes nothing. Raises InvalidInput, Forbidden for
        programs, Conflict if the run has ended, is no child or holds up no run.
        """
        await self._call(run_ops.DetachRun(run, reason=reason, version=version, idempotency_key=idempotency_key))

    async def continue_run(self, run: str, *, reason: str = "", version: int = 0) -> None:
        """Answer the run's attention with `continue`."""
        await self._call(run_ops.ContinueRun(run, reason=reason, version=version))

    async def extend(self, run: str, *, by: Duration, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        """Extend the ceiling of a run that has passed it `by` this time."""
        await self._call(run_ops.ExtendRun(run, by=by, reason=reason, version=version, idempotency_key=idempotency_key))

    async def move_to(
        self, run: str, scheduler: str, *, reason: str = "", force: bool = False, version: int = 0
    ) -> None:
        """Let another engine schedule a run: "outlast", "temporal" or "langgraph". The run must not be executed now.

        State, waits, approvals and effects stay. `force`: even if no live worker serves its version there. Raises
        InvalidInput.
        """
        await self._call(
            run_ops.MoveRunToScheduler(run, check_scheduler(scheduler), reason=reason, force=force, version=version)
        )

    async def raise_budget(
        self,
        run: str,
        *,
        tokens: int = 0,
        money: Money = 0,
        calls: int = 0,
        minutes: float = 0,
        children: int = 0,
        reason: str,
        version: int = 0,
        idempotency_key: str = "",
    ) -> None:
        """Add `tokens`, `money`, `calls`, `minutes` and `children` to the budget of a run, which may wait for them.

        On the day of the raise, the run may also use so much more of its tenant's daily budget. Raises InvalidInput,
        Forbidden for programs.
        """
        await self._call(
            run_ops.RaiseBudget(
                run,
                tokens=tokens,
                money=money,
                calls=calls,
                minutes=minutes,
                children=children,
                reason=reason,
                version=version,
                idempotency_key=idempotency_key,
            )
        )

    @abstractmethod
    async def to_undo(self, run: str) -> Sequence[str]:
        """Return the effects that a cancel would undo, in order."""

    @abstractmethod
    async def not_undone(self, run: str) -> Sequence[str]:
        """Return the effects that a cancel would leave in place, with reasons."""

    # --- effects -------------------------------------------------------------------------------
    async def effects(self, run: str) -> Sequence[EffectRecord]:
        """Return the ledger of a run in the order of its intents, then the shared effects of other runs."""
        return await self._call(effect_ops.ListEffects(run))

    async def ledger(
        self,
        *,
        status: EffectStatus | None = None,
        unknown: bool = False,
        activity: str = "",
        run: str = "",
        since: Duration | None = None,
        cursor: str = "",
        limit: int = 50,
    ) -> EffectList:
        """Return one page of the effects of all runs, newest first. `status`: only these.

        `unknown`: only those that a person gave up, which may have happened.
        """
        return await self._call(
            effect_ops.ListLedger(
                status=status, unknown=unknown, activity=activity, run=run, since=since, cursor=cursor, limit=limit
            )
        )

    @abstractmethod
    async def effect(self, run: str, key: str, *, visit: int | None = None) -> EffectRecord:
        """Return the effect of a `key`: the one of a `visit` if named, else the uncertain one, else the latest."""

    async def resolve_effect(
        self,
        run: str,
        key: str,
        answer: Verb,
        *,
        reason: str,
        external_id: str = "",
        response: Any = None,
        version: int = 0,
        visit: int | None = None,
        correct: bool = False,
    ) -> None:
        """Record a person's `answer` about the uncertain effect of a `key`, in this `visit` if several have one.

        For a call that happened: `response`, its return value, which must fit the activity's type, and `external_id`,
        the receiver's own id. Until an answer is used, both can be stated again, and `correct` replaces any answer.
        Raises Conflict (settled, used, too early), InvalidInput (the response does not fit), Forbidden.
        """
        await self._call(
            effect_ops.ResolveEffect(
                run,
                key,
                answer,
                reason=reason,
                external_id=external_id,
                response=response,
                version=version,
                visit=visit,
                correct=correct,
            )
        )

    # --- approvals -----------------------------------------------------------------------------
    async def approvals(
        self,
        *,
        status: str = "",
        run: str = "",
        mine: bool = False,
        role: str = "",
        person: str = "",
        overdue: bool = False,
        decided_by: str = "",
        text: str = "",
        sort: ApprovalSort = "newest",
        cursor: str = "",
        limit: int = 50,
    ) -> ApprovalList:
        """Return one page of approvals, newest first.

        `status` and `run`: only these; `mine`: those the caller may decide now; `role`, `person`: those whose rule
        names it; `overdue`: those past their deadline; `decided_by`: those that this person has decided, "me" the
        caller. `text`: those that have each of its words in summary, main arguments, run, requester or id; one page
        searches at most 5,000 approvals. `sort`: "deadline" lists pending approvals only, the earliest deadline first.
        Raises InvalidInput.
        """
        return await self._call(
            approval_ops.ListApprovals(
                status=status,
                run=run,
                mine=mine,
                role=role,
                person=person,
                overdue=overdue,
                decided_by=decided_by,
                text=text,
                sort=sort,
                cursor=cursor,
                limit=limit,
            )
        )

    async def approval(self, approval: str) -> ApprovalDetail:
        """Return an approval with the information for a decision."""
        return await self._call(approval_ops.GetApproval(approval))

    async def approve(
        self,
        approval: str,
        *,
        reason: str = "",
        alternative: int = 0,
        changes: Mapping[str, Any] | None = None,
        version: int = 0,
        idempotency_key: str = "",
    ) -> ApprovalSummary:
        """Approve the requested plan or an `alternative` (1, 2, …); vote for it if a quorum is required.

        `changes`: new values of arguments that the approval declares editable. Raises Forbidden, InvalidInput.
        """
        return await self._call(
            approval_ops.DecideApproval(
                approval,
                "approve",
                reason=reason,
                alternative=alternative,
                changes=changes,
                version=version,
                idempotency_key=idempotency_key,
            )
        )

    async def reject(
        self, approval: str, *, reason: str, again: bool = False, version: int = 0, idempotency_key: str = ""
    ) -> ApprovalSummary:
        """Reject an approval. `again`: request another round, if it is offered. Raises Forbidden."""
        verdict: Literal["again", "reject"] = "again" if again else "reject"
        return await self._call(
            approval_ops.DecideApproval(
                approval, verdict, reason=reason, version=version, idempotency_key=idempotency_key
            )
        )

    async def claim_approval(self, approval: str, *, version: int = 0) -> ApprovalSummary:
        """Record that the caller reviews an approval. Others may still decide."""
        return await self._call(approval_ops.ClaimApproval(approval, version=version))

    async def reassign(self, approval: str, who: str, *, reason: str, version: int = 0) -> ApprovalSummary:
        """Let the holders of another rule decide: `who`, for example "finance|lead". Raises Forbidden."""
        return await self._call(approval_ops.ReassignApproval(approval, who, reason=reason, version=version))

    # --- attention -----------------------------------------------------------------------------
    async def attention(
        self,
        *,
        reason: Reason | None = None,
        workflow: str = "",
        version: int | None = None,
        node: str = "",
        cause: str = "",
        assigned_to: str = "",
        cursor: str = "",
        limit: int = RUNS_PER_READ,
    ) -> AttentionList:
        """Return the items of one page of runs that need a person. The first page has items without a run, too.

        `limit` counts runs, which may have several items. `reason`: only items of this reason. `workflow`, `version`
        and `node`: only items of runs of this workflow, of this version of it, that are at this node. `cause`: only
        items with this cause, as `causes` lists them.

        `assigned_to`: only items of runs that this person takes care of; "me" is the caller, "none" selects the others.
        """
        return await self._call(
            attention_ops.ListAttention(
                reason=reason,
                workflow=workflow,
                version=version,
                node=node,
                cause=cause,
                assigned_to=assigned_to,
                cursor=cursor,
                limit=limit,
            )
        )

    @abstractmethod
    async def attention_of(self, run: str) -> Sequence[RunAttention]:
        """Return the attention items of one run."""

    async def assign(
        self, run: str, to: str, *, reason: Reason | None = None, key: str = "", note: str = ""
    ) -> RunAttention:
        """Assign an attention item of a run to a person, and return the item as it is then.

        `to`: the name of a person, "me" for the caller, "" for none. `reason` and `key` name the item if the run has
        several. `note`: shown beside the name. The assignment gives no right to answer and takes none, and it ends with
        the item. Raises NotFound, InvalidInput, Conflict if the run has no such item, LimitExceeded.
        """
        return await self._call(attention_ops.AssignAttention(run, to, reason=reason, key=key, note=note))

    async def answer(
        self,
        run: str,
        choice: Choice,
        *,
        reason: Reason | None = None,
        key: str = "",
        text: str,
        by: Duration | None = None,
        version: int = 0,
    ) -> Reason:
        """Answer one attention `reason` of a run with a `choice`, and return the reason.

        `key` names the effect if several are uncertain. `text`: for the history; `by`: belongs to "extend".

        Raises InvalidInput if several reasons match, Forbidden for programs.
        """
        return await self._call(
            attention_ops.ResolveAttention(run, choice, reason=reason, key=key, text=text, by=by, version=version)
        )

    async def answer_many(
        self, runs: Sequence[AnswerFor], reason: Reason, choice: Choice, *, text: str, by: Duration | None = None
    ) -> AnswerList:
        """Give up to 100 `runs` with this `reason` the same answer, each with its own outcome.

        `choice`, `text` and `by` are those of `answer`. An answer that is refused for one run is listed and
        not raised. Raises InvalidInput for too many runs, Conflict for a choice that cannot be made for many, Forbidden
        for programs.
        """
        return await self._call(attention_ops.ResolveAttentionOfMany(runs, reason, choice, text=text, by=by))

    # --- agents --------------------------------------------------------------------------------
    async def prompts(self, *, workflow: str = "", model: str = "", days: int = 30) -> PromptList:
        """Count the newest requests to models by instructions, tools, model and version of the workflow.

        `workflow` and `model`: only these. `days`: business days, today included. At most 10,000 requests are counted.
        Raises InvalidInput.
        """
        return await self._call(agent_ops.ListPrompts(workflow=workflow, model=model, days=days))

    async def prompt(self, prompt: str, *, workflow: str = "") -> PromptDetail:
        """Return instructions or tools with the difference to those before.

        `prompt`: their digest, as `prompts` lists it. `workflow`: the workflow whose previous text is compared; by
        default the one that used it last. Raises NotFound.
        """
        return await self._call(agent_ops.GetPrompt(prompt, workflow=workflow))

    async def tools(self, *, workflow: str = "") -> ToolList:
        """Count the newest calls by activity and version of the workflow.

        `workflow`: only calls of its runs. At most 10,000 calls are counted, and the lookups and denials of 200 runs.
        """
        return await self._call(agent_ops.ListTools(workflow=workflow))

    async def tool_calls(
        self,
        *,
        tool: str = "",
        workflow: str = "",
        version: int | None = None,
        outcome: ToolFilter | None = None,
        cursor: str = "",
        limit: int = 50,
    ) -> ToolCallList:
        """Return one page of the calls that `tools` counts, the newest first.

        `tool`, `workflow` and `version`: only these; version 0 is that of purged runs. `outcome`: only calls that ended
        so; `MADE` has all but denials and rejections, `AGAIN` those that were sent more than once. Raises InvalidInput.
        """
        return await self._call(
            agent_ops.ListToolCalls(
                tool=tool, workflow=workflow, version=version, outcome=outcome, cursor=cursor, limit=limit
            )
        )

    # --- causes --------------------------------------------------------------------------------
    async def causes(self, *, reason: str = "", workflow: str = "", node: str = "") -> CauseList:
        """Return the causes for which runs need a person, with the number of runs of each.

        `reason`, `workflow` and `node`: only causes of this reason, in this workflow, in this node. Each cause has 48
        numbers of runs, by the half-hour in which they were flagged.
        """
        return await self._call(cause_ops.ListCauses(reason=reason, workflow=workflow, node=node))

    async def cause(self, cause: str) -> CauseDetail:
        """Return one cause with what differs among its runs: versions, and fields of their input.

        `cause`: its id, as `causes` lists it. They are counted from at most 1,000 runs, the newest. Once no run
        needs a person for it, `runs` is 0 and its past is shown. Raises NotFound if no run had it.
        """
        return await self._call(cause_ops.GetCause(cause))

    async def bars(
        self,
        *,
        workflow: str = "",
        version: int | None = None,
        outcome: str = "",
        cause: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        bars: int = 48,
        of: Literal["ends", "starts"] = "ends",
    ) -> Bars:
        """Count ended runs by the time of their end, and runs by the times at which they began to need a person.

        `flagged` counts a run once in each part in which it did so, answered or not. `of`: "starts" counts the starts
        of runs instead, which have neither outcome nor cause. The time from `since` to `until` is divided into `bars`
        equal parts; by default these are the last 24 hours. `workflow`, `outcome` and `cause`: only these runs. A
        `version` needs a `workflow`. Raises InvalidInput.
        """
        return await self._call(
            cause_ops.GetBars(
                workflow=workflow,
                version=version,
                outcome=outcome,
                cause=cause,
                since=since,
                until=until,
                bars=bars,
                of=of,
            )
        )

    # --- metrics -------------------------------------------------------------------------------
    async def run_durations(
        self,
        *,
        workflow: str = "",
        version: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> RunDurations:
        """Measure the runs that ended from `since` until before `until`, by default in the last 24 hours.

        At most 10,000 runs are measured, those that ended last; of at most 200 of them also the visits to each node,
        and the time with people, other waits and calls. Runs with more than 1,000 events are not among these 200.
        `workflow`: only its runs. A `version` needs a `workflow`. Raises InvalidInput.
        """
        return await self._call(
            metric_ops.GetRunDurations(workflow=workflow, version=version, since=since, until=until)
        )

    async def decision_times(
        self,
        *,
        workflow: str = "",
        version: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> DecisionTimes:
        """Measure how long approvals waited for their decision, and how old the pending ones are.

        Decided approvals count if they were requested from `since` until before `until`, by default in the last 24
        hours. Pending ones count whenever they were requested. At most 10,000 of each are read. `workflow`: only its
        approvals. A `version` needs a `workflow`. Raises InvalidInput.
        """
        return await self._call(
            metric_ops.GetDecisionTimes(workflow=workflow, version=version, since=since, until=until)
        )

    # --- bulk answers --------------------------------------------------------------------------
    async def start_bulk_answer(
        self,
        reason: Reason | None,
        choice: Choice,
        *,
        text: str,
        by: Duration | None = None,
        query: str = "",
        cause: str = "",
        workflow: str = "",
        node: str = "",
        activity: str = "",
        version: int = 0,
        contains: str = "",
        confirm: int = 0,
    ) -> BulkAnswer:
        """Start a job that gives every run with this `reason` a `choice`, and return it. A worker carries it out.

        Without a reason, the `choice` is "cancel", and every unfinished run that `query` finds is cancelled.

        - `query`: only runs that this text finds, as `outlast runs ls` does.
        - `cause`, `workflow`, `node`, `version`, `contains`: only runs with this cause, of this workflow, at this node,
          of this version, and whose error contains this text.
        - `activity`: of "node_diverged" only runs whose missing calls are all of this activity.
        - `text`, `by`: those of `answer`.
        - `confirm`: number of runs that the caller expects. Above 100 runs, "cancel" and "fail" need it.

        Raises NotFound if no run fits, Conflict for a choice that a job cannot give, or another number of runs,
        Forbidden for programs.
        """
        return await self._call(
            attention_ops.StartBulkAnswer(
                reason,
                choice,
                text=text,
                by=by,
                query=query,
                cause=cause,
                workflow=workflow,
                node=node,
                activity=activity,
                version=version,
                contains=contains,
                confirm=confirm,
            )
        )

    async def preview_bulk_answer(
        self,
        reason: Reason | None,
        choice: Choice,
        *,
        query: str = "",
        cause: str = "",
        workflow: str = "",
        node: str = "",
        activity: str = "",
        version: int = 0,
        contains: str = "",
    ) -> BulkPreview:
        """Count the runs that `start_bulk_answer` would answer with the same parameters now.

        These are `reason`, `choice`, `query`, `cause`, `workflow`, `node`, `activity`, `version` and `contains`.

        Raises Conflict for a choice that a job cannot give.
        """
        return await self._call(
            attention_ops.PreviewBulkAnswer(
                reason,
                choice,
                query=query,
                cause=cause,
                workflow=workflow,
                node=node,
                activity=activity,
                version=version,
                contains=contains,
            )
        )

    async def bulk_answer(self, run: str) -> BulkAnswer:
        """Return the progress of the job `run` that answers runs. Raises NotFound."""
        return await self._call(attention_ops.GetBulkAnswer(run))

    # --- the store -----------------------------------------------------------------------------
    async def summary(self) -> StatusSummary:
        """Count the items that need a person, and all that cannot continue, for the caller."""
        return await self._call(service_ops.GetSummary())

    async def whoami(self) -> CallerInfo:
        """Return the caller with its tenant and roles."""
        return await self._call(service_ops.GetMe())

    async def workers(self) -> Sequence[WorkerStatus]:
        """Return the workers, those that have stopped included."""
        return await self._call(service_ops.ListWorkers(everybody=True))

    async def drain_worker(self, worker: str, *, reason: str) -> WorkerStatus:
        """Ask `worker` to take no more runs, give back those it holds, and stop.

        It reads the request at its next heartbeat. A second request changes nothing. Raises NotFound, Conflict if the
        worker is dead.
        """
        return await self._call(service_ops.DrainWorker(worker, reason=reason))

    @abstractmethod
    async def input_schema(self, workflow: str) -> Mapping[str, Any]:
        """Return the JSON schema of a workflow's input; empty if the workflow is unknown here."""

    @abstractmethod
    async def topology(self, workflow: str, lane: str) -> Mapping[str, Any] | None:
        """Return the graph of one version (`lane`) of a workflow, or None if no worker has recorded it."""

    async def versions(self) -> Sequence[VersionStatus]:
        """Return the versions of every workflow that are served or have unfinished runs."""
        return await self._call(service_ops.ListVersions())

    @abstractmethod
    async def unfinished(self, workflow: str, lane: str, *, limit: int = 0) -> Sequence[str]:
        """Return the ids of the unfinished runs of one version (`lane`), at most `limit` of them; 0: all."""

    async def move_run(
        self, run: str, workflow: str, to: int, *, node: str = "", reason: str = "", version: int = 0
    ) -> None:
        """Request that a run continue in another version (`to`) of its `workflow`, and at a `node` of it.

        '' is its current node. Raises NotFound, InvalidInput.
        """
        await self._call(run_ops.MoveRun(run, workflow, to, node=node, reason=reason, version=version))

    async def unmovable(self, run: str) -> str:
        """Return why a run cannot move to another version of its workflow now; '' if it can."""
        return await self._call(run_ops.GetUnmovable(run))

    @abstractmethod
    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str = "", reason: str
    ) -> AnsweredRuns:
        """Request the move of `runs` to a `version`, and to a `node` of it. Failures are listed, not raised."""

    async def budgets(self) -> Sequence[DailyBudget]:
        """Return the daily budget of the tenant with its usage today; empty if it has none."""
        return await self._call(service_ops.ListBudgets())

    async def budgeted_runs(self, *, limit: int = 50) -> BudgetedRunList:
        """Return the unfinished runs with a budget, at most `limit`, the one that is nearest to a limit first.

        Raises InvalidInput.
        """
        return await self._call(service_ops.ListBudgetedRuns(limit=limit))

    async def audit(
        self,
        *,
        by: str = "",
        kind: AuditKind | None = None,
        since: Duration | None = None,
        cursor: str = "",
        limit: int = 50,
    ) -> AuditList:
        """Return one page of the acts of people and programs over all runs, newest first. Raises InvalidInput.

        `by`: only acts of this caller; `kind`: only acts of this kind; `since`: only acts of at most this age;
        `cursor`: `next_cursor` of the page before; `limit`: maximum number of acts.
        """
        return await self._call(audit_ops.ListAudit(by=by, kind=kind, since=since, cursor=cursor, limit=limit))

    async def usage(self, *, days: int = 14) -> UsageList:
        """Add up the usage that calls have reported on each of the last `days` business days, today included.

        Raises InvalidInput.
        """
        return await self._call(service_ops.ListUsage(days=days))

    async def views(self) -> Sequence[SavedView]:
        """Return the saved views of the tenant: named queries of lists of runs, ordered by name."""
        return await self._call(view_ops.ListViews())

    async def save_view(self, name: str, query: str) -> SavedView:
        """Save a `query` of a list of runs under a `name`, in place of an earlier one.

        `query`: words and terms, such as "customer:acme reason:exception". A tenant has at most 100 views. Raises
        InvalidInput, LimitExceeded.
        """
        return await self._call(view_ops.SaveView(name, query))

    async def remove_view(self, name: str) -> Sequence[SavedView]:
        """Remove the view of a `name` and return those that are left. Raises NotFound."""
        return await self._call(view_ops.RemoveView(name))

    async def set_budget(self, budget: Budget | None, *, reason: str = "") -> None:
        """Set the daily `budget` of the tenant; None removes it. Runs that wait for a budget look again.

        Raises InvalidInput, Forbidden for programs.
        """
        limits = budget.limits if budget is not None else NO_LIMITS
        if limits.children is not None:
            raise InvalidInput("a daily budget has no children", "they count for one run", "leave children out")
        money = None if limits.money is None else money_text(limits.money)
        minutes = budget.minutes if budget is not None else None
        await self._call(
            service_ops.SetBudget(tokens=limits.tokens, money=money, calls=limits.calls, minutes=minutes, reason=reason)
        )

    async def set_slots(self, n: int, *, everywhere: bool = False) -> SlotLimit:
        """Raise the maximum of admitted runs of the tenant, or of all tenants (`everywhere`), to `n`.

        It cannot be lowered. Raises InvalidInput, Conflict.
        """
        return await self._call(service_ops.SetSlots(n, everywhere=everywhere))

    async def pauses(self) -> Sequence[ActivePause]:
        """Return the pauses in force and the open circuit breakers."""
        return await self._call(service_ops.ListPauses())

    async def pause(self, what: What, name: str = "", *, reason: str) -> PauseCreated:
        """Stop new intents of one `what`, which has this `name`; the tenant has none.

        Raises InvalidInput.
        """
        return await self._call(service_ops.PauseCalls(what, name, reason=reason))

    async def resume(self, what: What, name: str = "") -> PauseEnded:
        """End the pause of `what` and `name`, and return the number of runs that waited for it."""
        return await self._call(service_ops.ResumeCalls(what, name))


check_calls(Client, Client)  # those that it defines itself

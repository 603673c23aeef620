"""The client for programs without asyncio: Django, Flask, Celery, scripts.

Written by scripts/sync-client from `Client`, `RunHandle` and `WebhookClient`. Do not edit.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar, overload

from pydantic import BaseModel

from outlast.client import TIMEOUT, connect
from outlast.client.loop_thread import LoopThread
from outlast.client.sync_stream import SyncStream, WorkerBlock
from outlast.core.approvals import Actor
from outlast.core.durations import Duration, Liveness
from outlast.core.limits import RUNS_PER_READ
from outlast.core.machine import Choice, DeliveryStatus, EffectStatus, Reason
from outlast.core.rows.run_columns import What
from outlast.core.usage import Budget, Money
from outlast.flow.function_workflow import FunctionWorkflow
from outlast.flow.workflow import Workflow
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
    CloudEvent,
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
from outlast.models.webhooks import DeliveryList, WebhookAttempt, WebhookDetail, WebhookSummary, WebhookWithSecret
from outlast.runtime.client import Client
from outlast.runtime.run_handle import RunHandle, Timeout
from outlast.runtime.webhook_client import WebhookClient

P = ParamSpec("P")
T = TypeVar("T")
In = TypeVar("In", bound=BaseModel)
Out = TypeVar("Out")


class SyncRunHandle(Generic[T]):
    """One run. `T` is the type of its outcome. Made by `SyncClient.start` and `SyncClient.get`.

    The methods are those of `RunHandle`, without `await`.
    """

    def __init__(self, loop: LoopThread, handle: RunHandle[T]) -> None:
        """Call `client.start` or `client.get` instead."""
        self._loop = loop
        self._target = handle
        self.id = handle.id
        self.workflow = handle.workflow
        self.created = handle.created

    def status(self) -> RunSummary:
        """Return the run as lists show it: status, node, waits, attention. Raises NotFound."""
        return self._loop.run(lambda: self._target.status())

    def detail(self) -> RunDetail:
        """Return the run with visits, counts and progress; with its outcome, once it has ended. Raises NotFound."""
        return self._loop.run(lambda: self._target.detail())

    def result(self, timeout: Timeout | None = None) -> T:
        """Wait until the run has ended and return its outcome, in the type that the workflow declares.

        Waiting goes on while the run waits for a person, an approval or a worker. `timeout` limits it: a `timedelta`,
        text such as "10m", or seconds; None waits without a limit. The run is not affected by the end of the wait.

        Raises RunFailed, RunCancelled, NotFound, NotStorable (the outcome does not fit the type), and WaitTimeout,
        which names what the run waits for.
        """
        return self._loop.run(lambda: self._target.result(timeout))

    def events(self, *, after: int = 0) -> SyncStream[CloudEvent]:
        """Yield the events of the run, live, until it has ended. `after`: the number of the last event not wanted."""
        return SyncStream(self._loop, self._target.events(after=after))

    def updates(self, *, after: int = 0) -> SyncStream[CloudEvent | RunDelta]:
        """Yield as `events`, and each text that the run streams (`ctx.stream`) as it comes.

        `after` is that of `events`. Texts are sent once and not stored: a reader that lags or is disconnected loses
        some. The answer that they lead to is in the run.
        """
        return SyncStream(self._loop, self._target.updates(after=after))

    def signal(self, name: str, payload: BaseModel | Mapping[str, Any] | object, *, signal_id: str = "") -> bool:
        """Send a signal, which `ctx.receive` of this `name` reads.

        `payload` is a model, a mapping, or another value with fields. Signals of one `signal_id` are delivered once;
        the return value is False for a repetition. Raises NotFound, Conflict (the run has ended), InvalidInput,
        NotStorable.
        """
        return self._loop.run(lambda: self._target.signal(name, payload, signal_id=signal_id))

    def cancel(self, reason: str, *, idempotency_key: str = "") -> None:
        """Request the cancellation of the run. A worker undoes its effects before it ends.

        `reason` is kept in the history. Calls with the same `idempotency_key` are one request. Raises NotFound,
        Conflict (the run has ended), InvalidInput.
        """
        self._loop.run(lambda: self._target.cancel(reason, idempotency_key=idempotency_key))

    def __repr__(self) -> str:
        return repr(self._target)


class SyncWebhookClient:
    """Webhooks of one tenant. The methods are those of `WebhookClient`, without `await`."""

    def __init__(self, loop: LoopThread, webhooks: WebhookClient) -> None:
        """Use `client.webhooks` instead."""
        self._loop = loop
        self._target = webhooks

    def list(self) -> Sequence[WebhookDetail]:
        """Return every webhook with its delivery counts."""
        return self._loop.run(lambda: self._target.list())

    def get(self, webhook: str) -> WebhookDetail:
        """Return one webhook with its delivery counts. Raises NotFound."""
        return self._loop.run(lambda: self._target.get(webhook))

    def unsent_ms(self) -> int:
        """Return for how long events have waited without a live dispatcher, in ms; 0 if none wait."""
        return self._loop.run(lambda: self._target.unsent_ms())

    def add(
        self,
        url: str,
        *,
        name: str = "",
        types: Sequence[str] = (),
        workflows: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        from_start: bool = False,
        forks: bool = False,
        idempotency_key: str = "",
    ) -> WebhookWithSecret:
        """Create a webhook that sends events to `url`, and return it with its secret, which is shown only here.

        `name` is for people. `types` and `workflows` select events ((): all). `headers` are sent with each event.
        `from_start` also sends the events that exist already, `forks` those of forks. A repetition under the same key
        adds nothing and raises Uncertain, because the secret is shown once. Raises InvalidInput.
        """
        return self._loop.run(
            lambda: self._target.add(
                url,
                name=name,
                types=types,
                workflows=workflows,
                headers=headers,
                from_start=from_start,
                forks=forks,
                idempotency_key=idempotency_key,
            )
        )

    def notify(
        self,
        address: str,
        *,
        role: str = "",
        person: str = "",
        every: bool = False,
        kinds: Sequence[str] = (),
        workflows: Sequence[str] = (),
        name: str = "",
        idempotency_key: str = "",
    ) -> WebhookSummary:
        """Send messages about approvals to an `address` of mail, Slack, Teams or ntfy, and return the subscription.

        Exactly one of `role`, `person` and `every` says whose approvals: those whose rule names the role or the
        person, or all of them. `kinds` are `asked`, `reminder` and `escalated` ((): all three). `workflows` selects
        runs ((): all), `name` is for people. The address is a secret and never shown. Raises InvalidInput.
        """
        return self._loop.run(
            lambda: self._target.notify(
                address,
                role=role,
                person=person,
                every=every,
                kinds=kinds,
                workflows=workflows,
                name=name,
                idempotency_key=idempotency_key,
            )
        )

    def test(self, webhook: str) -> WebhookAttempt:
        """Send a signed test event and return the attempt. Raises NotFound."""
        return self._loop.run(lambda: self._target.test(webhook))

    def deliveries(
        self, webhook: str = "", *, status: DeliveryStatus | None = None, cursor: str = "", limit: int = 50
    ) -> DeliveryList:
        """Return a page of events that were not accepted at the first attempt, newest first.

        `webhook`: '' for all. `status`: only these. `cursor`: `next_cursor` of the page before; `limit`: size of a
        page.
        """
        return self._loop.run(lambda: self._target.deliveries(webhook, status=status, cursor=cursor, limit=limit))

    def redeliver(self, delivery: str) -> int:
        """Send an event again, or all that were given up for a webhook. Return their number.

        `delivery`: id of a delivery or of a webhook. Raises NotFound, Conflict.
        """
        return self._loop.run(lambda: self._target.redeliver(delivery))

    def rotate(
        self, webhook: str, *, keep: Duration | None = None, version: int = 0, idempotency_key: str = ""
    ) -> WebhookWithSecret:
        """Replace the secret and return the new one. `keep`: how long the old secret signs too [24h].

        `version`: the one that you saw, 0 for any. A repetition under the same key finds its own rotation and raises
        Uncertain, because a secret is shown once: rotate once more, under another key. Raises NotFound, Conflict.
        """
        return self._loop.run(
            lambda: self._target.rotate(webhook, keep=keep, version=version, idempotency_key=idempotency_key)
        )

    def disable(self, webhook: str, *, reason: str) -> WebhookSummary:
        """Stop deliveries until the webhook is enabled again. The position is kept, and `reason` is shown."""
        return self._loop.run(lambda: self._target.disable(webhook, reason=reason))

    def enable(self, webhook: str) -> WebhookSummary:
        """Resume deliveries at the kept position."""
        return self._loop.run(lambda: self._target.enable(webhook))

    def remove(self, webhook: str) -> WebhookSummary:
        """Remove a webhook with its secret. It cannot be restored."""
        return self._loop.run(lambda: self._target.remove(webhook))


class SyncClient:
    """Reads and actions of one caller in one tenant. Made by `connect_sync`.

    The methods are those of `Client`, without `await`.

    Any thread may use it, also several at once. Its connections live in one event loop in a separate thread. A call
    from a running event loop blocks that loop; use `outlast.connect` there. A process that forks connects after the
    fork: a call of a forked client raises Misplaced.
    """

    def __init__(self, loop: LoopThread, client: Client) -> None:
        """Call `connect_sync` instead."""
        self._loop = loop
        self._target = client
        self.me = client.me
        self.has_code = client.has_code
        self.scheduler = client.scheduler

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the connections and end the thread. A second call has no effect."""
        self._loop.stop(self._target.close)

    @property
    def webhooks(self) -> SyncWebhookClient:
        """Client for the webhooks of the tenant."""
        return SyncWebhookClient(self._loop, self._target.webhooks)

    @overload
    def start(self, workflow: FunctionWorkflow[P, Out], /, *args: P.args, **kwargs: P.kwargs) -> SyncRunHandle[Out]: ...
    @overload
    def start(
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
    ) -> SyncRunHandle[Out]: ...
    @overload
    def start(
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
    ) -> SyncRunHandle[Out]: ...
    @overload
    def start(
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
    ) -> SyncRunHandle[Any]: ...
    def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> SyncRunHandle[Any]:
        """Start a run and return its handle once it is durable. Parameters and errors are those of `Client.start`."""
        return SyncRunHandle(self._loop, self._loop.run(lambda: self._target.start(workflow, *args, **kwargs)))

    @overload
    def get(self, workflow: Workflow[Any, Any, Out], run: str, /) -> SyncRunHandle[Out]: ...
    @overload
    def get(self, workflow: str, run: str, /) -> SyncRunHandle[Any]: ...
    @overload
    def get(self, run: str, /) -> SyncRunHandle[Any]: ...
    def get(self, workflow: Any, run: str = "", /) -> SyncRunHandle[Any]:
        """Return the handle of a run without asking for it: `client.get(orders, "run-id")`, `client.get("run-id")`.

        `workflow` types the outcome. Its name, or `run` as the only argument, gives an outcome of plain JSON.
        """
        handle = self._target.get(workflow, run) if run else self._target.get(workflow)
        return SyncRunHandle(self._loop, handle)

    def now(self) -> datetime:
        """Return the real time: the store's clock, or this machine's with a service."""
        return self._loop.run(lambda: self._target.now())

    def ended(self, run: str, *, within_s: float | None = None) -> bool:
        """Wait until a `run` has ended; return False after `within_s` seconds. None: wait without a limit."""
        return self._loop.run(lambda: self._target.ended(run, within_s=within_s))

    def run_end(self, run: str, *, within_s: float | None = None) -> EndedRun | None:
        """Wait until a `run` has ended and return its end; None after `within_s` seconds."""
        return self._loop.run(lambda: self._target.run_end(run, within_s=within_s))

    def worker(
        self,
        workflows: Sequence[Workflow[Any, Any, Any]],
        *,
        concurrency: int = 100,
        name: str = "",
        live: Liveness | None = None,
    ) -> AbstractContextManager[None]:
        """Serve `workflows` in this process while the block runs, then give back the runs that it holds.

        `concurrency` is the maximum of concurrent runs, `name` the display name of the worker, `live` the durations
        after which it counts as dead. The workflows can be started by name afterwards. Needs a store: at a service it
        raises InvalidInput. Raises DefinitionError, and StoreReplaced at the end if the store is gone.
        """
        return WorkerBlock(self._loop, self._target.worker(workflows, concurrency=concurrency, name=name, live=live))

    def start_run(
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
        return self._loop.run(
            lambda: self._target.start_run(
                workflow,
                given,
                run_id=run_id,
                key=key,
                correlation_id=correlation_id,
                trace_id=trace_id,
                scheduler=scheduler,
            )
        )

    def runs(
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
        return self._loop.run(
            lambda: self._target.runs(
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

    def fork_points(self, run: str) -> ForkPointList:
        """Return the checkpoints from which a `run` can be forked, oldest first, with the calls of each.

        Raises NotFound, and Conflict (`purged`).
        """
        return self._loop.run(lambda: self._target.fork_points(run))

    def fork_preview(
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
        return self._loop.run(
            lambda: self._target.fork_preview(
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

    def fork_run(
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
        return self._loop.run(
            lambda: self._target.fork_run(
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

    def fork_run_live(
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
        return self._loop.run(
            lambda: self._target.fork_run_live(
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

    def run(self, run: str) -> RunDetail:
        """Return a run with visits, counts, takeovers and progress; with outcome and reason once it has ended."""
        return self._loop.run(lambda: self._target.run(run))

    def run_summary(self, run: str) -> RunSummary:
        """Return a run with the fields that lists show."""
        return self._loop.run(lambda: self._target.run_summary(run))

    def run_input(self, run: str) -> Any:
        """Return the input of a run as its workflow parsed it."""
        return self._loop.run(lambda: self._target.run_input(run))

    def run_state(self, run: str, *, checkpoint: int = 0) -> RunState:
        """Return the state of a run at a checkpoint, without values that look like secrets.

        `checkpoint`: number of the event that wrote it, as `checkpoints` lists them, or 1 for the start; 0 for the last
        one. What the current node has changed since is not in it. Raises NotFound.
        """
        return self._loop.run(lambda: self._target.run_state(run, checkpoint=checkpoint))

    def results(self, run: str, *, after: int = 0, limit: int = 1_000) -> ResultList:
        """Return one page of results in the order of first emission, `after` an ordinal."""
        return self._loop.run(lambda: self._target.results(run, after=after, limit=limit))

    def steps(self, run: str, *, kind: str = "", step: str = "", cursor: str = "", limit: int = 50) -> StepList:
        """Return one page of steps, oldest first. `kind`: only these; `step`: only this id, with its whole texts."""
        return self._loop.run(lambda: self._target.steps(run, kind=kind, step=step, cursor=cursor, limit=limit))

    def compare(self, run: str, other: str, *, after: int = 0, limit: int = 50, every: bool = False) -> RunComparison:
        """Return where two runs of one workflow part, with one page of their differences, `after` a number.

        `other`: the run to compare with, of the same version or of another one. `every`: also the visits and calls that
        are equal, in their order. Raises NotFound, InvalidInput.
        """
        return self._loop.run(lambda: self._target.compare(run, other, after=after, limit=limit, every=every))

    def timeline(self, run: str, *, begin: datetime | None = None, end: datetime | None = None) -> Timeline:
        """Return visits, attempts and waits of a run as bars in lanes of nodes, with crashes and takeovers.

        `begin`, `end`: only what overlaps this span of business time. Neighbouring bars are grouped beyond 400. Raises
        InvalidInput.
        """
        return self._loop.run(lambda: self._target.timeline(run, begin=begin, end=end))

    def events(self, run: str, *, after: int = 0, limit: int = 200, of_type: str = "") -> EventList:
        """Return one page of events, oldest first, `after` a sequence number.

        `of_type`: only this type, or with a star at its end, all that begin so. Raises NotFound, InvalidInput.
        """
        return self._loop.run(lambda: self._target.events(run, after=after, limit=limit, of_type=of_type))

    def follow(self, run: str, *, after: int = 0) -> SyncStream[str]:
        """Yield the stored text of each event of a `run` `after` a number, as it is written, until it has ended."""
        return SyncStream(self._loop, self._target.follow(run, after=after))

    def updates(self, run: str, *, after: int = 0) -> SyncStream[str | RunDelta]:
        """Yield events of a `run` `after` a number as `follow`, and each text that it streams as it comes.

        A caller that lags loses such texts.
        """
        return SyncStream(self._loop, self._target.updates(run, after=after))

    def tree(self, run: str) -> RunTree:
        """Return the runs that a run has started, and theirs, each after its parent; at most 50. Raises NotFound."""
        return self._loop.run(lambda: self._target.tree(run))

    def explain(self, run: str) -> RunExplanation:
        """Return the state of a run, its cause and the next step."""
        return self._loop.run(lambda: self._target.explain(run))

    def signal(self, run: str, name: str, payload: Mapping[str, Any], *, signal_id: str = "", version: int = 0) -> bool:
        """Send the signal `name` with a `payload`. Return False if one of this `signal_id` was sent before.

        Raises NotStorable.
        """
        return self._loop.run(lambda: self._target.signal(run, name, payload, signal_id=signal_id, version=version))

    def cancel(self, run: str, *, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        """Request the cancellation of a run. A worker undoes its effects before it ends. Raises InvalidInput."""
        self._loop.run(
            lambda: self._target.cancel(run, reason=reason, version=version, idempotency_key=idempotency_key)
        )

    def detach(self, run: str, *, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        """Let the parent of a child run go on without it. The child goes on, and keeps its attention.

        The parent gets ChildFailed with the code `detached`. Again changes nothing. Raises InvalidInput, Forbidden for
        programs, Conflict if the run has ended, is no child or holds up no run.
        """
        self._loop.run(
            lambda: self._target.detach(run, reason=reason, version=version, idempotency_key=idempotency_key)
        )

    def continue_run(self, run: str, *, reason: str = "", version: int = 0) -> None:
        """Answer the run's attention with `continue`."""
        self._loop.run(lambda: self._target.continue_run(run, reason=reason, version=version))

    def extend(self, run: str, *, by: Duration, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        """Extend the ceiling of a run that has passed it `by` this time."""
        self._loop.run(
            lambda: self._target.extend(run, by=by, reason=reason, version=version, idempotency_key=idempotency_key)
        )

    def move_to(self, run: str, scheduler: str, *, reason: str = "", force: bool = False, version: int = 0) -> None:
        """Let another engine schedule a run: "outlast", "temporal" or "langgraph". The run must not be executed now.

        State, waits, approvals and effects stay. `force`: even if no live worker serves its version there. Raises
        InvalidInput.
        """
        self._loop.run(lambda: self._target.move_to(run, scheduler, reason=reason, force=force, version=version))

    def raise_budget(
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
        self._loop.run(
            lambda: self._target.raise_budget(
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

    def to_undo(self, run: str) -> Sequence[str]:
        """Return the effects that a cancel would undo, in order."""
        return self._loop.run(lambda: self._target.to_undo(run))

    def not_undone(self, run: str) -> Sequence[str]:
        """Return the effects that a cancel would leave in place, with reasons."""
        return self._loop.run(lambda: self._target.not_undone(run))

    def effects(self, run: str) -> Sequence[EffectRecord]:
        """Return the ledger of a run in the order of its intents, then the shared effects of other runs."""
        return self._loop.run(lambda: self._target.effects(run))

    def ledger(
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
        return self._loop.run(
            lambda: self._target.ledger(
                status=status, unknown=unknown, activity=activity, run=run, since=since, cursor=cursor, limit=limit
            )
        )

    def effect(self, run: str, key: str, *, visit: int | None = None) -> EffectRecord:
        """Return the effect of a `key`: the one of a `visit` if named, else the uncertain one, else the latest."""
        return self._loop.run(lambda: self._target.effect(run, key, visit=visit))

    def resolve_effect(
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
        self._loop.run(
            lambda: self._target.resolve_effect(
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

    def approvals(
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
        return self._loop.run(
            lambda: self._target.approvals(
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

    def approval(self, approval: str) -> ApprovalDetail:
        """Return an approval with the information for a decision."""
        return self._loop.run(lambda: self._target.approval(approval))

    def approve(
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
        return self._loop.run(
            lambda: self._target.approve(
                approval,
                reason=reason,
                alternative=alternative,
                changes=changes,
                version=version,
                idempotency_key=idempotency_key,
            )
        )

    def reject(
        self, approval: str, *, reason: str, again: bool = False, version: int = 0, idempotency_key: str = ""
    ) -> ApprovalSummary:
        """Reject an approval. `again`: request another round, if it is offered. Raises Forbidden."""
        return self._loop.run(
            lambda: self._target.reject(
                approval, reason=reason, again=again, version=version, idempotency_key=idempotency_key
            )
        )

    def claim_approval(self, approval: str, *, version: int = 0) -> ApprovalSummary:
        """Record that the caller reviews an approval. Others may still decide."""
        return self._loop.run(lambda: self._target.claim_approval(approval, version=version))

    def reassign(self, approval: str, who: str, *, reason: str, version: int = 0) -> ApprovalSummary:
        """Let the holders of another rule decide: `who`, for example "finance|lead". Raises Forbidden."""
        return self._loop.run(lambda: self._target.reassign(approval, who, reason=reason, version=version))

    def attention(
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
        return self._loop.run(
            lambda: self._target.attention(
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

    def attention_of(self, run: str) -> Sequence[RunAttention]:
        """Return the attention items of one run."""
        return self._loop.run(lambda: self._target.attention_of(run))

    def assign(self, run: str, to: str, *, reason: Reason | None = None, key: str = "", note: str = "") -> RunAttention:
        """Assign an attention item of a run to a person, and return the item as it is then.

        `to`: the name of a person, "me" for the caller, "" for none. `reason` and `key` name the item if the run has
        several. `note`: shown beside the name. The assignment gives no right to answer and takes none, and it ends with
        the item. Raises NotFound, InvalidInput, Conflict if the run has no such item, LimitExceeded.
        """
        return self._loop.run(lambda: self._target.assign(run, to, reason=reason, key=key, note=note))

    def answer(
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
        return self._loop.run(
            lambda: self._target.answer(run, choice, reason=reason, key=key, text=text, by=by, version=version)
        )

    def answer_many(
        self, runs: Sequence[AnswerFor], reason: Reason, choice: Choice, *, text: str, by: Duration | None = None
    ) -> AnswerList:
        """Give up to 100 `runs` with this `reason` the same answer, each with its own outcome.

        `choice`, `text` and `by` are those of `answer`. An answer that is refused for one run is listed and
        not raised. Raises InvalidInput for too many runs, Conflict for a choice that cannot be made for many, Forbidden
        for programs.
        """
        return self._loop.run(lambda: self._target.answer_many(runs, reason, choice, text=text, by=by))

    def prompts(self, *, workflow: str = "", model: str = "", days: int = 30) -> PromptList:
        """Count the newest requests to models by instructions, tools, model and version of the workflow.

        `workflow` and `model`: only these. `days`: business days, today included. At most 10,000 requests are counted.
        Raises InvalidInput.
        """
        return self._loop.run(lambda: self._target.prompts(workflow=workflow, model=model, days=days))

    def prompt(self, prompt: str, *, workflow: str = "") -> PromptDetail:
        """Return instructions or tools with the difference to those before.

        `prompt`: their digest, as `prompts` lists it. `workflow`: the workflow whose previous text is compared; by
        default the one that used it last. Raises NotFound.
        """
        return self._loop.run(lambda: self._target.prompt(prompt, workflow=workflow))

    def tools(self, *, workflow: str = "") -> ToolList:
        """Count the newest calls by activity and version of the workflow.

        `workflow`: only calls of its runs. At most 10,000 calls are counted, and the lookups and denials of 200 runs.
        """
        return self._loop.run(lambda: self._target.tools(workflow=workflow))

    def tool_calls(
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
        return self._loop.run(
            lambda: self._target.tool_calls(
                tool=tool, workflow=workflow, version=version, outcome=outcome, cursor=cursor, limit=limit
            )
        )

    def causes(self, *, reason: str = "", workflow: str = "", node: str = "") -> CauseList:
        """Return the causes for which runs need a person, with the number of runs of each.

        `reason`, `workflow` and `node`: only causes of this reason, in this workflow, in this node. Each cause has 48
        numbers of runs, by the half-hour in which they were flagged.
        """
        return self._loop.run(lambda: self._target.causes(reason=reason, workflow=workflow, node=node))

    def cause(self, cause: str) -> CauseDetail:
        """Return one cause with what differs among its runs: versions, and fields of their input.

        `cause`: its id, as `causes` lists it. They are counted from at most 1,000 runs, the newest. Once no run
        needs a person for it, `runs` is 0 and its past is shown. Raises NotFound if no run had it.
        """
        return self._loop.run(lambda: self._target.cause(cause))

    def bars(
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
        return self._loop.run(
            lambda: self._target.bars(
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

    def run_durations(
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
        return self._loop.run(
            lambda: self._target.run_durations(workflow=workflow, version=version, since=since, until=until)
        )

    def decision_times(
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
        return self._loop.run(
            lambda: self._target.decision_times(workflow=workflow, version=version, since=since, until=until)
        )

    def start_bulk_answer(
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
        return self._loop.run(
            lambda: self._target.start_bulk_answer(
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

    def preview_bulk_answer(
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
        return self._loop.run(
            lambda: self._target.preview_bulk_answer(
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

    def bulk_answer(self, run: str) -> BulkAnswer:
        """Return the progress of the job `run` that answers runs. Raises NotFound."""
        return self._loop.run(lambda: self._target.bulk_answer(run))

    def summary(self) -> StatusSummary:
        """Count the items that need a person, and all that cannot continue, for the caller."""
        return self._loop.run(lambda: self._target.summary())

    def whoami(self) -> CallerInfo:
        """Return the caller with its tenant and roles."""
        return self._loop.run(lambda: self._target.whoami())

    def workers(self) -> Sequence[WorkerStatus]:
        """Return the workers, those that have stopped included."""
        return self._loop.run(lambda: self._target.workers())

    def drain_worker(self, worker: str, *, reason: str) -> WorkerStatus:
        """Ask `worker` to take no more runs, give back those it holds, and stop.

        It reads the request at its next heartbeat. A second request changes nothing. Raises NotFound, Conflict if the
        worker is dead.
        """
        return self._loop.run(lambda: self._target.drain_worker(worker, reason=reason))

    def input_schema(self, workflow: str) -> Mapping[str, Any]:
        """Return the JSON schema of a workflow's input; empty if the workflow is unknown here."""
        return self._loop.run(lambda: self._target.input_schema(workflow))

    def topology(self, workflow: str, lane: str) -> Mapping[str, Any] | None:
        """Return the graph of one version (`lane`) of a workflow, or None if no worker has recorded it."""
        return self._loop.run(lambda: self._target.topology(workflow, lane))

    def versions(self) -> Sequence[VersionStatus]:
        """Return the versions of every workflow that are served or have unfinished runs."""
        return self._loop.run(lambda: self._target.versions())

    def unfinished(self, workflow: str, lane: str, *, limit: int = 0) -> Sequence[str]:
        """Return the ids of the unfinished runs of one version (`lane`), at most `limit` of them; 0: all."""
        return self._loop.run(lambda: self._target.unfinished(workflow, lane, limit=limit))

    def move_run(self, run: str, workflow: str, to: int, *, node: str = "", reason: str = "", version: int = 0) -> None:
        """Request that a run continue in another version (`to`) of its `workflow`, and at a `node` of it.

        '' is its current node. Raises NotFound, InvalidInput.
        """
        self._loop.run(lambda: self._target.move_run(run, workflow, to, node=node, reason=reason, version=version))

    def unmovable(self, run: str) -> str:
        """Return why a run cannot move to another version of its workflow now; '' if it can."""
        return self._loop.run(lambda: self._target.unmovable(run))

    def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str = "", reason: str
    ) -> AnsweredRuns:
        """Request the move of `runs` to a `version`, and to a `node` of it. Failures are listed, not raised."""
        return self._loop.run(lambda: self._target.move_runs(workflow, version, runs, node=node, reason=reason))

    def budgets(self) -> Sequence[DailyBudget]:
        """Return the daily budget of the tenant with its usage today; empty if it has none."""
        return self._loop.run(lambda: self._target.budgets())

    def budgeted_runs(self, *, limit: int = 50) -> BudgetedRunList:
        """Return the unfinished runs with a budget, at most `limit`, the one that is nearest to a limit first.

        Raises InvalidInput.
        """
        return self._loop.run(lambda: self._target.budgeted_runs(limit=limit))

    def audit(
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
        return self._loop.run(lambda: self._target.audit(by=by, kind=kind, since=since, cursor=cursor, limit=limit))

    def usage(self, *, days: int = 14) -> UsageList:
        """Add up the usage that calls have reported on each of the last `days` business days, today included.

        Raises InvalidInput.
        """
        return self._loop.run(lambda: self._target.usage(days=days))

    def views(self) -> Sequence[SavedView]:
        """Return the saved views of the tenant: named queries of lists of runs, ordered by name."""
        return self._loop.run(lambda: self._target.views())

    def save_view(self, name: str, query: str) -> SavedView:
        """Save a `query` of a list of runs under a `name`, in place of an earlier one.

        `query`: words and terms, such as "customer:acme reason:exception". A tenant has at most 100 views. Raises
        InvalidInput, LimitExceeded.
        """
        return self._loop.run(lambda: self._target.save_view(name, query))

    def remove_view(self, name: str) -> Sequence[SavedView]:
        """Remove the view of a `name` and return those that are left. Raises NotFound."""
        return self._loop.run(lambda: self._target.remove_view(name))

    def set_budget(self, budget: Budget | None, *, reason: str = "") -> None:
        """Set the daily `budget` of the tenant; None removes it. Runs that wait for a budget look again.

        Raises InvalidInput, Forbidden for programs.
        """
        self._loop.run(lambda: self._target.set_budget(budget, reason=reason))

    def set_slots(self, n: int, *, everywhere: bool = False) -> SlotLimit:
        """Raise the maximum of admitted runs of the tenant, or of all tenants (`everywhere`), to `n`.

        It cannot be lowered. Raises InvalidInput, Conflict.
        """
        return self._loop.run(lambda: self._target.set_slots(n, everywhere=everywhere))

    def pauses(self) -> Sequence[ActivePause]:
        """Return the pauses in force and the open circuit breakers."""
        return self._loop.run(lambda: self._target.pauses())

    def pause(self, what: What, name: str = "", *, reason: str) -> PauseCreated:
        """Stop new intents of one `what`, which has this `name`; the tenant has none.

        Raises InvalidInput.
        """
        return self._loop.run(lambda: self._target.pause(what, name, reason=reason))

    def resume(self, what: What, name: str = "") -> PauseEnded:
        """End the pause of `what` and `name`, and return the number of runs that waited for it."""
        return self._loop.run(lambda: self._target.resume(what, name))


def connect_sync(
    target: str = "",
    *,
    token: str = "",
    tenant: str = "",
    actor: Actor | str | None = None,
    workflows: Sequence[Workflow[Any, Any, Any]] = (),
    timeout: Timeout = TIMEOUT,
) -> SyncClient:
    """Open a client without `await`: `with outlast.connect_sync(target) as client`.

    `target`, `token`, `tenant`, `actor`, `workflows` and `timeout` are those of `connect`, and so are the errors. Close
    the client, or use it with `with`.
    """
    loop = LoopThread()
    pending = connect(target, token=token, tenant=tenant, actor=actor, workflows=workflows, timeout=timeout)

    async def opened() -> Client:
        return await pending

    try:
        return SyncClient(loop, loop.run(opened))
    except BaseException:  # nothing remains of a client that could not be opened
        loop.stop()
        raise

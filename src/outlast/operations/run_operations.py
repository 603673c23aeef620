"""Operations on workflows and runs: start, list, show, cancel, continue, extend, move, signal."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final

from outlast.core.durations import Duration
from outlast.core.events import iso
from outlast.core.machine import RunStatus
from outlast.core.usage import Money, micros, money_text
from outlast.models import checked_instant
from outlast.models.runs import (
    CheckpointList,
    EventList,
    RequestRecorded,
    ResultList,
    RunDetail,
    RunExplanation,
    RunInput,
    RunList,
    RunStarted,
    RunSummary,
    SignalRecorded,
    Unmovable,
)
from outlast.models.service import WorkflowDetail, WorkflowList
from outlast.models.steps import StepList
from outlast.models.timeline import Timeline
from outlast.operations.declaration import (
    Operation,
    OperationRequest,
    Sent,
    Since,
    copied,
    part,
    recorded,
    seconds,
)

RUN: Final = "refu_0c9k2m4x7q1z"


def _written_money(amount: Money) -> str:
    return money_text(micros(amount))


# --- start and list ----------------------------------------------------------------------------
@dataclass(frozen=True)
class StartRun(OperationRequest[RunStarted]):
    """Start a run. `key` None: the Idempotency-Key is the start key."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    run_id: Annotated[str | None, Sent("id")] = None
    key: str | None = None
    correlation_id: str = ""
    trace_id: str = ""
    scheduler: str | None = None


START_RUN: Final = Operation(
    "start_run",
    StartRun,
    RunStarted,
    "POST",
    "/workflows/{name}/runs",
    ("starter",),
    StartRun("refund", {"order_id": "A-17", "cents": 4200}, run_id=RUN, key="A-17"),
)


@dataclass(frozen=True)
class ListWorkflows(OperationRequest[WorkflowList]):
    """List the newest version of each workflow that is loaded."""


LIST_WORKFLOWS: Final = Operation(
    "list_workflows", ListWorkflows, WorkflowList, "GET", "/workflows", ("viewer",), ListWorkflows()
)


@dataclass(frozen=True)
class GetWorkflow(OperationRequest[WorkflowDetail]):
    """Show a workflow: its graph, its versions, the schema of its input."""

    name: str


GET_WORKFLOW: Final = Operation(
    "get_workflow", GetWorkflow, WorkflowDetail, "GET", "/workflows/{name}", ("viewer",), GetWorkflow("refund")
)


@dataclass(frozen=True)
class ListRuns(OperationRequest[RunList]):
    """List runs, newest first."""

    _: KW_ONLY
    status: str = ""
    workflow: str = ""
    attention: bool = False
    waiting_for: str = ""
    q: str = ""
    since: Since = None
    cursor: str = ""
    limit: int = 50


LIST_RUNS: Final = Operation(
    "list_runs",
    ListRuns,
    RunList,
    "GET",
    "/runs",
    ("viewer",),
    ListRuns(
        status=RunStatus.RUNNING, workflow="refund", attention=True, waiting_for="approval", q="A-17", since="24h"
    ),
)


# --- one run -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class GetRun(OperationRequest[RunDetail]):
    """Show a run."""

    run: str


GET_RUN: Final = Operation("get_run", GetRun, RunDetail, "GET", "/runs/{run}", ("viewer",), GetRun(RUN))


@dataclass(frozen=True)
class GetRunSummary(OperationRequest[RunSummary]):
    """Show the fields of a run that lists have. HTTP has no operation for it alone."""

    run: str


GET_RUN_SUMMARY: Final = Operation(
    GET_RUN.id, GetRunSummary, RunSummary, "GET", GET_RUN.path, GET_RUN.roles, GetRunSummary(RUN)
)


@dataclass(frozen=True)
class GetInput(OperationRequest[Any]):
    """Show the input of a run as its workflow parsed it."""

    run: str


def _input(found: RunInput) -> Any:
    return found.input


GET_INPUT: Final = Operation(
    "get_input", GetInput, part(RunInput, _input), "GET", "/runs/{run}/input", ("viewer",), GetInput(RUN)
)


@dataclass(frozen=True)
class ExplainRun(OperationRequest[RunExplanation]):
    """Explain the state of a run, its cause and the next step."""

    run: str


EXPLAIN_RUN: Final = Operation(
    "explain_run", ExplainRun, RunExplanation, "GET", "/runs/{run}/explain", ("viewer",), ExplainRun(RUN)
)


@dataclass(frozen=True)
class GetUnmovable(OperationRequest[str]):
    """Show why a run cannot move to another version now."""

    run: str


def _why(found: Unmovable) -> str:
    return found.why


GET_UNMOVABLE: Final = Operation(
    "get_unmovable",
    GetUnmovable,
    part(Unmovable, _why),
    "GET",
    "/runs/{run}/unmovable",
    ("viewer",),
    GetUnmovable(RUN),
)


@dataclass(frozen=True)
class ListResults(OperationRequest[ResultList]):
    """List the results of a run, in the order of first emission."""

    run: str
    _: KW_ONLY
    after: int = 0
    limit: int = 1_000


LIST_RESULTS: Final = Operation(
    "list_results", ListResults, ResultList, "GET", "/runs/{run}/results", ("viewer",), ListResults(RUN, after=2)
)


@dataclass(frozen=True)
class ListSteps(OperationRequest[StepList]):
    """List the steps of a run, oldest first."""

    run: str
    _: KW_ONLY
    kind: str = ""
    step: str = ""
    cursor: str = ""
    limit: int = 50


LIST_STEPS: Final = Operation(
    "list_steps",
    ListSteps,
    StepList,
    "GET",
    "/runs/{run}/steps",
    ("viewer",),
    ListSteps(RUN, kind="tool_call", step="c-1"),
)


@dataclass(frozen=True)
class ListCheckpoints(OperationRequest[CheckpointList]):
    """List the completed nodes of a run, oldest first."""

    run: str


LIST_CHECKPOINTS: Final = Operation(
    "list_checkpoints",
    ListCheckpoints,
    CheckpointList,
    "GET",
    "/runs/{run}/checkpoints",
    ("viewer",),
    ListCheckpoints(RUN),
)


def _written_begin(at: datetime) -> str:
    return iso(checked_instant("from", at))


def _written_end(at: datetime) -> str:
    return iso(checked_instant("to", at))


@dataclass(frozen=True)
class GetTimeline(OperationRequest[Timeline]):
    """Show visits, attempts and waits of a run as bars."""

    run: str
    _: KW_ONLY
    begin: Annotated[datetime | None, Sent("from", _written_begin)] = None
    end: Annotated[datetime | None, Sent("to", _written_end)] = None


GET_TIMELINE: Final = Operation(
    "get_timeline", GetTimeline, Timeline, "GET", "/runs/{run}/timeline", ("viewer",), GetTimeline(RUN)
)


@dataclass(frozen=True)
class ListEvents(OperationRequest[EventList]):
    """List the events of a run, oldest first."""

    run: str
    _: KW_ONLY
    after: int = 0
    limit: int = 200
    of_type: Annotated[str, Sent("type")] = ""


LIST_EVENTS: Final = Operation(
    "list_events",
    ListEvents,
    EventList,
    "GET",
    "/runs/{run}/events",
    ("viewer",),
    ListEvents(RUN, after=3, of_type="dev.outlast.run.*"),
)


def _is_new(recorded: SignalRecorded) -> bool:
    return recorded.new


# --- act on a run ------------------------------------------------------------------------------
@dataclass(frozen=True)
class SignalRun(OperationRequest[bool]):
    """Send a signal to a run."""

    run: str
    name: str
    payload: Annotated[Mapping[str, Any], Sent(write=copied)]
    _: KW_ONLY
    signal_id: str = ""
    version: int = 0


SIGNAL_RUN: Final = Operation(
    "signal_run",
    SignalRun,
    part(SignalRecorded, _is_new),
    "POST",
    "/runs/{run}/signals/{name}",
    ("starter",),
    SignalRun(RUN, "bid", {"bid": 184200}, signal_id="bid-7"),
    conditional="run",
)


@dataclass(frozen=True)
class CancelRun(OperationRequest[None]):
    """Request the cancellation of a run."""

    run: str
    _: KW_ONLY
    reason: str
    version: int = 0
    idempotency_key: str = ""


CANCEL_RUN: Final = Operation(
    "cancel_run",
    CancelRun,
    recorded(RequestRecorded),
    "POST",
    "/runs/{run}/cancel",
    ("operator",),
    CancelRun(RUN, reason="the customer called", version=9),
    conditional="run",
)


@dataclass(frozen=True)
class ContinueRun(OperationRequest[None]):
    """Answer the attention of a run with `continue`."""

    run: str
    _: KW_ONLY
    reason: str = ""
    version: int = 0


CONTINUE_RUN: Final = Operation(
    "continue_run",
    ContinueRun,
    recorded(RequestRecorded),
    "POST",
    "/runs/{run}/continue",
    ("operator",),
    ContinueRun(RUN, reason="the supplier is back"),
    conditional="run",
)


@dataclass(frozen=True)
class ExtendRun(OperationRequest[None]):
    """Extend the ceiling of a run that has passed it."""

    run: str
    _: KW_ONLY
    by: Annotated[Duration, Sent(write=seconds)]
    reason: str
    version: int = 0
    idempotency_key: str = ""


EXTEND_RUN: Final = Operation(
    "extend_run",
    ExtendRun,
    recorded(RequestRecorded),
    "POST",
    "/runs/{run}/extend",
    ("operator",),
    ExtendRun(RUN, by="7d", reason="the supplier is on holiday"),
    people_only=True,
    conditional="run",
)


@dataclass(frozen=True)
class RaiseBudget(OperationRequest[None]):
    """Add amounts to the budget of a run."""

    run: str
    _: KW_ONLY
    tokens: int = 0
    money: Annotated[Money, Sent(write=_written_money)] = 0
    calls: int = 0
    minutes: float = 0
    reason: str
    version: int = 0
    idempotency_key: str = ""


RAISE_BUDGET: Final = Operation(
    "raise_budget",
    RaiseBudget,
    recorded(RequestRecorded),
    "POST",
    "/runs/{run}/raise",
    ("operator",),
    RaiseBudget(RUN, tokens=50_000, money="2.50", reason="the report is worth it"),
    people_only=True,
    conditional="run",
)


@dataclass(frozen=True)
class MoveRun(OperationRequest[None]):
    """Request that a run continue in another version of its workflow."""

    run: str
    workflow: str
    to: Annotated[int, Sent("version")]
    _: KW_ONLY
    node: str = ""
    reason: str = ""
    version: int = 0


MOVE_RUN: Final = Operation(
    "move_run",
    MoveRun,
    recorded(RequestRecorded),
    "POST",
    "/runs/{run}/move",
    ("operator",),
    MoveRun(RUN, "refund", 2, node="review", reason="version 1 is gone"),
    conditional="run",
)


@dataclass(frozen=True)
class MoveRunToScheduler(OperationRequest[None]):
    """Let another engine schedule a run."""

    run: str
    scheduler: str
    _: KW_ONLY
    reason: str = ""
    force: bool = False
    version: int = 0


MOVE_RUN_TO_SCHEDULER: Final = Operation(
    "move_run_to_scheduler",
    MoveRunToScheduler,
    recorded(RequestRecorded),
    "POST",
    "/runs/{run}/scheduler",
    ("operator",),
    MoveRunToScheduler(RUN, "temporal", reason="past one database"),
    conditional="run",
)

"""Operations on the store as a whole: summary, caller, workers, versions, budgets, pauses."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from outlast.core.limits import KEY_BYTES_MAX, SLOTS_MAX, USAGE_DAYS_MAX
from outlast.core.rows.run_columns import What
from outlast.models.service import (
    ActivePause,
    BudgetedRunList,
    BudgetList,
    CallerInfo,
    DailyBudget,
    PauseCreated,
    PauseEnded,
    PauseList,
    SlotLimit,
    StatusSummary,
    UsageList,
    VersionList,
    VersionStatus,
    WorkerList,
    WorkerStatus,
)
from outlast.operations.declaration import Operation, OperationRequest, Sent, part, recorded
from outlast.operations.field_types import Amount, AmountOfMoney, Limit, Reasoned, Remark

PauseName = Annotated[str, StringConstraints(max_length=KEY_BYTES_MAX, pattern=r"^[!-~]*$")]


@dataclass(frozen=True)
class GetSummary(OperationRequest[StatusSummary]):
    """Count the items that need a person, and all that cannot continue."""


GET_SUMMARY: Final = Operation(
    "get_summary",
    GetSummary,
    StatusSummary,
    "GET",
    "/summary",
    ("viewer",),
    GetSummary(),
    summary="Counts for a header",
    tag="operators",
)


@dataclass(frozen=True)
class GetMe(OperationRequest[CallerInfo]):
    """Show the caller with its tenant and roles."""


GET_ME: Final = Operation(
    "get_me",
    GetMe,
    CallerInfo,
    "GET",
    "/me",
    ("viewer", "monitor"),
    GetMe(),
    summary="Show the caller",
    tag="me",
)


# --- workers and versions ----------------------------------------------------------------------
@dataclass(frozen=True)
class ListWorkers(OperationRequest[Sequence[WorkerStatus]]):
    """List the workers. `everybody`: also those that have stopped."""

    _: KW_ONLY
    everybody: Annotated[bool, Sent("all"), Field(description="Include workers that have gone.")] = False


def _workers(found: WorkerList) -> Sequence[WorkerStatus]:
    return found.workers


LIST_WORKERS: Final = Operation(
    "list_workers",
    ListWorkers,
    part(WorkerList, _workers),
    "GET",
    "/workers",
    ("monitor",),
    ListWorkers(everybody=True),
    summary="List workers",
    tag="operators",
    description="List the workers, which serve all tenants: lanes, lease, event loop delay, free capacity.",
)


@dataclass(frozen=True)
class DrainWorker(OperationRequest[WorkerStatus]):
    """Let a worker take no more runs, give back those that it holds, and stop."""

    worker: str
    _: KW_ONLY
    reason: Reasoned


DRAIN_WORKER: Final = Operation(
    "drain_worker",
    DrainWorker,
    WorkerStatus,
    "POST",
    "/workers/{worker}/drain",
    ("maintainer",),
    DrainWorker("w-1204-6f1c3a", reason="a new release"),
    summary="Drain a worker",
    tag="operators",
    description=(
        "Ask a worker to take no more runs and to stop. It reads the request at its next heartbeat.\n"
        "\n"
        "Its runs reach a boundary or are given back, as if its process were asked to end. "
        "Asking twice changes nothing."
    ),
)


@dataclass(frozen=True)
class ListVersions(OperationRequest[Sequence[VersionStatus]]):
    """List the versions of workflows that are served or have unfinished runs."""


def _versions(found: VersionList) -> Sequence[VersionStatus]:
    return found.versions


LIST_VERSIONS: Final = Operation(
    "list_versions",
    ListVersions,
    part(VersionList, _versions),
    "GET",
    "/versions",
    ("viewer",),
    ListVersions(),
    summary="List workflow versions",
    tag="operators",
    description="List each version that is served or has unfinished runs.",
)


# --- budgets -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class ListBudgets(OperationRequest[Sequence[DailyBudget]]):
    """List the daily budget of the tenant with its usage today."""


def _budgets(found: BudgetList) -> Sequence[DailyBudget]:
    return found.budgets


LIST_BUDGETS: Final = Operation(
    "list_budgets",
    ListBudgets,
    part(BudgetList, _budgets),
    "GET",
    "/budgets",
    ("viewer",),
    ListBudgets(),
    summary="List budgets",
    tag="operators",
    description="List the tenant's daily budget with its usage today, the share of each limit, and when it resets.",
)


@dataclass(frozen=True)
class ListBudgetedRuns(OperationRequest[BudgetedRunList]):
    """List the unfinished runs with a budget, the one that is nearest to a limit first."""

    _: KW_ONLY
    limit: Limit = 50


LIST_BUDGETED_RUNS: Final = Operation(
    "list_budgeted_runs",
    ListBudgetedRuns,
    BudgetedRunList,
    "GET",
    "/budgets/runs",
    ("viewer",),
    ListBudgetedRuns(limit=20),
    summary="List runs by what is left of their budget",
    tag="operators",
    description=(
        "List the unfinished runs whose workflow has a budget, the one that is nearest to a limit first.\n"
        "\n"
        "At most 1,000 such runs are compared, those that began first."
    ),
)


@dataclass(frozen=True)
class ListUsage(OperationRequest[UsageList]):
    """Add up the usage that calls have reported on each of the last business days, today included."""

    _: KW_ONLY
    days: Annotated[int, Field(ge=1, le=USAGE_DAYS_MAX, description="Number of days.")] = 14


LIST_USAGE: Final = Operation(
    "list_usage",
    ListUsage,
    UsageList,
    "GET",
    "/usage",
    ("viewer",),
    ListUsage(days=7),
    summary="Add up usage by day",
    tag="operators",
    description=(
        "Add up tokens, money and calls of each business day (UTC) by workflow, model and activity.\n"
        "\n"
        "The usage of a run goes with the run when it is purged."
    ),
)


@dataclass(frozen=True)
class SetBudget(OperationRequest[None]):
    """Set what the runs of the tenant may use on each business day. Null: no limit; all null: no budget."""

    _: KW_ONLY
    tokens: Annotated[int | None, Sent(read=Amount | None), Field(examples=[1_000_000])] = None
    money: Annotated[str | None, Sent(read=AmountOfMoney | None), Field(examples=["50"])] = None
    calls: Annotated[int | None, Sent(read=Amount | None)] = None
    minutes: Annotated[float | None, Field(description="Must be null, because minutes count for one run.")] = None
    reason: Annotated[Remark, Field(examples=["the plan of March"])] = ""


SET_BUDGET: Final = Operation(
    "set_budget",
    SetBudget,
    recorded(BudgetList),
    "POST",
    "/budgets",
    ("operator",),
    SetBudget(tokens=1_000_000, money="50", reason="the plan of March"),
    people_only=True,
    summary="Set the daily budget",
    tag="operators",
)


# --- admission ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class SetSlots(OperationRequest[SlotLimit]):
    """Raise the maximum of admitted runs of the tenant, or of all tenants."""

    n: Annotated[
        int, Sent("slots"), Field(ge=1, le=SLOTS_MAX, description="It can be raised, and not lowered.", examples=[20])
    ]
    _: KW_ONLY
    everywhere: Annotated[
        bool, Field(description="The maximum of all tenants, and not that of the caller's tenant.")
    ] = False


SET_SLOTS: Final = Operation(
    "set_slots",
    SetSlots,
    SlotLimit,
    "POST",
    "/slots",
    ("maintainer",),
    SetSlots(20),
    summary="Raise the maximum of admitted runs",
    tag="operators",
    description=(
        "Raise the maximum of admitted runs of the caller's tenant, or of all tenants. Runs that are queued start."
    ),
)


# --- pauses ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ListPauses(OperationRequest[Sequence[ActivePause]]):
    """List the pauses in force and the open circuit breakers."""


def _pauses(found: PauseList) -> Sequence[ActivePause]:
    return found.pauses


LIST_PAUSES: Final = Operation(
    "list_pauses",
    ListPauses,
    part(PauseList, _pauses),
    "GET",
    "/pauses",
    ("viewer",),
    ListPauses(),
    summary="List pauses",
    tag="pauses",
    description="List active pauses and open circuit breakers, with the number of runs that wait for each.",
)


@dataclass(frozen=True)
class PauseCalls(OperationRequest[PauseCreated]):
    """Pause new calls of an activity, provider or workflow, or all runs of the tenant."""

    what: Annotated[What, Field(examples=["activity"])]
    name: Annotated[
        PauseName, Field(examples=["erp.reserve"], description="Name of the activity, provider or workflow.")
    ] = ""
    _: KW_ONLY
    reason: Reasoned


PAUSE: Final = Operation(
    "pause",
    PauseCalls,
    PauseCreated,
    "POST",
    "/pauses",
    ("operator",),
    PauseCalls("activity", "erp.reserve", reason="the ERP is down"),
    body_name="CreatePause",
    status_code=201,
    summary="Pause",
    tag="pauses",
    description=(
        "Pause new calls. Workers comply within one heartbeat; calls in progress finish, and runs wait visibly (S-23)."
    ),
)


@dataclass(frozen=True)
class ResumeCalls(OperationRequest[PauseEnded]):
    """Remove a pause or close a circuit breaker."""

    what: Annotated[What, Field(examples=["activity"])]
    name: Annotated[PauseName, Field(examples=["erp.reserve"])] = ""


RESUME: Final = Operation(
    "resume",
    ResumeCalls,
    PauseEnded,
    "POST",
    "/pauses/resume",
    ("operator",),
    ResumeCalls("activity", "erp.reserve"),
    body_name="EndPause",
    summary="Resume",
    tag="pauses",
    description="Remove a pause or close a circuit breaker. Every run that waited for it becomes due.",
)

"""Operations that measure durations: of runs and their nodes, and of decisions."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Final

from pydantic import Field

from outlast.models.measurements import DecisionTimes, RunDurations
from outlast.operations.declaration import Operation, OperationRequest
from outlast.operations.field_types import OneVersion, SinceInstant, UntilInstant, Word


@dataclass(frozen=True)
class GetRunDurations(OperationRequest[RunDurations]):
    """Measure ended runs and the visits to their nodes."""

    _: KW_ONLY
    workflow: Annotated[Word, Field(description="Only runs of this workflow.")] = ""
    version: OneVersion = None
    since: SinceInstant = None
    until: UntilInstant = None


GET_RUN_DURATIONS: Final = Operation(
    "get_run_durations",
    GetRunDurations,
    RunDurations,
    "GET",
    "/metrics/durations",
    ("viewer",),
    GetRunDurations(workflow="refund", version=2),
    summary="Durations of runs",
    tag="operators",
    description="Measure runs that ended in a time: percentiles and histograms of their duration, of the wait before "
    "their first step, and of the visits to each node. At most 10,000 runs are measured, and the nodes of at most "
    "200, those that ended last.",
)


@dataclass(frozen=True)
class GetDecisionTimes(OperationRequest[DecisionTimes]):
    """Measure how long approvals wait for a decision."""

    _: KW_ONLY
    workflow: Annotated[Word, Field(description="Only approvals of this workflow.")] = ""
    version: OneVersion = None
    since: SinceInstant = None
    until: UntilInstant = None


GET_DECISION_TIMES: Final = Operation(
    "get_decision_times",
    GetDecisionTimes,
    DecisionTimes,
    "GET",
    "/metrics/decisions",
    ("viewer",),
    GetDecisionTimes(workflow="refund", version=2),
    summary="Time to decision",
    tag="operators",
    description="Measure the time from the request of an approval to its decision, by workflow and rule, and the age "
    "of the pending ones. At most 10,000 approvals of each kind are read.",
)

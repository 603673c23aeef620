"""Operations on causes: list them, show one, and count runs by time."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from outlast.core.machine import Reason, RunStatus
from outlast.models.causes import Bars, CauseDetail, CauseList
from outlast.operations.declaration import Operation, OperationRequest
from outlast.operations.field_types import OneVersion, SinceInstant, UntilInstant, Word

CAUSE: Final = "3f2a9c01d7be"
BarsOf = Literal["ends", "starts"]
OneCause = Annotated[str, Field(max_length=32, description="Id of the cause.")]


@dataclass(frozen=True)
class ListCauses(OperationRequest[CauseList]):
    """List the causes for which runs need a person."""

    _: KW_ONLY
    reason: Annotated[Word, Field(description="Only causes of this reason.")] = ""
    workflow: Annotated[Word, Field(description="Only causes in this workflow.")] = ""
    node: Annotated[Word, Field(description="Only causes in this node.")] = ""


LIST_CAUSES: Final = Operation(
    "list_causes",
    ListCauses,
    CauseList,
    "GET",
    "/causes",
    ("viewer",),
    ListCauses(reason=Reason.EXCEPTION.value, workflow="refund", node="pay"),
    summary="List causes",
    tag="operators",
    description="List the causes for which runs need a person, with the number of runs of each.",
)


@dataclass(frozen=True)
class GetCause(OperationRequest[CauseDetail]):
    """Show one cause with what differs among its runs."""

    cause: OneCause


GET_CAUSE: Final = Operation(
    "get_cause",
    GetCause,
    CauseDetail,
    "GET",
    "/causes/{cause}",
    ("viewer",),
    GetCause(CAUSE),
    summary="Show a cause",
    tag="operators",
    description="Show one cause for which runs need or needed a person, with what differs among at most 1,000 of its "
    "runs that need one now.",
)


@dataclass(frozen=True)
class GetBars(OperationRequest[Bars]):
    """Count runs by time."""

    _: KW_ONLY
    workflow: Annotated[Word, Field(description="Only runs of this workflow.")] = ""
    version: OneVersion = None
    outcome: Annotated[Word, Field(description="Only `completed`, `failed`, `cancelled` or `flagged`.")] = ""
    cause: Annotated[str, Field(max_length=32, description="Only runs with this cause.")] = ""
    since: SinceInstant = None
    until: UntilInstant = None
    bars: Annotated[int, Field(ge=1, le=48, description="Number of parts of the time.")] = 48
    of: Annotated[BarsOf, Field(description="`starts` counts starts, without an outcome or a cause.")] = "ends"


GET_BARS: Final = Operation(
    "get_bars",
    GetBars,
    Bars,
    "GET",
    "/bars",
    ("viewer",),
    GetBars(workflow="refund", version=2, outcome=RunStatus.FAILED.value, cause=CAUSE, bars=24),
    summary="Runs by time",
    tag="operators",
    description="Count ended runs by the time of their end, and runs by the times at which they began to need a "
    "person, answered or not, or count starts. The list of runs with `ended`, `flagged` or `started` has the runs of a "
    "bar.",
)

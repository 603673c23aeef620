"""Operations on attention: list the reasons why runs need a person, assign one, answer one or many."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final

from outlast.core.limits import RUNS_PER_READ
from outlast.core.machine import Choice, Reason
from outlast.models.attention import AnswerFor, AnswerList, AttentionList, RunAttention
from outlast.models.runs import RequestRecorded
from outlast.operations.declaration import By, Operation, OperationRequest, Sent, composed
from outlast.operations.run_operations import RUN


@dataclass(frozen=True)
class ListAttention(OperationRequest[AttentionList]):
    """List the reasons why runs require attention."""

    _: KW_ONLY
    reason: Reason | None = None
    workflow: str = ""
    assigned_to: str = ""
    cursor: str = ""
    limit: int = RUNS_PER_READ


LIST_ATTENTION: Final = Operation(
    "list_attention",
    ListAttention,
    AttentionList,
    "GET",
    "/attention",
    ("viewer",),
    ListAttention(reason=Reason.EXCEPTION, workflow="refund", assigned_to="me"),
)


@dataclass(frozen=True)
class AssignAttention(OperationRequest[RunAttention]):
    """Assign an attention item of a run to a person."""

    run: str
    to: str
    _: KW_ONLY
    reason: Annotated[Reason | None, Sent("attention")] = None
    key: str = ""
    note: str = ""


ASSIGN_ATTENTION: Final = Operation(
    "assign_attention",
    AssignAttention,
    RunAttention,
    "POST",
    "/attention/assign",
    ("operator",),
    AssignAttention(RUN, "ana", note="calls them"),
)


@dataclass(frozen=True)
class ResolveAttention(OperationRequest[Reason]):
    """Answer one attention reason of a run with a choice."""

    run: str
    choice: Choice
    _: KW_ONLY
    reason: Annotated[Reason | None, Sent("attention")] = None
    key: str = ""
    text: Annotated[str, Sent("reason")]
    by: By = None
    version: int = 0


RESOLVE_ATTENTION: Final = Operation(
    "resolve_attention",
    ResolveAttention,
    composed(RequestRecorded, Reason),
    "POST",
    "/attention/{run}/resolve",
    ("operator",),
    ResolveAttention(RUN, Choice.EXTEND, reason=Reason.TOTAL_TIMEOUT, text="the supplier is late", by="7d"),
    people_only=True,
    conditional="run",
)


def _written_runs(runs: Sequence[AnswerFor]) -> list[dict[str, Any]]:
    return [each.model_dump() for each in runs]


@dataclass(frozen=True)
class ResolveAttentionOfMany(OperationRequest[AnswerList]):
    """Give runs with the same attention reason the same answer, each with its own outcome."""

    runs: Annotated[Sequence[AnswerFor], Sent(write=_written_runs)]
    reason: Annotated[Reason, Sent("attention")]
    choice: Choice
    _: KW_ONLY
    text: Annotated[str, Sent("reason")]
    by: By = None


RESOLVE_ATTENTION_OF_MANY: Final = Operation(
    "resolve_attention_of_many",
    ResolveAttentionOfMany,
    AnswerList,
    "POST",
    "/attention/resolve",
    ("operator",),
    ResolveAttentionOfMany(
        [AnswerFor(run=RUN, version=9)], Reason.APPROVAL_TIMEOUT, Choice.ASK_AGAIN, text="Ana is in"
    ),
    people_only=True,
)

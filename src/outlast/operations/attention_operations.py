"""Operations on attention: list the reasons why runs need a person, assign one, answer one or many."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from outlast.core.limits import ANSWERS_MAX, PERSON_CHARS_MAX, QUERY_CHARS_MAX, RUNS_PER_READ
from outlast.core.machine import Choice, Reason
from outlast.models.attention import AnswerFor, AnswerList, AttentionList, RunAttention
from outlast.models.bulk import BulkAnswer, BulkPreview
from outlast.models.runs import RequestRecorded
from outlast.operations.declaration import Operation, OperationRequest, Sent, composed
from outlast.operations.field_types import By, Cursor, Key, Name, Reasoned, Remark, Word
from outlast.operations.run_operations import RUN

OneReason = Annotated[Reason | None, Sent("attention"), Field(description="The reason, if the run has several.")]
EffectKey = Annotated[Key, Field(description="Key of the effect, if the reason applies to several.")]


@dataclass(frozen=True)
class ListAttention(OperationRequest[AttentionList]):
    """List the reasons why runs require attention."""

    _: KW_ONLY
    reason: Annotated[Reason | None, Field(description="Only this reason.")] = None
    workflow: Annotated[str, Field(max_length=100, description="Only runs of this workflow.")] = ""
    version: Annotated[int | None, Field(ge=0, le=2**53, description="Only runs of this version of a workflow.")] = None
    node: Annotated[Word, Field(description="Only runs in this node.")] = ""
    cause: Annotated[str, Field(max_length=32, description="Only reasons with this cause.")] = ""
    assigned_to: Annotated[
        str,
        Field(
            max_length=PERSON_CHARS_MAX,
            description="Only reasons of runs that this person takes care of. `me`: the caller. `none`: not assigned.",
        ),
    ] = ""
    cursor: Cursor = ""
    limit: Annotated[int, Field(ge=1, le=1_000, description="Maximum number of runs on a page.")] = RUNS_PER_READ


LIST_ATTENTION: Final = Operation(
    "list_attention",
    ListAttention,
    AttentionList,
    "GET",
    "/attention",
    ("viewer",),
    ListAttention(reason=Reason.EXCEPTION, workflow="refund", assigned_to="me"),
    summary="List attention",
    tag="operators",
    description="List the reasons why runs require attention, with the choices and the consequence of ignoring them.",
)


@dataclass(frozen=True)
class AssignAttention(OperationRequest[RunAttention]):
    """Assign one reason why a run requires attention to a person."""

    run: Annotated[Name, Field(description="Id of the run.")]
    to: Annotated[
        str,
        StringConstraints(max_length=PERSON_CHARS_MAX),
        Field(description="Name of the person. `me`: the caller. Empty: remove the assignment."),
    ]
    _: KW_ONLY
    reason: OneReason = None
    key: EffectKey = ""
    note: Annotated[Remark, Field(description="Text beside the name of the person.")] = ""


ASSIGN_ATTENTION: Final = Operation(
    "assign_attention",
    AssignAttention,
    RunAttention,
    "POST",
    "/attention/assign",
    ("operator",),  # and not people alone: it decides nothing, so a program may do it, for example by a rota
    AssignAttention(RUN, "ana", note="calls them"),
    summary="Assign attention",
    tag="operators",
    description=(
        "Assign one reason why a run requires attention to a person, or remove its assignment.\n"
        "\n"
        "It gives no right to answer and takes none. It ends when the reason does. "
        "The same person twice changes nothing."
    ),
)


@dataclass(frozen=True)
class ResolveAttention(OperationRequest[Reason]):
    """Answer to one reason why a run requires attention."""

    run: str
    choice: Choice
    _: KW_ONLY
    reason: OneReason = None
    key: EffectKey = ""
    text: Annotated[Reasoned, Sent("reason")]
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
    summary="Answer attention",
    tag="operators",
)


def _written_runs(runs: Sequence[AnswerFor]) -> list[dict[str, Any]]:
    return [each.model_dump() for each in runs]


@dataclass(frozen=True)
class ResolveAttentionOfMany(OperationRequest[AnswerList]):
    """One answer to many runs that require attention for the same reason."""

    runs: Annotated[
        Sequence[AnswerFor],
        Sent(write=_written_runs, read=list[AnswerFor]),
        Field(min_length=1, max_length=ANSWERS_MAX),
    ]
    reason: Annotated[Reason, Sent("attention"), Field(description="The reason.")]
    choice: Choice
    _: KW_ONLY
    text: Annotated[Reasoned, Sent("reason")]
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
    body_name="ResolveMany",
    summary="Answer attention of many runs",
    tag="operators",
)


BulkReason = Annotated[
    Reason | None,
    Sent("attention"),
    Field(default=None, description="The reason. Without one, the unfinished runs of `query` are cancelled."),
]
BulkQuery = Annotated[
    str,
    Field(max_length=QUERY_CHARS_MAX, description="Only runs that this text finds: words and terms of a list of runs."),
]


@dataclass(frozen=True)
class PreviewBulkAnswer(OperationRequest[BulkPreview]):
    """Count the runs that one answer for all would be for."""

    reason: BulkReason
    choice: Annotated[Choice, Field(description="The answer.")]
    _: KW_ONLY
    query: BulkQuery = ""
    cause: Annotated[Word, Field(description="Only runs with this cause.")] = ""
    workflow: Annotated[Word, Field(description="Only runs of this workflow.")] = ""
    node: Annotated[Word, Field(description="Only runs at this node.")] = ""
    activity: Annotated[
        Word, Field(description="For node_diverged: only runs whose missing calls are all of this activity.")
    ] = ""
    version: Annotated[int, Field(ge=0, le=2**31, description="Only runs of this version of the workflow.")] = 0
    contains: Annotated[Remark, Field(description="Only runs whose error contains this text.")] = ""


PREVIEW_BULK_ANSWER: Final = Operation(
    "preview_bulk_answer",
    PreviewBulkAnswer,
    BulkPreview,
    "GET",
    "/bulk-answers",
    ("viewer",),
    PreviewBulkAnswer(Reason.EXCEPTION, Choice.CONTINUE, workflow="refund"),
    summary="Count the runs of a filter",
    tag="operators",
    description="Count the runs that a job would answer, and say whether their number must be confirmed.",
)


@dataclass(frozen=True)
class StartBulkAnswer(OperationRequest[BulkAnswer]):
    """Answer every run that requires attention for one reason and fits a filter, or cancel the runs of a query."""

    reason: BulkReason
    choice: Choice
    _: KW_ONLY
    text: Annotated[Reasoned, Sent("reason")]
    by: By = None
    query: BulkQuery = ""
    cause: Annotated[Word, Field(description="Only runs with this cause.")] = ""
    workflow: Annotated[Word, Field(description="Only runs of this workflow.")] = ""
    node: Annotated[Word, Field(description="Only runs at this node.")] = ""
    activity: Annotated[
        Word, Field(description="For node_diverged: only runs whose missing calls are all of this activity.")
    ] = ""
    version: Annotated[int, Field(ge=0, le=2**31, description="Only runs of this version of the workflow.")] = 0
    contains: Annotated[Remark, Field(description="Only runs whose error contains this text.")] = ""
    confirm: Annotated[
        int,
        Field(ge=0, le=2**53, description="Number of runs that the caller expects. Above 100 for `cancel` and `fail`."),
    ] = 0


START_BULK_ANSWER: Final = Operation(
    "start_bulk_answer",
    StartBulkAnswer,
    BulkAnswer,
    "POST",
    "/bulk-answers",
    ("operator",),
    StartBulkAnswer(Reason.EXCEPTION, Choice.CONTINUE, text="corrected in 1.4", workflow="refund"),
    people_only=True,
    summary="Answer attention of all runs of a filter",
    tag="operators",
    status_code=202,
    description=(
        "Start a job that gives one answer to every run that requires attention for one reason and fits the filter, "
        "or cancels every unfinished run that a query finds.\n"
        "\n"
        "A worker carries it out. Each run gets the answer once; runs that are flagged later are left alone. The job "
        "is a run: cancel it to stop it. Uncertain effects cannot be settled so, only given up. More than 100 runs are "
        "cancelled or failed only if `confirm` is their number."
    ),
)


@dataclass(frozen=True)
class GetBulkAnswer(OperationRequest[BulkAnswer]):
    """Show the progress of a job that answers runs."""

    run: Annotated[Name, Field(description="Id of the job.")]


GET_BULK_ANSWER: Final = Operation(
    "get_bulk_answer",
    GetBulkAnswer,
    BulkAnswer,
    "GET",
    "/bulk-answers/{run}",
    ("viewer",),
    GetBulkAnswer(RUN),
    summary="Show a job that answers runs",
    tag="operators",
    description="Show how many runs a job has answered, how many were refused, and why.",
)

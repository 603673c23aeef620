"""Operations on approvals: list, show, decide, claim, reassign."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from outlast.core.machine import ApprovalStatus
from outlast.models.approvals import (
    ApprovalDetail,
    ApprovalList,
    ApprovalSort,
    ApprovalSummary,
    DecideApprovalBody,
    DecisionRecorded,
)
from outlast.operations.declaration import Operation, OperationRequest, Sent, copied, part
from outlast.operations.field_types import Cursor, Limit, Reasoned

APPROVAL: Final = "ap_91c2f03b7d"


def _written_sort(sort: ApprovalSort) -> str:
    """Return an order; '' for the usual one, which is not sent."""
    return "" if sort == "newest" else sort


@dataclass(frozen=True)
class ListApprovals(OperationRequest[ApprovalList]):
    """List approvals, newest first or by deadline."""

    _: KW_ONLY
    status: Annotated[str, Sent(read=ApprovalStatus | None), Field(None, description="Only this status.")] = ""
    run: Annotated[str, Field(max_length=100, description="Only approvals of this run.")] = ""
    mine: Annotated[bool, Field(description="Only approvals that the caller may decide now.")] = False
    role: Annotated[str, Field(max_length=100, description="Only approvals whose rule names this role.")] = ""
    person: Annotated[str, Field(max_length=200, description="Only approvals whose rule names this person.")] = ""
    overdue: Annotated[bool, Field(description="Only approvals past their deadline.")] = False
    decided_by: Annotated[
        str, Field(max_length=200, description="Only approvals that this person has decided; `me`: the caller.")
    ] = ""
    text: Annotated[
        str,
        Field(
            max_length=200,
            description=(
                "Only approvals that have each of these words in their summary, main arguments, run, requester or id."
            ),
        ),
    ] = ""
    sort: Annotated[
        ApprovalSort,
        Sent(write=_written_sort),
        Field(description="`deadline`: pending approvals only, the earliest deadline first."),
    ] = "newest"
    cursor: Cursor = ""
    limit: Limit = 50


LIST_APPROVALS: Final = Operation(
    "list_approvals",
    ListApprovals,
    ApprovalList,
    "GET",
    "/approvals",
    ("viewer",),
    ListApprovals(
        status=ApprovalStatus.PENDING,
        run="r1",
        mine=True,
        role="a",
        person="ana",
        overdue=True,
        decided_by="me",
        text="refund hooli",
        sort="deadline",
    ),
    summary="List approvals",
    tag="approvals",
    description=(
        "List approvals, newest first or by deadline.\n"
        "\n"
        "With a filter, a page may have fewer than `limit` items and a next page. "
        "A request with `text` searches at most 5,000 approvals."
    ),
)


@dataclass(frozen=True)
class GetApproval(OperationRequest[ApprovalDetail]):
    """Show an approval with the information for a decision."""

    approval: str


GET_APPROVAL: Final = Operation(
    "get_approval",
    GetApproval,
    ApprovalDetail,
    "GET",
    "/approvals/{approval}",
    ("viewer",),
    GetApproval(APPROVAL),
    summary="Show an approval",
    tag="approvals",
    description="Return the exact calls, the approvers, the changes since the request, and the schema of the decision.",
)


@dataclass(frozen=True)
class DecideApproval(OperationRequest[ApprovalSummary]):
    """Decide an approval at exactly the version that was shown."""

    approval: str
    decision: Literal["approve", "reject", "again"]
    _: KW_ONLY
    reason: str = ""
    alternative: int = 0
    changes: Annotated[Mapping[str, Any] | None, Sent(write=copied)] = None
    version: int = 0
    idempotency_key: str = ""


def _approval(recorded: DecisionRecorded) -> ApprovalSummary:
    return recorded.approval


DECIDE_APPROVAL: Final = Operation(
    "decide_approval",
    DecideApproval,
    part(DecisionRecorded, _approval),
    "POST",
    "/approvals/{approval}/decision",
    ("approver",),
    DecideApproval(APPROVAL, "approve", reason="4 % under budget", changes={"cents": 4100}, version=9),
    people_only=True,
    conditional="approval",
    if_match_required=True,
    body=DecideApprovalBody,
    summary="Decide an approval",
    tag="approvals",
)


@dataclass(frozen=True)
class ClaimApproval(OperationRequest[ApprovalSummary]):
    """Record that the caller reviews an approval."""

    approval: str
    _: KW_ONLY
    version: int = 0


CLAIM_APPROVAL: Final = Operation(
    "claim_approval",
    ClaimApproval,
    ApprovalSummary,
    "POST",
    "/approvals/{approval}/claim",
    ("approver",),
    ClaimApproval(APPROVAL, version=9),
    people_only=True,
    conditional="approval",
    summary="Claim an approval",
    tag="approvals",
    description="Tell other approvers that the caller is reviewing it. They may still decide.",
)


@dataclass(frozen=True)
class ReassignApproval(OperationRequest[ApprovalSummary]):
    """Let other roles or persons decide an approval."""

    approval: str
    who: Annotated[
        str,
        Sent("to"),
        StringConstraints(min_length=1, max_length=2_000),
        Field(examples=["lead", "finance | person:ana"]),
    ]
    _: KW_ONLY
    reason: Reasoned
    version: int = 0


REASSIGN_APPROVAL: Final = Operation(
    "reassign_approval",
    ReassignApproval,
    ApprovalSummary,
    "POST",
    "/approvals/{approval}/reassign",
    ("approver", "admin"),
    ReassignApproval(APPROVAL, "finance | person:ana", reason="Ben is away"),
    people_only=True,
    conditional="approval",
    summary="Reassign an approval",
    tag="approvals",
    description="Let other roles or persons decide. Requires the right to decide, or the role admin.",
)

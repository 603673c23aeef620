"""Approvals, their offers, votes and decisions."""

from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, Field

from outlast.models import Instant, Json, Model, PagedList, RequestBody, Text
from outlast.models.runs import RunSummary

ApprovalSort: TypeAlias = Literal["newest", "deadline"]
"""Orders of a list of approvals."""


class OfferedArgument(Model):
    """Main argument of a call, as lists show it."""

    name: str
    text: str = Field(description="The value as people read it, with its name or the author's words.")


class OfferedPlan(Model):
    """Exact call that an approval offers. Number 0 is the requested call."""

    alternative: int
    effect: str
    key: str
    digest: str
    arguments: Json
    chosen: bool
    changed_by: str
    changes: dict[str, Any]
    warnings: list[str]
    shown: list[OfferedArgument] = Field([], description="Main arguments, those of `show=` of the activity.")
    line: str = Field("", description="The same as one text.")


class Vote(Model):
    """Vote for an approval, and the rule under which it counted."""

    by: str
    who: str = ""
    claims: list[str]
    chosen: str
    reason: str
    at: Instant | None


class ApprovalSummary(Model):
    """Approval: the exact calls, the approvers, the deadline, and the decision."""

    approval: str
    version: int = Field(description="Version for ETag and If-Match.")
    run: str
    status: str
    asks: str
    risk: str
    who: str
    requested_by: str
    asked_at: Instant | None
    within_until: Instant | None
    valid_ms: int = Field(description="Time from the decision to the call in ms; 0 if it is `valid_days`.")
    plans: list[OfferedPlan]
    decided_at: Instant | None
    decided_by: str
    roles: list[str]
    reason: str
    valid_until: Instant | None
    consumed_by: str
    another_round: bool
    quorum: int
    votes: list[Vote]
    not_requester: bool
    editable: list[str]
    claimed_by: str
    warnings: list[str]
    you_may_decide: bool
    due: str = Field("", description="Date, zone and skipped days of a deadline in business days; '' for others.")
    valid_days: str = Field("", description="Business days from the decision to the call; '' for a duration.")


class ApprovalList(PagedList):
    """Page of approvals, newest first or by deadline."""

    approvals: list[ApprovalSummary]


class ApprovalChange(Model):
    """Change of the run or the approval since it was requested."""

    at: Instant | None
    what: str
    by: str


class PriorEffect(Model):
    """Effect that the run executed before it requested the approval."""

    effect: str
    key: str
    outcome: str
    external_id: str


class RunAbove(Model):
    """Run above the one that asks, in its tree."""

    run: str
    workflow: str
    objective: str


class ApprovedCall(Model):
    """Call that used an approval, and its outcome so far."""

    effect: str = Field(description="Id of the effect.")
    outcome: str
    settled: bool
    after_ms: int = Field(description="From the decision to the outcome, or to the call if it has none yet.")
    external_id: str
    receipt: str = Field(description="Its answer, if that is a short text.")


class ApprovalDetail(ApprovalSummary):
    """Approval with the information for a decision."""

    schema_: dict[str, Any] = Field(
        validation_alias="schema", serialization_alias="schema", description="JSON Schema of the body of the decision."
    )
    evidence: list[PriorEffect]
    changed_since_asked: list[ApprovalChange]
    run_shown: str
    rounds_left: int | None = Field(
        description="How many more rounds may be asked for. Null: the workflow offers none, or does not count them."
    )
    rounds_max: int | None = Field(description="Of how many rounds those are left.")
    you_may_not: str = Field(description="Why the caller may not decide it, or ''.")
    workflow: str = Field("", description="Workflow of the run.")
    objective: str = Field("", description="Purpose of the run. '' if its workflow names none.")
    path: list[RunAbove] = Field([], description="Runs above the run, the root of its tree first. Empty for a root.")
    call: ApprovedCall | None = Field(None, description="Call that used it. Null until then.")


class DecideApprovalBody(RequestBody, schema_name="DecideApproval"):
    """Decision about an approval. The credential identifies the approver, never the body (S5)."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"decision": "approve", "reason": "4 % under budget"}]}
    )

    decision: Literal["approve", "reject", "again"]
    reason: Text
    alternative: int = Field(0, ge=0, le=1_000, description="Number of the chosen plan. 0 is the requested one.")
    changes: dict[str, Any] | None = Field(None, description="New values of editable arguments.")


class DecisionRecorded(Model):
    """Recorded decision or vote: the approval as it was written, and the current state of its run."""

    approval: ApprovalSummary
    run: RunSummary
    served: bool = Field(description="True if a live worker will continue the run.")

"""Response bodies about runs, effects, approvals and attention."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Json = Annotated[Any, Field(description="Any JSON value.")]
Count = Annotated[int, Field(ge=0)]


class ResponseModel(BaseModel):
    """Base of response bodies, made from the views of `runtime`. A test compares the fields of both."""

    model_config = ConfigDict(extra="ignore", json_schema_serialization_defaults_required=True)


class PagedList(ResponseModel):
    """Page of a list. `next_cursor` and the header `Link` lead to the next page; '' at the end."""

    next_cursor: str = Field("", description="Opaque cursor, valid for this list, its filters and this tenant.")


class Waiting(ResponseModel):
    """Something that a run waits for, and its action when the wait ends."""

    kind: str
    what: str
    who: str
    since: str | None
    until: str | None
    then: str


class AttentionReason(ResponseModel):
    """Reason why a run requires attention, and the possible answers."""

    reason: str
    since: str | None
    detail: str
    key: str
    trigger: str
    choices: list[str]
    if_ignored: str


class PendingRequest(ResponseModel):
    """Request to a run that no worker has acted on yet."""

    verb: str
    by: str
    at: str
    reason: str


class RunSummary(ResponseModel):
    """Summary of a run. `status` is the status of the engine, `shown` the one for people."""

    run: str
    workflow: str
    lane: str
    status: str
    shown: str
    node: str
    visit: int
    version: int = Field(description="Version for ETag and If-Match.")
    owner: str
    created_at: str | None
    entered_at: str | None
    ended_at: str | None
    requested_by: str
    correlation_id: str
    trace_id: str
    waiting_for: list[Waiting]
    waiting_text: str
    attention: list[AttentionReason]
    served: bool = Field(description="True if a live worker serves its version.")
    results: Count = Field(description="Number of its result rows.")


class RunListItem(RunSummary):
    """Run in a list, with its pending requests."""

    asked: list[PendingRequest]


class RunList(PagedList):
    """Page of runs, newest first."""

    runs: list[RunListItem]


class Visit(ResponseModel):
    """Visit to a node. The last visit may be open."""

    node: str
    visit: int
    entered_at: str | None
    left_at: str | None


class Takeover(ResponseModel):
    """Takeover of a run from a worker that died or exceeded its budget."""

    node: str
    visit: int
    from_: str = Field(alias="from")
    to: str
    at: str | None
    after_ms: int | None


class Progress(ResponseModel):
    """Progress of a run, counted from rows of the store."""

    node: str
    visit: int
    effects_done: Count
    effects_intended: Count
    here_done: Count
    here_intended: Count
    checkpoints: Count
    last_checkpoint_at: str | None
    waits_for: list[str]
    until: str | None


class RunDetail(RunListItem):
    """Run with its visits, effects and progress. The last three fields are set once it has ended."""

    visits: list[Visit]
    effects: dict[str, int]
    takeovers: list[Takeover]
    progress: Progress
    explained: str
    outcome: Json = None
    reason: str = ""
    not_undone: list[str] = Field(default_factory=list)


class RunStarted(RunSummary):
    """Run that this request, or an earlier one with the same key, has started."""

    created: bool


class RunExplanation(ResponseModel):
    """State of a run as a sentence, its facts, the next step, and ways to unblock it."""

    sentence: str
    facts: dict[str, str]
    next: str
    unblock: list[str]


class CloudEvent(BaseModel):
    """CloudEvent as it is stored and sent, with its hash in the chain. `sequence` has no gaps."""

    model_config = ConfigDict(extra="allow")

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    data: JsonValue
    hash: str


class EventList(PagedList):
    """Page of events of a run, oldest first. Pass the last `sequence` as `after` for the next page."""

    events: list[CloudEvent]
    last: int = Field(description="Number of the last event on this page, or the requested `after`.")
    ended: bool = Field(description="True if the run has ended and this is the last page.")


class Checkpoint(ResponseModel):
    """Completed node, after which the run continues if its worker crashes."""

    seq: int
    node: str
    visit: int
    at: str | None
    next: str


class CheckpointList(PagedList):
    """Checkpoints of a run, oldest first."""

    checkpoints: list[Checkpoint]


class Timeline(ResponseModel):
    """Visits of a run in order, and its takeovers."""

    run: str
    visits: list[Visit]
    takeovers: list[Takeover]


class ResultRow(BaseModel):
    """Result row that a run has emitted."""

    model_config = ConfigDict(extra="allow")

    key: str
    ordinal: int
    kind: str
    data: Json
    at: str | None


class ResultList(PagedList):
    """Page of results of a run, in the order of first emission. `count` is the number of rows."""

    results: list[ResultRow]
    count: Count


class RunInput(ResponseModel):
    """Input of a run, as its workflow parsed it."""

    run: str
    input: Json


class RequestRecorded(ResponseModel):
    """Recorded request on which a worker will act, and the current state of the run."""

    run: RunSummary
    recorded: Literal[True] = True


class SignalRecorded(ResponseModel):
    """Recorded signal. `new` is false if its id was recorded before."""

    run: str
    name: str
    new: bool


class LateEvidence(ResponseModel):
    """Late answer that a replaced worker recorded. It does not settle the effect."""

    epoch: int
    at: str | None
    status: str
    response: Json
    code: str
    detail: str


class EffectRecord(ResponseModel):
    """Effect: one activity call in the ledger."""

    id: str = Field(description="Id for POST /effects/{id}/resolve.")
    run: str
    visit: int
    once_per: str
    node: str
    effect: str
    key: str
    version: int = Field(description="Version for If-Match.")
    status: str
    outcome: str
    code: str
    detail: str
    reopened: bool
    attempts: int
    arguments: Json
    response: Json
    external_id: str
    digest: str
    approval: str
    allowed_by: str
    undo: str
    settled_at: str | None
    settled_by: str
    first_at_real: str | None
    not_after_real: str | None
    waited_ms: int
    evidence: list[LateEvidence]
    settle_after_real: str | None
    settles_in_ms: int = Field(description="Milliseconds until the outcome `did_not_happen` is accepted.")


class EffectList(PagedList):
    """Page of effects. Those of one run are in the order of their intents, those of all runs newest first."""

    effects: list[EffectRecord]


class OfferedPlan(ResponseModel):
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


class Vote(ResponseModel):
    """Vote for an approval, and the rule under which it counted."""

    by: str
    who: str = ""
    claims: list[str]
    chosen: str
    reason: str
    at: str | None


class ApprovalSummary(ResponseModel):
    """Approval: the exact calls, the approvers, the deadline, and the decision."""

    approval: str
    run: str
    status: str
    asks: str
    risk: str
    who: str
    requested_by: str
    asked_at: str | None
    within_until: str | None
    valid_ms: int
    plans: list[OfferedPlan]
    decided_at: str | None
    decided_by: str
    roles: list[str]
    reason: str
    valid_until: str | None
    consumed_by: str
    another_round: bool
    quorum: int
    votes: list[Vote]
    not_requester: bool
    editable: list[str]
    claimed_by: str
    warnings: list[str]
    you_may_decide: bool


class ApprovalList(PagedList):
    """Page of approvals, newest first."""

    approvals: list[ApprovalSummary]


class ApprovalChange(ResponseModel):
    """Change of the run or the approval since it was requested."""

    at: str | None
    what: str
    by: str


class PriorEffect(ResponseModel):
    """Effect that the run executed before it requested the approval."""

    effect: str
    key: str
    outcome: str
    external_id: str


class ApprovalDetail(ApprovalSummary):
    """Approval with the information for a decision."""

    version: int = Field(description="Version for ETag and If-Match.")
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema of the body of the decision.")
    evidence: list[PriorEffect]
    changed_since_asked: list[ApprovalChange]
    run_shown: str


class DecisionRecorded(ResponseModel):
    """Recorded decision or vote, with the current state of the approval and its run."""

    approval: ApprovalDetail
    run: RunSummary
    served: bool = Field(description="True if a live worker will continue the run.")


class AttentionChoice(ResponseModel):
    """Possible answer. It is refused for another `accepted_in_ms` milliseconds."""

    choice: str
    command: str
    from_real: str | None
    accepted_in_ms: int


class AttentionItem(ResponseModel):
    """Item that requires attention. `run` is '' if it concerns no single run."""

    run: str
    reason: str
    detail: str
    since: str
    until: str | None
    if_ignored: str
    choices: list[AttentionChoice]


class RunAttention(AttentionItem):
    """Reason why one run requires attention."""

    workflow: str
    node: str
    visit: int
    trigger: str
    key: str
    evidence: list[LateEvidence]


class ProviderAttention(AttentionItem):
    """Provider with an open circuit breaker, and the number of runs that wait for it."""

    provider: str
    runs: int


class WebhookAttention(AttentionItem):
    """Webhook with undeliverable events. If `more` is true, `events` is a lower bound."""

    webhook: str
    url: str
    events: int
    more: bool


class AttentionList(PagedList):
    """Page of items that require attention."""

    attention: list[RunAttention | ProviderAttention | WebhookAttention]

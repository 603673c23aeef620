"""Response bodies about runs, effects, approvals and attention."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Json = Annotated[Any, Field(description="Any JSON value.")]
Count = Annotated[int, Field(ge=0)]


class ResponseModel(BaseModel):
    """An answer. A field that a view has and its model has not is a mistake that a test finds, and no caller's."""

    model_config = ConfigDict(extra="ignore", json_schema_serialization_defaults_required=True)


class PagedList(ResponseModel):
    """Part of a list: go on with `next_cursor`, which the header `Link` has too; '' at the end."""

    next_cursor: str = Field("", description="Opaque; for this list, its filters and its caller's tenant only.")


class Waiting(ResponseModel):
    """One thing that a run waits for, and what happens at the end of the wait."""

    kind: str
    what: str
    who: str
    since: str | None
    until: str | None
    then: str


class AttentionReason(ResponseModel):
    """One reason why a person must look at a run, and what may be answered."""

    reason: str
    since: str | None
    detail: str
    key: str
    trigger: str
    choices: list[str]
    if_ignored: str


class PendingRequest(ResponseModel):
    """What was asked of a run and no worker has heeded yet."""

    verb: str
    by: str
    at: str
    reason: str


class RunSummary(ResponseModel):
    """A run as lists show it: `status` is the engine's, `shown` what people see."""

    run: str
    workflow: str
    lane: str
    status: str
    shown: str
    node: str
    visit: int
    version: int = Field(description="What ETag and If-Match name.")
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
    served: bool = Field(description="False: no live worker serves its version.")
    results: Count = Field(description="Number of its result rows, counted for this answer.")


class RunListItem(RunSummary):
    """A run of a list, with what was asked of it meanwhile."""

    asked: list[PendingRequest]


class RunList(PagedList):
    """Runs, newest first."""

    runs: list[RunListItem]


class Visit(ResponseModel):
    """One visit to a node; the last one may be open."""

    node: str
    visit: int
    entered_at: str | None
    left_at: str | None


class Takeover(ResponseModel):
    """Another worker took the run from one that died or outlasted its budget."""

    node: str
    visit: int
    from_: str = Field(alias="from")
    to: str
    at: str | None
    after_ms: int | None


class Progress(ResponseModel):
    """How far it has come, counted from rows and never from a process's memory."""

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
    """All there is to know of a run; the last three fields once it has ended."""

    visits: list[Visit]
    effects: dict[str, int]
    takeovers: list[Takeover]
    progress: Progress
    explained: str
    outcome: Json = None
    reason: str = ""
    not_undone: list[str] = Field(default_factory=list)


class RunStarted(RunSummary):
    """A run that was started, by this request or by an earlier one of the same key."""

    created: bool


class RunExplanation(ResponseModel):
    """Where a run stands: one sentence, its facts, what comes next, and what would unblock it."""

    sentence: str
    facts: dict[str, str]
    next: str
    unblock: list[str]


class CloudEvent(BaseModel):
    """A CloudEvent as it is stored, chained and sent, and its hash in the chain; `sequence` has no gaps."""

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
    """Events of a run, oldest first; `after` of the next page is the last `sequence`."""

    events: list[CloudEvent]
    last: int = Field(description="The number of the last event of this page, or what was asked for.")
    ended: bool = Field(description="The run has ended and this page is its last.")


class Checkpoint(ResponseModel):
    """A completed node: where a run would go on after a crash."""

    seq: int
    node: str
    visit: int
    at: str | None
    next: str


class CheckpointList(PagedList):
    """The checkpoints of a run, oldest first."""

    checkpoints: list[Checkpoint]


class Timeline(ResponseModel):
    """The way a run has gone, node by node, and who took it over from whom."""

    run: str
    visits: list[Visit]
    takeovers: list[Takeover]


class ResultRow(BaseModel):
    """A row that a run has produced."""

    model_config = ConfigDict(extra="allow")

    key: str
    ordinal: int
    kind: str
    data: Json
    at: str | None


class ResultList(PagedList):
    """What a run has produced, in the order of first emission; `count` is a count of rows."""

    results: list[ResultRow]
    count: Count


class RunInput(ResponseModel):
    """What a run was started with, as its workflow took it."""

    run: str
    input: Json


class RequestRecorded(ResponseModel):
    """What was asked is recorded; a worker acts on it. `run` is the row as it stands now."""

    run: RunSummary
    recorded: Literal[True] = True


class SignalRecorded(ResponseModel):
    """A signal was left; `new` is False for one whose id was left before."""

    run: str
    name: str
    new: bool


class LateEvidence(ResponseModel):
    """The late answer of a worker that had been replaced: it settles nothing by itself."""

    epoch: int
    at: str | None
    status: str
    response: Json
    code: str
    detail: str


class EffectRecord(ResponseModel):
    """A row of the ledger."""

    id: str = Field(description="What POST /effects/{id}/resolve takes.")
    run: str
    visit: int
    once_per: str
    node: str
    effect: str
    key: str
    version: int = Field(description="What If-Match names.")
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
    settles_in_ms: int = Field(description="How long until «did not happen» is accepted.")


class EffectList(PagedList):
    """Effects: of one run in the order of their intents, of all runs the newest first."""

    effects: list[EffectRecord]


class OfferedPlan(ResponseModel):
    """One exact call that an approval offers; number 0 is the one asked for."""

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
    """One approval given, and the rule that it counted under."""

    by: str
    who: str = ""
    claims: list[str]
    chosen: str
    reason: str
    at: str | None


class ApprovalSummary(ResponseModel):
    """A request to people: exactly what may be called, who may decide, until when, and what was decided."""

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
    """Approvals, newest first."""

    approvals: list[ApprovalSummary]


class ApprovalChange(ResponseModel):
    """Something that happened to the run or the approval since it was asked."""

    at: str | None
    what: str
    by: str


class PriorEffect(ResponseModel):
    """What the run has done before it asks."""

    effect: str
    key: str
    outcome: str
    external_id: str


class ApprovalDetail(ApprovalSummary):
    """An approval with what a person needs to decide it."""

    version: int = Field(description="What ETag and If-Match name.")
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema of the body of its decision.")
    evidence: list[PriorEffect]
    changed_since_asked: list[ApprovalChange]
    run_shown: str


class DecisionRecorded(ResponseModel):
    """A decision was recorded, or a vote: the approval and its run as they stand now."""

    approval: ApprovalDetail
    run: RunSummary
    served: bool = Field(description="False: no live worker will take the run on; start one.")


class AttentionChoice(ResponseModel):
    """One choice; `accepted_in_ms`: how long it is refused still."""

    choice: str
    command: str
    from_real: str | None
    accepted_in_ms: int


class AttentionItem(ResponseModel):
    """What needs a person; `run` is '' where it is no run's."""

    run: str
    reason: str
    detail: str
    since: str
    until: str | None
    if_ignored: str
    choices: list[AttentionChoice]


class RunAttention(AttentionItem):
    """One reason of one run."""

    workflow: str
    node: str
    visit: int
    trigger: str
    key: str
    evidence: list[LateEvidence]


class ProviderAttention(AttentionItem):
    """A provider that is away, and how many runs wait for it."""

    provider: str
    runs: int


class WebhookAttention(AttentionItem):
    """A webhook that events were given up for; `more`: at least so many."""

    webhook: str
    url: str
    events: int
    more: bool


class AttentionList(PagedList):
    """What needs a person."""

    attention: list[RunAttention | ProviderAttention | WebhookAttention]

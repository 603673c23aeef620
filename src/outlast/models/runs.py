"""Runs: summaries, details, history and results."""

from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from outlast.core.machine import RunStatus
from outlast.models import Count, Instant, Json, Model, PagedList


class Waiting(Model):
    """Something that a run waits for, and its action when the wait ends."""

    kind: str
    what: str
    who: str
    since: Instant | None
    until: Instant | None
    then: str
    schema_: dict[str, Any] | None = Field(
        default=None,
        validation_alias="schema",
        serialization_alias="schema",
        description="JSON Schema of the awaited signal. Null in lists, for other waits, and if it is unknown.",
    )


class AttentionReason(Model):
    """Reason why a run requires attention, and the possible answers."""

    reason: str
    since: Instant | None
    detail: str
    key: str
    trigger: str
    choices: list[str]
    if_ignored: str
    name: str = Field(description="Activity or type of the exception. Empty: the reason concerns none.")
    cause: str = Field(description="Cause that it shares with alike reasons of other runs.")


class PendingRequest(Model):
    """Request to a run that no worker has acted on yet."""

    verb: str
    by: str
    at: Instant
    reason: str


class RunSummary(Model):
    """Summary of a run. `status` is the status of the engine, `shown` the one for people."""

    run: str
    workflow: str
    lane: str
    scheduler: str = Field(description="Engine that decides when and where the run is executed.")
    status: str
    shown: str
    node: str
    visit: int
    version: int = Field(description="Version for ETag and If-Match.")
    owner: str
    created_at: Instant | None
    entered_at: Instant | None
    ended_at: Instant | None
    requested_by: str
    correlation_id: str
    trace_id: str
    objective: str = Field(description="Its purpose for people, from its input. '' if its workflow names none.")
    attributes: dict[str, str | int | bool | None] = Field(
        description="Values of its input or state by which lists find it, as its workflow declares them."
    )
    forked_from: str = Field(description="Run that it was forked from. '' if it is no fork.")
    parent: str = Field(description="Run that started it. '' if no run did.")
    root: str = Field(description="Run at the top of its tree. '' if no run started it.")
    depth: Count = Field(description="Number of runs above it in its tree.")
    waiting_for: list[Waiting]
    waiting_text: str
    attention: list[AttentionReason]
    causes: list[str] = Field(description="Causes of its attention, or of its failure.")
    served: bool = Field(description="True if a live worker serves its version.")
    results: Count = Field(description="Number of its result rows.")


class RunListItem(RunSummary):
    """Run in a list, with its pending requests."""

    asked: list[PendingRequest]
    due: bool = Field(description="True if a worker may take it now.")
    reason: str = Field("", description="Why it failed or was cancelled. '' for any other run.")
    cost: str = Field("0", description="Money that its own calls have reported, exact to a millionth.")
    unpriced: Count = Field(0, description="Calls that have reported tokens without a price, so that it cost more.")


class RunList(PagedList):
    """Page of runs, newest first or in the order that was asked for."""

    runs: list[RunListItem]
    sorted_among: Count | None = Field(
        None, description="Number of the newest matching runs that are sorted. Null: all that match, or newest first."
    )


class Visit(Model):
    """Visit to a node. The last visit may be open."""

    node: str
    visit: int
    entered_at: Instant | None
    left_at: Instant | None


class Takeover(Model):
    """Takeover of a run from a worker that died or exceeded its budget."""

    node: str
    visit: int
    from_: str = Field(validation_alias="from", serialization_alias="from")
    to: str
    at: Instant | None
    after_ms: int | None


class Progress(Model):
    """Progress of a run, counted from rows of the store."""

    node: str
    visit: int
    effects_done: Count
    effects_intended: Count
    here_done: Count
    here_intended: Count
    checkpoints: Count
    last_checkpoint_at: Instant | None
    waits_for: list[str]
    until: Instant | None


class UsedAmounts(Model):
    """Usage that calls have reported. `minutes`: business time of a run since its start; `children`: runs started."""

    tokens: Count
    money: str = Field(examples=["1.25"], description="Decimal number, exact to a millionth.")
    calls: Count = Field(description="Calls that have reported usage.")
    minutes: float = Field(0.0, ge=0)
    unpriced: Count = Field(0, description="Calls that have reported tokens without a price.")
    children: Count = Field(0, description="Child runs that were started, ended ones included.")


class AllowedAmounts(Model):
    """Limits of a budget, raises included. Null: no limit."""

    tokens: int | None
    money: str | None
    calls: int | None
    minutes: float | None = None
    children: int | None = None


class FailedChild(Model):
    """Run that a run has started and that failed or was cancelled. The outcome of the parent may be another one."""

    workflow: str
    key: str
    run: str
    code: str = Field(description="failed or cancelled.")
    detail: str


class RunMap(Model):
    """Map of a run: one workflow for each of many inputs, a window of them at a time."""

    key: str
    visit: int
    workflow: str
    inputs: Count
    at_most: Count = Field(description="Number of children that live at a time.")
    completed: Count
    failed: Count
    cancelled: Count
    running: Count
    not_started: Count = Field(description="Inputs for which no child was started yet, or was not needed.")
    decided: str = Field(description="enough or too_few: no further child is started. '' while some may be.")
    ended: bool = Field(description="True if its children have ended and its node goes on.")
    failed_children: list[FailedChild] = Field(description="The first ones in the order of the inputs; at most 5.")


class RunDetail(RunListItem):
    """Run with its visits, effects and progress. The last four fields are set once it has ended."""

    visits: list[Visit]
    effects: dict[str, int]
    takeovers: list[Takeover]
    progress: Progress
    used: UsedAmounts
    used_by_tree: UsedAmounts | None = Field(
        None, description="Usage of a root and of all runs below it. Null for a run without children or below a root."
    )
    budget: AllowedAmounts
    explained: str
    outcome: Json = None
    not_undone: list[str] = Field(default_factory=list)
    history_from: Count = Field(1, description="First visit of its history; rows of those before it were purged.")
    ledger_purged: bool = Field(False, description="Its effects were deleted, except those that the tenant shares.")
    children: Count = Field(0, description="Number of runs that it has started, as its ledger names them.")
    maps: list[RunMap] = Field(default_factory=list, description="Its latest maps; at most 20.")
    failed_children: list[FailedChild] = Field(
        default_factory=list,
        description="Those that failed or were cancelled, the latest of each key; at most 20. Those that it cancelled "
        "itself are left out, children of maps, and runs that undo a child whose undo a person has settled.",
    )
    detached: bool = Field(
        False, description="True if it is a child and an operator has let its parent go on without it."
    )
    forked_at: Count = Field(0, description="Number of the checkpoint of its ancestor, if it is a fork.")


class EndedRun(NamedTuple):
    """End of a run, as `RunHandle.result` reads it."""

    status: RunStatus
    outcome: Any  # JSON
    reason: str
    not_undone: tuple[str, ...]


class RunStarted(RunSummary):
    """Run that this request, or an earlier one with the same key, has started."""

    created: bool


class RunExplanation(Model):
    """State of a run as a sentence, its facts, the next step, and ways to unblock it."""

    sentence: str
    facts: dict[str, str]
    next: str
    unblock: list[str]
    results: Count = Field(description="Number of its result rows.")


class RunInput(Model):
    """Input of a run, as its workflow parsed it."""

    run: str
    input: Json


class RunState(Model):
    """State of a run at a checkpoint. Values that look like secrets are redacted, as in an export."""

    run: str
    node: str = Field(description="Node that began with this state, or in which the run ended.")
    completed: str = Field(description="Node whose completion wrote it. Empty: a start, a move or an end did.")
    seq: Count = Field(description="Number of the event that wrote it.")
    at: Instant
    state: Json
    redacted: bool = Field(description="Whether a value was left out.")


class Unmovable(Model):
    """A run, and the reason if it cannot move to another version of its workflow now."""

    run: str
    why: str = Field(description="Why it cannot move. Empty: it can.")


class CloudEvent(BaseModel):
    """CloudEvent as it is stored and sent, with its hash in the chain. `sequence` has no gaps."""

    model_config = ConfigDict(extra="allow", json_schema_serialization_defaults_required=True)

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    data: JsonValue
    hash: str = Field("", description="Hash of this event and its predecessors. '' in a stream.")

    @property
    def number(self) -> int:
        """Number of the event in its run, from 1: the value for `after`."""
        return int(self.id.rpartition("/")[2])


class RunDelta(Model):
    """Next piece of a text that a run streams. It is sent once and stored nowhere.

    Append it to the text of the same node, visit, epoch, key and attempt. A higher epoch or attempt begins the text
    again, and the next event of the visit ends it.
    """

    run: str
    node: str
    visit: int
    epoch: int
    key: str = Field(description="Key of the call that streams; '' for the node itself.")
    attempt: int = Field(description="Number of the attempt of that call; 0 for the node.")
    text: str


class EventList(PagedList):
    """Page of events of a run, oldest first. Pass the last `sequence` as `after` for the next page."""

    events: list[CloudEvent]
    last: int = Field(description="Number of the last event on this page, or the requested `after`.")
    ended: bool = Field(description="True if the run has ended and this is the last page.")


class Checkpoint(Model):
    """Completed node, after which the run continues if its worker crashes."""

    seq: int
    node: str
    visit: int
    at: Instant | None
    next: str


class CheckpointList(PagedList):
    """Checkpoints of a run, oldest first."""

    checkpoints: list[Checkpoint]


class ResultRow(BaseModel):
    """Result row that a run has emitted."""

    model_config = ConfigDict(extra="allow")

    key: str
    ordinal: int
    kind: str
    data: Json
    at: Instant | None


class ResultList(PagedList):
    """Page of results of a run, in the order of first emission. `count` is the number of rows."""

    results: list[ResultRow]
    count: Count


class RequestRecorded(Model):
    """Recorded request on which a worker will act, and the current state of the run."""

    run: RunSummary
    recorded: Literal[True] = True


class SignalRecorded(Model):
    """Recorded signal. `new` is false if its id was recorded before."""

    run: str
    name: str
    new: bool

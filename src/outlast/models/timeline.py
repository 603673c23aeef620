"""The timeline of a run: bars and marks of each node, made from rows and events, as pages and the CLI draw it."""

from typing import Literal, TypeAlias

from pydantic import Field

from outlast.models import Count, Instant, Model
from outlast.models.runs import Takeover, Visit

BarKind: TypeAlias = Literal["visit", "attempt", "model", "lookup", "wait"]
"""Kinds of bars."""
MarkKind: TypeAlias = Literal[
    "crash", "takeover", "attention", "answered", "handed_back", "undoing", "moved", "recovered", "ended"
]
"""Kinds of marks."""


class TimelineBar(Model):
    """Span of time in a lane. `ended` is null while it lasts. Fields that do not apply to its kind are empty."""

    id: str = Field(description="Stable name of the bar, for example `attempt/2/pay.A-1/1`.")
    kind: BarKind
    node: str = Field(description="Lane of the bar.")
    visit: Count
    what: str = Field(description="The node, the activity, the model, or that for which the run waits.")
    began: Instant = Field(
        description="Of a lookup only the end is recorded: its bar begins where it ends. So does that of a request to "
        "a model whose time is not recorded."
    )
    ended: Instant | None
    outcome: str = Field(
        description="Visit: `done`, `open` or how the run ended. Attempt: `done`, `refused`, `uncertain`, `undone`, "
        "`repeated` (a later attempt follows), `denied` by policy, `open`. Model: `answered`, `refused`, `unanswered`. "
        "Lookup: `done`, `refused`, `unanswered`. Wait: `open`, `ended`, `deadline`, or the approval's status."
    )
    detail: str
    key: str = Field(description="Key of the call or of the wait.")
    effect: str = Field(description="Id of the effect.")
    attempt: Count = Field(description="Number of the attempt, from 1. 0: not an attempt.")
    attempts: Count = Field(description="Attempts of the call. A bar may hold several that followed at once.")
    wait: str = Field(description="Kind of the wait, for example `approval`, `signal`, `timer`, `retry`, `worker`.")
    who: str
    until: Instant | None = Field(description="Deadline of the wait.")
    then: str = Field(description="What follows at the deadline.")
    approval: str = Field(description="Id of the approval that it waits for.")
    event: Count = Field(description="Number of the event that began or ended it. 0: none.")
    step: str = Field(default="", description="Id of the step that it shows. Empty: a visit, another wait, a group.")
    tokens: Count = Field(default=0, description="Tokens that the call reported, of all its attempts.")
    money: str = Field(default="", description="Money that the call reported, of all its attempts.")
    count: int = Field(default=1, ge=1, description="Number of bars that it represents, if they are grouped.")


class TimelineMark(Model):
    """Instant in the history of a run: a crash, a takeover, a request to a person, an answer, the end."""

    kind: MarkKind
    at: Instant
    node: str
    visit: Count
    text: str
    event: Count


class TimelineLane(Model):
    """Node of a run, in the order of its first visit."""

    node: str
    visits: Count
    bars: Count = Field(description="Number of its bars in the timeline.")


class Timeline(Model):
    """Visits, calls, requests to models and waits of a run in lanes of nodes, in business time, and its takeovers.

    `from` and `to` limit the bars and marks to those that overlap this span.
    """

    run: str
    visits: list[Visit]
    takeovers: list[Takeover]
    lanes: list[TimelineLane]
    bars: list[TimelineBar] = Field(description="At most 400, by their beginning.")
    marks: list[TimelineMark] = Field(description="At most 400: the latest.")
    began: Instant = Field(description="Start of the run.")
    ended: Instant | None
    now: Instant
    from_: Instant = Field(validation_alias="from", serialization_alias="from")
    to: Instant
    next_deadline: Instant | None = Field(description="Earliest instant at which an open wait ends by itself.")
    next_text: str = Field(description="The wait of that deadline and what follows.")
    total: Count = Field(description="Number of bars in this span before they were grouped.")
    grouped: bool = Field(description="True if neighbouring bars of a lane are drawn as one.")

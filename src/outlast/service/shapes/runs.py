"""Runs and what has happened to them, as answers."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from outlast.service.shapes.base import Count, Json, Page, Shape


class Waiting(Shape):
    """One thing that a run waits for, and what happens at the end of the wait."""

    kind: str
    what: str
    who: str
    since: str | None
    until: str | None
    then: str


class Attention(Shape):
    """One reason why a person must look at a run, and what may be answered."""

    reason: str
    since: str | None
    detail: str
    key: str
    trigger: str
    choices: list[str]
    if_ignored: str


class Asked(Shape):
    """What was asked of a run and no worker has heeded yet."""

    verb: str
    by: str
    at: str
    reason: str


class Run(Shape):
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
    attention: list[Attention]
    served: bool = Field(description="False: no live worker serves its version.")
    results: Count = Field(description="Number of its result rows, counted for this answer.")


class ListedRun(Run):
    """A run of a list, with what was asked of it meanwhile."""

    asked: list[Asked]


class Runs(Page):
    """Runs, newest first."""

    runs: list[ListedRun]


class Visit(Shape):
    """One visit to a node; the last one may be open."""

    node: str
    visit: int
    entered_at: str | None
    left_at: str | None


class Takeover(Shape):
    """Another worker took the run from one that died or outlasted its budget."""

    node: str
    visit: int
    from_: str = Field(alias="from")
    to: str
    at: str | None
    after_ms: int | None


class Progress(Shape):
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


class WholeRun(ListedRun):
    """All there is to know of a run; the last three fields once it has ended."""

    visits: list[Visit]
    effects: dict[str, int]
    takeovers: list[Takeover]
    progress: Progress
    explained: str
    outcome: Json = None
    reason: str = ""
    standing: list[str] = Field(default_factory=list)


class Started(Run):
    """A run that was started, by this request or by an earlier one of the same key."""

    created: bool


class Explained(Shape):
    """Where a run stands: one sentence, its facts, what comes next, and what would unblock it."""

    sentence: str
    facts: dict[str, str]
    next: str
    unblock: list[str]


class Event(BaseModel):
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


class Events(Page):
    """Events of a run, oldest first; `after` of the next page is the last `sequence`."""

    events: list[Event]
    last: int = Field(description="The number of the last event of this page, or what was asked for.")
    ended: bool = Field(description="The run has ended and this page is its last.")


class Checkpoint(Shape):
    """A completed node: where a run would go on after a crash."""

    seq: int
    node: str
    visit: int
    at: str | None
    next: str


class Checkpoints(Page):
    """The checkpoints of a run, oldest first."""

    checkpoints: list[Checkpoint]


class Timeline(Shape):
    """The way a run has gone, node by node, and who took it over from whom."""

    run: str
    visits: list[Visit]
    takeovers: list[Takeover]


class Result(BaseModel):
    """A row that a run has produced."""

    model_config = ConfigDict(extra="allow")

    key: str
    ordinal: int
    kind: str
    data: Json
    at: str | None


class Results(Page):
    """What a run has produced, in the order of first emission; `count` is a count of rows."""

    results: list[Result]
    count: Count


class Input(Shape):
    """What a run was started with, as its workflow took it."""

    run: str
    input: Json


class Done(Shape):
    """What was asked is recorded; a worker acts on it. `run` is the row as it stands now."""

    run: Run
    recorded: Literal[True] = True


class Signalled(Shape):
    """A signal was left; `new` is False for one whose id was left before."""

    run: str
    name: str
    new: bool

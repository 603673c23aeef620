"""What people look at and answer: effects in doubt, approvals, attention."""

from typing import Any

from pydantic import Field

from outlast.service.shapes.base import Json, Page, Shape
from outlast.service.shapes.runs import Run


class Evidence(Shape):
    """The late answer of a worker that had been replaced: it settles nothing by itself."""

    epoch: int
    at: str | None
    status: str
    response: Json
    code: str
    detail: str


class Effect(Shape):
    """A row of the ledger."""

    id: str = Field(description="What POST /effects/{id}/resolve takes.")
    run: str
    visit: int
    scope: str
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
    evidence: list[Evidence]
    quiet_until_real: str | None
    settles_in_ms: int = Field(description="How long until «did not happen» is accepted.")


class Effects(Page):
    """Effects: of one run in the order of their intents, of all runs the newest first."""

    effects: list[Effect]


class Plan(Shape):
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


class Vote(Shape):
    """One approval given, and the rule that it counted under."""

    by: str
    who: str = ""
    claims: list[str]
    chosen: str
    reason: str
    at: str | None


class Approval(Shape):
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
    plans: list[Plan]
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


class Approvals(Page):
    """Approvals, newest first."""

    approvals: list[Approval]


class Change(Shape):
    """Something that happened to the run or the approval since it was asked."""

    at: str | None
    what: str
    by: str


class Fact(Shape):
    """What the run has done before it asks."""

    effect: str
    key: str
    outcome: str
    external_id: str


class WholeApproval(Approval):
    """An approval with what a person needs to decide it."""

    version: int = Field(description="What ETag and If-Match name.")
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema of the body of its decision.")
    evidence: list[Fact]
    changed_since_asked: list[Change]
    run_shown: str


class Decided(Shape):
    """A decision was recorded, or a vote: the approval and its run as they stand now."""

    approval: WholeApproval
    run: Run
    served: bool = Field(description="False: no live worker will take the run on; start one.")


class Way(Shape):
    """One choice; `accepted_in_ms`: how long it is refused still."""

    choice: str
    command: str
    from_real: str | None
    accepted_in_ms: int


class Item(Shape):
    """What needs a person; `run` is '' where it is no run's."""

    run: str
    reason: str
    detail: str
    since: str
    until: str | None
    if_ignored: str
    choices: list[Way]


class OfRun(Item):
    """One reason of one run."""

    workflow: str
    node: str
    visit: int
    trigger: str
    key: str
    evidence: list[Evidence]


class OfProvider(Item):
    """A provider that is away, and how many runs wait for it."""

    provider: str
    runs: int


class OfWebhook(Item):
    """A webhook that events were given up for; `more`: at least so many."""

    webhook: str
    url: str
    events: int
    more: bool


class Board(Page):
    """What needs a person."""

    attention: list[OfRun | OfProvider | OfWebhook]

"""Response bodies about workflows, workers, pauses, webhooks, the service itself, and problems."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from outlast.service.responses import Count, PagedList, ResponseModel


class WorkflowSummary(ResponseModel):
    """A workflow that can be started here."""

    workflow: str
    version: int
    lane: str
    served: bool
    versions: list[int]


class WorkflowList(ResponseModel):
    """What can be started here."""

    workflows: list[WorkflowSummary]


class WorkflowDetail(WorkflowSummary):
    """A workflow with its graph and the schema of its input."""

    input_schema: dict[str, Any]
    topology: dict[str, Any]
    start: str


class WorkerStatus(ResponseModel):
    """A worker, what it serves, whether its lease still runs, and how it was at its last heartbeat."""

    worker: str
    name: str
    status: str
    serving: bool
    state: str
    serves: list[str]
    holds: int
    concurrency: int | None
    free: int | None
    pid: int | None
    host: str | None
    version: str | None
    loop_late_ms: int | None
    loop_ticked_ms: int | None
    lease_left_ms: int
    heartbeat_ago_ms: int
    started_at: str | None
    renewed_at_real: str | None
    lease_until_real: str | None


class WorkerList(ResponseModel):
    """The workers of this store."""

    workers: list[WorkerStatus]


class WorkflowVersion(ResponseModel):
    """A version of a workflow that is served, or has unfinished runs, or both."""

    workflow: str
    version: int
    lane: str
    runs: Count
    flagged: Count
    served_by: list[str]
    topology: str
    since: str | None


class VersionList(ResponseModel):
    """The versions that this store knows."""

    versions: list[WorkflowVersion]


class ActivePause(ResponseModel):
    """A stop sign that is up: an operator's, or a circuit breaker's."""

    paused: str = Field(examples=["activity erp.reserve"])
    kind: str
    runs: Count = Field(description="Runs that wait for it.")
    by: str
    since: str | None
    again_at: str | None = Field(description="A breaker's: from then on one run tries whether the provider answers.")
    reason: str


class PauseList(ResponseModel):
    """What is held."""

    pauses: list[ActivePause]


class PauseCreated(ResponseModel):
    """What is held from here on."""

    paused: str
    by: str
    reason: str


class PauseEnded(ResponseModel):
    """What goes on, and how many runs waited for it."""

    resumed: str
    by: str
    runs: Count


class CallerInfo(ResponseModel):
    """Who asks, as the credential proves it."""

    name: str
    tenant: str
    roles: list[str]
    every_role: bool = Field(description="The local operator, without authentication.")
    person: bool = Field(description="Only people decide.")
    until_real: str | None = Field(description="When the credential ends; streams end with it.")


class Health(ResponseModel):
    """Whether this process answers, or can serve."""

    status: Literal["ok", "not ready"]
    checks: dict[str, str] = Field(default_factory=dict)


class InvalidField(ResponseModel):
    """One thing that does not fit."""

    path: str
    text: str


class Problem(BaseModel):
    """RFC 9457: what, why, what to do, and words that a program may tell apart."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    hint: str
    code: str = Field(description="Never changes its meaning.", examples=["OUT-402"])
    refusal: str = Field(description="Which rule refused, where one code has several.", examples=["decided"])
    request_id: str
    problems: list[InvalidField] | None = None


class WebhookSummary(ResponseModel):
    """An address that is told of what happens."""

    webhook: str
    status: str
    url: str
    name: str
    types: list[str]
    workflows: list[str]
    since: str | None = Field(description="It is told of what happened from here on; null: from the start.")
    headers: list[str] = Field(description="Names of the headers of its own; their values are secrets.")
    why: str = Field(description="Why it is not active.")
    created_at: str | None
    created_by: str
    changed_at: str | None
    changed_by: str
    former_until_real: str | None = Field(description="Until then the secret before this one signs too.")


class WebhookList(ResponseModel):
    """Every webhook of the tenant."""

    webhooks: list[WebhookSummary]
    unsent_ms: Count = Field(description="For how long events have waited with no dispatcher alive; 0: they do not.")


class WebhookWithSecret(WebhookSummary):
    """With its new secret, which is shown this once."""

    secret: str = Field(examples=["whsec_…"], description="'' where the answer is one that was given before.")


class WebhookDetail(WebhookSummary):
    """How it fares. `more`: at least so many runs are behind."""

    dead: Count
    owed: Count
    behind: Count
    more: bool
    oldest_at_real: str | None


class WebhookAttempt(ResponseModel):
    """How one attempt ended; what the receiver said is a stranger's text."""

    webhook: str
    accepted: bool
    code: int
    answer: str
    error: str
    took_ms: int
    retry_after_ms: int
    definite: bool
    gone: bool


class WebhookDelivery(ResponseModel):
    """An event that was not accepted at the first attempt."""

    delivery: str
    webhook: str
    run: str
    sequence: int
    type: str
    webhook_id: str = Field(description="The same at each attempt, as the receiver sees it.")
    status: str
    attempts: int
    code: int = Field(description="HTTP status of the last answer; 0: there was none.")
    error: str
    answer: str
    took_ms: int
    first_at: str | None
    last_at: str | None
    next_at: str | None
    asked_by: str


class RedeliveryRecorded(ResponseModel):
    """How many of the events that were given up are sent again. `more`: ask once more for the others."""

    redelivered: str
    events: Count
    more: bool


class DeliveryList(PagedList):
    """Deliveries, newest first."""

    deliveries: list[WebhookDelivery]

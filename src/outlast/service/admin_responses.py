"""Response bodies about workflows, workers, pauses, webhooks, the service itself, and problems."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from outlast.service.responses import Count, PagedList, ResponseModel


class WorkflowSummary(ResponseModel):
    """Workflow that can be started here."""

    workflow: str
    version: int
    lane: str
    served: bool
    versions: list[int]


class WorkflowList(ResponseModel):
    """List of the workflows that can be started here."""

    workflows: list[WorkflowSummary]


class WorkflowDetail(WorkflowSummary):
    """Workflow with its graph and the schema of its input."""

    input_schema: dict[str, Any]
    topology: dict[str, Any]
    start: str


class WorkerStatus(ResponseModel):
    """Worker with its lanes, its lease, and its state at the last heartbeat."""

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
    """List of the workers of this store."""

    workers: list[WorkerStatus]


class VersionStatus(ResponseModel):
    """Version of a workflow that is served or has unfinished runs."""

    workflow: str
    version: int
    lane: str
    runs: Count
    flagged: Count
    served_by: list[str]
    topology: str
    since: str | None


class VersionList(ResponseModel):
    """List of the versions that this store knows."""

    versions: list[VersionStatus]


class ActivePause(ResponseModel):
    """Active pause of an operator, or open circuit breaker."""

    paused: str = Field(examples=["activity erp.reserve"])
    kind: str
    runs: Count = Field(description="Number of runs that wait for it.")
    by: str
    since: str | None
    again_at: str | None = Field(
        description="Time from which one run tests whether the provider answers. Circuit breakers only."
    )
    reason: str


class PauseList(ResponseModel):
    """List of the active pauses and open circuit breakers."""

    pauses: list[ActivePause]


class PauseCreated(ResponseModel):
    """Pause that was created."""

    paused: str
    by: str
    reason: str


class PauseEnded(ResponseModel):
    """Pause that was removed, and the number of runs that waited for it."""

    resumed: str
    by: str
    runs: Count


class CallerInfo(ResponseModel):
    """Authenticated caller."""

    name: str
    tenant: str
    roles: list[str]
    every_role: bool = Field(description="True for the local operator, without authentication.")
    person: bool = Field(description="True if the credential belongs to a person. Only people decide.")
    until_real: str | None = Field(description="Expiry of the credential. Streams end with it.")


class Health(ResponseModel):
    """Health of this process."""

    status: Literal["ok", "not ready"]
    checks: dict[str, str] = Field(default_factory=dict)


class InvalidField(ResponseModel):
    """Invalid parameter or field."""

    path: str
    text: str


class Problem(BaseModel):
    """Error as defined in RFC 9457, with a stable code and a hint."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    hint: str
    code: str = Field(description="Stable error code.", examples=["OUT-402"])
    refusal: str = Field(description="Cause, if one code has several.", examples=["decided"])
    request_id: str
    problems: list[InvalidField] | None = None


class WebhookSummary(ResponseModel):
    """Webhook: a URL that receives events."""

    webhook: str
    status: str
    url: str
    name: str
    types: list[str]
    workflows: list[str]
    since: str | None = Field(description="Time of the first event that it receives. null: all events.")
    headers: list[str] = Field(description="Names of the additional headers. Their values are secret.")
    why: str = Field(description="Reason why it is not active.")
    created_at: str | None
    created_by: str
    changed_at: str | None
    changed_by: str
    former_until_real: str | None = Field(description="Until then the previous secret also signs.")


class WebhookList(ResponseModel):
    """List of the webhooks of the tenant."""

    webhooks: list[WebhookSummary]
    unsent_ms: Count = Field(description="How long events have waited without a live dispatcher. 0 if none wait.")


class WebhookWithSecret(WebhookSummary):
    """Webhook with its new secret, which is shown only once."""

    secret: str = Field(examples=["whsec_…"], description="Signing secret. '' in a replayed answer.")


class WebhookDetail(WebhookSummary):
    """Webhook with the state of its deliveries. If `more` is true, `behind` is a lower bound."""

    dead: Count
    owed: Count
    behind: Count
    more: bool
    oldest_at_real: str | None


class WebhookAttempt(ResponseModel):
    """Result of one delivery attempt. `answer` is untrusted text of the receiver."""

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
    """Delivery of an event that was not accepted at the first attempt."""

    delivery: str
    webhook: str
    run: str
    sequence: int
    type: str
    webhook_id: str = Field(description="Id that the receiver sees, the same at each attempt.")
    status: str
    attempts: int
    code: int = Field(description="HTTP status of the last answer. 0 if there was none.")
    error: str
    answer: str
    took_ms: int
    first_at: str | None
    last_at: str | None
    next_at: str | None
    asked_by: str


class RedeliveryRecorded(ResponseModel):
    """Number of undeliverable events that are sent again. If `more` is true, repeat the request."""

    redelivered: str
    events: Count
    more: bool


class DeliveryList(PagedList):
    """Page of deliveries, newest first."""

    deliveries: list[WebhookDelivery]

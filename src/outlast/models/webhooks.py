"""Webhooks, their deliveries and attempts."""

from pydantic import Field

from outlast.models import Count, Instant, Model, PagedList


class WebhookSummary(Model):
    """Webhook: a URL that receives events; or an address that receives messages to approvers."""

    webhook: str
    version: int
    status: str
    url: str
    name: str
    types: list[str]
    workflows: list[str]
    forks: bool = Field(description="True if it includes events of forks.")
    since: Instant | None = Field(description="Time of the first event that it receives. null: all events.")
    headers: list[str] = Field(description="Names of the additional headers. Their values are secret.")
    why: str = Field(description="Reason why it is not active.")
    created_at: Instant | None
    created_by: str
    changed_at: Instant | None
    changed_by: str
    former_until_real: Instant | None = Field(description="Until then the previous secret also signs.")
    audience: str = Field(
        description="'' for a webhook. Of messages to approvers: role:NAME, person:NAME, or * for every approval."
    )


class WebhookList(Model):
    """List of the webhooks of the tenant."""

    webhooks: list[WebhookSummary]
    unsent_ms: Count = Field(description="How long events have waited without a live dispatcher. 0 if none wait.")


class WebhookWithSecret(WebhookSummary):
    """Webhook with its new secret, which is shown only once."""

    secret: str = Field(repr=False, examples=["whsec_…"], description="Signing secret. '' in a replayed answer.")


class WebhookDetail(WebhookSummary):
    """Webhook with the state of its deliveries. If `more` is true, `behind` is a lower bound."""

    dead: Count
    owed: Count
    behind: Count
    more: bool
    oldest_at_real: Instant | None


class WebhookAttempt(Model):
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


class WebhookDelivery(Model):
    """Delivery of an event that was not accepted at the first attempt, or of a message to approvers."""

    delivery: str
    webhook: str
    run: str
    sequence: int
    type: str
    webhook_id: str = Field(
        description="Id that the receiver sees, the same at each attempt. Of a message to approvers: asked:ap_91c2."
    )
    status: str
    attempts: int
    code: int = Field(description="HTTP status of the last answer. 0 if there was none.")
    error: str
    answer: str
    took_ms: int
    first_at: Instant | None
    last_at: Instant | None
    next_at: Instant | None
    asked_by: str


class RedeliveryRecorded(Model):
    """Number of undeliverable events that are sent again. If `more` is true, repeat the request."""

    redelivered: str
    events: Count
    more: bool


class DeliveryList(PagedList):
    """Page of deliveries, newest first."""

    deliveries: list[WebhookDelivery]

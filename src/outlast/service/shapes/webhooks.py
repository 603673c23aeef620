"""Webhooks and their deliveries, as answers."""

from pydantic import Field

from outlast.service.shapes.base import Count, Page, Shape


class Webhook(Shape):
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


class Webhooks(Shape):
    """Every webhook of the tenant."""

    webhooks: list[Webhook]
    unsent_ms: Count = Field(description="For how long events have waited with no dispatcher alive; 0: they do not.")


class NewWebhook(Webhook):
    """With its new secret, which is shown this once."""

    secret: str = Field(examples=["whsec_…"], description="'' where the answer is one that was given before.")


class WholeWebhook(Webhook):
    """How it fares. `more`: at least so many runs are behind."""

    dead: Count
    owed: Count
    behind: Count
    more: bool
    oldest_at_real: str | None


class Attempt(Shape):
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


class Delivery(Shape):
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


class Redelivered(Shape):
    """How many of the events that were given up are sent again. `more`: ask once more for the others."""

    redelivered: str
    events: Count
    more: bool


class Deliveries(Page):
    """Deliveries, newest first."""

    deliveries: list[Delivery]

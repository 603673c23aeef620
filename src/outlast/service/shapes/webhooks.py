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
    why: str = Field(description="Why it is not active.")
    created_at: str | None
    created_by: str
    changed_at: str | None
    changed_by: str


class Webhooks(Shape):
    """Every webhook of the tenant."""

    webhooks: list[Webhook]


class NewWebhook(Webhook):
    """With its new secret, which is shown this once."""

    secret: str = Field(examples=["whsec_…"])


class WholeWebhook(Webhook):
    """How it fares. `more`: at least so many runs are behind."""

    dead: Count
    owed: Count
    behind: Count
    more: bool
    oldest_at_real: str | None


class Attempt(Shape):
    """How one attempt ended; what the receiver said is a stranger's text."""

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
    status: str
    attempts: int
    first_at_real: str | None
    last_at_real: str | None
    next_at_real: str | None
    code: int
    answer: str
    error: str
    took_ms: int
    asked_by: str


class Deliveries(Page):
    """Deliveries, newest first."""

    deliveries: list[Delivery]

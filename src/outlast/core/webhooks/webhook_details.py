"""Facts about a webhook, or about messages to approvers, that its creator states. Each is declared once.

A new fact is a field of `WebhookDetails` here, a column of the same name in `Subscription`, a keyword of
`WebhookClient.add` and `notify`, and a field of `WebhookSummary`. The rest follows from its `DetailField`: the checks,
the bodies over HTTP, the options of `outlast webhooks add` and `notify add`, the lines of `webhooks show` and the page
of the web UI.
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from outlast.core.detail_fields import DetailField, check_facts, declared_facts
from outlast.core.limits import NAME_CHARS_MAX


class WebhookDetails(NamedTuple):
    """Facts about a webhook that its creator states. '' is no fact."""

    name: Annotated[
        str,
        DetailField(
            "name", NAME_CHARS_MAX, "Display name.", places=("request", "option", "terminal"), stored_longer=True
        ),
    ] = ""
    """It is the heading of the page of the web UI, which shows the id without a name."""


NO_WEBHOOK_DETAILS: Final = WebhookDetails()
WEBHOOK_DETAILS: Final = declared_facts(WebhookDetails)
check_webhook_details: Final = partial(check_facts, WEBHOOK_DETAILS.bounds)
"""Raise InvalidInput for a fact that is too long, or no text that can be stored."""


class SubscriptionTerms(NamedTuple):
    """Everything that a caller says about a new subscription, checked."""

    url: str
    """Address that answers show."""
    details: WebhookDetails = NO_WEBHOOK_DETAILS
    types: tuple[str, ...] = ()
    """Types of events that it includes, `…*` for all that begin so, or kinds of messages; () = all."""
    workflows: tuple[str, ...] = ()
    """Workflows whose events it includes; () = all."""
    headers: tuple[tuple[str, str], ...] = ()
    """Additional headers of each delivery. Their values are secrets."""
    from_start: bool = False
    """True if it includes all events that exist."""
    forks: bool = False
    """True if it includes events of forks."""
    audience: str = ""
    """Audience of messages to approvers (core/webhooks/approval_notices.py); '' = a webhook."""

"""Rows of webhooks: subscriptions, cursors, deliveries and unpublished events. See `all_kinds.py`."""

from typing import Final, NamedTuple

from outlast.core.machine import DeliveryStatus, SubscriptionStatus
from outlast.core.rows import columns
from outlast.core.rows.row_kind import Kind


class Subscription(NamedTuple):
    """An address that events or messages to approvers are sent to, and its secret. Never deleted, only removed."""

    tenant: str
    subscription: str
    version: int
    status: SubscriptionStatus
    url: str
    name: str  # display name
    types_text: str
    workflows_text: str
    secret_text: str
    former: str  # the secret before the last rotation, and those before it (deliveries.formers); '' none
    former_until: int  # real; until then both sign
    since: int  # business; first instant of its events; 0 = from the start
    swept: str  # last old run that was searched; '' = none yet, machine.SWEPT = all
    why: str  # why it is not active
    created_at: int
    created_by: str
    changed_at: int
    changed_by: str
    audience: str = ""  # of messages to approvers (core/webhooks/approval_notices.py); '' = a webhook
    forks: int = 0  # 1: it includes events of forks (S-28)

    @property
    def types(self) -> tuple[str, ...]:
        """Return the types of events that it includes, `…*` for all that begin so; () = all."""
        return SUBSCRIPTION.decode(columns.TYPES, self.types_text, self)

    @property
    def workflows(self) -> tuple[str, ...]:
        """Return the workflows whose events it includes; () = all."""
        return SUBSCRIPTION.decode(columns.WORKFLOWS, self.workflows_text, self)

    @property
    def secret(self) -> columns.WebhookSecret:
        """Return the signing key and the custom headers; of messages to approvers, the whole address as `key`."""
        return SUBSCRIPTION.decode(columns.SECRET, self.secret_text, self)


class Cursor(NamedTuple):
    """Progress of the deliveries of one run to one subscription. It has pending events while `due_at` is set."""

    tenant: str
    run: str
    subscription: str
    version: int
    epoch: int  # of the claim
    owner: str  # the dispatcher that sends; '' = none
    due_at: int | None  # real; next attempt; owned: when another dispatcher may take it over
    seq: int  # all events up to here were accepted, given up or filtered out
    upto: int  # events are known up to here
    last: int  # the last event that was sent and settled: `previous` of the next one; 0 none
    again: int  # deliveries of earlier events that a person wants repeated
    owed_since: int  # real; since when something is owed, 0 = nothing
    at: int  # business; when it last moved


class Delivery(NamedTuple):
    """An event that a subscription did not accept at the first attempt, or a message to approvers.

    `seq` of a reminder: approval_notices.REMINDERS and the number of the event after which it was scheduled.
    """

    tenant: str
    run: str
    subscription: str
    seq: int
    version: int
    status: DeliveryStatus
    event: str  # the webhook-id, or the key of a message: the same at each attempt
    type: str  # of the event, or the kind of the message
    attempts: int
    first_at: int  # business; the first attempt that failed
    last_at: int  # business
    due_at: int  # real; next attempt, 0 = none
    code: int  # HTTP status of the last answer, 0 = there was none
    answer: str  # the beginning of its body: a stranger's text
    error: str  # the error as text
    took_ms: int
    by: str  # who asked for it to be sent again


class Unpublished(NamedTuple):
    """An event of a tenant that has subscriptions, until every cursor that it concerns has recorded it."""

    tenant: str
    run: str
    seq: int
    type: str
    at: int


SUBSCRIPTION: Final = Kind("subscription", Subscription, 2, True, True)
CURSOR: Final = Kind("cursor", Cursor, 3, True, True)
DELIVERY: Final = Kind("delivery", Delivery, 4, True, True)
UNPUBLISHED: Final = Kind("unpublished", Unpublished, 3, False, False)

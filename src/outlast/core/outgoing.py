"""The rows of what the world is told: who wants to hear, how far each has been told, and what went wrong.

A delivery costs a row only while it fails. What is told is known by a cursor for each (subscription, run), S-11.
"""

from typing import NamedTuple

from outlast.core.machine import DeliveryStatus, SubscriptionStatus


class Subscription(NamedTuple):
    """An address that events are sent to, and the secret that they are signed with. Never deleted, only removed."""

    tenant: str
    subscription: str
    version: int
    status: SubscriptionStatus
    url: str
    name: str  # what people call it
    types: str  # JSON list of event types, `…*` = all that begin so; '' = all
    workflows: str  # JSON list of workflows; '' = all
    secret: str  # whsec_…; after a newline the headers of its own, as JSON: their values are secrets too
    former: str  # the secret before the last rotation, '' none
    former_until: int  # real; until then both sign
    since: int  # business; it is told what happened from here on, 0 = from the start
    swept: str  # the run up to which old runs have been looked through; '' not begun, machine.SWEPT = all of them
    why: str  # why it is not active
    created_at: int
    created_by: str
    changed_at: int
    changed_by: str


class Cursor(NamedTuple):
    """How far a subscription has been told of a run. It owes something while `due_at` is set."""

    tenant: str
    run: str
    subscription: str
    version: int
    epoch: int  # of the claim
    owner: str  # the dispatcher that sends; '' nobody
    due_at: int | None  # real; next attempt; owned: when another dispatcher may take it over
    seq: int  # everything up to here was accepted, given up, or is none of its business
    upto: int  # events are known up to here
    last: int  # the last event that was sent and settled: `previous` of the next one; 0 none
    again: int  # deliveries of earlier events that a person wants repeated
    owed_since: int  # real; since when something is owed, 0 = nothing
    at: int  # business; when it last moved


class Delivery(NamedTuple):
    """An event that a subscription did not accept at the first attempt."""

    tenant: str
    run: str
    subscription: str
    seq: int
    version: int
    status: DeliveryStatus
    event: str  # the webhook-id: the same at each attempt
    type: str
    attempts: int
    first_at: int  # business; the first attempt that failed
    last_at: int  # business
    due_at: int  # real; next attempt, 0 = none
    code: int  # HTTP status of the last answer, 0 = there was none
    answer: str  # the beginning of its body: a stranger's text
    error: str  # what went wrong, in words
    took_ms: int
    by: str  # who asked for it to be sent again


class Unpublished(NamedTuple):
    """An event of a tenant that has subscriptions, from its commit until every cursor that it concerns knows of it."""

    tenant: str
    run: str
    seq: int
    type: str
    at: int

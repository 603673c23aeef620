"""Rows of webhooks that hold plain values only: cursors, deliveries and unpublished events."""

from typing import NamedTuple

from outlast.core.machine import DeliveryStatus


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
    error: str  # the error as text
    took_ms: int
    by: str  # who asked for it to be sent again


class Unpublished(NamedTuple):
    """An event of a tenant that has subscriptions, from its commit until every cursor that it concerns knows of it."""

    tenant: str
    run: str
    seq: int
    type: str
    at: int

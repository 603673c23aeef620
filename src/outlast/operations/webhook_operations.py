"""Operations on webhooks and their deliveries."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import Field

from outlast.core.durations import Duration
from outlast.core.limits import HEADERS_MAX
from outlast.core.machine import DeliveryStatus
from outlast.core.webhooks.webhook_details import NO_WEBHOOK_DETAILS, WEBHOOK_DETAILS, WebhookDetails
from outlast.models.webhooks import (
    DeliveryList,
    RedeliveryRecorded,
    WebhookAttempt,
    WebhookDelivery,
    WebhookDetail,
    WebhookList,
    WebhookSummary,
    WebhookWithSecret,
)
from outlast.operations.declaration import Operation, OperationRequest, Sent, copied, iso_duration
from outlast.operations.field_types import Cursor, Limit, Reasoned, Word, listed, sent_facts

WEBHOOK: Final = "wh_catfh4b9q1da"


KEEP_MAX: Final = timedelta(days=30)
Names = Annotated[Sequence[str], Sent(write=listed, read=list[Word]), Field(default_factory=list, max_length=100)]
STATED: Final = sent_facts(WEBHOOK_DETAILS)
Status = Annotated[DeliveryStatus | None, Field(description="Only this status.")]


@dataclass(frozen=True)
class ListWebhooks(OperationRequest[WebhookList]):
    """List the webhooks of the tenant."""


LIST_WEBHOOKS: Final = Operation(
    "list_webhooks",
    ListWebhooks,
    WebhookList,
    "GET",
    "/webhooks",
    ("operator",),
    ListWebhooks(),
    summary="List webhooks",
    tag="webhooks",
    description="List the webhooks of the tenant, without their secrets.",
)


@dataclass(frozen=True)
class AddWebhook(OperationRequest[WebhookWithSecret]):
    """URL and filters of a new webhook."""

    url: Annotated[str, Field(min_length=1, max_length=2_000, examples=["https://example.com/hooks"])]
    _: KW_ONLY
    details: Annotated[WebhookDetails, Sent(parts=STATED)] = NO_WEBHOOK_DETAILS
    types: Annotated[Names, Field(examples=[["dev.outlast.workflow.*"]])] = ()
    workflows: Names = ()
    headers: Annotated[
        Mapping[str, str] | None,
        Sent(write=copied, read=dict[str, str]),
        Field(
            default_factory=dict,
            max_length=HEADERS_MAX,
            description="Additional headers of each delivery, X-… or Api-Key. Answers never contain their values.",
            examples=[{"X-Api-Key": "…"}],
        ),
    ] = None
    from_start: Annotated[bool, Field(description="Also deliver all existing events.")] = False
    forks: Annotated[bool, Field(description="Also deliver events of forks.")] = False
    idempotency_key: str = ""


ADD_WEBHOOK: Final = Operation(
    "add_webhook",
    AddWebhook,
    WebhookWithSecret,
    "POST",
    "/webhooks",
    ("admin",),
    AddWebhook("https://example.com/hooks", types=["dev.outlast.workflow.*"], headers={"X-Api-Key": "k"}),
    status_code=201,
    summary="Add a webhook",
    tag="webhooks",
)


@dataclass(frozen=True)
class AddNotification(OperationRequest[WebhookSummary]):
    """Address and audience of messages to approvers."""

    address: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2_000,
            description="Address of mail, Slack, Teams or ntfy. Answers contain its host only.",
            examples=["ntfys://ntfy.sh/topic"],
        ),
    ]
    _: KW_ONLY
    role: Annotated[Word, Field(description="Approvals that this role may decide.")] = ""
    person: Annotated[Word, Field(description="Approvals that this person may decide.")] = ""
    every: Annotated[bool, Field(description="Every approval. Exactly one of role, person and every is given.")] = False
    kinds: Annotated[
        Sequence[str],
        Sent(write=listed, read=list[Literal["asked", "reminder", "escalated"]]),
        Field(default_factory=list, max_length=3, description="Kinds of messages. []: all."),
    ] = ()
    workflows: Names = ()
    details: Annotated[WebhookDetails, Sent(parts=STATED)] = NO_WEBHOOK_DETAILS
    idempotency_key: str = ""


ADD_NOTIFICATION: Final = Operation(
    "add_notification",
    AddNotification,
    WebhookSummary,
    "POST",
    "/notifications",
    ("admin",),
    AddNotification("ntfys://ntfy.sh/topic", role="finance", kinds=["asked", "escalated"]),
    status_code=201,
    summary="Tell approvers",
    tag="webhooks",
)


# --- one webhook -------------------------------------------------------------------------------
@dataclass(frozen=True)
class GetWebhook(OperationRequest[WebhookDetail]):
    """Show a webhook with the state of its deliveries."""

    webhook: str


GET_WEBHOOK: Final = Operation(
    "get_webhook",
    GetWebhook,
    WebhookDetail,
    "GET",
    "/webhooks/{webhook}",
    ("operator",),
    GetWebhook(WEBHOOK),
    summary="Show a webhook",
    tag="webhooks",
    description="Return the webhook with the state of its deliveries, counted from rows.",
)


@dataclass(frozen=True)
class TestWebhook(OperationRequest[WebhookAttempt]):
    """Send a signed test event."""

    __test__ = False  # because pytest collects classes of this name

    webhook: str


TEST_WEBHOOK: Final = Operation(
    "test_webhook",
    TestWebhook,
    WebhookAttempt,
    "POST",
    "/webhooks/{webhook}/test",
    ("operator",),
    TestWebhook(WEBHOOK),
    summary="Test a webhook",
    tag="webhooks",
    description="Send a signed test event now, and return the answer of the receiver.",
)


@dataclass(frozen=True)
class RotateWebhook(OperationRequest[WebhookWithSecret]):
    """Replacement of the signing secret."""

    webhook: str
    _: KW_ONLY
    keep: Annotated[
        Duration | None,
        Sent(write=iso_duration, read=timedelta | None),
        Field(ge=timedelta(0), le=KEEP_MAX, description="How long the old secret also signs.", examples=["PT24H"]),
    ] = None
    version: Annotated[int, Field(ge=0, le=2**53, description="Version of the webhook that you have seen. 0: any.")] = 0
    idempotency_key: str = ""


ROTATE_WEBHOOK: Final = Operation(
    "rotate_webhook",
    RotateWebhook,
    WebhookWithSecret,
    "POST",
    "/webhooks/{webhook}/rotate",
    ("admin",),
    RotateWebhook(WEBHOOK, keep="24h", version=2),
    body_name="RotateSecret",
    summary="Rotate the secret",
    tag="webhooks",
)


@dataclass(frozen=True)
class DisableWebhook(OperationRequest[WebhookSummary]):
    """Reason of an operator, shown in the history."""

    webhook: str
    _: KW_ONLY
    reason: Reasoned


DISABLE_WEBHOOK: Final = Operation(
    "disable_webhook",
    DisableWebhook,
    WebhookSummary,
    "POST",
    "/webhooks/{webhook}/disable",
    ("admin",),
    DisableWebhook(WEBHOOK, reason="the receiver moves"),
    body_name="ReasonBody",
    summary="Disable a webhook",
    tag="webhooks",
    description="Stop deliveries until the webhook is enabled again.",
)


@dataclass(frozen=True)
class EnableWebhook(OperationRequest[WebhookSummary]):
    """Resume deliveries at the kept position."""

    webhook: str


ENABLE_WEBHOOK: Final = Operation(
    "enable_webhook",
    EnableWebhook,
    WebhookSummary,
    "POST",
    "/webhooks/{webhook}/enable",
    ("admin",),
    EnableWebhook(WEBHOOK),
    summary="Enable a webhook",
    tag="webhooks",
    description="Resume deliveries after the last delivered event.",
)


@dataclass(frozen=True)
class RemoveWebhook(OperationRequest[WebhookSummary]):
    """Remove a webhook with its secret."""

    webhook: str


REMOVE_WEBHOOK: Final = Operation(
    "remove_webhook",
    RemoveWebhook,
    WebhookSummary,
    "DELETE",
    "/webhooks/{webhook}",
    ("admin",),
    RemoveWebhook(WEBHOOK),
    summary="Remove a webhook",
    tag="webhooks",
    description="Remove the webhook permanently. It cannot be enabled again.",
)


# --- deliveries --------------------------------------------------------------------------------
@dataclass(frozen=True)
class ListDeliveries(OperationRequest[DeliveryList]):
    """List the deliveries of a webhook, newest first."""

    webhook: str
    _: KW_ONLY
    status: Status = None
    cursor: Cursor = ""
    limit: Limit = 50


LIST_DELIVERIES: Final = Operation(
    "list_deliveries",
    ListDeliveries,
    DeliveryList,
    "GET",
    "/webhooks/{webhook}/deliveries",
    ("operator",),
    ListDeliveries(WEBHOOK, status=DeliveryStatus.DEAD),
    summary="List deliveries of a webhook",
    tag="webhooks",
    description="List its deliveries, newest first. Those accepted at the first attempt are not recorded.",
)


@dataclass(frozen=True)
class ListAllDeliveries(OperationRequest[DeliveryList]):
    """List the deliveries of all webhooks, newest first."""

    _: KW_ONLY
    status: Status = None
    cursor: Cursor = ""
    limit: Limit = 50


LIST_ALL_DELIVERIES: Final = Operation(
    "list_all_deliveries",
    ListAllDeliveries,
    DeliveryList,
    "GET",
    "/deliveries",
    ("operator",),
    ListAllDeliveries(),
    summary="List deliveries",
    tag="webhooks",
    description="List the deliveries of all webhooks, newest first.",
)


@dataclass(frozen=True)
class RedeliverDead(OperationRequest[RedeliveryRecorded]):
    """Send the undeliverable events of a webhook again."""

    webhook: str


REDELIVER_DEAD: Final = Operation(
    "redeliver_dead",
    RedeliverDead,
    RedeliveryRecorded,
    "POST",
    "/webhooks/{webhook}/redeliver",
    ("operator",),
    RedeliverDead(WEBHOOK),
    summary="Redeliver undeliverable events",
    tag="webhooks",
    description=(
        "Send up to 1,000 undeliverable events again, with the same bytes and ids. If `more` is true, repeat this."
    ),
)


@dataclass(frozen=True)
class Redeliver(OperationRequest[WebhookDelivery]):
    """Send an event again."""

    delivery: str


REDELIVER: Final = Operation(
    "redeliver",
    Redeliver,
    WebhookDelivery,
    "POST",
    "/deliveries/{delivery}/redeliver",
    ("operator",),
    Redeliver(f"{WEBHOOK}:refu_0c9k2m4x7q1z:3"),
    summary="Redeliver an event",
    tag="webhooks",
    description="Send the event again, with the same bytes and id, regardless of the order of its run.",
)

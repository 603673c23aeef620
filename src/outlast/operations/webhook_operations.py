"""Operations on webhooks and their deliveries."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Final

from outlast.core.machine import DeliveryStatus
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
from outlast.operations.declaration import Operation, OperationRequest, Sent, Since, copied

WEBHOOK: Final = "wh_catfh4b9q1da"


def _listed(values: Sequence[str]) -> list[str]:
    return [*values]


Names = Annotated[Sequence[str], Sent(write=_listed)]


@dataclass(frozen=True)
class ListWebhooks(OperationRequest[WebhookList]):
    """List the webhooks of the tenant."""


LIST_WEBHOOKS: Final = Operation(
    "list_webhooks", ListWebhooks, WebhookList, "GET", "/webhooks", ("operator",), ListWebhooks()
)


@dataclass(frozen=True)
class AddWebhook(OperationRequest[WebhookWithSecret]):
    """Create a webhook that sends events to a URL."""

    url: str
    _: KW_ONLY
    name: str = ""
    types: Names = ()
    workflows: Names = ()
    headers: Annotated[Mapping[str, str] | None, Sent(write=copied)] = None
    from_start: bool = False
    idempotency_key: str = ""


ADD_WEBHOOK: Final = Operation(
    "add_webhook",
    AddWebhook,
    WebhookWithSecret,
    "POST",
    "/webhooks",
    ("admin",),
    AddWebhook("https://example.com/hooks", types=["dev.outlast.workflow.*"], headers={"X-Api-Key": "k"}),
)


@dataclass(frozen=True)
class AddNotification(OperationRequest[WebhookSummary]):
    """Send messages about approvals to an address."""

    address: str
    _: KW_ONLY
    role: str = ""
    person: str = ""
    every: bool = False
    kinds: Names = ()
    workflows: Names = ()
    name: str = ""
    idempotency_key: str = ""


ADD_NOTIFICATION: Final = Operation(
    "add_notification",
    AddNotification,
    WebhookSummary,
    "POST",
    "/notifications",
    ("admin",),
    AddNotification("ntfys://ntfy.sh/topic", role="finance", kinds=["asked", "escalated"]),
)


# --- one webhook -------------------------------------------------------------------------------
@dataclass(frozen=True)
class GetWebhook(OperationRequest[WebhookDetail]):
    """Show a webhook with the state of its deliveries."""

    webhook: str


GET_WEBHOOK: Final = Operation(
    "get_webhook", GetWebhook, WebhookDetail, "GET", "/webhooks/{webhook}", ("operator",), GetWebhook(WEBHOOK)
)


@dataclass(frozen=True)
class TestWebhook(OperationRequest[WebhookAttempt]):
    """Send a signed test event."""

    __test__ = False  # because pytest collects classes of this name

    webhook: str


TEST_WEBHOOK: Final = Operation(
    "test_webhook", TestWebhook, WebhookAttempt, "POST", "/webhooks/{webhook}/test", ("operator",), TestWebhook(WEBHOOK)
)


@dataclass(frozen=True)
class RotateWebhook(OperationRequest[WebhookWithSecret]):
    """Replace the secret of a webhook."""

    webhook: str
    _: KW_ONLY
    keep: Since = None
    version: int = 0
    idempotency_key: str = ""


ROTATE_WEBHOOK: Final = Operation(
    "rotate_webhook",
    RotateWebhook,
    WebhookWithSecret,
    "POST",
    "/webhooks/{webhook}/rotate",
    ("admin",),
    RotateWebhook(WEBHOOK, keep="24h", version=2),
)


@dataclass(frozen=True)
class DisableWebhook(OperationRequest[WebhookSummary]):
    """Stop deliveries until the webhook is enabled again."""

    webhook: str
    _: KW_ONLY
    reason: str


DISABLE_WEBHOOK: Final = Operation(
    "disable_webhook",
    DisableWebhook,
    WebhookSummary,
    "POST",
    "/webhooks/{webhook}/disable",
    ("admin",),
    DisableWebhook(WEBHOOK, reason="the receiver moves"),
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
)


@dataclass(frozen=True)
class RemoveWebhook(OperationRequest[WebhookSummary]):
    """Remove a webhook with its secret."""

    webhook: str


REMOVE_WEBHOOK: Final = Operation(
    "remove_webhook", RemoveWebhook, WebhookSummary, "DELETE", "/webhooks/{webhook}", ("admin",), RemoveWebhook(WEBHOOK)
)


# --- deliveries --------------------------------------------------------------------------------
@dataclass(frozen=True)
class ListDeliveries(OperationRequest[DeliveryList]):
    """List the deliveries of a webhook, newest first."""

    webhook: str
    _: KW_ONLY
    status: DeliveryStatus | None = None
    cursor: str = ""
    limit: int = 50


LIST_DELIVERIES: Final = Operation(
    "list_deliveries",
    ListDeliveries,
    DeliveryList,
    "GET",
    "/webhooks/{webhook}/deliveries",
    ("operator",),
    ListDeliveries(WEBHOOK, status=DeliveryStatus.DEAD),
)


@dataclass(frozen=True)
class ListAllDeliveries(OperationRequest[DeliveryList]):
    """List the deliveries of all webhooks, newest first."""

    _: KW_ONLY
    status: DeliveryStatus | None = None
    cursor: str = ""
    limit: int = 50


LIST_ALL_DELIVERIES: Final = Operation(
    "list_all_deliveries", ListAllDeliveries, DeliveryList, "GET", "/deliveries", ("operator",), ListAllDeliveries()
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
)

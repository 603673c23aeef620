"""Routes for webhooks and their deliveries."""

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.limits import HEADERS_MAX
from outlast.core.machine import DeliveryStatus
from outlast.models import RequestBody
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
from outlast.operations.webhook_operations import AddWebhook, ListWebhooks, Redeliver, RedeliverDead, RotateWebhook
from outlast.runtime.operations import Operations
from outlast.service.idempotency import NO_STORE
from outlast.service.request_parts import IdempotencyKey, ReasonBody, WebhookId, Word
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import Ops, PageRequest, Pages, root_of

router = APIRouter(prefix="/v1", tags=["webhooks"], route_class=SecuredRoute)
DeliveryId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9._:-]{1,350}$", description="Id of the delivery (WEBHOOK:RUN:SEQ), as listed.")
]
Settled = Annotated[DeliveryStatus | None, Query(description="Only this status.")]
KEEP_MAX = timedelta(days=30)


class AddWebhookBody(RequestBody, schema_name="AddWebhook"):
    """URL and filters of a new webhook."""

    url: Annotated[str, Field(min_length=1, max_length=2_000, examples=["https://example.com/hooks"])]
    name: Word = ""
    types: list[Word] = Field(default_factory=list, max_length=100, examples=[["dev.outlast.workflow.*"]])
    workflows: list[Word] = Field(default_factory=list, max_length=100)
    headers: dict[str, str] = Field(
        default_factory=dict,
        max_length=HEADERS_MAX,
        description="Additional headers of each delivery, X-… or Api-Key. Answers never contain their values.",
        examples=[{"X-Api-Key": "…"}],
    )
    from_start: bool = Field(False, description="Also deliver all existing events.")


class AddNotificationBody(RequestBody, schema_name="AddNotification"):
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
    role: Word = Field("", description="Approvals that this role may decide.")
    person: Word = Field("", description="Approvals that this person may decide.")
    every: bool = Field(False, description="Every approval. Exactly one of role, person and every is given.")
    kinds: list[Literal["asked", "reminder", "escalated"]] = Field(
        default_factory=list, max_length=3, description="Kinds of messages. []: all."
    )
    workflows: list[Word] = Field(default_factory=list, max_length=100)
    name: Word = ""


class RotateSecret(RequestBody):
    """Replacement of the signing secret."""

    keep: timedelta | None = Field(
        None, ge=timedelta(0), le=KEEP_MAX, description="How long the old secret also signs.", examples=["PT24H"]
    )
    version: int = Field(0, ge=0, le=2**53, description="Version of the webhook that you have seen. 0: any.")


@router.get("/webhooks", operation_id="list_webhooks", response_model=WebhookList, summary="List webhooks")
async def list_webhooks(ops: Ops) -> WebhookList:
    """List the webhooks of the tenant, without their secrets."""
    return await ops.webhooks.perform(ListWebhooks())


@router.post(
    "/webhooks",
    operation_id="add_webhook",
    response_model=WebhookWithSecret,
    status_code=201,
    summary="Add a webhook",
)
async def add_webhook(
    ops: Ops, ask: AddWebhookBody, request: Request, response: Response, key: IdempotencyKey = None
) -> WebhookWithSecret:
    """Add a webhook. Only the first answer contains the secret: in that to a repetition it is empty.

    The URL is checked now and before each delivery.
    """
    wanted = AddWebhook(
        ask.url,
        name=ask.name,
        types=ask.types,
        workflows=ask.workflows,
        headers=ask.headers,
        from_start=ask.from_start,
    )
    made = await ops.webhooks.perform(wanted)
    response.headers["Location"] = f"{root_of(request)}/v1/webhooks/{made.webhook}"
    _mark_replay(response, made)
    return made


@router.post(
    "/notifications",
    operation_id="add_notification",
    response_model=WebhookSummary,
    status_code=201,
    summary="Tell approvers",
)
async def add_notification(
    ops: Ops, ask: AddNotificationBody, request: Request, response: Response, key: IdempotencyKey = None
) -> WebhookSummary:
    """Send messages about approvals to an address: a new approval, a reminder before its deadline, and an escalation.

    The subscription is listed and changed as a webhook. The address is checked now and before each message.
    """
    made = await ops.webhooks.notify(
        ask.address,
        role=ask.role,
        person=ask.person,
        every=ask.every,
        kinds=ask.kinds,
        workflows=ask.workflows,
        name=ask.name,
    )
    response.headers["Location"] = f"{root_of(request)}/v1/webhooks/{made.webhook}"
    response.headers["Cache-Control"] = NO_STORE
    return made


@router.get(
    "/webhooks/{webhook}",
    operation_id="get_webhook",
    response_model=WebhookDetail,
    summary="Show a webhook",
)
async def get_webhook(ops: Ops, webhook: WebhookId) -> WebhookDetail:
    """Return the webhook with the state of its deliveries, counted from rows."""
    return await ops.webhooks.get(webhook)


@router.post(
    "/webhooks/{webhook}/test",
    operation_id="test_webhook",
    response_model=WebhookAttempt,
    summary="Test a webhook",
)
async def send_test(ops: Ops, webhook: WebhookId, key: IdempotencyKey = None) -> WebhookAttempt:
    """Send a signed test event now, and return the answer of the receiver."""
    return await ops.webhooks.test(webhook)


@router.post(
    "/webhooks/{webhook}/rotate",
    operation_id="rotate_webhook",
    response_model=WebhookWithSecret,
    summary="Rotate the secret",
)
async def rotate_webhook(
    ops: Ops, webhook: WebhookId, ask: RotateSecret, response: Response, key: IdempotencyKey = None
) -> WebhookWithSecret:
    """Replace the secret. For a while both secrets sign, so that the receiver can switch.

    The answer to a repetition has an empty secret: rotate once more to see one.
    """
    rotated = await ops.webhooks.perform(RotateWebhook(webhook, keep=ask.keep, version=ask.version))
    _mark_replay(response, rotated)
    return rotated


def _mark_replay(response: Response, found: WebhookWithSecret) -> None:
    """Keep the secret from being stored, and mark the answer to a repetition, which has none."""
    response.headers["Cache-Control"] = NO_STORE
    if not found.secret:
        response.headers["Idempotent-Replayed"] = "true"


@router.post(
    "/webhooks/{webhook}/disable",
    operation_id="disable_webhook",
    response_model=WebhookSummary,
    summary="Disable a webhook",
)
async def disable_webhook(ops: Ops, webhook: WebhookId, ask: ReasonBody, key: IdempotencyKey = None) -> WebhookSummary:
    """Stop deliveries until the webhook is enabled again."""
    return await ops.webhooks.disable(webhook, reason=ask.reason)


@router.post(
    "/webhooks/{webhook}/enable",
    operation_id="enable_webhook",
    response_model=WebhookSummary,
    summary="Enable a webhook",
)
async def enable_webhook(ops: Ops, webhook: WebhookId, key: IdempotencyKey = None) -> WebhookSummary:
    """Resume deliveries after the last delivered event."""
    return await ops.webhooks.enable(webhook)


@router.delete(
    "/webhooks/{webhook}",
    operation_id="remove_webhook",
    response_model=WebhookSummary,
    summary="Remove a webhook",
)
async def remove_webhook(ops: Ops, webhook: WebhookId, key: IdempotencyKey = None) -> WebhookSummary:
    """Remove the webhook permanently. It cannot be enabled again."""
    return await ops.webhooks.remove(webhook)


@router.get(
    "/webhooks/{webhook}/deliveries", operation_id="list_deliveries", response_model=DeliveryList,
    summary="List deliveries of a webhook",
)  # fmt: skip
async def list_deliveries(ops: Ops, pages: Pages, webhook: WebhookId, status: Settled = None) -> DeliveryList:
    """List its deliveries, newest first. Those accepted at the first attempt are not recorded."""
    return await _deliveries(ops, pages, webhook, status)


@router.get(
    "/deliveries", operation_id="list_all_deliveries", response_model=DeliveryList,
    summary="List deliveries",
)  # fmt: skip
async def list_all_deliveries(ops: Ops, pages: Pages, status: Settled = None) -> DeliveryList:
    """List the deliveries of all webhooks, newest first."""
    return await _deliveries(ops, pages, "", status)


async def _deliveries(ops: Operations, pages: PageRequest, webhook: str, status: DeliveryStatus | None) -> DeliveryList:
    found = await ops.webhooks.deliveries(webhook, status=status, cursor=pages.after, limit=pages.limit)
    return await pages.sealed(found)


@router.post(
    "/webhooks/{webhook}/redeliver", operation_id="redeliver_dead", response_model=RedeliveryRecorded,
    summary="Redeliver undeliverable events",
)  # fmt: skip
async def redeliver_dead(ops: Ops, webhook: WebhookId, key: IdempotencyKey = None) -> RedeliveryRecorded:
    """Send up to 1,000 undeliverable events again, with the same bytes and ids. If `more` is true, repeat this."""
    return await ops.webhooks.perform(RedeliverDead(webhook))


@router.post(
    "/deliveries/{delivery}/redeliver",
    operation_id="redeliver",
    response_model=WebhookDelivery,
    summary="Redeliver an event",
)
async def redeliver(ops: Ops, delivery: DeliveryId, key: IdempotencyKey = None) -> WebhookDelivery:
    """Send the event again, with the same bytes and id, regardless of the order of its run."""
    return await ops.webhooks.perform(Redeliver(delivery))

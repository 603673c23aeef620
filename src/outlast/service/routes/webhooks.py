"""Webhooks over HTTP: who is told of what happens, how that fares, and having it told again."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.limits import HEADERS_MAX
from outlast.core.machine import DeliveryStatus
from outlast.runtime.delivery_lag import unattended_ms
from outlast.runtime.operations import Operations
from outlast.runtime.webhooks import attempt_view, delivery_view, new_webhook_view, webhook_detail_view, webhook_view
from outlast.service import admin_responses
from outlast.service.idempotency import NO_STORE
from outlast.service.requests import IdempotencyKey, ReasonBody, RequestBody, WebhookId, Word
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import Ops, Pages, Paging, root_of

router = APIRouter(prefix="/v1", tags=["webhooks"], route_class=SecuredRoute)
DeliveryId = Annotated[str, Path(pattern=r"^[A-Za-z0-9._:-]{1,350}$", description="WEBHOOK:RUN:SEQ, as listed.")]
Settled = Annotated[DeliveryStatus | None, Query(description="Only these.")]
KEEP_MAX = timedelta(days=30)
AT_ONCE = 1_000  # events that one request has sent again


class AddWebhook(RequestBody):
    """Tell an address of what happens."""

    url: Annotated[str, Field(min_length=1, max_length=2_000, examples=["https://example.com/hooks"])]
    name: Word = ""
    types: list[Word] = Field(default_factory=list, max_length=100, examples=[["dev.outlast.workflow.*"]])
    workflows: list[Word] = Field(default_factory=list, max_length=100)
    headers: dict[str, str] = Field(
        default_factory=dict,
        max_length=HEADERS_MAX,
        description="Further headers of each delivery, X-… or Api-Key; no answer ever shows their values.",
        examples=[{"X-Api-Key": "…"}],
    )
    from_start: bool = Field(False, description="Also of everything that is there already.")


class RotateSecret(RequestBody):
    """Give it a new secret."""

    keep: timedelta | None = Field(
        None, ge=timedelta(0), le=KEEP_MAX, description="How long the old one signs too.", examples=["PT24H"]
    )


@router.get(
    "/webhooks", operation_id="list_webhooks", response_model=admin_responses.WebhookList, summary="Who is told"
)
async def list_webhooks(ops: Ops) -> dict[str, Any]:
    """Every webhook of the tenant, without its secret."""
    return {
        "webhooks": [webhook_view(row) for row in await ops.webhooks.list()],
        "unsent_ms": await unattended_ms(ops.store, ops.tenant),
    }


@router.post(
    "/webhooks",
    operation_id="add_webhook",
    response_model=admin_responses.WebhookWithSecret,
    status_code=201,
    summary="Add a webhook",
)
async def add_webhook(
    ops: Ops, ask: AddWebhook, request: Request, response: Response, key: IdempotencyKey = None
) -> dict[str, Any]:
    """The secret is in this answer and in no other, a replayed one neither. The address is checked now, and before each
    delivery."""
    made = await ops.webhooks.add(
        ask.url,
        name=ask.name,
        types=ask.types,
        workflows=ask.workflows,
        headers=ask.headers,
        from_start=ask.from_start,
    )
    response.headers["Location"] = f"{root_of(request)}/v1/webhooks/{made.subscription.subscription}"
    response.headers["Cache-Control"] = NO_STORE
    return new_webhook_view(made)


@router.get(
    "/webhooks/{webhook}",
    operation_id="get_webhook",
    response_model=admin_responses.WebhookDetail,
    summary="Look at it",
)
async def get_webhook(ops: Ops, webhook: WebhookId) -> dict[str, Any]:
    """How it fares, counted from its rows."""
    return webhook_detail_view(await ops.webhooks.get(webhook), await ops.webhooks.backlog(webhook))


@router.post(
    "/webhooks/{webhook}/test",
    operation_id="test_webhook",
    response_model=admin_responses.WebhookAttempt,
    summary="Test it",
)
async def send_test(ops: Ops, webhook: WebhookId, key: IdempotencyKey = None) -> dict[str, Any]:
    """Send a signed event of no run now, and answer what came back."""
    return attempt_view(webhook, await ops.webhooks.test(webhook))


@router.post(
    "/webhooks/{webhook}/rotate",
    operation_id="rotate_webhook",
    response_model=admin_responses.WebhookWithSecret,
    summary="New secret",
)
async def rotate_webhook(
    ops: Ops, webhook: WebhookId, ask: RotateSecret, response: Response, key: IdempotencyKey = None
) -> dict[str, Any]:
    """For a while both secrets sign, so that the receiver can follow. A replayed answer has no secret in it."""
    response.headers["Cache-Control"] = NO_STORE
    more = {} if ask.keep is None else {"keep": ask.keep}
    return new_webhook_view(await ops.webhooks.rotate(webhook, **more))


@router.post(
    "/webhooks/{webhook}/disable",
    operation_id="disable_webhook",
    response_model=admin_responses.WebhookSummary,
    summary="Disable it",
)
async def disable_webhook(ops: Ops, webhook: WebhookId, ask: ReasonBody, key: IdempotencyKey = None) -> dict[str, Any]:
    """Nothing is told until it is enabled."""
    return webhook_view(await ops.webhooks.disable(webhook, reason=ask.reason))


@router.post(
    "/webhooks/{webhook}/enable",
    operation_id="enable_webhook",
    response_model=admin_responses.WebhookSummary,
    summary="Enable it",
)
async def enable_webhook(ops: Ops, webhook: WebhookId, key: IdempotencyKey = None) -> dict[str, Any]:
    """It goes on where it was."""
    return webhook_view(await ops.webhooks.enable(webhook))


@router.delete(
    "/webhooks/{webhook}",
    operation_id="remove_webhook",
    response_model=admin_responses.WebhookSummary,
    summary="Remove it",
)
async def remove_webhook(ops: Ops, webhook: WebhookId) -> dict[str, Any]:
    """It ends for ever."""
    return webhook_view(await ops.webhooks.remove(webhook))


@router.get(
    "/webhooks/{webhook}/deliveries", operation_id="list_deliveries", response_model=admin_responses.DeliveryList,
    summary="What was not accepted at once",
)  # fmt: skip
async def list_deliveries(ops: Ops, pages: Pages, webhook: WebhookId, status: Settled = None) -> dict[str, Any]:
    """Newest first; what was accepted at the first attempt leaves no row."""
    return await _deliveries(ops, pages, webhook, status)


@router.get(
    "/deliveries", operation_id="list_all_deliveries", response_model=admin_responses.DeliveryList,
    summary="What no webhook accepted at once",
)  # fmt: skip
async def list_all_deliveries(ops: Ops, pages: Pages, status: Settled = None) -> dict[str, Any]:
    """Of all webhooks, newest first."""
    return await _deliveries(ops, pages, "", status)


async def _deliveries(ops: Operations, pages: Paging, webhook: str, status: DeliveryStatus | None) -> dict[str, Any]:
    rows, further = await ops.webhooks.deliveries(webhook, status=status, cursor=pages.place, limit=pages.limit)
    business = ops.store.mapping().business
    return await pages.page("deliveries", [delivery_view(row, business) for row in rows], further)


@router.post(
    "/webhooks/{webhook}/redeliver", operation_id="redeliver_dead", response_model=admin_responses.RedeliveryRecorded,
    summary="Tell all again that was given up",
)  # fmt: skip
async def redeliver_dead(ops: Ops, webhook: WebhookId, key: IdempotencyKey = None) -> dict[str, Any]:
    """At most 1,000 events at once, the same bytes under the same webhook-ids; `more`: ask again for the others."""
    n = await ops.webhooks.redeliver_dead(webhook, limit=AT_ONCE)
    return {"redelivered": webhook, "events": n, "more": n >= AT_ONCE}


@router.post(
    "/deliveries/{delivery}/redeliver",
    operation_id="redeliver",
    response_model=admin_responses.WebhookDelivery,
    summary="Tell again",
)
async def redeliver(ops: Ops, delivery: DeliveryId, key: IdempotencyKey = None) -> dict[str, Any]:
    """The same bytes under the same webhook-id, beside the order of its run."""
    return delivery_view(await ops.webhooks.redeliver(delivery), ops.store.mapping().business)

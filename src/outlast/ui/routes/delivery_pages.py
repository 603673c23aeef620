"""Pages of webhooks and their deliveries: receivers, lag, attempts, and what a person can do about them."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.machine import DeliveryStatus
from outlast.core.webhooks.webhook_details import WEBHOOK_DETAILS
from outlast.errors import Conflict, InvalidInput, OutlastError
from outlast.models.webhooks import WebhookAttempt, WebhookWithSecret
from outlast.operations.field_types import Word
from outlast.operations.webhook_operations import ListWebhooks, Redeliver, RedeliverDead
from outlast.service.problems import status_of
from outlast.service.request_parts import DeliveryId, WebhookId
from outlast.service.service_state import Ops, Pages
from outlast.ui.page_route import PageRoute, form_of, see_other
from outlast.ui.rendering import render, stamp

router = APIRouter(prefix="/ui", route_class=PageRoute)


@router.get("/deliveries", operation_id="ui:list_all_deliveries")
async def list_deliveries(
    ops: Ops,
    pages: Pages,
    request: Request,
    status: DeliveryStatus | None = None,
    webhook: Annotated[Word, Query()] = "",
) -> Response:
    """Show the deliveries that were not accepted at once, newest first."""
    found = await pages.sealed(
        await ops.webhooks.deliveries(webhook, status=status, cursor=pages.after, limit=pages.limit)
    )
    receivers = {each.webhook: each for each in (await ops.webhooks.perform(ListWebhooks())).webhooks}
    version = stamp([(each.delivery, each.status, each.attempts, each.next_at) for each in found.deliveries])
    return await render(
        request,
        "deliveries.html",
        title="Deliveries",
        live="runs",
        versions={"deliveries": version},
        found=found,
        receivers=receivers,
        status=status,
        webhook=webhook,
        statuses=list(DeliveryStatus),
    )


@router.post("/deliveries/{delivery}/redeliver", operation_id="ui:redeliver")
async def redeliver(ops: Ops, request: Request, delivery: DeliveryId) -> Response:
    """Send the event again and return to the list."""
    await ops.webhooks.perform(Redeliver(delivery))
    return see_other(request, "/ui/deliveries", f"Delivery {delivery} is sent again. Its next attempt is in the list.")


@router.get("/webhooks", operation_id="ui:list_webhooks")
async def list_webhooks(ops: Ops, request: Request) -> Response:
    """Show the receivers with their lag."""
    found, unsent_ms = await ops.webhooks.list(), await ops.webhooks.unsent_ms()
    version = stamp([each.model_dump(exclude={"oldest_at_real"}) for each in found], bool(unsent_ms))
    return await render(
        request,
        "webhooks.html",
        title="Webhooks",
        live="runs",
        versions={"webhooks": version},
        found=found,
        unsent_ms=unsent_ms,
    )


@router.get("/webhooks/{webhook}", operation_id="ui:get_webhook")
async def get_webhook(ops: Ops, request: Request, webhook: WebhookId) -> Response:
    """Show one receiver, the state of its deliveries, and the actions on it."""
    return await _webhook(ops, request, webhook)


async def _webhook(
    ops: Ops,
    request: Request,
    webhook: str,
    *,
    attempt: WebhookAttempt | None = None,
    secret: WebhookWithSecret | None = None,
    error: OutlastError | None = None,
    typed: str = "",
) -> Response:
    found = await ops.webhooks.get(webhook)
    done = f"A test event was sent to {webhook}. Its answer is below." if attempt else ""
    done = f"The secret of {webhook} was replaced. The new one is below, once." if secret else done
    recent = await ops.webhooks.deliveries(found.webhook, limit=20)
    version = stamp(found.model_dump(exclude={"oldest_at_real"}), [(d.delivery, d.status) for d in recent.deliveries])
    return await render(
        request,
        "webhook.html",
        title=found.name or found.webhook,
        live="" if secret else "runs",
        versions={"webhook": version},
        found=found,
        details=[(each.title, getattr(found, name)) for name, each in WEBHOOK_DETAILS.by_place["page"].items()],
        recent=recent.deliveries,
        attempt=attempt,
        secret=secret,
        error=error,
        typed=typed,
        feedback=done,
        status_code=200 if error is None else status_of(error),
    )


@router.post("/webhooks/{webhook}/test", operation_id="ui:test_webhook")
async def send_test(ops: Ops, request: Request, webhook: WebhookId) -> Response:
    """Send a test event now and show the answer of the receiver."""
    return await _webhook(ops, request, webhook, attempt=await ops.webhooks.test(webhook))


@router.post("/webhooks/{webhook}/rotate", operation_id="ui:rotate_webhook")
async def rotate_webhook(ops: Ops, request: Request, webhook: WebhookId) -> Response:
    """Replace the secret and show the new one, once. A form that is sent twice is refused the second time."""
    try:
        secret = await ops.webhooks.rotate(webhook, version=form_of(request).version())
    except (Conflict, InvalidInput) as error:
        return await _webhook(ops, request, webhook, error=error)
    return await _webhook(ops, request, webhook, secret=secret)


@router.post("/webhooks/{webhook}/disable", operation_id="ui:disable_webhook")
async def disable_webhook(ops: Ops, request: Request, webhook: WebhookId) -> Response:
    """Stop deliveries to this receiver."""
    reason = form_of(request).text("reason")
    try:
        await ops.webhooks.disable(webhook, reason=reason)
    except OutlastError as error:
        return await _webhook(ops, request, webhook, error=error, typed=reason)
    return see_other(request, f"/ui/webhooks/{webhook}", f"Disabled {webhook}. Nothing is sent until it is enabled.")


@router.post("/webhooks/{webhook}/enable", operation_id="ui:enable_webhook")
async def enable_webhook(ops: Ops, request: Request, webhook: WebhookId) -> Response:
    """Resume deliveries after the last delivered event."""
    await ops.webhooks.enable(webhook)
    return see_other(request, f"/ui/webhooks/{webhook}", f"Enabled {webhook}. Deliveries go on after the last one.")


@router.post("/webhooks/{webhook}/redeliver", operation_id="ui:redeliver_dead")
async def redeliver_dead(ops: Ops, request: Request, webhook: WebhookId) -> Response:
    """Send the undeliverable events of this receiver again, at most 1,000 at once."""
    n = (await ops.webhooks.perform(RedeliverDead(webhook))).events
    sent = f"{n:,} event{' is' if n == 1 else 's are'} sent again to {webhook}."
    return see_other(request, f"/ui/webhooks/{webhook}", sent)

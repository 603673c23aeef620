"""Routes for webhooks and their deliveries."""

from starlette.responses import Response

from outlast.models.webhooks import WebhookSummary, WebhookWithSecret
from outlast.operations.webhook_operations import (
    ADD_NOTIFICATION,
    ADD_WEBHOOK,
    ROTATE_WEBHOOK,
    AddNotification,
    AddWebhook,
    RotateWebhook,
)
from outlast.service.declared_routes import DeclaredRouter, ServedCall
from outlast.service.idempotency import NO_STORE
from outlast.service.service_state import root_of

router = DeclaredRouter()


@router.answers(ADD_WEBHOOK)
async def add_webhook(call: ServedCall[AddWebhook]) -> WebhookWithSecret:
    """Add a webhook. Only the first answer contains the secret: in that to a repetition it is empty.

    The URL is checked now and before each delivery.
    """
    made = await call.ops.perform(call.asked)
    call.response.headers["Location"] = f"{root_of(call.http)}/v1/webhooks/{made.webhook}"
    _mark_replay(call.response, made)
    return made


@router.answers(ADD_NOTIFICATION)
async def add_notification(call: ServedCall[AddNotification]) -> WebhookSummary:
    """Send messages about approvals to an address: a new approval, a reminder before its deadline, and an escalation.

    The subscription is listed and changed as a webhook. The address is checked now and before each message.
    """
    made = await call.ops.perform(call.asked)
    call.response.headers["Location"] = f"{root_of(call.http)}/v1/webhooks/{made.webhook}"
    call.response.headers["Cache-Control"] = NO_STORE
    return made


@router.answers(ROTATE_WEBHOOK)
async def rotate_webhook(call: ServedCall[RotateWebhook]) -> WebhookWithSecret:
    """Replace the secret. For a while both secrets sign, so that the receiver can switch.

    The answer to a repetition has an empty secret: rotate once more to see one.
    """
    rotated = await call.ops.perform(call.asked)
    _mark_replay(call.response, rotated)
    return rotated


def _mark_replay(response: Response, found: WebhookWithSecret) -> None:
    """Keep the secret from being stored, and mark the answer to a repetition, which has none."""
    response.headers["Cache-Control"] = NO_STORE
    if not found.secret:
        response.headers["Idempotent-Replayed"] = "true"

"""Routes for webhooks and their deliveries."""

from starlette.responses import Response

from outlast.models.webhooks import WebhookSummary, WebhookWithSecret
from outlast.operations.webhook_operations import (
    ADD_NOTIFICATION,
    ADD_WEBHOOK,
    DISABLE_WEBHOOK,
    ENABLE_WEBHOOK,
    GET_WEBHOOK,
    LIST_ALL_DELIVERIES,
    LIST_DELIVERIES,
    LIST_WEBHOOKS,
    REDELIVER,
    REDELIVER_DEAD,
    REMOVE_WEBHOOK,
    ROTATE_WEBHOOK,
    TEST_WEBHOOK,
    AddNotification,
    AddWebhook,
    RotateWebhook,
)
from outlast.service.declared_routes import DeclaredRouter, ServedCall
from outlast.service.idempotency import NO_STORE
from outlast.service.service_state import root_of

router = DeclaredRouter("webhooks")
router.serve(LIST_WEBHOOKS, "List webhooks", "List the webhooks of the tenant, without their secrets.")


@router.answers(ADD_WEBHOOK, "Add a webhook")
async def add_webhook(call: ServedCall[AddWebhook]) -> WebhookWithSecret:
    """Add a webhook. Only the first answer contains the secret: in that to a repetition it is empty.

    The URL is checked now and before each delivery.
    """
    made = await call.ops.perform(call.asked)
    call.response.headers["Location"] = f"{root_of(call.http)}/v1/webhooks/{made.webhook}"
    _mark_replay(call.response, made)
    return made


@router.answers(ADD_NOTIFICATION, "Tell approvers")
async def add_notification(call: ServedCall[AddNotification]) -> WebhookSummary:
    """Send messages about approvals to an address: a new approval, a reminder before its deadline, and an escalation.

    The subscription is listed and changed as a webhook. The address is checked now and before each message.
    """
    made = await call.ops.perform(call.asked)
    call.response.headers["Location"] = f"{root_of(call.http)}/v1/webhooks/{made.webhook}"
    call.response.headers["Cache-Control"] = NO_STORE
    return made


router.serve(GET_WEBHOOK, "Show a webhook", "Return the webhook with the state of its deliveries, counted from rows.")
router.serve(TEST_WEBHOOK, "Test a webhook", "Send a signed test event now, and return the answer of the receiver.")


@router.answers(ROTATE_WEBHOOK, "Rotate the secret")
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


router.serve(DISABLE_WEBHOOK, "Disable a webhook", "Stop deliveries until the webhook is enabled again.")
router.serve(ENABLE_WEBHOOK, "Enable a webhook", "Resume deliveries after the last delivered event.")
router.serve(REMOVE_WEBHOOK, "Remove a webhook", "Remove the webhook permanently. It cannot be enabled again.")
router.serve(
    LIST_DELIVERIES,
    "List deliveries of a webhook",
    "List its deliveries, newest first. Those accepted at the first attempt are not recorded.",
)
router.serve(LIST_ALL_DELIVERIES, "List deliveries", "List the deliveries of all webhooks, newest first.")
router.serve(
    REDELIVER_DEAD,
    "Redeliver undeliverable events",
    "Send up to 1,000 undeliverable events again, with the same bytes and ids. If `more` is true, repeat this.",
)
router.serve(
    REDELIVER,
    "Redeliver an event",
    "Send the event again, with the same bytes and id, regardless of the order of its run.",
)

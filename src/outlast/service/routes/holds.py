"""Stop signs over HTTP: what is held, holding it, and letting it go on (S-23)."""

from typing import Any

from fastapi import APIRouter

from outlast.runtime.views import hold_view
from outlast.service import shapes
from outlast.service.requests import Hold, IdempotencyKey, Release
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import Ops

router = APIRouter(prefix="/v1", tags=["holds"], route_class=SecuredRoute)


@router.get("/holds", operation_id="list_holds", response_model=shapes.Holds, summary="What is held")
async def list_holds(ops: Ops) -> dict[str, Any]:
    """Holds and circuit breakers that are up, and how many runs wait for each."""
    waiting, business = await ops.held_up(), ops.store.mapping().business
    return {"holds": [hold_view(each, waiting.get(each.key, 0), business) for each in await ops.holds()]}


@router.post("/holds", operation_id="hold", response_model=shapes.Held, status_code=201, summary="Hold")
async def hold(ops: Ops, ask: Hold, key: IdempotencyKey = None) -> dict[str, Any]:
    """Workers know it within one heartbeat. Calls under way end; runs that meet the hold wait for it, and say so."""
    await ops.hold(ask.what, ask.name, reason=ask.reason)
    return {"held": f"{ask.what} {ask.name}".strip(), "by": ops.actor.name, "reason": ask.reason}


@router.post("/holds/release", operation_id="release", response_model=shapes.Released, summary="Release")
async def release(ops: Ops, ask: Release, key: IdempotencyKey = None) -> dict[str, Any]:
    """Take a hold or a circuit breaker down, and make due every run that waited for it."""
    woken = await ops.release(ask.what, ask.name)
    return {"released": f"{ask.what} {ask.name}".strip(), "by": ops.actor.name, "runs": woken}

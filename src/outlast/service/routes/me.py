"""Who asks, over HTTP: what a front end shows in its corner."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from outlast.runtime.views import caller_view
from outlast.service import shapes
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import Ops

router = APIRouter(prefix="/v1", tags=["me"], route_class=SecuredRoute)


@router.get("/me", operation_id="get_me", response_model=shapes.Caller, summary="Who am I?")
async def get_me(ops: Ops, request: Request) -> dict[str, Any]:
    """The caller as the credential proves it."""
    return caller_view(ops.actor, ops.tenant, request.state.principal.until_ms)

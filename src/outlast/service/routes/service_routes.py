"""Routes about the service itself: the caller, probes, metrics, the OpenAPI document."""

import asyncio
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from outlast.errors import OutlastError
from outlast.insight.row_models import caller_info
from outlast.models.service import CallerInfo
from outlast.operations.service_operations import GET_ME, GetMe
from outlast.runtime.metrics_text import MEDIA_TYPE
from outlast.service.declared_routes import DeclaredRouter, ServedCall
from outlast.service.responses import Health
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import State

me = DeclaredRouter()


@me.answers(GET_ME)
async def get_me(call: ServedCall[GetMe]) -> CallerInfo:
    """Return the authenticated caller with its roles."""
    return caller_info(call.ops.actor, call.ops.tenant, call.http.state.principal.until_ms)


probes = APIRouter(tags=["health"])
metrics = APIRouter(tags=["health"], route_class=SecuredRoute)
READY_WITHIN_S: Final = 2.0


@probes.get("/healthz", operation_id="healthz", response_model=Health, summary="Liveness")
async def healthz() -> Health:
    """Answer if the process and its event loop run. Does not access the store."""
    return Health(status="ok")


@probes.get(
    "/readyz",
    operation_id="readyz",
    response_model=Health,
    summary="Readiness",
    responses={503: {"model": Health, "description": "Not ready."}},
)
async def readyz(state: State, response: Response) -> Health:
    """Answer 200 if the store responds within 2 s and this process is not stopping, else 503."""
    checks = {"store": await _store(state)}
    if state.stopping:
        checks["process"] = "stopping"
    ready = checks == {"store": "ok"}
    response.status_code = 200 if ready else 503
    return Health(status="ok" if ready else "not ready", checks=checks)


@metrics.get(
    "/metrics",
    operation_id="get_metrics",
    response_class=Response,
    summary="Metrics for Prometheus",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_metrics(state: State) -> Response:
    """Return the counters of this process, and gauges counted from the rows of the store."""
    return Response(await state.metrics().text(), media_type=MEDIA_TYPE)


async def _store(state: State) -> str:
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            await state.store.now()
    except TimeoutError:
        return "does not answer"
    except OutlastError:  # no details, because the caller may be anonymous
        return "cannot be used"
    return "ok"


document = APIRouter(route_class=SecuredRoute)


@document.get("/openapi.json", operation_id="get_openapi", include_in_schema=False)
async def get_openapi(request: Request) -> JSONResponse:
    """Return the OpenAPI 3.1 document of this service (S38)."""
    found: dict[str, Any] = request.app.openapi()
    if root := request.scope.get("root_path", ""):
        found = {**found, "servers": [{"url": root}]}
    return JSONResponse(found)

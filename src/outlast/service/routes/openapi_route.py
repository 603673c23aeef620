"""The OpenAPI document as a route of its own, behind the door like the rest (S38)."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

from outlast.service.secured_route import SecuredRoute

router = APIRouter(route_class=SecuredRoute)


@router.get("/openapi.json", operation_id="get_openapi", include_in_schema=False)
async def get_openapi(request: Request) -> JSONResponse:
    """What this service takes and answers, as OpenAPI 3.1."""
    document: dict[str, Any] = request.app.openapi()
    if root := request.scope.get("root_path", ""):
        document = {**document, "servers": [{"url": root}]}
    return JSONResponse(document)

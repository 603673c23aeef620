"""Pages of runs: the list, one run, and the actions on it."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.service.service_state import Ops, Pages
from outlast.ui.page_route import PageRoute
from outlast.ui.rendering import render, stamp

router = APIRouter(prefix="/ui", route_class=PageRoute)


@router.get("/runs", operation_id="ui:list_runs")
async def list_runs(
    ops: Ops, pages: Pages, request: Request, status: Annotated[str, Query(max_length=40)] = ""
) -> Response:
    """Show the runs, newest first."""
    found = await pages.sealed(await ops.runs(status=status, cursor=pages.after, limit=pages.limit))
    version = stamp([(each.run, each.version, each.shown, each.served) for each in found.runs])
    return await render(
        request, "runs.html", title="Runs", live="runs", versions={"runs": version}, found=found, status=status
    )

"""Workflows over HTTP: what can be started here, with which input, and what its graph looks like."""

from typing import Any

from fastapi import APIRouter

from outlast.errors import NotFound
from outlast.flow.topology import topology_of
from outlast.flow.workflow import Workflow
from outlast.service import shapes
from outlast.service.requests import NamePart
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import In, Ops, ServiceState

router = APIRouter(prefix="/v1", tags=["workflows"], route_class=SecuredRoute)


@router.get(
    "/workflows", operation_id="list_workflows", response_model=shapes.Workflows, summary="What can be started here"
)
async def list_workflows(house: In, ops: Ops) -> dict[str, Any]:
    """The newest version of each workflow that is loaded here."""
    serving = await ops.serving()
    return {"workflows": [_view(house, each, serving) for _, each in sorted(house.by_name.items())]}


@router.get(
    "/workflows/{name}", operation_id="get_workflow", response_model=shapes.WholeWorkflow, summary="Look at a workflow"
)
async def get_workflow(house: In, ops: Ops, name: NamePart) -> dict[str, Any]:
    """Its graph, its versions, and the JSON Schema of its input."""
    found = house.by_name.get(name)
    if found is None:
        known = ", ".join(sorted(house.by_name)) or "none"
        raise NotFound(f"no workflow {name}", f"loaded here: {known}", "name one of them")
    return {
        **_view(house, found, await ops.serving()),
        "input_schema": found.input_schema(),
        "topology": topology_of(found),
        "start": found.start.name,
    }


def _view(house: ServiceState, workflow: Workflow[Any], serving: frozenset[str]) -> dict[str, Any]:
    return {
        "workflow": workflow.name,
        "version": workflow.version,
        "lane": workflow.lane,
        "served": workflow.lane in serving,
        "versions": sorted({each.version for each in house.workflows if each.name == workflow.name}),
    }

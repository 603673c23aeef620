"""Pages of the installation: workers with their leases, versions, the findings of `outlast doctor`, and the keys."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.durations import Liveness
from outlast.errors import Conflict, InvalidInput, OutlastError
from outlast.runtime.local_worker import lease_view
from outlast.runtime.operations import Operations
from outlast.runtime.settings import effective_settings
from outlast.service.problems import status_of
from outlast.service.request_parts import WorkerId
from outlast.service.service_state import Ops, ServiceState, State
from outlast.telemetry.redact import redacted
from outlast.ui.page_route import PageRoute, form_of, see_other
from outlast.ui.rendering import render, stamp
from outlast.upkeep.whole_store import examine

router = APIRouter(prefix="/ui", route_class=PageRoute)


@router.get("/workers", operation_id="ui:list_workers")
async def list_workers(state: State, ops: Ops, request: Request) -> Response:
    """Show the workers with their leases, the budget of an execution, and runs that no worker serves."""
    return await _workers(state, ops, request)


async def _workers(
    state: ServiceState, ops: Operations, request: Request, *, error: OutlastError | None = None, typed: str = ""
) -> Response:
    workers = await ops.workers()
    counts = await ops.summary()
    served: dict[str, list[str]] = {}
    for each in workers:
        for lane in each.serves if each.serving else ():
            served.setdefault(lane, []).append(each.name or each.worker)
    version = stamp(
        [(each.worker, each.state, each.holds, each.serves, each.renewed_at_real) for each in workers], counts.unserved
    )
    lease = lease_view(state.workflows, Liveness(), ops.store.skew)
    return await render(
        request,
        "workers.html",
        title="Workers",
        live="runs",
        versions={"workers": version},
        workers=workers,
        alive=[each for each in workers if each.serving],
        served=sorted(served.items()),
        counts=counts,
        lease=lease,
        error=error,
        typed=typed,
        status_code=200 if error is None else status_of(error),
    )


# A request has no version: a second one changes nothing.
@router.post("/workers/{worker}/drain", operation_id="ui:drain_worker")
async def drain_worker(state: State, ops: Ops, request: Request, worker: WorkerId) -> Response:
    """Ask the worker to take no more runs and to stop."""
    reason = form_of(request).text("reason")
    try:
        if not reason:
            raise InvalidInput("a reason is required", "it is shown until the worker has stopped", "write one")
        await ops.drain_worker(worker, reason=reason)
    except (Conflict, InvalidInput) as error:
        return await _workers(state, ops, request, error=error, typed=reason)
    return see_other(request, "/ui/workers", f"Asked {worker} to drain. It takes no more runs and stops.")


@router.get("/doctor", operation_id="ui:list_workers")
async def doctor(ops: Ops, request: Request) -> Response:
    """Show the findings about store, schema, clocks and workers, and each setting with its source."""
    findings = await examine(ops)
    settings = [(each.name, _shown(each.name, each.value), each.source) for each in effective_settings() if each.source]
    return await render(request, "doctor.html", title="Doctor", findings=findings, settings=settings)


def _shown(name: str, value: object) -> str:
    """Return the value of a setting as text, without secrets."""
    if hasattr(value, "get_secret_value"):
        return "••••••" if value.get_secret_value() else ""
    shown = redacted({name: list(value) if isinstance(value, tuple) else value})[name]
    return "" if shown is None else ", ".join(shown) if isinstance(shown, list) else str(shown)


@router.get("/keys", operation_id="ui:get_me")
async def keys(request: Request) -> Response:
    """Show the keys of the pages, and the switch that turns them off in this browser."""
    return await render(request, "keys.html", title="Keys")

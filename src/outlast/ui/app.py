"""The service with its web UI as one ASGI application, and the routes of the UI."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from starlette.routing import BaseRoute

from outlast.core.argument_checks import Arguments
from outlast.flow.workflow import Workflow
from outlast.service.identity import Anonymous, Authenticator
from outlast.service.request_limits import Bounds
from outlast.service.service_app import create
from outlast.service.service_state import ServiceState
from outlast.store.port import Store
from outlast.ui.page_route import error_page as error_page
from outlast.ui.routes import (
    agent_pages,
    assets,
    audit_page,
    board,
    bulk_pages,
    cause_pages,
    comparison_page,
    fork_pages,
    metric_pages,
    run_actions,
    saved_view_forms,
    sign_in,
    themes,
    usage_page,
    workflows,
)
from outlast.ui.routes import approval_pages as approvals
from outlast.ui.routes import delivery_pages as deliveries
from outlast.ui.routes import effect_pages as effects
from outlast.ui.routes import run_list as runs
from outlast.ui.routes import run_pages as run
from outlast.ui.routes import thread_pages as threads
from outlast.ui.routes import worker_pages as workers

ROUTERS = (
    assets.static, assets.router, approvals.router, board.router, effects.router, runs.router, run.router,
    comparison_page.router, fork_pages.router, run_actions.router, deliveries.router, threads.router, workers.router,
    workflows.router, usage_page.router, sign_in.router, themes.router, bulk_pages.router, cause_pages.router,
    agent_pages.router,
    audit_page.router,
    metric_pages.router,
    saved_view_forms.router,
)  # fmt: skip


def pages() -> Sequence[BaseRoute]:
    """Return the routes of the UI, for `ServiceState.pages`."""
    return [route for router in ROUTERS for route in router.routes]


def asgi(
    store: Store,
    workflows: Sequence[Workflow[Any]] = (),
    *,
    authenticator: Authenticator | None = None,
    bounds: Bounds | None = None,
) -> FastAPI:
    """Return the service over an open `store`, to serve or to mount. Its web UI is at `/ui/`.

        app.mount("/outlast", outlast.asgi(store, [orders]))

    `workflows` lists the workflows that callers can start. Without an `authenticator`, callers on this machine are the
    local operator and all others are refused. `bounds` are the limits of requests (default: those of the settings).
    The application never closes the store. It executes no runs: start a worker, or an `InProcessRuntime` in this
    process.
    """
    check = Arguments("asgi")
    workflows = check.members("workflows", workflows, Workflow, "asgi(store, [orders])")
    check.instance("bounds", bounds, Bounds, "bounds=Bounds(…)")
    if not callable(getattr(store, "commit", None)):
        raise check.wrong("store", store, "it is an open store", 'store = await open_store("sqlite:orders.db")')
    who = authenticator or Anonymous("local")
    return create(ServiceState(store, who, tuple(workflows), bounds or Bounds(), pages=pages(), error_page=error_page))

"""The service as one ASGI application, for a server of its own or mounted in somebody's own app."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from outlast.errors import OutlastError
from outlast.flow.workflow import Workflow
from outlast.service import problems
from outlast.service.identity import Anonymous, Authenticator, SameOriginMiddleware
from outlast.service.openapi import draw
from outlast.service.request_limits import Bounds, RequestLimitsMiddleware
from outlast.service.routes import approvals, history, operators, runs, service, webhooks
from outlast.service.service_state import ServiceState
from outlast.store.port import Store

UNTRACED: Final = frozenset({"/healthz", "/readyz", "/metrics"})  # asked every few seconds, and part of no run
ROUTERS: Final = (
    runs.router, history.router, approvals.router, operators.router, operators.pauses, runs.workflows, webhooks.router,
    service.me, service.probes, service.document, service.metrics,
)  # fmt: skip
ABOUT = """Durable execution over HTTP: start runs, watch them, decide what waits for people, settle what is uncertain.

Every error is `application/problem+json` with a stable `code`, what to do (`hint`), and a `refusal` where one code has
several. A POST with an `Idempotency-Key` is done once. A decision names what it decides with `If-Match`."""


def asgi(
    store: Store,
    workflows: Sequence[Workflow[Any]] = (),
    *,
    authenticator: Authenticator | None = None,
    bounds: Bounds | None = None,
) -> FastAPI:
    """The service over an open store, to mount or to serve: `app.mount("/outlast", outlast.asgi(store, [orders]))`.

    `workflows`: those that can be started through it. `authenticator`: who may come in; without one whoever asks from
    this machine is the local operator, and nobody else is answered. The store is closed by whoever opened it, and runs
    are walked by a worker elsewhere, or in this process (`InProcessRuntime`).
    """
    state = ServiceState(store, authenticator or Anonymous("local"), tuple(workflows), bounds or Bounds())
    return create(state)


def create(state: ServiceState) -> FastAPI:
    """The application of a house."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            state.stop()

    app = FastAPI(
        title="Outlast",
        version=_version(),
        summary="At most one uncertain, never two, and you can see which.",
        description=ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        telemetry={  # a span for each request; not what errors say, which nothing has gone over for secrets
            "operation_spans": False, "logs": False, "exclude": lambda scope: scope["path"] in UNTRACED,
        },
    )  # fmt: skip
    app.state.service = state
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # because each request would try an included router a second time
    app.add_exception_handler(HTTPException, problems.on_http)
    app.add_exception_handler(RequestValidationError, problems.on_validation)
    app.add_exception_handler(problems.ProblemResponse, problems.on_refused)
    app.add_exception_handler(OutlastError, problems.on_error)
    secured = not isinstance(state.authenticator, Anonymous)
    app.add_middleware(SameOriginMiddleware, local_only=not secured)
    app.add_middleware(
        RequestLimitsMiddleware, bounds=state.bounds, stopping=lambda: state.stopping
    )  # the last is the outermost
    drawn: list[dict[str, Any]] = []

    def openapi() -> dict[str, Any]:
        if not drawn:
            drawn.append(draw(app, secured=secured))
        return drawn[0]

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to draw it otherwise
    return app


def _version() -> str:
    try:
        return version("outlast")
    except PackageNotFoundError:  # run from a tree that was never installed
        return "0"

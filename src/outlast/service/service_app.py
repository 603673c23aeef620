"""The service as one ASGI application, to serve alone or to mount in another application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from outlast.operations import OPERATIONS
from outlast.service import problems
from outlast.service.declared_routes import served
from outlast.service.identity import Anonymous, SameOriginMiddleware
from outlast.service.openapi import draw
from outlast.service.problems import Handler
from outlast.service.request_limits import RequestLimitsMiddleware, Shown
from outlast.service.routes import approval_routes as approvals
from outlast.service.routes import history_routes as history
from outlast.service.routes import operator_routes as operators
from outlast.service.routes import run_routes as runs
from outlast.service.routes import service_routes as service
from outlast.service.routes import webhook_routes as webhooks
from outlast.service.service_state import ServiceState, page_instead

UNTRACED: Final = frozenset({"/healthz", "/readyz", "/metrics"})  # polled every few seconds, and part of no run
ROUTERS: Final = (
    served(OPERATIONS), runs.router, history.router, approvals.router, operators.router, webhooks.router,
    service.me, service.probes, service.document, service.metrics,
)  # fmt: skip
TRIED_FIRST: Final = ("start_run", "signal_run", "decide_approval", "get_run")
"""Names of the routes that are called most. A route is found by trying each: 4 calls of Python for each before it."""
ABOUT = """Durable execution over HTTP: start and watch runs, decide approvals, settle uncertain effects.

Every error is `application/problem+json` with a stable `code` and a `hint` that says what to do. If one code has
several causes, `refusal` tells them apart. A POST with an `Idempotency-Key` is executed once. A decision requires
`If-Match` with the version of the approval that was shown."""


def create(state: ServiceState) -> FastAPI:
    """Return the application that serves this state."""

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
        telemetry={  # a span for each request, but no error texts, because they are not redacted
            "operation_spans": False,
            "logs": False,
            "exclude": lambda scope: scope["path"] in UNTRACED,
        },
    )
    app.state.service = state
    declared = [route for router in ROUTERS for route in router.routes]
    declared.sort(key=_place)  # the sort keeps the order of the others
    app.router.routes.extend(declared)  # not included, because each request would try an included router a second time
    app.router.routes.extend(state.pages)
    shown = partial(page_instead, state)
    for kind, answer in problems.HANDLERS.items():
        app.add_exception_handler(kind, partial(_answered, answer, shown))
    secured = not isinstance(state.authenticator, Anonymous)
    app.add_middleware(SameOriginMiddleware, local_only=not secured)
    # Added last, so that it is the outermost.
    app.add_middleware(RequestLimitsMiddleware, bounds=state.bounds, stopping=lambda: state.stopping, shown=shown)
    drawn: list[dict[str, Any]] = []

    def openapi() -> dict[str, Any]:
        if not drawn:
            drawn.append(draw(app, secured=secured))
        return drawn[0]

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI documents this override
    return app


def _place(route: BaseRoute) -> int:
    name = getattr(route, "name", "")
    return TRIED_FIRST.index(name) if name in TRIED_FIRST else len(TRIED_FIRST)


async def _answered(answer: Handler, shown: Shown, request: Request, error: Exception) -> Response:
    """Return the problem of an error, or its page below /ui."""
    return await shown(request, problems.of_exception(error), await answer(request, error))


def _version() -> str:
    try:
        return version("outlast")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0"

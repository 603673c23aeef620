"""Route class that secures every operation.

In order: authenticate, check the permission, wait for the tenant's slot, read the body within its limits, and answer a
repeated Idempotency-Key from the store. A request that may change something leaves an audit line (S32).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from outlast.errors import InvalidInput
from outlast.service import problems
from outlast.service.connections import PROVED
from outlast.service.idempotency import once
from outlast.service.identity import Principal, permit
from outlast.service.request_limits import parse_body, parsed_body, read_body
from outlast.service.service_state import ServiceState
from outlast.telemetry.audit import audit, scalars


async def audited(
    request: Request, principal: Principal, operation: str, act: Callable[[], Awaitable[Response]]
) -> Response:
    """Return the answer of `act` and write its audit line, also if it raises."""
    try:
        answer = await act()
    except (Exception, asyncio.CancelledError) as error:  # every attempt is audited; the error is raised again
        status, refusal = _outcome(error)
        _write_audit(request, principal, operation, status, refusal, "")
        raise
    _write_audit(request, principal, operation, answer.status_code, "", answer.headers.get("etag", ""))
    return answer


def _outcome(error: BaseException) -> tuple[int, str]:
    """Return the status and the refusal with which `problems` answers this error."""
    known = problems.of_exception(error)
    return problems.status_of(known), known.refusal


def _write_audit(request: Request, principal: Principal, operation: str, status: int, refusal: str, etag: str) -> None:
    audit(
        operation,
        tenant=principal.tenant,
        by=principal.name,
        at=request.client.host if request.client else "",
        outcome=status,
        refusal=refusal,
        roles=list(principal.claims),
        person=principal.person,
        path=request.url.path,
        request_id=problems.request_id(request),
        old=request.headers.get("if-match", ""),
        new=etag,
        asked=scalars(parsed_body(request)),
    )


READS: Final = frozenset({"GET", "HEAD"})
KEY: Final = "idempotency-key"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class SecuredRoute(APIRoute):
    """Route that requires a permitted caller. An operation id without a permission is refused (S1)."""

    @override
    def get_route_handler(self) -> Handler:
        inner = super().get_route_handler()
        operation = self.operation_id
        assert operation, f"{self.path} has no operation id"
        fields = get_flat_params(self.dependant)
        takes = frozenset(each.alias for each in fields if isinstance(each.field_info, Query))

        async def handle(request: Request) -> Response:
            state: ServiceState = request.app.state.service
            client = request.client.host if request.client else ""
            principal = await state.authenticator.authenticate(request.headers.get("authorization", ""), client)
            if (proved := request.scope.get(PROVED)) is not None:  # because not every ASGI server sets it
                proved()

            async def change() -> Response:
                permit(principal, operation)
                check_query(request, takes)
                async with state.tenant_limits.of(principal.tenant, lambda: read_body(request, state.bounds)):
                    parse_body(request)
                    key = request.headers.get(KEY)
                    if key is None:
                        return await inner(request)
                    request.state.operations.use_key(key)
                    return await once(state.store, principal, operation, key, request, inner)

            request.state.principal = principal
            request.state.operations = state.operations(principal)
            if request.method not in READS:
                return await audited(request, principal, operation, change)
            permit(principal, operation)
            check_query(request, takes)
            async with state.tenant_limits.of(principal.tenant):
                return await inner(request)

        return handle


def check_query(request: Request, takes: frozenset[str]) -> None:
    """Raise InvalidInput for an unknown or repeated query parameter, or one with the character NUL.

    A misspelt filter would filter nothing, and of a repeated one only the last would count. Not every store can search
    for NUL.
    """
    if not request.scope["query_string"]:
        return
    wrong: dict[str, str] = {}
    given: set[str] = set()
    for name, value in request.query_params.multi_items():
        if name not in takes:
            wrong[name] = "is not known"
        elif name in given:
            wrong[name] = "appears twice"
        elif "\0" in value:
            wrong[name] = "contains the character NUL"
        given.add(name)
    if wrong:
        problems = [(f"query.{name[:100]}", text) for name, text in list(wrong.items())[:100]]
        takes_ = f"it takes {', '.join(sorted(takes))}" if takes else "it takes none"
        raise InvalidInput("the request is invalid", problems=problems, fix=takes_)

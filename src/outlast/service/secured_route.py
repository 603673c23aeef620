"""What every route passes, in this order: who asks, whether they may, the body within its limits, whose turn it is, and
asked before?"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from outlast.errors import InvalidInput, OutlastError
from outlast.service import problems
from outlast.service.connections import PROVED
from outlast.service.idempotency import once
from outlast.service.identity import Principal, permit
from outlast.service.request_limits import given, parse_body, read_body
from outlast.service.service_state import ServiceState
from outlast.telemetry.audit import audit, scalars


async def audited(
    request: Request, principal: Principal, operation: str, act: Callable[[], Awaitable[Response]]
) -> Response:
    """The answer of `act`, on record; raises what it raises, on record too."""
    try:
        answer = await act()
    except (Exception, asyncio.CancelledError) as error:  # whatever it is, the attempt is told; it is raised again
        status, refusal = _told(error)
        _tell(request, principal, operation, status, refusal, "")
        raise
    _tell(request, principal, operation, answer.status_code, "", answer.headers.get("etag", ""))
    return answer


def _told(error: BaseException) -> tuple[int, str]:
    """As the handlers of problems.py answer it."""
    if isinstance(error, asyncio.CancelledError):
        error = problems.cut_off()
    elif isinstance(error, problems.ProblemResponse):
        error = error.error
    elif isinstance(error, HTTPException):
        error = problems.of_http(error)
    elif isinstance(error, RequestValidationError):
        error = problems.of_validation(error)
    known = error if isinstance(error, OutlastError) else problems.fault()
    return problems.status_of(known), known.refusal


def _tell(request: Request, principal: Principal, operation: str, status: int, refusal: str, etag: str) -> None:
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
        asked=scalars(given(request)),
    )


READS: Final = frozenset({"GET", "HEAD"})
KEY: Final = "idempotency-key"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class SecuredRoute(APIRoute):
    """A route behind the door. Its operation id is what the table of permissions knows it by (S1: fails closed)."""

    def get_route_handler(self) -> Handler:
        """The framework's own handler, behind the door."""
        inner = super().get_route_handler()
        operation = self.operation_id
        assert operation, f"{self.path} has no operation id"
        fields = get_flat_params(self.dependant)
        takes = frozenset(each.alias for each in fields if isinstance(each.field_info, Query))

        async def pass_through(request: Request) -> Response:
            state: ServiceState = request.app.state.service
            client = request.client.host if request.client else ""
            principal = await state.authenticator.authenticate(request.headers.get("authorization", ""), client)
            if (proved := request.scope.get(PROVED)) is not None:  # not every server has it
                proved()

            async def write() -> Response:
                permit(principal, operation)
                _check_query(request, takes)
                async with state.tenant_limits.of(principal.tenant, lambda: read_body(request, state.bounds)):
                    parse_body(request)
                    key = request.headers.get(KEY)
                    if key is None:
                        return await inner(request)
                    return await once(state.store, principal, operation, key, request, inner)

            request.state.principal = principal
            request.state.operations = state.operations(principal)
            if request.method not in READS:
                return await audited(request, principal, operation, write)
            permit(principal, operation)
            _check_query(request, takes)
            async with state.tenant_limits.of(principal.tenant):
                return await inner(request)

        return pass_through


def _check_query(request: Request, takes: frozenset[str]) -> None:
    """Raise InvalidInput for a parameter that the operation does not take, or takes once: a filter that is misspelt
    would filter nothing, and of one that is said twice only the last would count. Nor can every store look for NUL."""
    if not request.scope["query_string"]:
        return
    wrong: dict[str, str] = {}
    given: set[str] = set()
    for name, value in request.query_params.multi_items():
        if name not in takes:
            wrong[name] = "is not known"
        elif name in given:
            wrong[name] = "is given twice"
        elif "\0" in value:
            wrong[name] = "holds the character NUL"
        given.add(name)
    if wrong:
        problems = [(f"query.{name[:100]}", text) for name, text in list(wrong.items())[:100]]
        takes_ = f"it takes {', '.join(sorted(takes))}" if takes else "it takes none"
        raise InvalidInput("the request does not fit", problems=problems, fix=takes_)

"""The audit line of a request that may change something: who, from where, what was asked, what became of it (S32)."""

import asyncio
from collections.abc import Awaitable, Callable

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from outlast.errors import OutlastError
from outlast.service import problems
from outlast.service.body import given
from outlast.service.identity import Principal
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
    elif isinstance(error, problems.Refused):
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

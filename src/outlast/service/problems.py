"""HTTP answers to errors: problem+json (RFC 9457) for OutlastError and for errors of the framework."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from outlast import errors
from outlast.telemetry.redact import redacted

MEDIA_TYPE: Final = "application/problem+json"
log: Final = logging.getLogger("outlast.service")

# The first match counts.
STATUS: Final[tuple[tuple[type[errors.OutlastError], int], ...]] = (
    (errors.NotFound, 404),
    (errors.Forbidden, 403),
    (errors.Unauthenticated, 401),
    (errors.TooManyFailures, 429),
    (errors.Busy, 429),
    (errors.Unverifiable, 503),
    (errors.Conflict, 409),
    (errors.WillNotContinue, 409),
    (errors.InvalidInput, 422),
    (errors.NotStorable, 422),
    (errors.LimitExceeded, 422),
    (errors.BadRequest, 422),
    (errors.Precondition, 412),
    (errors.KeyRefused, 409),
    (errors.Stale, 409),
    (errors.Rejected, 422),
    (errors.StoreError, 503),
    (errors.Corrupt, 409),  # of the row that the request names; the service works
    (errors.OutlastError, 500),
)
# Statuses that depend on the refusal.
BY_REFUSAL: Final = {
    "ambiguous_head": 400,
    "ended": 410,
    "body_too_large": 413,
    "headers_too_large": 431,
    "url_too_long": 414,
    "too_slow": 408,
    "not_acceptable": 406,
    "method": 405,
    "media_type": 415,
    "if_match_missing": 428,
    "other_request": 422,
}
RETRY_AFTER_S: Final = 1
CUT_OFF: Final = "cut_off"
WORDS: Final = {405: "method", 406: "not_acceptable", 413: "body_too_large", 415: "media_type"}  # Starlette's statuses


def status_of(error: errors.OutlastError) -> int:
    """Return the HTTP status for an error."""
    return BY_REFUSAL.get(error.refusal) or next(status for kind, status in STATUS if isinstance(error, kind))


def body_of(error: errors.OutlastError, request_id: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the members of the problem, with secrets redacted. `more` adds members."""
    status = status_of(error)
    problem: dict[str, Any] = {
        "type": f"{error.url}#{error.refusal}" if error.refusal else error.url,
        "title": error.what,
        "status": status,
        "detail": error.why,
        "hint": error.fix,
        "code": error.code,
        "refusal": error.refusal,
        "request_id": request_id,
    }
    if isinstance(error, errors.InvalidInput) and error.problems:
        problem["problems"] = [{"path": path, "text": text} for path, text in error.problems]
    return {**redacted(problem), **(more or {})}


def answer(
    error: errors.OutlastError,
    request_id: str,
    *,
    more: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    scope: Scope | None = None,
) -> Response:
    """Return the answer to an error, and log it if the status is 5xx.

    `more` adds members, such as the current state of a changed row. `scope` is the scope of the request, needed if the
    error may leave open whether the request was executed.
    """
    uncertain = isinstance(error, errors.StoreError) and error.landed is None
    status = status_of(error)
    if isinstance(error, errors.Corrupt):
        log.error("request %s: %s", request_id, error)
    if status >= 500:
        known = isinstance(error, errors.Unverifiable | errors.Unavailable)  # an outage needs no traceback
        log.error("request %s: %s", request_id, error, exc_info=None if known else error)
        error = for_callers(error, scope)
    extra = dict(headers or {})
    if status == 401:
        extra.setdefault("WWW-Authenticate", "Bearer")
    if isinstance(error, errors.TooManyFailures | errors.Busy):
        extra["Retry-After"] = str(error.retry_after_s)
    elif (status == 503 and (not uncertain or _safe_to_repeat(scope))) or error.refusal == "in_flight":
        extra.setdefault("Retry-After", str(RETRY_AFTER_S))
    body = json.dumps(body_of(error, request_id, more), ensure_ascii=False, default=str)
    return Response(body.encode("utf-8", "replace"), status, extra, MEDIA_TYPE)


def for_callers(error: errors.OutlastError, scope: Scope | None) -> errors.OutlastError:
    """Return an error of status 5xx as callers may see it: without file names, statements or tracebacks (S31)."""
    if isinstance(error, errors.Unverifiable):
        return error
    if isinstance(error, errors.StoreError) and error.landed is None:
        return _maybe_executed(error, scope)
    if isinstance(error, errors.StoreError):
        return type(error)("the store is unavailable or busy", "the request was not executed", "send it again")
    if isinstance(error, errors.StoreUnusable):
        return errors.Unavailable("the store cannot be used", "the request was not executed", "tell the operator")
    return fault()


def fault() -> errors.Fault:
    """Return the error for an unexpected exception."""
    return errors.Fault(
        "Outlast failed to answer this request",
        "a fault of Outlast, not of your request; acknowledged data is safe in the store",
        "give the operator the request_id; the details are in the log of the service",
    )


def cut_off() -> errors.Uncertain:
    """Return the error for a request that is unanswered when the service stops."""
    error = errors.Uncertain("the service stopped before it answered this request")
    error.refusal = CUT_OFF
    return error


def _maybe_executed(error: errors.StoreError, scope: Scope | None) -> errors.Uncertain:
    """Return the error for a request that may have been executed, with advice on how to find out."""
    if _safe_to_repeat(scope):
        fix = "send the same request again with the same Idempotency-Key; it is executed once"
    else:
        look = _where_to_look(scope["path"]) if scope is not None else "the resource that it changes"
        fix = f"check first whether it was executed: {look}; send it again only if it was not"
    what = error.what if error.refusal == CUT_OFF else "the store's answer was lost"
    found = errors.Uncertain(what, "the request may or may not have been executed", fix)
    found.refusal = error.refusal
    return found


def _safe_to_repeat(scope: Scope | None) -> bool:
    """Return True if a repetition cannot have a second effect: it reads, or it has a key."""
    if scope is None:
        return False
    keyed = any(name == b"idempotency-key" for name, _ in scope["headers"])
    return scope["method"] in ("GET", "HEAD") or keyed


def _where_to_look(path: str) -> str:
    """Return the GET request that shows whether a write to this path was executed."""
    _, version, kind, *rest = [*path.split("/"), "", ""]
    if kind == "workflows":
        kind, rest = "runs", []
    elif kind == "attention":
        kind = "runs"
    elif kind == "notifications":
        kind = "webhooks"
    name = rest[0] if kind in ("runs", "approvals", "effects", "webhooks") and rest else ""
    return f"GET /{version}/{kind}" + (f"/{name}" if name else "")


def of_http(error: HTTPException) -> errors.OutlastError:
    """Convert an error of the framework to an OutlastError."""
    if error.status_code == 404:
        return errors.NotFound("no such path", "", "see /openapi.json", refusal="no_such_path")
    if error.status_code == 405:
        return errors.BadRequest(
            "this path does not support this method", "", "see the header Allow, or /openapi.json", refusal="method"
        )
    if word := WORDS.get(error.status_code):
        return errors.BadRequest(str(error.detail), refusal=word)
    return errors.BadRequest("the request is invalid", str(error.detail), refusal="bad_request")


MESSAGES: Final = {
    "extra_forbidden": "is not known",
    "time_delta_parsing": "is not an ISO 8601 duration, e.g. PT1H or P7D",
}
"""Replacements for messages of pydantic, by error type."""


def of_validation(error: RequestValidationError) -> errors.OutlastError:
    """Return one error that lists every invalid parameter and field, without the values, which may be secret."""
    found = [
        (".".join(str(part) for part in each["loc"]), MESSAGES.get(each["type"], str(each["msg"])))
        for each in error.errors()
    ]
    return errors.InvalidInput(
        "the request is invalid", fix="see /openapi.json for the parameters and fields", problems=found[:100]
    )


async def on_http(request: Request, error: Exception) -> Response:
    """Answer an error of the framework."""
    assert isinstance(error, HTTPException)
    headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
    return answer(of_http(error), request_id(request), headers=headers)


def _allowed(request: Request) -> str:
    """Return all methods of the path, because a router only names those of the first matching route."""
    routes: list[BaseRoute] = request.app.routes
    here = [each for each in routes if isinstance(each, Route) and each.matches(request.scope)[0] is not Match.NONE]
    methods = {method for each in here for method in each.methods or ()}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


async def on_validation(request: Request, error: Exception) -> Response:
    """Answer a request with invalid parameters or an invalid body."""
    assert isinstance(error, RequestValidationError)
    return answer(of_validation(error), request_id(request))


class ProblemError(Exception):
    """An OutlastError together with further members and headers of its answer, such as the current state of a row."""

    def __init__(self, error: errors.OutlastError, *, more: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__(str(error))
        self.error = error
        self.more = more
        self.headers = headers


async def on_problem(request: Request, error: Exception) -> Response:
    """Answer a ProblemError with its members and headers."""
    assert isinstance(error, ProblemError)
    return answer(error.error, request_id(request), more=error.more, headers=error.headers, scope=request.scope)


async def on_error(request: Request, error: Exception) -> Response:
    """Answer an OutlastError raised by an operation."""
    assert isinstance(error, errors.OutlastError)
    return answer(error, request_id(request), scope=request.scope)


Handler = Callable[[Request, Exception], Awaitable[Response]]
HANDLERS: Final[Mapping[type[Exception], Handler]] = {
    HTTPException: on_http, RequestValidationError: on_validation, ProblemError: on_problem,
    errors.OutlastError: on_error,
}  # fmt: skip


def of_exception(error: BaseException) -> errors.OutlastError:
    """Return the error with which a request that raised this is answered."""
    if isinstance(error, asyncio.CancelledError):
        return cut_off()
    if isinstance(error, ProblemError):
        return error.error
    if isinstance(error, HTTPException):
        return of_http(error)
    if isinstance(error, RequestValidationError):
        return of_validation(error)
    return error if isinstance(error, errors.OutlastError) else fault()


def request_id(request: Request) -> str:
    """Return the id that RequestLimitsMiddleware gave this request."""
    return str(request.scope.get("outlast.request_id", ""))

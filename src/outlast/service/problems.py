"""Errors as HTTP answers: one problem+json (RFC 9457) for every error of the tree, and for those of HTTP itself."""

import json
import logging
from collections.abc import Mapping
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

# The first that matches counts.
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
    (errors.OutlastError, 500),
)
# Where one error has several answers, its `refusal` says which.
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
WORDS: Final = {405: "method", 406: "not_acceptable", 413: "body_too_large", 415: "media_type"}  # Starlette's own


def status_of(error: errors.OutlastError) -> int:
    """The HTTP status of an error."""
    return BY_REFUSAL.get(error.refusal) or next(status for kind, status in STATUS if isinstance(error, kind))


def body_of(error: errors.OutlastError, request_id: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The members of the problem: what, why and fix under the names of RFC 9457, the code, and the refusal."""
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
    """The whole answer. `more`: further members, such as the present state of what has moved.

    `scope`: the request's, if the error may leave open whether the request was done.
    """
    uncertain = isinstance(error, errors.StoreError) and error.landed is None
    status = status_of(error)
    if status >= 500:
        known = isinstance(error, errors.Unverifiable | errors.Unavailable)  # away: where in our code says nothing
        log.error("request %s: %s", request_id, error, exc_info=None if known else error)
        error = _inert(error, scope)
    extra = dict(headers or {})
    if status == 401:
        extra.setdefault("WWW-Authenticate", "Bearer")
    if isinstance(error, errors.TooManyFailures | errors.Busy):
        extra["Retry-After"] = str(error.retry_after_s)
    elif (status == 503 and (not uncertain or _safe_to_repeat(scope))) or error.refusal == "in_flight":
        extra.setdefault("Retry-After", str(RETRY_AFTER_S))
    body = json.dumps(body_of(error, request_id, more), ensure_ascii=False, default=str)
    return Response(body.encode("utf-8", "replace"), status, extra, MEDIA_TYPE)


def _inert(error: errors.OutlastError, scope: Scope | None) -> errors.OutlastError:
    """What a stranger may read of an error of the store or of ours: nothing of files or statements (S31)."""
    if isinstance(error, errors.Unverifiable):
        return error
    if isinstance(error, errors.StoreError) and error.landed is None:
        return _perhaps_done(error, scope)
    if isinstance(error, errors.StoreError):
        return type(error)("the store cannot be reached or is busy", "nothing was acknowledged", "try again")
    if isinstance(error, errors.StoreUnusable):
        return errors.Unavailable("the store cannot be used", "nothing was acknowledged", "tell the operator")
    return fault()


def fault() -> errors.Fault:
    """What is said of an error that nobody foresaw."""
    return errors.Fault(
        "Outlast failed to answer this request",
        "a fault of Outlast, not of yours; what was acknowledged is safe in the store",
        "tell the operator the request_id: the service's log has the rest",
    )


def cut_off() -> errors.Uncertain:
    """Return the error for a request that has no answer when the service ends."""
    error = errors.Uncertain("the service stops, and this request was cut off")
    error.refusal = CUT_OFF
    return error


def _perhaps_done(error: errors.StoreError, scope: Scope | None) -> errors.Uncertain:
    """Return what the caller may read of an error that leaves open whether the request was done, and what to do."""
    if _safe_to_repeat(scope):
        fix = "send the same request again under the same Idempotency-Key: it is done once"
    else:
        look = _where_to_look(scope["path"]) if scope is not None else "what it would have changed"
        fix = f"look first whether it was done: {look}; send it again only if it was not"
    what = error.what if error.refusal == CUT_OFF else "the store's answer was lost"
    told = errors.Uncertain(what, "perhaps what was asked for was done, perhaps not", fix)
    told.refusal = error.refusal
    return told


def _safe_to_repeat(scope: Scope | None) -> bool:
    """True if a repetition is done once. A webhook has no key of its own that would refuse a second one."""
    if scope is None:
        return False
    keyed = any(name == b"idempotency-key" for name, _ in scope["headers"])
    return scope["method"] in ("GET", "HEAD") or (keyed and not scope["path"].startswith("/v1/webhooks"))


def _where_to_look(path: str) -> str:
    """Return the request that shows what a write to this address has changed."""
    _, version, kind, *rest = [*path.split("/"), "", ""]
    if kind == "workflows":
        kind, rest = "runs", []
    elif kind == "attention":
        kind = "runs"
    name = rest[0] if kind in ("runs", "approvals", "effects", "webhooks") and rest else ""
    return f"GET /{version}/{kind}" + (f"/{name}" if name else "")


def of_http(error: HTTPException) -> errors.OutlastError:
    """An error of the framework as one of ours."""
    if error.status_code == 404:
        return errors.NotFound("there is nothing at this address", "", "see /openapi.json", refusal="no_such_path")
    if error.status_code == 405:
        return errors.BadRequest(
            "this address does not know this method", "", "see the header Allow, or /openapi.json", refusal="method"
        )
    if word := WORDS.get(error.status_code):
        return errors.BadRequest(str(error.detail), refusal=word)
    return errors.BadRequest("the request cannot be answered", str(error.detail), refusal="bad_request")


PLAINER: Final = {
    "extra_forbidden": "is not known",
    "time_delta_parsing": "is no duration of ISO 8601, e.g. PT1H or P7D",
}
"""What pydantic says in words of its own, by the type of the error."""


def of_validation(error: RequestValidationError) -> errors.OutlastError:
    """Everything that is wrong with parameters and body, at once; never what was sent, which may be a secret."""
    found = [
        (".".join(str(part) for part in each["loc"]), PLAINER.get(each["type"], str(each["msg"])))
        for each in error.errors()
    ]
    return errors.InvalidInput(
        "the request does not fit", fix="see /openapi.json for what it takes", problems=found[:100]
    )


async def on_http(request: Request, error: Exception) -> Response:
    """The handler of the framework's own errors."""
    assert isinstance(error, HTTPException)
    headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
    return answer(of_http(error), request_id(request), headers=headers)


def _allowed(request: Request) -> str:
    """Every method of this address: a router names those of the first route alone that has it."""
    routes: list[BaseRoute] = request.app.routes
    here = [each for each in routes if isinstance(each, Route) and each.matches(request.scope)[0] is not Match.NONE]
    methods = {method for each in here for method in each.methods or ()}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


async def on_validation(request: Request, error: Exception) -> Response:
    """The handler of requests that do not fit."""
    assert isinstance(error, RequestValidationError)
    return answer(of_validation(error), request_id(request))


class ProblemResponse(Exception):
    """An error of the tree with more to say, as the present state of what was to be changed; or with a header."""

    def __init__(self, error: errors.OutlastError, *, more: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__(str(error))
        self.error = error
        self.more = more
        self.headers = headers


async def on_refused(request: Request, error: Exception) -> Response:
    """The handler of refusals with more to say."""
    assert isinstance(error, ProblemResponse)
    return answer(error.error, request_id(request), more=error.more, headers=error.headers, scope=request.scope)


async def on_error(request: Request, error: Exception) -> Response:
    """The handler of the tree's errors."""
    assert isinstance(error, errors.OutlastError)
    return answer(error, request_id(request), scope=request.scope)


def request_id(request: Request) -> str:
    """The id that the gate gave this request."""
    return str(request.scope.get("outlast.request_id", ""))

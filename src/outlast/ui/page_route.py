"""Route class of the pages: the caller, the permission, and errors as pages.

The operation id of a page is `ui:` and the id of the operation of `/v1` whose permission it needs. A POST is a form of
one of our pages: its token is checked before anything else is read from it.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from typing_extensions import override

from outlast.core.limits import KIB
from outlast.errors import BadRequest, Busy, InvalidInput, OutlastError, TooManyFailures, Unauthenticated
from outlast.service.connections import PROVED
from outlast.service.identity import Anonymous, permit
from outlast.service.problems import ProblemError, for_callers, of_exception, status_of
from outlast.service.request_limits import read_body
from outlast.service.secured_route import READS, Handler, audited, check_query
from outlast.service.service_state import ServiceState, root_of
from outlast.telemetry.redact import redacted
from outlast.ui import sessions
from outlast.ui.rendering import render

PREFIX: Final = "ui:"
REGION: Final = "region"
"""Query parameter that asks for one region of a page."""
FIELDS_MAX: Final = 2_000
OPEN_FORM_BYTES: Final = 32 * KIB
"""Size of a form of a caller who is not known yet."""
KEPT_MAX: Final = 100
DIGITS_MAX: Final = 15
CREDENTIAL: Final = "credential"
"""Field of the sign-in with the token. It is neither shown nor written to the audit."""
HIDDEN: Final = frozenset({sessions.TOKEN_FIELD, CREDENTIAL})
NOT_LOCAL: Final = "not_local"
FIXES: Final = {
    "no_such_path": "the address is misspelt, or the page was removed",
    "method": "this address does something, and only the form of its page may send to it",
    "missing": "sign in",
    "media_type": "send the form of the page",
}
"""Advice on a page by refusal, where the advice of `/v1` is for programs."""


class PageRoute(APIRoute):
    """Route that answers with a page, also for an error. Its caller has a session, or is the local operator."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "include_in_schema": False, "response_model": None})

    @override
    def get_route_handler(self) -> Handler:
        inner = super().get_route_handler()
        assert self.operation_id, f"{self.path} has no operation id"
        fields = get_flat_params(self.dependant)
        takes = frozenset(each.alias for each in fields if isinstance(each.field_info, Query)) | {REGION}

        async def handle(request: Request) -> Response:
            state: ServiceState = request.app.state.service
            try:
                if request.method not in READS:
                    sessions.check_sender(request)
                return await self._answer(state, request, takes, inner)
            except (OutlastError, ProblemError, HTTPException, RequestValidationError) as error:
                known = of_exception(error)
                if status_of(known) >= 500:
                    raise  # the handler of the application writes it to the log
                return await failed(request, known)

        return handle

    async def _answer(self, state: ServiceState, request: Request, takes: frozenset[str], inner: Handler) -> Response:
        assert self.operation_id
        operation = self.operation_id.removeprefix(PREFIX)
        principal = await sessions.principal_of(state, request)
        if (proved := request.scope.get(PROVED)) is not None:  # because not every ASGI server sets it
            proved()
        request.state.principal = principal
        request.state.operations = state.operations(principal)

        async def act() -> Response:
            permit(principal, operation)
            check_query(request, takes)
            body = None if request.method in READS else partial(read_form, state, request)
            async with state.tenant_limits.of(principal.tenant, body):
                if body is not None:
                    sessions.check_form(request, form_of(request).text(sessions.TOKEN_FIELD))
                return await inner(request)

        return await act() if request.method in READS else await audited(request, principal, operation, act)


class OpenPageRoute(PageRoute):
    """Route for callers without a credential: sign-in, sign-out and theme. Its forms have a token, too."""

    @override
    async def _answer(self, state: ServiceState, request: Request, takes: frozenset[str], inner: Handler) -> Response:
        await sessions.load(state, request)  # the query is not checked, because issuers add parameters
        if request.method not in READS:
            if isinstance(state.authenticator, Anonymous):  # its forms are bound to the caller, not to a session
                request.state.principal = principal = await sessions.principal_of(state, request)
                request.state.operations = state.operations(principal)
            await read_form(state, request, most=OPEN_FORM_BYTES)
            sessions.check_form(request, form_of(request).text(sessions.TOKEN_FIELD))
        return await inner(request)


async def failed(request: Request, error: OutlastError) -> Response:
    """Return the page of an error with its reason and advice. It keeps the text of the form that was sent.

    A caller without a session is led to the sign-in. A region or a stream is answered 401 instead.
    """
    state: ServiceState = request.app.state.service
    status = status_of(error)
    unknown = isinstance(error, Unauthenticated) and error.refusal != NOT_LOCAL
    reads = request.method in READS
    if unknown and reads and REGION not in request.query_params and wants_page(request):
        then = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        answer: Response = RedirectResponse(sessions.sign_in_address(request, sessions.local_path(request, then)), 303)
    else:
        back = "" if reads else sessions.came_from(request)
        if unknown and not reads and getattr(request.state, "session", None) is not None:
            with suppress(OutlastError, ProblemError):  # the typed text is shown again if it can be read
                await read_form(state, request)
        shown = redacted({"what": error.what, "why": error.why, "fix": FIXES.get(error.refusal, error.fix)})
        if "/openapi.json" in shown["fix"]:
            shown["fix"] = ""
        problems = getattr(error, "problems", ())
        answer = await render(
            request,
            "error.html",
            title=shown["what"],
            error=shown,
            code=error.code,
            problems=problems,
            status_code=status,
            back=back,
            kept=kept_text(request),
            sign_in=sessions.sign_in_address(request, back) if unknown else "",
        )
    if isinstance(error, TooManyFailures | Busy):
        answer.headers["Retry-After"] = str(error.retry_after_s)
    if unknown:
        sessions.forget(request, answer)
    return answer


def see_other(request: Request, path: str, done: str) -> Response:
    """Return the redirect to a page after an action. `path` begins with /ui. `done`: the first line of that page."""
    answer = RedirectResponse(root_of(request) + path, 303)
    sessions.keep_done(request, answer, done)
    return answer


async def error_page(request: Request, error: OutlastError) -> Response:
    """Return the page of an error that no page route answers: an unknown path, a failing store, a fault."""
    return await failed(request, for_callers(error, request.scope) if status_of(error) >= 500 else error)


def wants_page(request: Request) -> bool:
    """Return True if a browser opens a page, and no script asks for a part of it or a stream."""
    return request.headers.get("sec-fetch-dest", "document") == "document" and "hx-request" not in request.headers


def kept_text(request: Request) -> list[tuple[str, str]]:
    """Return the fields of the form that a person may have typed."""
    form: Form | None = getattr(request.state, "form", None)
    fields = form.fields if form is not None else []
    return [(name, value) for name, value in fields if value.strip() and name not in HIDDEN][:KEPT_MAX]


async def read_form(state: ServiceState, request: Request, *, most: int = 0) -> int:
    """Read the form of a request within the limits, and return its size. Raises BadRequest, ProblemError."""
    bounds = replace(state.bounds, body_bytes=min(most, state.bounds.body_bytes)) if most else state.bounds
    size = await read_body(request, bounds, form=True)
    request.state.form = form = Form(parse_form(request))
    request._json = {name: value for name, value in form.fields if name not in HIDDEN}  # for the audit line
    return size


def parse_form(request: Request) -> list[tuple[str, str]]:
    """Return the fields of the form that was read. Raises BadRequest if it is not one."""
    try:
        return parse_qsl(
            request._body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(request._body),
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except ValueError as error:
        raise BadRequest("the form is not readable", str(error), "reload the page", refusal="bad_form") from None


class Form:
    """Fields of a submitted form, in their order."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self.fields = fields

    def text(self, name: str, default: str = "") -> str:
        """Return the first value of a field, without surrounding white space."""
        return next((value.strip() for key, value in self.fields if key == name), default)

    def all(self, name: str) -> list[str]:
        """Return every value of a field."""
        return [value for key, value in self.fields if key == name]

    def number(self, name: str) -> int:
        """Return a whole number, 0 for an empty or missing field. Raises InvalidInput."""
        return whole_number(name, self.text(name))

    def version(self, name: str = "version") -> int:
        """Return the version of the row that the form was made for. Raises InvalidInput if the form names none."""
        if not (found := self.number(name)):
            raise InvalidInput(
                "the form names no version", "an action is for the state that was shown", "reload the page"
            )
        return found


def whole_number(name: str, text: str) -> int:
    """Return a text of digits as a number, 0 for ''. Raises InvalidInput."""
    if text and not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise InvalidInput(f"{name} is not a whole number", "", "write digits", problems=[(name, "is not a number")])
    return int(text or 0)


def form_of(request: Request) -> Form:
    """Return the form of this POST, whose token was checked."""
    form: Form = request.state.form
    return form

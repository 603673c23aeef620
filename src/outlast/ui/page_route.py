"""Route class of the pages: who asks, what they may do, and errors as pages.

The operation id of a page is `ui:` and the id of the operation of `/v1` whose permission it needs. A POST is a form of
one of our pages: its token is checked before anything else is read from it.
"""

from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from outlast.errors import BadRequest, OutlastError
from outlast.service.identity import Principal, permit
from outlast.service.problems import ProblemError, of_validation, status_of
from outlast.service.request_limits import read_body
from outlast.service.secured_route import READS, Handler, audited, check_query
from outlast.service.service_state import ServiceState
from outlast.ui import sessions
from outlast.ui.rendering import render

PREFIX: Final = "ui:"
REGION: Final = "region"
"""Query parameter that asks for one region of a page."""
FIELDS_MAX: Final = 2_000


class PageRoute(APIRoute):
    """Route that answers with a page, also for an error. Its caller has a session, or is the local operator."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "include_in_schema": False, "response_model": None})

    @override
    def get_route_handler(self) -> Handler:
        inner = super().get_route_handler()
        assert self.operation_id, f"{self.path} has no operation id"
        operation = self.operation_id.removeprefix(PREFIX)
        fields = get_flat_params(self.dependant)
        takes = frozenset(each.alias for each in fields if isinstance(each.field_info, Query)) | {REGION}

        async def handle(request: Request) -> Response:
            state: ServiceState = request.app.state.service
            try:
                principal = await sessions.principal_of(state, request)
                request.state.principal = principal
                request.state.operations = state.operations(principal)
                if request.method in READS:
                    permit(principal, operation)
                    check_query(request, takes)
                    async with state.tenant_limits.of(principal.tenant):
                        return await inner(request)
                return await audited(request, principal, operation, lambda: change(state, principal, request))
            except RequestValidationError as error:
                return await failed(request, of_validation(error))
            except ProblemError as error:
                return await failed(request, error.error)
            except OutlastError as error:
                return await failed(request, error)

        async def change(state: ServiceState, principal: Principal, request: Request) -> Response:
            permit(principal, operation)
            check_query(request, takes)
            async with state.tenant_limits.of(principal.tenant, lambda: read_body(request, state.bounds, form=True)):
                request.state.form = form = Form(parse_form(request))
                sessions.check_form(request, form.text(sessions.TOKEN_FIELD))
                return await inner(request)

        return handle


async def failed(request: Request, error: OutlastError) -> Response:
    """Return the page of an error: what, why, and what to do. Leads callers without a session to the sign-in."""
    if (sign_in := sessions.sign_in_instead(request, error)) is not None:
        return sign_in
    return await render(request, "error.html", title="Not possible", error=error, status_code=status_of(error))


def parse_form(request: Request) -> list[tuple[str, str]]:
    """Return the fields of the form that was read. Raises BadRequest if it is not one."""
    try:
        return parse_qsl(
            request._body.decode("ascii"), keep_blank_values=True, strict_parsing=bool(request._body), errors="strict",
            max_num_fields=FIELDS_MAX,
        )  # fmt: skip
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


def form_of(request: Request) -> Form:
    """Return the form of this POST, whose token was checked."""
    form: Form = request.state.form
    return form

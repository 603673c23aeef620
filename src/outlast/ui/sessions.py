"""Sessions of the UI: who asks, the sign-in, and the tokens of forms."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from outlast.errors import OutlastError
from outlast.service.identity import Principal
from outlast.service.service_state import ServiceState

TOKEN_FIELD: Final = "form_token"
"""Hidden field of every form, written by the macro `form`."""


async def principal_of(state: ServiceState, request: Request) -> Principal:
    """Return the caller of a page. Raises Unauthenticated, TooManyFailures, Unverifiable."""
    client = request.client.host if request.client else ""
    return await state.authenticator.authenticate("", client)


def form_token(request: Request) -> str:
    """Return the token for the forms of this page."""
    return ""


def check_form(request: Request, token: str) -> None:
    """Raise Forbidden (`form_token`) unless a page of this session has the form."""


def sign_in_instead(request: Request, error: OutlastError) -> Response | None:
    """Return the way to the sign-in if the error is the lack of a session, else None."""
    return None

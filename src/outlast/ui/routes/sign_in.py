"""Sign-in with a token or through an issuer, and sign-out."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outlast.errors import NotFound, OutlastError, TooManyFailures, Unauthenticated, Unverifiable
from outlast.service.identity import Anonymous, Credentials, Principal, is_permitted
from outlast.service.identity.issuer_sign_in import IssuerSignIn, SignInRequest, refused_sign_in
from outlast.service.identity.listen import is_own_name
from outlast.service.problems import status_of
from outlast.service.secured_route import audited
from outlast.service.service_state import ServiceState, State, root_of
from outlast.ui import sessions
from outlast.ui.page_route import CREDENTIAL, OpenPageRoute, form_of
from outlast.ui.rendering import render

router = APIRouter(prefix="/ui", route_class=OpenPageRoute)
Next = Annotated[str, Query(alias="next", max_length=4_000)]
Given = Annotated[str, Query(max_length=4_000)]
StateOf = Annotated[str, Query(alias="state", max_length=4_000)]
FLOW: Final = "__Host-outlast-sign-in"
"""Cookie of a sign-in through the issuer, and the purpose of its key."""
FLOW_S: Final = 600


@router.get("/login", operation_id="ui:sign_in")
async def show_sign_in(state: State, request: Request, then: Next = "") -> Response:
    """Show the form for a token. Without authentication there is nothing to sign in to."""
    if isinstance(state.authenticator, Anonymous):
        return RedirectResponse(sessions.local_path(request, then), 303)
    session = request.state.session
    if session is None:
        request.state.session = session = sessions.new_session()
        answer = await _form(request, then)
        sessions.keep(state, request, answer, session)
        return answer
    return await _form(request, then)


@router.post("/login", operation_id="ui:sign_in")
async def sign_in(state: State, request: Request) -> Response:
    """Make a session of a token. A wrong one counts towards the lock-out of the address."""
    form = form_of(request)
    words = form.text(CREDENTIAL).split()
    token = words[-1] if len(words) == 2 and words[0].lower() == "bearer" else form.text(CREDENTIAL)
    try:
        return await begin(state, request, token, form.text("next"))
    except (Unauthenticated, TooManyFailures, Unverifiable) as error:
        return await _form(request, form.text("next"), error)


@router.post("/logout", operation_id="ui:sign_out")
async def sign_out(state: State, request: Request) -> Response:
    """End the session in this browser and remove stored parts of pages."""
    answer = RedirectResponse(sessions.sign_in_address(request, ""), 303)
    sessions.forget(request, answer)
    answer.headers["Clear-Site-Data"] = '"cache"'
    return answer


@router.get("/login/issuer", operation_id="ui:sign_in")
async def ask_issuer(state: State, request: Request, then: Next = "") -> Response:
    """Send the browser to the issuer, and keep in it what the issuer's answer must fit."""
    address, pending = await _issuer(state).begin(_callback(state, request), sessions.local_path(request, then))
    answer = RedirectResponse(address, 303)
    sessions.set_cookie(answer, FLOW, sessions.sealed(state, FLOW, pending.text()), FLOW_S)
    return answer


@router.get("/login/callback", operation_id="ui:sign_in")
async def finish_sign_in(
    state: State,
    request: Request,
    code: Given = "",
    given: StateOf = "",
    iss: Given = "",
    error: Given = "",
    error_description: Given = "",
) -> Response:
    """Make a session of the issuer's answer. The page of the sign-in says if it cannot be used."""
    text = sessions.opened(state, FLOW, request.cookies.get(FLOW, ""), FLOW_S)
    then = ""
    try:
        if text is None:
            raise refused_sign_in("this browser started none, or it took more than 10 minutes")
        pending = SignInRequest.parse(text)
        then = pending.then
        parameters = {"code": code, "state": given, "iss": iss, "error": error, "error_description": error_description}
        credential = await _issuer(state).finish(pending, {name: value for name, value in parameters.items() if value})
        answer = await begin(state, request, credential, then)
    except (Unauthenticated, TooManyFailures, Unverifiable) as refused:
        answer = await _form(request, then, refused)
    sessions.set_cookie(answer, FLOW, "", 0)
    return answer


def _issuer(state: ServiceState) -> IssuerSignIn:
    """Return the sign-in of the issuer. Raises NotFound if the settings name no client."""
    found = state.authenticator.sign_in if isinstance(state.authenticator, Credentials) else None
    if found is None:
        raise NotFound(
            "this service has no sign-in through an issuer", "", "sign in with a token", refusal="no_such_path"
        )
    return found


def _callback(state: ServiceState, request: Request) -> str:
    """Return the address to which the issuer sends the browser back. The issuer knows it beforehand."""
    base = state.public_url or f"{request.url.scheme}://{request.headers.get('host', '')}{root_of(request)}"
    return f"{base.rstrip('/')}/ui/login/callback"


async def begin(state: ServiceState, request: Request, credential: str, then: str) -> Response:
    """Return the redirect that begins a session with a credential. Raises as `Authenticator.authenticate`."""
    principal = await state.authenticator.authenticate(
        f"Bearer {credential}" if credential else "", sessions.address_of(request)
    )

    async def signed_in() -> Response:
        answer = RedirectResponse(_first_page(request, principal, then), 303)
        sessions.keep(state, request, answer, sessions.new_session(credential), principal.until_ms)
        return answer

    return await audited(request, principal, "sign_in", signed_in)


def _first_page(request: Request, principal: Principal, then: str) -> str:
    """Return the page that a sign-in leads to. The start page of a person who may only approve is the inbox."""
    page = sessions.local_path(request, then)
    approves = is_permitted(principal, "decide_approval") and not is_permitted(principal, "resolve_attention")
    return f"{page}approvals" if approves and page == sessions.local_path(request, "") else page


async def _form(request: Request, then: str, error: OutlastError | None = None) -> Response:
    """Return the page of the sign-in, with the error of the last try."""
    state: ServiceState = request.app.state.service
    issuer = state.authenticator.sign_in if isinstance(state.authenticator, Credentials) else None
    plain = request.url.scheme != "https" and not is_own_name(request.headers.get("host", ""))
    answer = await render(
        request,
        "login.html",
        title="Sign in",
        error=error,
        then=sessions.local_path(request, then),
        plain_http=plain,
        issuer=issuer.host if issuer is not None else "",
        status_code=status_of(error) if error is not None else 200,
    )
    if isinstance(error, TooManyFailures):
        answer.headers["Retry-After"] = str(error.retry_after_s)
    return answer

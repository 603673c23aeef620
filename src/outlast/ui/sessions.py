"""Sessions of the UI: who asks, the cookie that says so, and the tokens of forms.

A session is the credential itself, encrypted in a cookie with a key of the store. The service keeps no row for it, so
each request is judged by the credential as `/v1` judges it, and all processes accept it.
"""

import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import quote, urlsplit

from cryptography.fernet import Fernet, InvalidToken
from starlette.requests import Request
from starlette.responses import Response

from outlast.clocks import new_credential
from outlast.core.durations import SECOND
from outlast.errors import Forbidden
from outlast.service.identity import Credentials, Principal
from outlast.service.service_state import ServiceState, root_of

TOKEN_FIELD: Final = "form_token"
"""Hidden field of every form, written by the macro `token`."""
COOKIE: Final = "__Host-outlast"
LIFETIME_S: Final = 7 * 24 * 3600
"""Longest session. It ends earlier if its credential does."""
CHUNK: Final = 3_800
"""Characters of one cookie, because browsers accept 4,096 bytes with its name."""
CHUNKS: Final = 3
"""Most cookies of one session: enough for the largest credential, which has 8 KB."""
HERE: Final = "same-origin"
DONE: Final = "feedback"
DONE_COOKIE: Final = "outlast-done"
DONE_S: Final = 60
"""Time within which the page after a form may be loaded."""
DONE_CHARS: Final = 500


@dataclass(frozen=True)
class Session:
    """Session of one browser. Its forms are bound to `id`. Before the sign-in, `credential` is empty."""

    id: str
    credential: str = ""


def new_session(credential: str = "") -> Session:
    """Return a session with an unused id."""
    return Session(new_credential(), credential)


# --- the cookie -----------------------------------------------------------------------------------
def sealed(state: ServiceState, purpose: str, text: str) -> str:
    """Return a text encrypted and authenticated with the key of a purpose. The secret of the store is ready."""
    return _cipher(state, purpose).encrypt_at_time(text.encode(), state.clock.wall() // SECOND).decode()


def opened(state: ServiceState, purpose: str, text: str, within_s: int) -> str | None:
    """Return a sealed text, or None if it was not sealed for this purpose within this time."""
    try:
        return _cipher(state, purpose).decrypt_at_time(text, within_s, state.clock.wall() // SECOND).decode()
    except (InvalidToken, ValueError, TypeError):
        return None


def _cipher(state: ServiceState, purpose: str) -> Fernet:
    return Fernet(urlsafe_b64encode(state.secret.key(purpose)))


async def load(state: ServiceState, request: Request) -> Session | None:
    """Read the session of a request, keep it for the forms of its page, and return it. None without a valid one."""
    await state.secret.ready()
    request.state.session = None
    count, _, text = request.cookies.get(COOKIE, "").partition(".")
    if count in map(str, range(1, CHUNKS + 1)):
        text += "".join(request.cookies.get(f"{COOKIE}-{n}", "") for n in range(1, int(count)))
        if (found := opened(state, "session", text, LIFETIME_S)) is not None:
            id_, _, credential = found.partition("\n")
            request.state.session = Session(id_, credential)
    session: Session | None = request.state.session
    return session


def keep(state: ServiceState, request: Request, response: Response, session: Session, until_ms: int = 0) -> None:
    """Set the cookies of a session. The browser drops them when the credential ends, at `until_ms` if it is given."""
    text = sealed(state, "session", f"{session.id}\n{session.credential}")
    chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    left_s = (until_ms - state.clock.wall()) // SECOND if until_ms else LIFETIME_S
    for n, chunk in enumerate(chunks):
        value = f"{len(chunks)}.{chunk}" if n == 0 else chunk
        set_cookie(response, _name(n), value, max(1, min(LIFETIME_S, left_s)))
    _drop(request, response, range(len(chunks), CHUNKS))


def forget(request: Request, response: Response) -> None:
    """Remove the cookies of the session from the browser."""
    _drop(request, response, range(CHUNKS))


def set_cookie(response: Response, name: str, value: str, seconds: int) -> None:
    """Set a cookie that no script reads and no other host receives. `seconds` of 0 remove it."""
    response.set_cookie(name, value, max_age=seconds, path="/", secure=True, httponly=True, samesite="lax")


def keep_done(request: Request, response: Response, done: str) -> None:
    """Keep the first line of the next page of this browser, which shows it once."""
    state: ServiceState = request.app.state.service
    text = sealed(state, DONE, f"{binding_of(request)}\n{done[:DONE_CHARS]}")
    # Not with `set_cookie`, because a service on this machine has no TLS. Only this service can write the text.
    secure = request.headers.get("origin", request.url.scheme).startswith("https")
    response.set_cookie(
        DONE_COOKIE, text, max_age=DONE_S, path=f"{root_of(request)}/ui", secure=secure, httponly=True, samesite="lax"
    )


def done_before(request: Request) -> str:
    """Return the first line that the last form of this browser left for this page, or ''."""
    state: ServiceState = request.app.state.service
    if DONE_COOKIE not in request.cookies or not state.secret.is_ready:
        return ""
    bound, _, done = (opened(state, DONE, request.cookies[DONE_COOKIE], DONE_S) or "").partition("\n")
    return done if bound and bound == binding_of(request) else ""


def forget_done(request: Request, response: Response) -> None:
    """Remove the line of the last form from the browser, because a page shows it."""
    response.delete_cookie(DONE_COOKIE, path=f"{root_of(request)}/ui", httponly=True, samesite="lax")


def _drop(request: Request, response: Response, numbers: range) -> None:
    for n in numbers:
        if _name(n) in request.cookies:
            set_cookie(response, _name(n), "", 0)


def _name(n: int) -> str:
    return f"{COOKIE}-{n}" if n else COOKIE


# --- who asks -------------------------------------------------------------------------------------
async def principal_of(state: ServiceState, request: Request) -> Principal:
    """Return the caller of a page. Raises Unauthenticated, TooManyFailures, Unverifiable."""
    session, authenticator = await load(state, request), state.authenticator
    if session is None or not session.credential:
        return await authenticator.authenticate("", address_of(request))
    if isinstance(authenticator, Credentials):
        return await authenticator.resume(session.credential)
    return await authenticator.authenticate(f"Bearer {session.credential}", address_of(request))


def address_of(request: Request) -> str:
    """Return the address of the peer."""
    return request.client.host if request.client else ""


def local_path(request: Request, given: str) -> str:
    """Return the page of this UI that `given` names, else the start page. Never an address of another host."""
    ui = f"{root_of(request)}/ui"
    plain = given.isascii() and given.isprintable() and "\\" not in given and " " not in given and len(given) <= 2_000
    return given if plain and (given == ui or given.startswith((f"{ui}/", f"{ui}?"))) else f"{ui}/"


def came_from(request: Request) -> str:
    """Return the page of this UI that sent the form, by its Referer; the start page if it is not readable."""
    try:
        parts = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return local_path(request, "")
    return local_path(request, parts.path + (f"?{parts.query}" if parts.query else ""))


def sign_in_address(request: Request, then: str) -> str:
    """Return the address of the sign-in that leads to a page."""
    return f"{root_of(request)}/ui/login?next={quote(then, safe='/')}"


# --- forms ----------------------------------------------------------------------------------------
def binding_of(request: Request) -> str:
    """Return to whom forms and stored regions belong: the session, or the caller who needs none; '' if unknown."""
    session: Session | None = getattr(request.state, "session", None)
    principal: Principal | None = getattr(request.state, "principal", None)
    if session is not None and (principal is None or session.credential):
        return f"session {session.id}"
    return f"caller {principal.tenant} {principal.name}" if principal is not None else ""


def form_token(request: Request) -> str:
    """Return the token for the forms of this page, '' if it can have none.

    A caller without a session has the same token in every page. Pages of other sites cannot read it.
    """
    state: ServiceState = request.app.state.service
    bound = binding_of(request)
    if not bound or not state.secret.is_ready:
        return ""
    return urlsafe_b64encode(hmac.digest(state.secret.key("form"), bound.encode(), sha256)).decode().rstrip("=")


def check_form(request: Request, token: str) -> None:
    """Raise Forbidden (`form_token`) unless a page of this session has the form."""
    known = form_token(request)
    if not known:
        raise Forbidden(
            "the browser sent no session",
            "it did not keep the cookie of this page, or the cookie has expired",
            "nothing was done; use https:// (a proxy with TLS in front of this service) or http://localhost, "
            "allow cookies for it, and open the page again",
            refusal="no_cookie",
        )
    if not hmac.compare_digest(known, token if token.isascii() else ""):
        raise Forbidden(
            "this form belongs to another session",
            "the page was opened before the last sign-in or sign-out",
            "nothing was done; open the page again and send the form from there",
            refusal="form_token",
        )


def check_sender(request: Request) -> None:
    """Raise Forbidden (`cross_origin`) unless the browser says that a page of this service sends the form.

    SameOriginMiddleware has refused a foreign Origin. A request that says nothing comes from no current browser.
    """
    if request.headers.get("sec-fetch-site", HERE) != HERE or not (
        "origin" in request.headers or "sec-fetch-site" in request.headers
    ):
        raise Forbidden(
            "only pages of this service may send its forms",
            "the request names no page of this service as its sender",
            "nothing was done; programs use /v1",
            refusal="cross_origin",
        )

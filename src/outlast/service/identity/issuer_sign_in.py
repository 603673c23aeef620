"""Sign-in of people through the issuer: OpenID Connect, authorization code flow with PKCE.

The issuer gives an identity token, which proves the sign-in that this service began, and an access token. The session
gets the first of access and identity token that `/v1` would accept as well. Nothing else of the answer is used.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.client import OAuth2Client
from authlib.oauth2.rfc6749.parameters import prepare_token_request

from outlast.clocks import new_credential
from outlast.core.clock_port import Clock
from outlast.errors import Unauthenticated, Unverifiable
from outlast.runtime.settings import AuthSettings
from outlast.service.identity.signed_tokens import FETCH_S, SignedTokens, is_safe, read_answer

DISCOVERY: Final = "/.well-known/openid-configuration"
DISCOVERED_MS: Final = 3_600_000
"""Time for which the addresses of the issuer are cached."""
ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint")
FORM: Final = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}

log: Final = logging.getLogger("outlast.service")


@dataclass(frozen=True)
class SignInRequest:
    """Sign-in that one browser began. The browser keeps it, encrypted, until the issuer sends the browser back."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str
    then: str

    def text(self) -> str:
        """Return the request as JSON, for `parse`."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> "SignInRequest":
        """Return the request in a text that `text` made."""
        return cls(**json.loads(text))


class IssuerSignIn:
    """Client of one issuer for the sign-in of people."""

    def __init__(self, settings: AuthSettings, signed: SignedTokens, clock: Clock) -> None:
        self._settings = settings
        self._signed = signed
        self._clock = clock
        self._found: dict[str, Any] = {}
        self._found_at = 0

    @property
    def host(self) -> str:
        """Host of the issuer, as the page of the sign-in shows it."""
        return urlsplit(self._settings.issuer).netloc

    async def begin(self, redirect_uri: str, then: str) -> tuple[str, SignInRequest]:
        """Return the address of the issuer to which the browser goes. Raises Unverifiable."""
        found = await self._discover()
        pending = SignInRequest(new_credential(), new_credential(), new_credential(), redirect_uri, then)
        client = OAuth2Client(
            None,
            self._settings.client_id,
            scope=" ".join(self._settings.scopes),
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
        )
        address, _ = client.create_authorization_url(
            found["authorization_endpoint"], state=pending.state, code_verifier=pending.verifier, nonce=pending.nonce
        )
        return address, pending

    async def finish(self, pending: SignInRequest, given: Mapping[str, str]) -> str:
        """Return the credential for the session. `given` has the parameters with which the issuer sent the browser.

        Raises Unauthenticated (`sign_in`) if the issuer refuses, or its answer is not for this sign-in. Raises
        Unverifiable.
        """
        if not hmac.compare_digest(given.get("state", "").encode(), pending.state.encode()):
            raise refused_sign_in("this browser did not start it, or has started another one since")
        if given.get("iss", self._settings.issuer) != self._settings.issuer:
            raise refused_sign_in("another issuer answered")
        if error := given.get("error", ""):
            raise refused_sign_in(f"the issuer refuses: {given.get('error_description', '') or error}"[:300])
        tokens = await self._exchange(pending, given.get("code", ""))
        identity, access = tokens.get("id_token"), tokens.get("access_token")
        if not isinstance(identity, str):
            raise refused_sign_in("the issuer sent no identity token; auth.scopes must contain openid")
        claims = await self._signed.verified(identity, self._settings.client_id)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), pending.nonce.encode()):
            raise refused_sign_in("the identity token belongs to another sign-in")
        if claims.get("azp", self._settings.client_id) != self._settings.client_id:
            raise refused_sign_in("the identity token was made for another client")
        return await self._credential(identity, access, str(claims["sub"]))

    async def _credential(self, identity: str, access: object, subject: str) -> str:
        """Return the access token if `/v1` accepts it and it belongs to the same person, else the identity token."""
        why: Unauthenticated | None = None
        for token in (access, identity):
            if isinstance(token, str) and token.count(".") == 2:
                try:
                    if (await self._signed.verified(token))["sub"] == subject:
                        await self._signed.read(token)
                        return token
                except Unauthenticated as error:
                    why = why or error
        raise why or refused_sign_in("the access token belongs to another person")

    async def _exchange(self, pending: SignInRequest, code: str) -> Mapping[str, Any]:
        """Return the tokens for a code. Raises Unauthenticated if the issuer does not accept it."""
        found, settings = await self._discover(), self._settings
        secret = settings.client_secret.get_secret_value()
        methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        body = prepare_token_request(
            "authorization_code", code=code, redirect_uri=pending.redirect_uri, code_verifier=pending.verifier
        )
        auth = ClientAuth(settings.client_id, secret, method if secret else "none")
        url, headers, body = auth.prepare("POST", found["token_endpoint"], dict(FORM), body)
        status, answer = await self._send("POST", url, headers=headers, content=body)
        if status != httpx2.codes.OK:
            reason = answer.get("error", status)
            log.warning("the issuer refuses the code of a sign-in: %s", str(reason)[:200])
            raise refused_sign_in(f"the issuer does not accept the code ({str(reason)[:100]}); it may have expired")
        return answer

    async def _discover(self) -> dict[str, Any]:
        """Return the metadata of the issuer. Raises Unverifiable if they are not those of `auth.issuer`."""
        now = self._clock.boot()
        if not self._found or now - self._found_at >= DISCOVERED_MS:
            issuer = self._settings.issuer
            status, found = await self._send("GET", issuer.rstrip("/") + DISCOVERY)
            wrong = [name for name in ENDPOINTS if not is_safe(str(found.get(name, "")))]
            if status != httpx2.codes.OK or found.get("issuer") != issuer or wrong:
                why = (
                    f"status {status}, issuer {str(found.get('issuer'))[:200]}, unusable: {', '.join(wrong) or 'none'}"
                )
                log.warning("the metadata of %s cannot be used: %s", issuer, why)
                raise _unavailable()
            self._found, self._found_at = found, now
        return self._found

    async def _send(self, method: str, url: str, **more: Any) -> tuple[int, dict[str, Any]]:
        """Send one request and return status and JSON object of the answer. Raises Unverifiable."""
        try:
            async with asyncio.timeout(FETCH_S), httpx2.AsyncClient(follow_redirects=False, timeout=FETCH_S) as client:
                async with client.stream(method, url, **more) as answer:
                    body = await read_answer(answer)
            found = json.loads(body) if body else {}
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, RecursionError) as error:
            log.warning("%s does not answer a sign-in: %s", self._settings.issuer, str(error) or type(error).__name__)
            raise _unavailable() from None
        return answer.status_code, found if isinstance(found, dict) else {}


def refused_sign_in(why: str) -> Unauthenticated:
    """Return the error of a sign-in that the issuer did not complete."""
    return Unauthenticated("the sign-in did not succeed", why, "sign in again", refusal="sign_in")


def _unavailable() -> Unverifiable:
    return Unverifiable(
        "the issuer does not answer", "the sign-in needs it", "try again later; the log of the service has the reason"
    )

"""Sign-in through an issuer (OpenID Connect): a real HTTP issuer, which can misbehave."""

import base64
import hashlib
import html
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
import jwt
import pytest
from playwright.sync_api import Page, expect
from pydantic import SecretStr

from outlast.clocks import SystemClock
from outlast.errors import InvalidInput
from outlast.service.identity import AuthSettings, authenticator
from tests.security.issuer import RSA_KEYS, public
from tests.service.conftest import Running, Service
from tests.ui.test_sign_in import Visitor

CLIENT, SECRET, AUDIENCE = "outlast-ui", "s3cret", "outlast"


class Issuer:
    """OpenID provider on loopback. `wrong` names its misbehaviour; `asked` lists the token requests."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.wrong = ""
        self.asked: list[dict[str, str]] = []
        self.codes: dict[str, dict[str, str]] = {}

    def metadata(self) -> dict[str, Any]:
        issuer = "https://evil.example" if self.wrong == "metadata" else self.url
        return {
            "issuer": issuer,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Return the address to which the browser is sent back: the person agrees at once."""
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.url, "session_state": "x", "authuser": "0"}
        if self.wrong == "state":
            back["state"] = "invented"
        elif self.wrong == "iss":
            back["iss"] = "https://evil.example"
        elif self.wrong == "denied":
            back = {"error": "access_denied", "error_description": "<b>no</b>", "state": query["state"]}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def token(self, body: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the tokens for a code, once, to the client with the secret and the verifier."""
        self.asked.append(body)
        query = self.codes.pop(body.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(body.get("code_verifier", "").encode()).digest()).rstrip(
            b"="
        )
        good = (
            query is not None and authorization == "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        )
        if query is None or not good or self.wrong == "expired" or query["code_challenge"] != challenge.decode():
            return 400, {"error": "invalid_grant"}
        if query["code_challenge_method"] != "S256" or query["redirect_uri"] != body["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        identity = {"aud": CLIENT, "nonce": "other" if self.wrong == "nonce" else query["nonce"]}
        access: dict[str, Any] = {"aud": AUDIENCE, "roles": ["approver", "finance", "operator"], "person": True}
        if self.wrong == "audience":
            identity["aud"] = "another-client"
        elif self.wrong == "azp":
            identity["azp"] = "another-client"
        elif self.wrong == "access audience":
            access["aud"] = "another-service"
        elif self.wrong == "person":
            access["sub"] = "mallory"
        elif self.wrong == "tenant":
            access["tenant"] = "NOT A TENANT"
        elif self.wrong == "old":
            identity["exp"] = access["exp"] = 1_000_000_000  # type: ignore[assignment]
        key = RSA_KEYS[1] if self.wrong == "key" else RSA_KEYS[0]
        found = {"id_token": self.signed(identity, key), "access_token": self.signed(access, RSA_KEYS[0])}
        if self.wrong == "no identity":
            del found["id_token"]
        return 200, {**found, "token_type": "Bearer", "expires_in": 300}

    def signed(self, claims: dict[str, Any], key: Any) -> str:
        now = int(time.time())
        held = {"iss": self.url, "sub": "ana", "iat": now, "exp": now + 300, "tenant": "default", **claims}
        return jwt.encode(held, key, algorithm="RS256", headers={"kid": "k0"})


class Handler(BaseHTTPRequestHandler):
    issuer: Issuer

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/authorize":
            self.send_response(302)
            self.send_header("Location", self.issuer.authorize(dict(parse_qsl(query))))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            document = {"keys": [public("k0", RSA_KEYS[0])]} if path == "/certs" else self.issuer.metadata()
            self.answer(503 if self.issuer.wrong == "down" else 200, document)

    def do_POST(self) -> None:
        body = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        self.answer(*self.issuer.token(body, self.headers.get("Authorization", "")))

    def answer(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def provider() -> Iterator[Issuer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.issuer = Issuer(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield Handler.issuer
    server.shutdown()
    thread.join()
    server.server_close()


def settings(provider: Issuer, **given: Any) -> AuthSettings:
    return AuthSettings(**{
        "issuer": provider.url, "audience": AUDIENCE, "jwks_url": f"{provider.url}/certs", "client_id": CLIENT,
        "client_secret": SecretStr(SECRET), "person_claim": "person", **given})  # fmt: skip


@pytest.fixture(scope="module")
def federated(provider: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    who = authenticator(settings(provider), SystemClock())
    with Running(f"sqlite:{tmp_path_factory.mktemp('ui') / 'outlast.db'}", authenticator=who) as running:
        yield running


@pytest.fixture
def visitor(federated: Service, provider: Issuer) -> Iterator[Visitor]:
    yield Visitor(federated)
    provider.wrong = ""


def asked_issuer(visitor: Visitor) -> str:
    """Go to the issuer, and return the path and query with which it sends the browser back."""
    sent = visitor.get("/ui/login/issuer?next=/ui/runs%3Fstatus%3Dwaiting")
    assert sent.status_code == 303
    back = urlsplit(httpx2.get(sent.headers["location"]).headers["location"])
    return f"{back.path}?{back.query}"


@pytest.mark.req("GATE-2")
def test_a_person_signs_in_through_the_issuer(visitor: Visitor, provider: Issuer) -> None:
    done = visitor.get(asked_issuer(visitor))
    assert (done.status_code, done.headers["location"]) == (303, "/ui/runs?status=waiting")
    assert "ana" in visitor.get("/ui/runs").text
    assert list(visitor.cookies) == ["__Host-outlast"], "the cookie of the sign-in is used up"
    assert SECRET not in json.dumps(provider.asked) and len(provider.asked[-1]["code_verifier"]) >= 43


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize(("wrong", "said"), [
    ("state", "did not start it"), ("iss", "another issuer"), ("denied", "&lt;b&gt;no&lt;/b&gt;"),
    ("expired", "may have expired"), ("nonce", "another sign-in"), ("audience", "credential is invalid"),
    ("azp", "another client"), ("key", "credential is invalid"), ("no identity", "must contain openid"),
    ("old", "has expired"), ("access audience", "credential is invalid"), ("person", ""),
    ("tenant", "not a tenant name"),
])  # fmt: skip
def test_a_misbehaving_issuer_makes_no_session(visitor: Visitor, provider: Issuer, wrong: str, said: str) -> None:
    provider.wrong = wrong
    answer = visitor.get(asked_issuer(visitor))
    assert answer.status_code == 401, wrong
    assert said in answer.text, re.sub(r"<[^>]+>", " ", html.unescape(answer.text))
    assert visitor.get("/ui/runs").status_code == 303
    provider.wrong = ""
    assert visitor.get(asked_issuer(visitor)).status_code == 303, "and the next try succeeds"


@pytest.mark.req("GATE-2")
def test_an_answer_is_used_once_and_by_the_browser_that_began(visitor: Visitor, federated: Service) -> None:
    """An attacker who sends a victim his own answer signs no one in."""
    back = asked_issuer(visitor)
    victim = Visitor(federated)
    assert victim.get(back).status_code == 401 and victim.get("/ui/runs").status_code == 303
    asked_issuer(victim)
    assert victim.get(back).status_code == 401, "of another state"
    assert visitor.get(back).status_code == 303
    assert visitor.get(back).status_code == 401
    assert visitor.get("/ui/login/callback?code=a&state=b").status_code == 401


def test_metadata_of_another_issuer_are_refused(visitor: Visitor, provider: Issuer, federated: Service) -> None:
    for wrong in ("metadata", "down"):
        provider.wrong = wrong
        who: Any = federated.state.authenticator
        who.sign_in._found = {}
        answer = visitor.get("/ui/login/issuer")
        assert answer.status_code == 503 and "does not answer" in answer.text
        assert answer.headers["content-type"].startswith("text/html")


def test_the_redirect_goes_to_the_public_address(visitor: Visitor, federated: Service) -> None:
    federated.state.public_url = "https://outlast.example.com"
    try:
        query = parse_qs(urlsplit(visitor.get("/ui/login/issuer").headers["location"]).query)
    finally:
        federated.state.public_url = ""
    assert query["redirect_uri"] == ["https://outlast.example.com/ui/login/callback"]
    assert query["scope"] == ["openid"] and query["client_id"] == [CLIENT] and query["response_type"] == ["code"]


def test_settings_of_the_sign_in_are_checked(provider: Issuer) -> None:
    with pytest.raises(InvalidInput, match="invalid") as caught:
        authenticator(settings(provider, issuer="http://id.example.com", scopes=("email",)), SystemClock())
    assert [name for name, _ in caught.value.problems] == ["auth.issuer", "auth.scopes"]


def test_a_service_without_a_client_shows_no_such_page(service: Service) -> None:
    assert service.get("/ui/login/issuer").status_code == 404


def test_chromium_signs_in_through_the_issuer(federated: Service, open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.goto(f"{federated.url}/ui/runs")
    page.get_by_role("link", name="Sign in with").click()
    expect(page.locator("#live-state")).to_have_text("live")
    assert page.url == f"{federated.url}/ui/runs"

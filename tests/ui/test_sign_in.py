"""Sign-in with a token, the session that it makes, and forms that only pages of the session may send."""

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import Response

from outlast.clocks import SystemClock
from outlast.service.identity import AuthSettings, Credentials, authenticator, new_token
from outlast.service.identity.lockout import MOST
from outlast.ui import sessions
from tests.security import issuer as issuers
from tests.service.conftest import Running, Service
from tests.ui.html_page import HtmlPage

ANA, ANA_LINE = new_token("ana", tenant="default", roles=["approver", "finance", "operator"], person=True)
VIC, VIC_LINE = new_token("vic", tenant="default", roles=["viewer"], person=True)
LINES = SecretStr(f"{ANA_LINE}\n{VIC_LINE}")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Service that asks for a token of ours or of an issuer."""
    with issuers.serving() as issuer:
        who = authenticator(issuer.settings(tokens=LINES, tenant="default", tenant_claim="none"), SystemClock())
        with Running(f"sqlite:{tmp_path_factory.mktemp('ui') / 'outlast.db'}", authenticator=who) as running:
            yield running


class Visitor:
    """Browser without scripts: it keeps cookies, follows nothing, and sends Origin with a form."""

    def __init__(self, service: Service) -> None:
        self.url = service.url
        self._client = service.client
        self.cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, *, cookies: bool = True, **more: Any) -> httpx2.Response:
        headers = dict(more.pop("headers", {}))
        if cookies and self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        request = self._client.build_request(method, path, headers=headers, **more)
        if "Origin" not in headers:
            del request.headers["Origin"]
        answer = self._client.send(request)
        self._client.cookies.clear()
        for line in answer.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            if "max-age=0" in line.lower():
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        return answer

    def get(self, path: str, **more: Any) -> httpx2.Response:
        return self.ask("GET", path, **more)

    def post(self, path: str, fields: dict[str, str], **more: Any) -> httpx2.Response:
        headers = {"Origin": self.url, **more.pop("headers", {})}
        return self.ask("POST", path, data=fields, headers=headers, **more)

    def token(self, path: str = "/ui/runs") -> str:
        """Return the form token of a page."""
        return hidden(self.get(path).text, "form_token")

    def sign_in(self, token: str = ANA, then: str = "") -> httpx2.Response:
        """Send the form of the sign-in, as a person would."""
        text = self.get(f"/ui/login?next={then}").text
        fields = {"form_token": hidden(text, "form_token"), "next": hidden(text, "next"), "credential": token}
        return self.post("/ui/login", fields)


def test_the_line_about_a_form_is_for_a_whole_page_of_its_session(guarded: Service) -> None:
    """A region would take it away before a person sees it, and a page of an error says what is wrong."""
    ana, vic = Visitor(guarded), Visitor(guarded)
    ana.sign_in()
    vic.sign_in(VIC)
    form = next(each for each in HtmlPage(ana.get("/ui/workflows/wish").text).forms if each.action.endswith("/wish"))
    assert ana.post(form.action, dict(form.fields) | {"input/text": "a"}).status_code == 303
    vic.cookies[sessions.DONE_COOKIE] = ana.cookies[sessions.DONE_COOKIE]
    assert 'id="done"' not in vic.get("/ui/runs").text
    for path in ("/ui/runs?region=runs", "/ui/runs/nobody"):
        assert 'id="done"' not in ana.get(path).text and sessions.DONE_COOKIE in ana.cookies
    assert 'id="done"' in ana.get("/ui/runs").text and sessions.DONE_COOKIE not in ana.cookies


def test_the_line_about_a_form_fits_into_a_cookie(guarded: Service) -> None:
    """A browser drops one of more than 4 KB."""
    app = SimpleNamespace(state=SimpleNamespace(service=guarded.state))
    head = {"type": "http", "method": "POST", "scheme": "http", "server": ("x", 80), "path": "/ui/", "headers": []}
    request, answer = Request({**head, "query_string": b"", "root_path": "", "app": app}), Response()
    guarded.call(guarded.state.secret.ready())
    sessions.keep_done(request, answer, "\U0001f600" * 5_000)
    assert len(answer.headers["set-cookie"]) < 4_096


def hidden(text: str, name: str) -> str:
    """Return the value of a hidden field of a page."""
    found = re.search(f'name="{name}" value="([^"]*)"', text)
    assert found is not None, name
    return html.unescape(found[1])


@pytest.fixture
def visitor(guarded: Service) -> Visitor:
    return Visitor(guarded)


@pytest.mark.req("GATE-2")
def test_a_page_without_a_session_leads_to_the_sign_in_and_back(visitor: Visitor) -> None:
    asked = visitor.get("/ui/runs?status=waiting")
    assert (asked.status_code, asked.headers["location"]) == (303, "/ui/login?next=/ui/runs%3Fstatus%3Dwaiting")
    done = visitor.sign_in(then="/ui/runs%3Fstatus%3Dwaiting")
    assert (done.status_code, done.headers["location"]) == (303, "/ui/runs?status=waiting")
    cookie = done.headers["set-cookie"].lower()
    assert all(f"; {part}" in cookie for part in ("httponly", "secure", "samesite=lax", "path=/"))
    assert cookie.startswith("__host-outlast=") and "domain" not in cookie and ANA.lower() not in cookie
    shown = visitor.get("/ui/runs")
    assert shown.status_code == 200 and "ana" in shown.text and "Sign out" in shown.text


@pytest.mark.parametrize("path", ["/ui/runs?region=runs", "/ui/live?of=runs"])
def test_a_region_and_a_stream_without_a_session_are_refused(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path, headers={"Sec-Fetch-Dest": "empty"})
    assert answer.status_code == 401 and "/ui/login?next=" in answer.text


@pytest.mark.parametrize("then", ["https://evil.example", "//evil.example/ui/", "/\\evil.example", "/v1/runs", "/uix",
                                  "/ui/%0d%0aSet-Cookie:a=b", "javascript:alert(1)", "/ui/ä"])  # fmt: skip
def test_the_sign_in_leads_to_a_page_of_the_ui_only(visitor: Visitor, then: str) -> None:
    assert visitor.sign_in(then=then).headers["location"] in ("/ui/", "/ui/runs")


@pytest.mark.req("GATE-2")
def test_the_cookie_is_no_credential_of_the_api_and_a_header_no_session(visitor: Visitor) -> None:
    visitor.sign_in()
    assert visitor.get("/v1/runs").status_code == 401
    (cookie,) = visitor.cookies.values()
    for credential in (cookie, cookie.partition(".")[2]):
        assert visitor.get("/v1/runs", headers={"Authorization": f"Bearer {credential}"}).status_code == 401
    stranger = {"Authorization": f"Bearer {ANA}"}
    assert visitor.get("/ui/runs", cookies=False, headers=stranger).status_code == 303


@pytest.mark.req("GATE-2")
def test_a_changed_or_foreign_cookie_is_no_session(visitor: Visitor, guarded: Service) -> None:
    visitor.sign_in()
    (good,) = visitor.cookies.values()
    other = guarded.state.secret.key("form").hex()
    for bad in ["", "1.", f"0.{good[2:]}", f"9.{good[2:]}", good[:-3] + "AAA", f"1.{ANA}", good[:40],
                f"1.{other}",
                good.replace("1.", "1.A", 1), sessions.sealed(guarded.state, "flow", f"id\n{ANA}")]:  # fmt: skip
        visitor.cookies[sessions.COOKIE] = bad
        assert visitor.ask("GET", "/ui/runs").status_code == 303, bad
    visitor.cookies[sessions.COOKIE] = good
    assert visitor.get("/ui/runs").status_code == 200


@pytest.mark.req("GATE-2")
def test_sign_out_ends_the_session_in_the_browser(visitor: Visitor) -> None:
    visitor.sign_in()
    done = visitor.post("/ui/logout", {"form_token": visitor.token()})
    assert done.status_code == 303 and visitor.cookies == {} and done.headers["clear-site-data"] == '"cache"'
    assert visitor.get("/ui/runs").status_code == 303


@pytest.mark.req("GATE-2")
def test_a_session_ends_with_its_credential(visitor: Visitor) -> None:
    ended = issuers.token(exp=1_000_000_000, tenant=None)
    visitor.get("/ui/login")
    refused = visitor.sign_in(ended)
    assert refused.status_code == 401 and "it has expired" in refused.text
    assert visitor.get("/ui/runs").status_code == 303


def test_a_large_token_of_an_issuer_is_spread_over_cookies(visitor: Visitor) -> None:
    large = issuers.token(tenant=None, padding="x" * 5_400)
    assert 7_000 < len(large) < 8_192
    assert visitor.sign_in(large).status_code == 303
    assert len(visitor.cookies) == sessions.CHUNKS and all(len(each) < 4_000 for each in visitor.cookies.values())
    assert visitor.get("/ui/runs").status_code == 200
    del visitor.cookies[f"{sessions.COOKIE}-1"]
    assert visitor.get("/ui/runs").status_code == 303
    visitor.sign_in()
    assert list(visitor.cookies) == [sessions.COOKIE], "the cookies of the larger session are removed"
    too_large = visitor.sign_in(issuers.token(tenant=None, padding="x" * 9_000))
    assert too_large.status_code == 401 and "at most 8,192 bytes" in too_large.text


@pytest.mark.req("GATE-2")
def test_guesses_at_the_sign_in_count_towards_the_lock_out(tmp_path: Path) -> None:
    who = authenticator(AuthSettings(tokens=LINES), SystemClock())
    with Running(f"sqlite:{tmp_path / 'outlast.db'}", authenticator=who, worker=False) as running:
        visitor = Visitor(running)
        found = [visitor.sign_in("olt_wrong").status_code for _ in range(21)]
        assert found == [401] * 20 + [429]
        answer = visitor.sign_in("olt_wrong")
        assert "olt_wrong" not in answer.text and int(answer.headers["retry-after"]) > 0
        assert running.get("/v1/runs", headers={"Authorization": "Bearer olt_wrong"}).status_code == 429


@pytest.mark.req("GATE-2")
def test_open_pages_of_a_revoked_token_lock_nobody_out(tmp_path: Path) -> None:
    """An operator removes a line and restarts: the pages that were open reload, refresh and follow their streams."""
    with Running(f"sqlite:{tmp_path / 'outlast.db'}", authenticator=_accepting(LINES), worker=False) as before:
        left = Visitor(before)
        assert left.sign_in(VIC).status_code == 303 and left.get("/ui/runs").status_code == 200
    kept = SecretStr(ANA_LINE)
    with Running(f"sqlite:{tmp_path / 'outlast.db'}", authenticator=_accepting(kept), worker=False) as after:
        gone = Visitor(after)
        for path in ("/ui/runs", "/ui/runs?region=runs", "/ui/live?of=runs", "/ui/approvals") * 6:
            gone.cookies = dict(left.cookies)
            answer = gone.get(path, headers={"Sec-Fetch-Dest": "empty"} if "?" in path else {})
            assert answer.status_code in (303, 401) and "/ui/login" in answer.headers.get("location", answer.text)
        bearer = {"Authorization": "Bearer olt_wrong"}
        assert after.get("/v1/runs", headers=bearer).status_code == 401, "no guess was counted before"
        colleague = Visitor(after)
        assert colleague.sign_in(ANA).status_code == 303


@pytest.mark.req("GATE-2")
def test_a_session_is_read_from_an_address_that_is_locked_out(tmp_path: Path) -> None:
    """A colleague behind the same proxy guesses, and the restart has forgotten which tokens were good."""
    url = f"sqlite:{tmp_path / 'outlast.db'}"
    with Running(url, authenticator=_accepting(LINES), worker=False) as before:
        visitor = Visitor(before)
        visitor.sign_in(ANA)
    with Running(url, authenticator=_accepting(LINES), worker=False) as after:
        statuses = [
            after.get("/v1/runs", headers={"Authorization": "Bearer olt_wrong"}).status_code for _ in range(MOST + 1)
        ]
        assert statuses[-1] == 429
        again = Visitor(after)
        again.cookies = dict(visitor.cookies)
        assert again.get("/ui/runs").status_code == 200
        assert again.sign_in(VIC).status_code == 429, "a typed token may be a guess"


def _accepting(lines: SecretStr) -> Credentials:
    return authenticator(AuthSettings(tokens=lines), SystemClock())


# --- forms ----------------------------------------------------------------------------------------
ACTION = "/ui/logout"


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("headers", [
    {}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"}, {"Origin": "http://127.0.0.1:1"},
])  # fmt: skip
def test_a_form_of_another_site_is_refused(visitor: Visitor, headers: dict[str, str]) -> None:
    visitor.sign_in()
    token = visitor.token()
    answer = visitor.ask("POST", ACTION, data={"form_token": token}, headers=headers)
    assert answer.status_code == 403 and answer.headers["content-type"].startswith("text/html")
    assert visitor.get("/ui/runs").status_code == 200, "the session goes on"


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x", ""])
def test_only_forms_are_read(visitor: Visitor, kind: str) -> None:
    visitor.sign_in()
    headers = {"Origin": visitor.url, **({"Content-Type": kind} if kind else {})}
    content = f"form_token={visitor.token()}".encode()
    assert visitor.ask("POST", ACTION, content=content, headers=headers).status_code == 415
    assert visitor.get("/ui/runs").status_code == 200


@pytest.mark.req("GATE-2")
def test_the_token_of_another_session_is_refused_and_the_text_is_kept(guarded: Service, visitor: Visitor) -> None:
    other = Visitor(guarded)
    other.sign_in()
    visitor.sign_in()
    old = visitor.token()
    visitor.sign_in()
    assert visitor.token() != old
    for token in ("", old, other.token(), visitor.token()[:-1], "ä"):
        answer = visitor.post(ACTION, {"form_token": token, "reason": "four <b>percent</b> under budget"},
                              headers={"Referer": f"{visitor.url}/ui/runs?status=waiting"})  # fmt: skip
        assert answer.status_code == 403
        assert (
            "four &lt;b&gt;percent&lt;/b&gt; under budget" in answer.text
            and 'href="/ui/runs?status=waiting"' in answer.text
        )
        assert not token or f'value="{token}"' not in answer.text
    assert visitor.get("/ui/runs").status_code == 200


def test_a_sign_in_without_a_cookie_says_what_to_do(visitor: Visitor) -> None:
    token = visitor.token("/ui/login")
    answer = visitor.post("/ui/login", {"form_token": token, "credential": ANA}, cookies=False)
    assert answer.status_code == 403 and "a proxy with TLS" in answer.text and ANA not in answer.text


def test_text_typed_before_the_session_ended_is_kept(guarded: Service, visitor: Visitor) -> None:
    visitor.sign_in()
    token = visitor.token()
    session = sessions.sealed(guarded.state, "session", f"id\n{issuers.token(exp=1_000_000_000, tenant=None)}")
    visitor.cookies = {sessions.COOKIE: f"1.{session}"}
    answer = visitor.post("/ui/webhooks/wh_1/disable", {"form_token": token, "reason": "typed for long"})
    assert answer.status_code == 401 and "typed for long" in answer.text and "/ui/login?next=" in answer.text
    assert visitor.cookies == {}


@pytest.mark.req("GATE-2")
def test_unknown_pages_wrong_methods_and_wrong_filters_are_pages(visitor: Visitor) -> None:
    visitor.sign_in()
    for method, path, status in [("GET", "/ui/nothing", 404), ("GET", ACTION, 405), ("HEAD", ACTION, 405),
                                 ("GET", "/ui/runs?colour=red", 422), ("GET", "/ui/runs?limit=many", 422),
                                 ("GET", "/ui/runs/..%2f", 422), ("GET", "/ui/static/x/nothing.js", 404),
                                 ("DELETE", "/ui/runs", 405)]:  # fmt: skip
        answer = visitor.ask(method, path, headers={"Origin": visitor.url})
        assert answer.status_code == status, (path, answer.text)
        assert answer.headers["content-type"].startswith("text/html"), path
        assert status != 405 or answer.headers["allow"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert visitor.get("/v1/nothing").headers["content-type"] == "application/problem+json"
    assert visitor.get("/uix").headers["content-type"] == "application/problem+json"
    head = visitor.ask("HEAD", "/ui/runs")
    assert head.status_code == 200 and head.content == b""


def test_a_stored_region_belongs_to_its_session(visitor: Visitor) -> None:
    visitor.sign_in()
    tag = {"If-None-Match": visitor.get("/ui/runs?region=runs").headers["etag"]}
    assert visitor.get("/ui/runs?region=runs", headers=tag).status_code == 304
    visitor.sign_in(VIC)
    assert visitor.get("/ui/runs?region=runs", headers=tag).status_code == 200


# --- in a browser ---------------------------------------------------------------------------------
def test_chromium_keeps_a_session_on_localhost(guarded: Service, open_page: Callable[..., Page]) -> None:
    for url in (guarded.url, guarded.url.replace("127.0.0.1", "localhost")):
        page = open_page()
        page.goto(f"{url}/ui/runs")
        page.fill("#credential", ANA)
        page.keyboard.press("Enter")
        expect(page.locator("#live-state")).to_have_text("live")
        assert page.evaluate("document.cookie").startswith("outlast-zone=")  # no script reads the session
        assert ";" not in page.evaluate("document.cookie")
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("#credential")).to_be_visible()


def test_a_page_of_an_ended_session_says_so_and_asks_no_more(guarded: Service, open_page: Callable[..., Page]) -> None:
    page = open_page(expects="status of 401|404.*/ui/static/end|htmx:sse:error")
    page.goto(f"{guarded.url}/ui/runs")
    page.fill("#credential", ANA)
    page.keyboard.press("Enter")
    state = page.locator("#live-state")
    expect(state).to_have_text("live")
    page.context.clear_cookies()  # as when it signs out in another tab
    page.evaluate("htmx.trigger('#live', 'changed')")
    expect(state).to_contain_text("signed out")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("""async () => {
        htmx.trigger("#nav", "changed");
        await htmx.ajax("GET", "/ui/nav", "#nav");
        await fetch("/ui/static/end");
    }""")
    assert asked == [f"{guarded.url}/ui/static/end"]
    expect(page.locator("#live")).to_have_count(0)

"""Remove each safeguard of the web UI once, and see the failure that it prevents."""

from collections.abc import Iterator

import pytest
from starlette.requests import Request

from outlast.core.durations import DAY, SECOND
from outlast.core.machine import ApprovalStatus
from outlast.service.identity import Principal
from outlast.ui import sessions
from tests.mutants import remove
from tests.service.conftest import ALL, Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_sign_in import Visitor

Patch = pytest.MonkeyPatch
both = pytest.mark.parametrize("guarded", [True, False])
ROLES = ("admin", "approver", "finance", "viewer")
ACTION = "/ui/webhooks/wh_1/disable"
PASSED = 404
"""Status of ACTION after every check: there is no such webhook."""


class Reception:
    """Authenticator that trusts `Bearer TENANT/NAME`. The default is ana of acme; vic may only read."""

    async def authenticate(self, authorization: str, client: str) -> Principal:
        tenant, _, name = (authorization.removeprefix("Bearer ") or "acme/ana").partition("/")
        return Principal(tenant, name, frozenset(("viewer",) if name == "vic" else ROLES), ROLES, person=True)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    url = f"sqlite:{tmp_path_factory.mktemp('ui') / 'outlast.db'}"
    with Running(url, ALL, authenticator=Reception()) as running:
        yield running


def signed_in(service: Service, name: str) -> Visitor:
    visitor = Visitor(service)
    assert visitor.sign_in(name).status_code == 303
    return visitor


def aged(service: Service, credential: str, ms: int) -> dict[str, str]:
    """Return the cookie of a session that began this long ago."""
    at = (service.state.clock.wall() - ms) // SECOND
    sealed = sessions._cipher(service.state, "session").encrypt_at_time(f"id\n{credential}".encode(), at)
    return {sessions.COOKIE: f"1.{sealed.decode()}"}


@both
@pytest.mark.req("GATE-2")
def test_without_the_form_token_a_form_of_no_page_acts(service: Service, monkeypatch: Patch, guarded: bool) -> None:
    visitor = signed_in(service, "acme/ana")
    if not guarded:
        remove("no_form_token", monkeypatch)
    answer = visitor.post(ACTION, {"form_token": "guessed", "version": "1"})
    assert (answer.status_code == 403) is guarded, answer.text
    assert guarded or answer.status_code == PASSED


@both
@pytest.mark.req("GATE-2")
def test_without_the_binding_the_form_of_another_session_acts(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """A stored region is shown to the other session, too."""
    if not guarded:
        remove("forms_of_any_session", monkeypatch)
    ana, eve = signed_in(service, "acme/ana"), signed_in(service, "acme/eve")
    answer = ana.post(ACTION, {"form_token": eve.token(), "version": "1"})
    assert (answer.status_code == 403) is guarded, answer.text
    tag = {"If-None-Match": ana.get("/ui/runs?region=runs").headers["etag"]}
    assert (eve.get("/ui/runs?region=runs", headers=tag).status_code == 200) is guarded


@both
@pytest.mark.req("GATE-2")
def test_without_the_check_of_the_sender_a_form_of_unknown_origin_acts(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    """A second check refuses a foreign Origin; this one also refuses a form without any."""
    visitor = signed_in(service, "acme/ana")
    token = visitor.token()
    if not guarded:
        remove("forms_of_any_site", monkeypatch)
    answer = visitor.ask("POST", ACTION, data={"form_token": token, "version": "1"})
    assert (answer.status_code == 403) is guarded, answer.text


@both
@pytest.mark.req("GATE-2")
def test_without_local_paths_the_sign_in_leads_to_another_host(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    if not guarded:
        remove("any_next_page", monkeypatch)
    for then in ("//evil.example/ui/", "https://evil.example/ui/", "/ui/%5C%5Cevil.example", "/uix"):
        led = Visitor(service).sign_in("acme/ana", then).headers["location"]
        assert (led == "/ui/") is guarded, led


@both
@pytest.mark.req("GATE-2")
def test_without_a_lifetime_a_stolen_cookie_is_valid_for_ever(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    if not guarded:
        remove("endless_sessions", monkeypatch)
    visitor = signed_in(service, "acme/ana")
    visitor.cookies = aged(service, "acme/eve", 6 * DAY)
    assert "eve" in visitor.get("/ui/runs").text
    visitor.cookies = aged(service, "acme/eve", 8 * DAY)
    assert ("eve" in visitor.get("/ui/runs").text) is not guarded


@both
@pytest.mark.req("GATE-2")
def test_without_the_seal_a_browser_names_its_own_credential(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    if not guarded:
        remove("unsealed_sessions", monkeypatch)
    seen = service.call(_session(service, "1.eve-was-here"))
    assert (seen is None) is guarded


async def _session(service: Service, cookie: str) -> sessions.Session | None:
    scope = {"type": "http", "headers": [(b"cookie", f"{sessions.COOKIE}={cookie}".encode())]}
    return await sessions.load(service.state, Request(scope))


@both
@pytest.mark.req("GATE-2")
def test_without_permissions_a_viewer_acts(service: Service, monkeypatch: Patch, guarded: bool) -> None:
    visitor = signed_in(service, "acme/vic")
    token = visitor.token()
    if not guarded:
        remove("pages_for_every_role", monkeypatch)
    answer = visitor.post(ACTION, {"form_token": token, "version": "1"})
    assert (answer.status_code == 403) is guarded, answer.text


@both
@pytest.mark.req("GATE-2")
def test_without_the_tenant_a_page_shows_the_run_of_another(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    run = service.start()
    stranger = signed_in(service, "globex/ana")
    if not guarded:
        remove("one_tenant_for_all", monkeypatch)
    for path in (f"/ui/runs/{run}", f"/ui/runs/{run}/events", f"/ui/runs/{run}/input"):
        assert (stranger.get(path).status_code == 404) is guarded, path


@both
@pytest.mark.req("GATE-2")
def test_without_the_version_a_form_decides_what_was_not_shown(
    service: Service, monkeypatch: Patch, guarded: bool
) -> None:
    approval, _ = service.asked()
    visitor = signed_in(service, "acme/ana")
    form = HtmlPage(visitor.get(f"/ui/approvals/{approval}").text).form("decide")
    assert service.post(f"/v1/approvals/{approval}/claim").status_code == 200
    if not guarded:
        remove("forms_of_any_version", monkeypatch)
    answer = visitor.post(form.action, {**dict(form.fields), "decision": "approve", "reason": "as shown"})
    assert (answer.status_code == 412) is guarded, answer.text
    status = service.get(f"/v1/approvals/{approval}").json()["status"]
    assert (status == ApprovalStatus.PENDING) is guarded


@both
@pytest.mark.req("GATE-2")
def test_without_escapes_text_becomes_elements(service: Service, monkeypatch: Patch, guarded: bool) -> None:
    visitor = signed_in(service, "acme/ana")
    if not guarded:
        remove("unescaped_text", monkeypatch)
    text = visitor.post(ACTION, {"form_token": "x", "reason": "<form id=planted>"}).text
    assert ("planted" not in HtmlPage(text).ids) is guarded


@both
@pytest.mark.req("GATE-2")
def test_without_the_policy_a_page_executes_any_script(service: Service, monkeypatch: Patch, guarded: bool) -> None:
    """Also pages of errors, parts of pages, and answers that were not modified."""
    visitor = signed_in(service, "acme/ana")
    if not guarded:
        remove("no_page_policy", monkeypatch)
    for path in ("/ui/runs", "/ui/runs?region=runs", "/ui/nothing", "/ui/static/x/nothing.js", "/ui/runs?colour=red"):
        policy = visitor.get(path).headers["content-security-policy"]
        safe = "require-trusted-types-for 'script'" in policy and "script-src 'nonce-" in policy
        assert (safe and "unsafe" not in policy) is guarded, path


def test_an_unreadable_sender_of_a_refused_form_is_no_fault(service: Service) -> None:
    """The page of the refusal reads the Referer."""
    visitor = signed_in(service, "acme/ana")
    answer = visitor.post(ACTION, {"form_token": "x"}, headers={"Referer": "http://[half"})
    assert answer.status_code == 403

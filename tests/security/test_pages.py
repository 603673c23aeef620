"""Every page × role × own and other tenant, by the permissions of /v1 (S1 to S3, S9), for each route below /ui."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute

from outlast.models.effects import effect_id
from outlast.ui import sessions
from outlast.ui.app import ROUTERS
from outlast.ui.page_route import PREFIX, OpenPageRoute, PageRoute
from tests.security.server import ROLES, Service
from tests.security.test_matrix import TABLE, UNKNOWN_IDS, address

OF_V1 = {row["operation"]: row for row in TABLE}
OF_V1["export_run"] = {**OF_V1["cancel_run"], "method": "GET"}
"""The only operation of a page without one of `/v1`: the roles of an operator, and no viewer."""
READS_OF_WRITES = {
    "/ui/runs/{run}/signals/{name}",
    "/ui/runs/{run}/fork",
    "/ui/runs/{run}/fork/state",
    "/ui/approvals/{approval}/preview",
}
"""Pages whose method is not that of the operation whose right they need."""
PAGES = [route for router in ROUTERS for route in router.routes if isinstance(route, PageRoute)]
CLOSED = [route for route in PAGES if not isinstance(route, OpenPageRoute)]
FIELDS = {"reason": "x", "by": "1h", "decision": "approve", "choice": "continue", "text": "x", "outcome": "give_up",
          "version": "1", "tokens": "1", "to": "sales", "workflow": "payment", "scheduler": "temporal"}  # fmt: skip


def named(route: APIRoute) -> str:
    return f"{','.join(sorted(route.methods))} {route.path}"


def operation_of(route: APIRoute) -> str:
    assert route.operation_id is not None
    return route.operation_id.removeprefix(PREFIX)


class Browser:
    """Session of one caller."""

    def __init__(self, service: Service, name: str, tenant: str) -> None:
        state = service.app.state.service
        service.do(state.secret.ready())
        sealed = sessions.sealed(state, "session", f"{name}-{tenant}\n{service.tokens[tenant, name]}")
        headers = {"Cookie": f"{sessions.COOKIE}=1.{sealed}", "Origin": service.url}
        self.client = httpx2.Client(base_url=service.url, headers=headers, timeout=30, verify=False)
        self.token = re.findall(r'name="form_token" value="([^"]+)"', self.client.get("/ui/keys").text)[0]

    def ask(self, route: APIRoute, path: str, fields: dict[str, str]) -> httpx2.Response:
        if "POST" in route.methods:
            return self.client.post(path, data={"form_token": self.token, **fields})
        return self.client.get(path)


@pytest.fixture(scope="module")
def browser(service: Service) -> Iterator[Callable[..., Browser]]:
    made: list[Browser] = []

    @cache
    def opened(name: str, tenant: str = "acme") -> Browser:
        made.append(Browser(service, name, tenant))
        return made[-1]

    yield opened
    for each in made:
        each.client.close()


@pytest.mark.req("GATE-2")
def test_every_page_is_secured_by_an_operation_of_the_api() -> None:
    below = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    assert {route.path for route in below if not isinstance(route, PageRoute)} == {"/ui/static/{digest}/{name}"}
    assert {route.path for route in PAGES if isinstance(route, OpenPageRoute)} == {
        "/ui/login", "/ui/logout", "/ui/login/issuer", "/ui/login/callback", "/ui/theme",
    }  # fmt: skip
    for route in CLOSED:
        row = OF_V1[operation_of(route)]
        assert route.methods in ({"GET"}, {"POST"}), named(route)
        assert route.methods == {row["method"]} or route.path in READS_OF_WRITES, f"{named(route)} has another right"


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("route", CLOSED, ids=named)
def test_a_page_permits_what_the_api_permits(
    service: Service, browser: Callable[..., Browser], route: APIRoute
) -> None:  # fmt: skip
    """Send a form without fields for unknown ids, so that permitted requests change nothing."""
    path, row = address(route.path), OF_V1[operation_of(route)]
    if route.path == "/ui/live":
        path += "?of=run:run_000000000000"
    for role in ROLES:
        answer = browser(role).ask(route, path, {})
        if row[role] == "ok":
            assert answer.status_code in (200, 303, 400, 404, 409, 412, 422, 428), (role, answer.text)
            assert "/ui/login" not in answer.headers.get("location", ""), role
        else:
            assert answer.status_code == 403, (role, answer.status_code)
        assert answer.status_code == 303 or answer.headers["content-type"].startswith(("text/html", "application/json"))
    stranger = {"Origin": service.url}
    (method,) = route.methods
    answer = httpx2.request(method, service.url + path, headers=stranger, follow_redirects=False)
    assert answer.status_code == (303 if method == "GET" else 401), answer.text
    assert method == "POST" or answer.headers["location"].startswith("/ui/login?next=")


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("route", [route for route in PAGES if "POST" in route.methods], ids=named)
def test_an_action_is_a_post_of_its_own_form(browser: Callable[..., Browser], route: APIRoute) -> None:
    caller, path = browser("root"), address(route.path)
    gets = {each.path for each in PAGES if "GET" in each.methods}
    if route.path not in gets and not any(re.fullmatch(re.sub(r"{\w+}", r"[^/]+", each), path) for each in gets):
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH"):
            answer = caller.client.request(method, path)
            assert answer.status_code == 405 and "POST" in answer.headers["allow"], (method, answer.text)
    good = {"form_token": caller.token}
    for given in ({"json": good}, {"content": f"form_token={caller.token}", "headers": {"Content-Type": "text/plain"}},
                  {"data": good, "files": {"a": b""}}):  # fmt: skip
        assert caller.client.post(path, **given).status_code == 415, given  # type: ignore[arg-type]
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert caller.client.post(path, data=good, headers=headers).status_code == 403
    for token in ({}, {"form_token": caller.token[:-1]}, {"form_token": browser("admin").token}):
        assert caller.client.post(path, data=token).status_code == 403, token


UNKNOWN = {**UNKNOWN_IDS, "number": "1", "part": "request"}


def plain(text: str, *ids: str) -> str:
    """Return a page without the ids in it, its nonces and its times."""
    for each in ids:
        text = text.replace(each, "ID")
    text = re.sub(r'(nonce|data-now|datetime|title|etag)="[^"]*"', "", text)
    return re.sub(r"req_\w+|\d+\w* ago", "", text)


@pytest.fixture(scope="module")
def theirs(service: Service) -> dict[str, str]:
    """Return ids of acme: a run, its approval, an effect, a webhook."""
    run, approval, _ = service.approval("pages")
    with service.client("admin") as client:
        added = client.post("/v1/webhooks", json={"url": "https://93.184.216.34/hook"})
    webhook = added.headers["Location"].rpartition("/")[2]
    return {**UNKNOWN, "run": run, "approval": approval, "effect": effect_id(run, 1, "pay"), "webhook": webhook}


ACTION = re.compile(r'<form[^>]* method="post"[^>]* action="([^"]+)"| formaction="([^"]+)"')
TARGETS = [(re.compile(re.sub(r"{\w+}", r"[^/]+", each.path)), each) for each in PAGES if "POST" in each.methods]


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("role", ROLES)
def test_a_page_offers_only_forms_that_its_caller_may_send(
    browser: Callable[..., Browser], theirs: dict[str, str], role: str
) -> None:
    caller, offered = browser(role), set()
    for route in (each for each in CLOSED if "GET" in each.methods and each.path != "/ui/live"):
        answer = caller.ask(route, address(route.path, theirs), {})
        if answer.status_code != 200:
            continue
        for action in ("".join(found) for found in ACTION.findall(answer.text)):
            (target,) = (each for path, each in TARGETS if path.fullmatch(action))
            if not isinstance(target, OpenPageRoute):
                assert OF_V1[operation_of(target)][role] == "ok", f"{route.path} offers {action}"
                offered.add(target.path)
    assert offered or OF_V1["cancel_run"][role] != "ok"


IDS = re.compile("{(run|approval|effect|webhook)}")


@pytest.mark.req("RUN-5", "GATE-2")
@pytest.mark.parametrize("route", [route for route in CLOSED if IDS.search(route.path)], ids=named)
def test_pages_of_another_tenant_do_not_exist(
    browser: Callable[..., Browser], theirs: dict[str, str], route: APIRoute
) -> None:
    unknown = {**UNKNOWN, "effect": effect_id(UNKNOWN_IDS["run"], 1, "pay")}
    found: list[Any] = []
    for ids in (theirs, unknown):
        caller = browser("root" if "approv" in route.path else "admin", "globex")
        answer = caller.ask(route, address(route.path, ids), FIELDS)
        found.append((answer.status_code, plain(answer.text, *ids.values())))
    assert found[0] == found[1]
    assert found[0][0] in ((404,) if "GET" in route.methods else (404, 409, 422)), found[0]
    assert "acme" not in found[0][1]

"""Hostile texts of models, suppliers and callers stay text on every page, in a real Chromium."""

import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self

import pytest
from playwright.sync_api import Browser, Page, expect
from pydantic import BaseModel

from outlast import Context, Refused, Workflow, activity, lookup, role, this_call
from outlast.core.durations import DAY
from outlast.flow import Perhaps
from outlast.insight import course_steps
from outlast.models.effects import effect_id
from outlast.ui.app import ROUTERS
from outlast.ui.page_route import OpenPageRoute, PageRoute
from tests.service.conftest import Running, Service

HOSTILE = (
    "</textarea></script><script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)> '\"><a "
    "href=javascript:alert(4)>a</a> {{7*7}} {% raw %} <b hx-get=/ui/keys hx-trigger=load>b</b> "
    "<form action=//evil.example>"
)
PLAIN = re.sub(r"\S", "x", HOSTILE)
"""Text of the same length and with the same spaces."""


class Deal(BaseModel):
    text: str
    more: dict[str, str] = {}
    said: list[str] = []


class Said(BaseModel):
    text: str


deals = Workflow("deal", state=Deal, outcome=lambda state: state.text)


@activity(key="deal-tell/{text}", once_per="run", no_undo="it was said")  # outlast: ignore[OL101] tests only
async def tell(text: str) -> str:
    this_call().set_external_id(text)
    return f"answer {text}"


@activity(key="deal-refuse/{text}", once_per="run", no_undo="it was said")  # outlast: ignore[OL101] tests only
async def refuse(text: str) -> str:
    raise Refused("no_deal", text)


@activity(key="deal-lose/{text}", once_per="run", no_undo="it was said")  # outlast: ignore[OL101] tests only
async def lose(text: str) -> str:
    raise Perhaps(text)


@lookup
async def ask_model(text: str) -> str:
    return f"the model says {text}"


@deals.node(start=True)
async def begin(ctx: Context[Deal]) -> Literal["agree", "lose_it"]:
    text = ctx.state.text
    ctx.state.said.append(await ctx.do(ask_model, text))
    ctx.state.said.append(await ctx.do(tell, text))
    ctx.log("told", text)
    try:
        await ctx.do(refuse, text)
    except Refused as error:
        ctx.state.said.append(error.detail)
    ctx.state.said.append((await ctx.receive("said", Said)).text)
    return "agree" if ctx.state.more.get("agree") else "lose_it"


@deals.node
async def agree(ctx: Context[Deal]) -> None:
    text = ctx.state.text
    await ctx.approval(
        tell.plan(f"{text} !"), summary=text, by=role("finance"), within=timedelta(hours=96), risk="high",
        alternatives=[tell.plan(f"{text} ?")], editable=["text"], again=True,
    )  # fmt: skip


@deals.node
async def lose_it(ctx: Context[Deal]) -> None:
    await ctx.do(lose, ctx.state.text)


def filled(service: Service, text: str) -> dict[str, list[str]]:
    """Fill every field that a model, a supplier or a caller can fill, and return the ids for the pages."""
    runs = []
    for name, more in (("agree", {"agree": "yes"}), ("lost", {})):
        given = {"input": {"text": text, "more": {**more, text[:40]: text}}}
        answer = service.post("/v1/workflows/deal/runs", given, idempotency_key=f"deal-{name}")
        assert answer.status_code == 201, answer.text
        run = answer.json()["run"]
        service.waits(run)
        assert service.post(f"/v1/runs/{run}/signals/said", {"payload": {"text": text}}).status_code < 300
        runs.append(run)
    service.until("/v1/approvals?status=pending", lambda body: body["approvals"])
    service.until("/v1/attention", lambda body: body["attention"])
    approval = service.get("/v1/approvals?status=pending").json()["approvals"][0]["approval"]
    hook = service.post("/v1/webhooks", {"url": "https://93.184.216.34/hook", "name": text[:60]})
    webhook = [hook.json()["webhook"]] if hook.status_code == 201 else []
    rows = [each for run in runs for each in service.get(f"/v1/runs/{run}/effects").json()["effects"]]
    effects = [each["effect"] for each in rows if "effect" in each] or [effect_id(runs[0], 1, "tell")]
    return {
        "run": runs, "approval": [approval], "effect": [effects[0], effects[-1]], "webhook": webhook, "name": ["deal"],
        "number": ["1", "2"], "reason": ["effect_uncertain"], "signal": ["said"], "part": ["request", "answer"],
    }  # fmt: skip


def addresses(ids: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Return each page with a name that does not depend on ids. Every GET route below /ui occurs."""
    for route in (route for router in ROUTERS for route in router.routes):
        if not isinstance(route, PageRoute) or isinstance(route, OpenPageRoute) or "GET" not in route.methods:
            continue
        names = re.findall(r"{(\w+)}", route.path)
        paths = [(route.path, route.path)]
        for name in names:
            paths = [
                (f"{label} {n}", path.replace(f"{{{name}}}", id_))
                for label, path in paths
                for n, id_ in enumerate(ids.get(name, ["nothing"]))
            ]
        yield from paths


COUNT = "document.querySelectorAll('*:not(g.cut, g.cut *, g.tick, g.tick *)').length"
"""Without the idle spans and the axis of a timeline: their number depends on how fast the machine is."""
STRANGERS = "document.querySelectorAll('script:not([nonce]), svg[onload], [onerror], [onclick], b[hx-get]').length"
REPORTS = """addEventListener("securitypolicyviolation", event =>
  console.error("policy: " + event.violatedDirective + " " + event.blockedURI + " " + event.sample))"""


def counted(service: Service, ids: dict[str, list[str]], page: Page) -> dict[str, tuple[int, str]]:
    """Open every page, and return its number of elements and its text. `open_page` fails on reports and dialogs."""
    page.add_init_script(REPORTS)
    found = {}
    for label, path in addresses(ids):
        if path == "/ui/live":
            continue
        answer = service.get(path)
        if answer.status_code == 303:  # it leads to another page
            continue
        kind = answer.headers["content-type"]
        if not kind.startswith("text/html"):  # whole values, as data
            assert kind.startswith("application/json"), path
            assert answer.headers["x-content-type-options"] == "nosniff"
            continue
        assert answer.status_code in (200, 404, 409), (path, answer.text)
        page.goto(service.url + path, wait_until="load")
        found[label] = page.evaluate(COUNT), page.inner_text("body")
        assert page.evaluate(STRANGERS) == 0, path
    page.close()  # before its service ends
    return found


@pytest.mark.req("GATE-2")
def test_hostile_text_is_inert_on_every_page(
    tmp_path: Path, open_page: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages have as many elements as with plain text: no part of a text became an element.

    The story has an entry of ten elements for a wait for a worker of a second or longer, so on a busy machine one of
    the two runs has an entry more.
    """
    monkeypatch.setattr(course_steps, "WORKER_WAIT", DAY)
    found = []
    for n, text in enumerate((PLAIN, HOSTILE)):
        with Running(f"sqlite:{tmp_path / f'{n}.db'}", [deals]) as service:
            ids = filled(service, text)
            found.append(counted(service, ids, open_page(expects="status of 40[49]")))
            if text is HOSTILE:
                shown = [service.get(path).text for _, path in addresses(ids) if path != "/ui/live"]
                assert sum("alert(1)" in each for each in shown) >= 5, "the texts are on the pages"
                assert not any("<script>alert(1)" in each for each in shown if each.startswith("<!doctype"))
    plain, hostile = found
    assert plain.keys() == hostile.keys()
    differ = {label: (plain[label], hostile[label]) for label in plain if plain[label][0] != hostile[label][0]}
    assert not differ, "\n".join(f"{label}: {one}\n{other}" for label, (one, other) in differ.items())
    assert len(found[0]) > 15


def test_an_injected_element_does_nothing(service: Service, chromium: Browser) -> None:
    """An element without the nonce of its page is inert, even if markup came into the page."""
    context = chromium.new_context()
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"{service.url}/ui/runs")
    expect(page.locator("#live-state")).to_have_text("live")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "injected" in request.url else None)
    put = """([name, nonce]) => {
      const made = document.createElement("button");
      made.id = name; made.textContent = name; made.setAttribute("hx-post", "/ui/logout?injected=" + name);
      if (nonce !== null) made.setAttribute("hx-nonce", nonce);
      document.getElementById("content").append(made);
      htmx.process(made);
    }"""
    nonce = page.locator("#live").evaluate("each => each.getAttribute('hx-nonce')")
    for name, given in (("none", None), ("wrong", "AAAAAAAAAAAAAAAAAAAAAA"), ("right", nonce)):
        page.evaluate(put, [name, given])
    with page.expect_request(re.compile("injected=right")):
        for name in ("none", "wrong", "right"):
            page.click(f"#{name}")
    assert [each.rpartition("=")[2] for each in asked] == ["right"]
    assert [each for name in ("none", "wrong") for each in said if f"blocked <button#{name}>" in each], said
    context.close()


@pytest.mark.req("GATE-2")
def test_injected_scripts_are_reported_and_not_executed(service: Service, chromium: Browser) -> None:
    """The policy itself is effective: without it, the other tests would find nothing."""
    context = chromium.new_context()
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
    page.add_init_script(REPORTS)
    page.goto(f"{service.url}/ui/keys")
    refused = page.evaluate("""() => {
      const style = document.createElement("p"); style.setAttribute("style", "color:red"); document.body.append(style);
      try { document.createElement("img").setAttribute("onerror", "alert(1)"); } catch (error) { return error.name; }
    }""")
    assert refused == "TypeError"
    with page.expect_event("console", lambda message: "script-src" in message.text):
        page.evaluate("() => { const made = document.createElement('a'); made.href = 'javascript:alert(1)';"
                      " document.body.append(made); made.click(); }")  # fmt: skip
    assert sum(each.startswith("policy: ") for each in said) >= 2, said
    assert not any(each.startswith("dialog") for each in said)
    context.close()


class OtherSite:
    """Site of an attacker: http://localhost, while the service is http://127.0.0.1. It serves `body`."""

    def __init__(self) -> None:
        site = self
        self.body = ""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = site.body.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://localhost:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.req("GATE-2")
def test_a_framed_page_is_refused(service: Service, chromium: Browser) -> None:
    context = chromium.new_context()
    page = context.new_page()
    with OtherSite() as site:
        site.body = f'<iframe src="{service.url}/ui/keys"></iframe>'
        with page.expect_event("console", lambda message: "frame-ancestors" in message.text):
            page.goto(site.url)
        assert page.frames[1].locator("main").count() == 0
    context.close()


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"])
def test_a_page_of_another_site_sends_no_form(service: Service, chromium: Browser, kind: str) -> None:
    """A real browser marks the request, for each type of content that a form can send."""
    run = service.start("wish", text="hi")
    before = service.waits(run)
    target = f"{service.url}/ui/runs/{run}/cancel"
    context = chromium.new_context()
    page = context.new_page()
    with OtherSite() as site:
        fields = '<input name="reason" value="x"><button>Go</button>'
        site.body = f'<form method="post" enctype="{kind}" action="{target}">{fields}</form>'
        page.goto(site.url)
        with page.expect_response(target) as answer:
            page.click("button")
        assert answer.value.status == 403
    after = service.get(f"/v1/runs/{run}").json()
    assert (after["version"], after["asked"]) == (before["version"], before["asked"]), "nothing was changed"
    context.close()

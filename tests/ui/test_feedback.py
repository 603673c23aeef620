"""Feedback of pages: the line about a form, the changes of an edit, and texts of strangers as they are."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shlex import split
from typing import Any

import pytest
from markupsafe import Markup
from playwright.sync_api import Page, expect

from outlast.core.approvals import Actor
from outlast.core.rows.limit_rows import Pause
from outlast.core.rows.run_rows import RUN
from outlast.insight.attention_reads import breaker_item
from outlast.insight.confusables import marked
from outlast.models.runs import RunDetail
from outlast.runtime import operations
from outlast.store.queries import Load
from outlast.store.sqlite.store import SqliteStore
from outlast.ui.app import ROUTERS
from outlast.ui.rendering import command_line, environment
from outlast.ui.routes.run_actions import ACTIONS
from outlast.ui.shown_text import CONTROLS, ShownText, isolated, isolated_pieces, with_links
from tests.service.conftest import Running, Service
from tests.ui.html_page import HtmlForm, HtmlPage
from tests.ui.test_run_pages import flagged

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
DONE = {each.name: each.done for each in ACTIONS}
RLO = "\u202e"
ODD = f"pay to {RLO}evil\u202c acme"


def first_line(text: str) -> str:
    """Return the text of the first element of a page, behind its header."""
    inside = text.partition('<main id="content"')[2].partition(">")[2].lstrip()
    return HtmlPage(inside.partition("</p>")[0]).text


def send(service: Service, form: HtmlForm, button: tuple[str, str] | None = None) -> str:
    """Submit a form and return the page that it leads to."""
    answer = service.client.post(form.action, content=form.body(button), headers=FORM)
    assert answer.status_code == 303, answer.text
    return service.get(answer.headers["location"]).text


def form_of(service: Service, page: str, action: str) -> HtmlForm:
    """Return the form of a page whose address ends so."""
    return next(each for each in HtmlPage(service.get(page).text).forms if each.action.endswith(action))


# --- what was done ---------------------------------------------------------------------------------
def test_an_approval_says_that_it_worked_and_not_what_would_happen(service: Service) -> None:
    approval, _ = service.asked()
    page = f"/ui/approvals/{approval}"
    text = send(service, form_of(service, page, "/decision"), ("decision", "approve"))
    assert first_line(text).startswith("Approved by you: Refund 4200 · ")
    again = service.get(page).text
    assert 'id="done"' not in again and "If you approve" not in HtmlPage(again).text
    assert again.index("Approved by you: Refund 4200") < again.index("<h1"), "a decided page begins with its decision"


def test_a_rejection_and_an_edit_say_what_was_done(service: Service) -> None:
    approval, _ = service.asked()
    form = form_of(service, f"/ui/approvals/{approval}", "/decision").set(reason="no")
    rejected = first_line(send(service, form, ("decision", "reject")))
    assert rejected == "Rejected by you: Refund 4200 · Nothing is called. · Open"
    approval, _ = service.asked()
    form = form_of(service, f"/ui/approvals/{approval}", "/decision").put({"changes/cents": "850"})
    shown = service.client.post(form.action, content=form.body(("decision", "approve")), headers=FORM)
    assert shown.status_code == 200 and "Nothing is approved yet." in HtmlPage(shown.text).text
    form = next(each for each in HtmlPage(shown.text).forms if each.action.endswith("/decision"))
    approved = first_line(send(service, form, ("decision", "approve")))
    assert approved.startswith("Approved by you with your values: pay_back cents: 850, A-17 · ")


@pytest.mark.parametrize(
    ("page", "action", "fields", "button", "done"),
    [
        ("/ui/approvals/{approval}", "/claim", {}, None, "The others see that you review it."),
        (
            "/ui/approvals/{approval}", "/reassign", {"to": "finance", "why": "away"}, None,
            "Reassigned: finance decides now.",
        ),
        ("/ui/runs/{run}/actions", "/cancel", {"reason": "no longer needed"}, None, DONE["cancel"]),
        (
            "/ui/runs/{broken}", "/answer", {"text": "stop it"}, ("choice", "fail"),
            "Answered exception of run {broken}: fail. A worker carries it out.",
        ),
        (
            "/ui/runs/{second}", "/assign", {"to": "ben"}, None,
            "The item exception of run {second} is assigned to ben.",
        ),
        (
            "/ui/runs/{run}/signals/hear", "/signals/hear", {"payload": "{}"}, None,
            "Sent the signal hear. It is stored until the run reads it.",
        ),
    ],
)  # fmt: skip
def test_each_form_leads_to_a_page_that_says_what_was_done(
    service: Service, page: str, action: str, fields: dict[str, str], button: tuple[str, str] | None, done: str
) -> None:
    approval, _ = service.asked()
    run = service.get(f"/v1/approvals/{approval}").json()["run"]
    ids = {"approval": approval, "run": run}
    for name in ("broken", "second"):
        if f"{{{name}}}" in page:
            ids[name] = flagged(service)
    form = form_of(service, page.format(**ids), action).put(fields)
    assert first_line(send(service, form, button)) == done.format(**ids)


def test_a_form_for_several_runs_says_for_how_many_it_was_done(service: Service) -> None:
    """Such a form leads to the page with the outcome of each."""
    runs = [flagged(service) for _ in range(2)]
    form = HtmlPage(service.get("/ui/attention/exception").text).form("many")
    assert "item" not in dict(form.fields), "nothing is ticked beforehand"
    boxes = re.findall(r'name="item" value="([^"]+)"', service.get("/ui/attention/exception").text)
    chosen = [*form.fields, *(("item", box) for box in boxes if box.split(" ")[0] in runs)]
    some = HtmlForm(form.id, form.action, form.method, chosen, [("choice", "fail")]).put({"text": "no line"})
    answer = service.client.post(some.action, content=some.body(("choice", "fail")), headers=FORM)
    assert first_line(answer.text) == "2 of 2 answered: fail."
    runs = [service.start("wish", text="a"), service.start("wish", text="b")]
    marked_runs = [("run", run) for run in runs]
    token = [pair for pair in some.fields if pair[0] not in ("item", "text")]
    first = HtmlForm("", "/ui/many/cancel", "post", [*token, *marked_runs], [])
    listed = service.client.post(first.action, content=first.body(), headers=FORM)
    confirm = next(each for each in HtmlPage(listed.text).forms if each.action.endswith("/many/cancel"))
    done = service.client.post(confirm.action, content=confirm.put({"reason": "no use"}).body(), headers=FORM)
    assert first_line(done.text) == "2 of 2 are asked to cancel."


def test_every_page_that_a_form_leads_to_has_a_first_line_for_it() -> None:
    """A redirect without a text is an error of types: this test finds a form whose route makes its own redirect."""
    forms = [
        route for router in ROUTERS for route in router.routes
        if "POST" in getattr(route, "methods", ()) and "/login" not in route.path and "/logout" not in route.path
    ]  # fmt: skip
    assert len(forms) > 20
    for route in forms:
        code: Any = route.endpoint.__code__  # type: ignore[attr-defined]
        assert "RedirectResponse" not in code.co_names, route.path


def test_no_one_else_sees_or_writes_the_first_line(tmp_path: Path) -> None:
    with Running(f"sqlite:{tmp_path / 'o.db'}") as service:
        approval, _ = service.asked()
        form = form_of(service, f"/ui/approvals/{approval}", "/claim")
        answer = service.client.post(form.action, content=form.body(), headers=FORM)
        cookie = answer.headers["set-cookie"]
        assert "httponly" in cookie.lower() and "review" not in cookie
        service.client.cookies.clear()
        service.client.cookies.set("outlast-done", "The refund was approved.")
        assert 'id="done"' not in service.get("/ui/").text


MANY_CHANGES = """() => {
  const row = document.querySelector('#difference tbody tr');
  for (let n = 0; n < 80; n++) row.after(row.cloneNode(true));
}"""


# --- edits -----------------------------------------------------------------------------------------
def test_the_difference_is_on_the_screen_with_its_button(service: Service, open_page: Callable[..., Page]) -> None:
    """The second press approved unseen: the difference was 1,700 pixels below."""
    page = open_page(width=360)
    page.set_viewport_size({"width": 360, "height": 780})
    approval, _ = service.asked()
    page.goto(f"{service.url}/ui/approvals/{approval}")
    page.locator(".edit summary").click()
    page.locator("input[name='changes/cents']").fill("850")
    button, difference = page.locator("#approve"), page.locator("#difference")
    expect(button).to_have_text("Approve with changes: cents: 850, A-17 (asked cents: 4200)")
    expect(button).to_be_enabled()
    for part in (button, difference, page.locator("#difference ins")):
        expect(part).to_be_in_viewport()
    expect(page.locator("#changed-sentence")).to_have_text("You change it: pay_back cents: 850, A-17, not cents: 4200")
    expect(page.locator("tr.changed .old")).to_have_text("4200")
    page.evaluate(MANY_CHANGES)
    bar = page.locator(".bar.decide").bounding_box()
    assert bar is not None and bar["height"] < 780, "many changes scroll, and leave the page and the buttons in sight"
    expect(button).to_be_in_viewport()


# --- texts of strangers ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        (ODD, '<bdi class="any">pay to <bdi>[U+202E]</bdi>evil<bdi>[U+202C]</bdi> acme</bdi>'),
        ("\u0645\u0631\u062d\u0628\u0627", '<bdi class="any">\u0645\u0631\u062d\u0628\u0627</bdi>'),
        ("a\x1b[31mb\x00", "a[U+001B][31mb[U+0000]"),
        ("<b>\u05d0", '<bdi class="any">&lt;b&gt;\u05d0</bdi>'),
        ("x" * 30, f'<span class="any">{"x" * 30}</span>'),
        ("日本語 und Grüße", "日本語 und Grüße"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ],
)
def test_a_text_is_isolated_and_its_controls_are_named(text: str, shown: str) -> None:
    template = environment().from_string("{{ text }}")
    assert template.render(text=text) == shown


def test_a_marked_text_shows_the_code_point_and_not_the_character() -> None:
    found = str(isolated_pieces(marked(ODD)))
    assert RLO not in found and "\u202c" not in found
    assert "<bdi>U+202E</bdi>" in found and "RIGHT-TO-LEFT OVERRIDE is invisible" in found
    assert str(isolated_pieces([("to ", ""), ("\u05d0", "")])) == 'to <bdi class="any">\u05d0</bdi>'


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("<p>{{ x }}</p>", "<p>{{ ( x ) | isolated }}</p>"),
        ('<p title="{{ x }}">', '<p title="{{ x }}">'),
        ('<input value="{{ x }}"{% if a > b %} checked{% endif %}>{{ y }}',
         '<input value="{{ x }}"{% if a > b %} checked{% endif %}>{{ ( y ) | isolated }}'),
        ("<textarea>\n{{ x }}</textarea>{{ y }}", "<textarea>\n{{ x }}</textarea>{{ ( y ) | isolated }}"),
        ("<title>{{ x }}</title>", "<title>{{ ( x ) | visible }}</title>"),
        ("<svg><text>{{ x }}</text></svg><b>{{ y }}</b>",
         "<svg><text>{{ ( x ) | visible }}</text></svg><b>{{ ( y ) | isolated }}</b>"),
        ('{% macro f(x) %}id="of-{{ x }}"{% endmacro %}', '{% macro f(x) %}id="of-{{ x }}"{% endmacro %}'),
        ("<p {{ x }}>{{ y }}</p>", "<p {{ x }}>{{ ( y ) | isolated }}</p>"),
        ("{# {{ x }} #}{{- x -}}", "{# {{ x }} #}{{- ( x ) | isolated -}}"),
    ],
)  # fmt: skip
def test_every_expression_between_tags_is_shown_as_text_of_strangers(source: str, shown: str) -> None:
    assert ShownText(environment()).preprocess(source, "planted.html") == shown
    assert isolated(environment().from_string("<b>x</b>").module.__html__()) == "<b>x</b>"


def test_no_page_has_a_control_character_of_a_stranger(service: Service) -> None:
    """In the heading, the list, the arguments and the page of the run, where it read `live` for `evil`."""
    run = service.start("refund", order_id=ODD, cents=4200)
    approval, _ = service.asked(run)
    service.start("wish", text=ODD)
    pages = ("/ui/", "/ui/approvals", f"/ui/approvals/{approval}", f"/ui/runs/{run}", f"/ui/runs/{run}/data",
             f"/ui/runs/{run}/events", "/ui/runs", f"/ui/runs/{run}/input", f"/ui/runs?q={ODD}")  # fmt: skip
    for address in pages:
        text = re.sub(r'value="[^"]*"', "", service.get(address).text)
        assert not CONTROLS.search(text), address
    assert "U+202E" in service.get(f"/ui/approvals/{approval}").text


BROKEN_WORDS = """() => [...document.querySelectorAll('.state, th, button, time')].filter(each => {
  const range = document.createRange();
  range.selectNodeContents(each);
  let lines = 0, end = -Infinity;  // boxes above one another: a link in a cell is a box around its text
  for (const one of [...range.getClientRects()].sort((a, b) => a.top - b.top)) {
    if (one.top > end - 2) lines++;
    end = Math.max(end, one.bottom);
  }
  return !each.querySelector('.unseen') && !each.textContent.trim().includes(' ') && lines > 1;
}).map(each => each.textContent)"""


SQUEEZED = """() => {
  const row = document.querySelector('main').appendChild(document.createElement('table')).insertRow();
  row.closest('table').className = 'list';
  const texts = [['state', 'REQUIRES_ATTENTION'], ['', 'checkpoint'], ['', 'many words '.repeat(300)]];
  row.insertCell().appendChild(document.createElement('code')).textContent = 'x'.repeat(400);
  const made = texts.map(([kind, text]) => {
    const each = row.insertCell().appendChild(document.createElement('span'));
    each.className = kind;
    each.textContent = text;
    return each;
  });
  return made.map(each => {
    const range = document.createRange();
    range.selectNodeContents(each);
    return new Set([...range.getClientRects()].map(one => Math.round(one.top))).size;
  });
}"""


# --- codes of errors --------------------------------------------------------------------------------
def test_a_code_of_an_error_leads_to_its_documentation(service: Service) -> None:
    link = '<a href="https://outlast.dev/e/OUT-103" rel="noopener noreferrer">OUT-103</a>'
    shown = with_links(isolated_pieces(marked("OUT-103  <b>cents is no number</b> XOUT-1034")))
    assert shown == f"{link}  &lt;b&gt;cents is no number&lt;/b&gt; XOUT-1034"
    titled = Markup('<mark title="OUT-103">a</mark>')
    assert with_links(titled) == titled, "an attribute has no link"
    assert 'href="https://outlast.dev/e/OUT-401"' in service.get("/ui/runs/nobody").text


# --- words and commands ----------------------------------------------------------------------------
@pytest.mark.parametrize("width", [360, 900, 1440])
def test_words_are_not_broken(service: Service, open_page: Callable[..., Page], width: int) -> None:
    run = flagged(service)
    service.asked()
    page = open_page(width=width)
    for address in ("/ui/runs", f"/ui/runs/{run}", f"/ui/runs/{run}/events", "/ui/workers", "/ui/effects?every=true"):
        page.goto(f"{service.url}{address}")
        broken = page.evaluate(BROKEN_WORDS)
        assert broken == [], address
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, f"{address} scrolls sideways"


def test_a_long_cell_does_not_squeeze_the_words_beside_it(service: Service, open_page: Callable[..., Page]) -> None:
    """The least width of a cell is that of its longest word, and not of a letter."""
    page = open_page(width=900)
    page.goto(f"{service.url}/ui/runs")
    assert page.evaluate(SQUEEZED)[:2] == [1, 1]
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, "an id breaks anywhere"


def test_a_command_quotes_each_of_its_words(service: Service) -> None:
    page = HtmlPage(service.get("/ui/runs?workflow=$(id)&q=a'b").text).text
    assert "outlast runs ls 'workflow:$(id) a'\"'\"'b'" in page
    words = ["outlast", "signal", "run-1", "a b", "--data", "{…}", "--reason", "…", "RUN…", "x;y…", ""]
    assert split(command_line(words)) == words
    assert command_line(["--reason", "…"]) == "--reason …"


def test_the_commands_of_a_breaker_quote_its_provider() -> None:
    pause = Pause("default", "provider/a b$(id)", 1, 1, "ops", "away", 0, "breaker")
    for choice in breaker_item(pause, 1).choices:
        assert split(choice.command)[2:4] == ["provider", "a b$(id)"]


def test_templates_give_commands_as_lists_of_words() -> None:
    """Commands that the service has made are the only others."""
    made = ("choice.command", "each.command", "given.command", "each")
    loader: Any = environment().loader
    for name in environment().list_templates():
        if name.endswith(".html") and name != "parts.html":
            source = loader.get_source(environment(), name)[0]
            for given in re.findall(r"parts\.command\(([^\[)]*)", source):
                assert given == "" or given in made, f"{name}: {given}"
            assert not re.search(r'parts\.empty\([^)]*, "outlast', source), name


# --- one page, one read ----------------------------------------------------------------------------
@pytest.fixture
def reads(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the runs whose row was read, once for each read."""
    found: list[str] = []
    run_rows, query = SqliteStore.run_rows, SqliteStore.query

    async def counted(self: SqliteStore, keys: Any) -> Any:
        found.extend(run for _, run in keys)
        return await run_rows(self, keys)

    async def asked(self: SqliteStore, query_: Any) -> Any:
        if isinstance(query_, Load) and query_.kind is RUN:
            found.append(str(query_.key[1]))
        return await query(self, query_)

    monkeypatch.setattr(SqliteStore, "run_rows", counted)
    monkeypatch.setattr(SqliteStore, "query", asked)
    return found


def test_the_page_of_a_run_is_of_one_state_of_it(service: Service, reads: list[str]) -> None:
    run = flagged(service)
    reads.clear()
    assert service.get(f"/ui/runs/{run}").status_code == 200
    assert reads.count(run) == 1


@pytest.mark.parametrize("page", ["/ui/approvals/{approval}", "/ui/runs/{run}", "/ui/runs/{run}/people"])
def test_a_page_about_a_run_that_asks_is_of_one_state_of_it(service: Service, reads: list[str], page: str) -> None:
    """A decision is offered on the page of the approval and on that of its run."""
    approval, _ = service.asked()
    run = service.get(f"/v1/approvals/{approval}").json()["run"]
    service.until(f"/v1/runs/{run}", lambda body: body["status"] == "waiting")
    reads.clear()
    shown = service.get(page.format(approval=approval, run=run))
    assert shown.status_code == 200 and run in shown.text
    assert reads.count(run) == 1


def test_the_acts_of_a_run_have_every_approval(tmp_path: Path) -> None:
    """The first 500 were shown as all."""
    path = tmp_path / "outlast.db"
    with Running(f"sqlite:{path}") as service:
        approval, tag = service.asked()
        run = service.get(f"/v1/approvals/{approval}").json()["run"]
        service.decide(approval, tag, "reject").raise_for_status()
        service.ended(run)
        with closing(sqlite3.connect(path, timeout=60)) as db, db:
            columns = [name for _, name, *_ in db.execute("PRAGMA table_info(approval)")]
            copied = ", ".join("id || '-' || n" if name == "id" else name for name in columns)
            db.execute(
                f"WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < 600)"
                f" INSERT INTO approval ({', '.join(columns)}) SELECT {copied} FROM approval, count"
            )
        text = HtmlPage(service.get(f"/ui/runs/{run}/people").text).text
        assert "1 to 50 of 602" in text, "the start, and 601 decisions"


def test_a_page_never_shows_a_run_as_running_and_ended(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ended between the reads of its page: it said RUNNING beside "an ended run does not change"."""
    run = service.start("wish", text="a")
    service.until(f"/v1/runs/{run}", lambda body: any(wait["kind"] == "signal" for wait in body["waiting_for"]))
    detail_from = operations.detail_from

    async def slowly(rows: Any, facts: Any) -> RunDetail:
        found = await detail_from(rows, facts)
        ana = operations.Operations(rows.store, tenant=rows.tenant, actor=Actor("local:ana"), workflows={})
        await ana.cancel(run, reason="no longer needed")
        await ana.ended(run, within_s=60)
        return found

    monkeypatch.setattr(operations, "detail_from", slowly)
    text = HtmlPage(service.get(f"/ui/runs/{run}").text).text
    assert "an ended run does not change" not in text and "WAITING" in text

"""Saved views above the list of runs: saved, opened, replaced, removed and taken back, without JavaScript."""

import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Page, expect
from pydantic import SecretStr

from outlast.clocks import SystemClock
from outlast.core.limits import VIEWS_MAX
from outlast.service.identity import AuthSettings, authenticator
from tests.ui.conftest import Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_feedback import FORM, first_line, form_of, send
from tests.ui.test_run_pages import PAGE_MAX
from tests.ui.test_runs_list import rows
from tests.ui.test_sign_in import VIC, VIC_LINE, Visitor

QUERY = "status:waiting workflow:wish"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Running(f"sqlite:{tmp_path_factory.mktemp('views') / 'outlast.db'}") as service:
        service.waits(service.start("wish", text="a"))
        service.ended(service.start("order", number="1"))
        yield service


@pytest.fixture(autouse=True)
def no_view(place: Service) -> None:
    """Let each test begin without a view."""
    for each in place.get("/v1/views").json()["views"]:
        place.post("/v1/views/remove", {"name": each["name"]})


def listed(query: str) -> str:
    return f"/ui/runs?{urlencode({'q': query})}"


def chips(text: str) -> dict[str, str]:
    """Return the views that a page shows at once, by name, with their addresses."""
    found = re.search(r'<ul class="chips" id="views">(.*?)</ul>', text, re.DOTALL)
    links = re.findall(r'<a href="([^"]+)"[^>]*>(.*?)</a>', found[1]) if found else []
    return {HtmlPage(name).text: unescape(href) for href, name in links}


def save(service: Service, query: str, name: str) -> str:
    """Save the query of a page under a name, and return the page that follows."""
    return send(service, form_of(service, listed(query), "/ui/views").put({"name": name}))


def test_a_query_is_saved_and_its_view_lists_the_same_runs(place: Service) -> None:
    assert 'id="views"' not in place.get("/ui/runs").text and "save-view" not in place.get("/ui/runs").text
    text = save(place, QUERY, "open wishes")
    assert first_line(text) == "You saved the view open wishes. All of the tenant see it here."
    assert chips(text) == {"open wishes": "/ui/runs?view=open%20wishes"}
    assert rows(text) == rows(place.get(listed(QUERY)).text) and len(rows(text)) == 1
    assert f'value="{QUERY}"' in text and f"outlast runs ls '{QUERY}'" in unescape(text)
    for address in ("/ui/runs?view=open+wishes", listed(QUERY)):
        assert re.search(r'aria-current="true">open wishes', place.get(address).text), address
    other = place.get("/ui/runs").text
    assert chips(other) and not re.search(r'aria-current="true">open wishes', other)
    assert rows(place.get("/ui/runs?view=open+wishes&q=status%3Afailed").text) == []
    narrowed = place.get("/ui/runs?view=open+wishes&q=is%3Atop").text
    assert f'value="{QUERY} is:top"' in narrowed and not re.search(r'aria-current="true">open wishes', narrowed)


def test_a_saved_name_says_what_it_replaces(place: Service) -> None:
    save(place, QUERY, "mine")
    line = first_line(save(place, "status:completed", " mine "))
    assert line.startswith(f"You saved the view mine. All of the tenant see it here. Before, it was {QUERY}, saved by ")
    assert [each["query"] for each in place.get("/v1/views").json()["views"]] == ["status:completed"]


def test_a_removed_view_can_be_saved_again(place: Service) -> None:
    save(place, QUERY, "mine")
    text = send(place, form_of(place, "/ui/runs?view=mine", "/views/remove"))
    assert first_line(text) == "You removed the view mine. To take it back, save its query again below."
    assert not chips(text) and f'value="{QUERY}"' in text and '<details id="save-view" open>' in text
    form = next(each for each in HtmlPage(text).forms if each.action.endswith("/ui/views"))
    assert dict(form.fields)["name"] == "mine"
    assert chips(send(place, form)) == {"mine": "/ui/runs?view=mine"}
    assert place.get("/ui/runs?view=gone").status_code == 404


def test_a_view_that_another_person_has_changed_is_not_removed(place: Service) -> None:
    save(place, QUERY, "mine")
    form = form_of(place, "/ui/runs?view=mine", "/views/remove")
    place.post("/v1/views", {"name": "mine", "query": "status:failed"})
    answer = place.client.post(form.action, content=form.body(), headers=FORM)
    assert answer.status_code == 409 and "has changed since you saw it" in answer.text
    assert [each["query"] for each in place.get("/v1/views").json()["views"]] == ["status:failed"]


def test_a_view_that_cannot_be_read_any_more_says_why_and_can_be_removed(place: Service) -> None:
    place.post("/v1/views", {"name": "by colour", "query": "colour:red"})
    answer = place.get("/ui/runs?view=by+colour")
    assert answer.status_code == 422 and "no workflow declares the attribute" in answer.text
    assert 'value="colour:red"' in answer.text and re.search(r'aria-current="true">by colour', answer.text)
    assert 'id="view-save"' not in answer.text
    form = next(each for each in HtmlPage(answer.text).forms if each.action.endswith("/views/remove"))
    assert first_line(send(place, form)) == "You removed the view by colour, whose query was colour:red."


@pytest.mark.parametrize("name", ["\u200b", "late\u202eorders"])
def test_a_name_that_is_refused_is_a_page_that_keeps_it(place: Service, name: str) -> None:
    form = form_of(place, listed(QUERY), "/ui/views").put({"name": name})
    answer = place.client.post(form.action, content=form.body(), headers=FORM)
    assert answer.status_code == 422 and "cannot name a view" in answer.text and QUERY in answer.text
    assert not place.get("/v1/views").json()["views"]


def test_all_views_of_a_tenant_are_on_the_page(place: Service) -> None:
    for n in range(VIEWS_MAX):
        place.post("/v1/views", {"name": f"{n:03} of {'a long name ' * 4}w", "query": f"status:waiting w{n}"})
    text = place.get("/ui/runs").text
    assert len(text.encode()) < PAGE_MAX
    assert len(chips(text)) == 8 and '<summary>92 more<span class="unseen"> views</span></summary>' in text
    assert text.count("/ui/runs?view=") == VIEWS_MAX
    late = place.get(listed("status:waiting w77")).text
    assert len(chips(late)) == 9 and re.search(r'aria-current="true"[^>]*>077', late)


def test_text_of_a_view_is_text(place: Service) -> None:
    name = '<b>"&\u05d0'
    place.post("/v1/views", {"name": name, "query": 'status:waiting "<i>"'})
    text = place.get(f"/ui/runs?view={quote(name)}").text
    assert '<bdi class="any">&lt;b&gt;&#34;&amp;\u05d0</bdi>' in text and "<i>" not in text and name not in text


def test_a_viewer_opens_views_and_has_no_form(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'outlast.db'}"
    with Running(store) as before:
        before.start("wish", text="a")
        before.post("/v1/views", {"name": "open wishes", "query": "workflow:wish"})
    who = authenticator(AuthSettings(tokens=SecretStr(VIC_LINE)), SystemClock())
    with Running(store, authenticator=who, worker=False) as service:
        vic = Visitor(service)
        vic.sign_in(VIC)
        text = vic.get("/ui/runs?view=open+wishes").text
        assert chips(text) == {"open wishes": "/ui/runs?view=open%20wishes"} and len(rows(text)) == 1
        assert "save-view" not in text and "view-remove" not in text
        fields = {"form_token": vic.token(), "name": "open wishes", "query": "workflow:wish"}
        for path in ("/ui/views", "/ui/views/remove"):
            assert vic.post(path, fields).status_code == 403
        assert chips(vic.get("/ui/runs").text)


def test_rows_begin_above_300_pixels_and_the_views_scroll_in_their_line(
    place: Service, open_page: Callable[..., Page]
) -> None:
    for n in range(20):
        place.post("/v1/views", {"name": f"declined cards of week {n}", "query": f"status:waiting w{n}"})
    place.post("/v1/views", {"name": "an open one", "query": QUERY})
    page = open_page()
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{place.url}/ui/runs?view=an+open+one")
    banner = page.locator(".banner").bounding_box()
    first = page.locator("table.runs tbody tr").first.bounding_box()
    assert first is not None and banner is not None and first["y"] - banner["height"] < 300
    page.locator("#save-view summary").click()
    page.locator("#view-remove-1").click()
    expect(page.locator("#done")).to_contain_text("You removed the view an open one.")
    expect(page.locator("#view-name")).to_have_value("an open one")
    page.locator("#view-save").click()
    expect(page.locator("#views [aria-current]")).to_have_text("an open one")
    page.set_viewport_size({"width": 360, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360

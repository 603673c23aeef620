"""The page of a run with children, and lists of them: names of others stay text, and each width has room for them."""

import html
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from outlast import Context, workflow
from tests.service.flows import Said
from tests.ui.conftest import Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_axe import complaints
from tests.ui.test_feedback import FORM
from tests.ui.test_hostile import HOSTILE, STRANGERS

pytestmark = pytest.mark.req("RUN-13")
CHILDREN = 30
WIDTHS = (360, 768, 1280)


@workflow
async def asks_a_supplier_whose_name_is_very_long_indeed(ctx: Context, text: str) -> str:
    if text == "broken":
        raise ValueError("the supplier has no address")
    return (await ctx.receive("said", Said)).text


@workflow
async def family(ctx: Context, text: str, count: int) -> str:
    child, names = (
        asks_a_supplier_whose_name_is_very_long_indeed,
        ["broken", text, "x" * 200, "аda (a Cyrillic letter)"],
    )
    for n in range(count):
        named = names[n] if n < len(names) else f"supplier-{n}"
        await ctx.start(child, child.arguments(named), key=f"{n:02} {named}"[:200], no_undo="it only asks")
    return await ctx.child("05 supplier-5").result()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose runs have children."""
    url = f"sqlite:{tmp_path_factory.mktemp('tree') / 'outlast.db'}"
    with Running(url, [family, asks_a_supplier_whose_name_is_very_long_indeed]) as running:
        yield running


@pytest.fixture(scope="module")
def root(service: Service) -> str:
    """A run with CHILDREN children, of which one needs a person."""
    run = service.start("family", text=HOSTILE, count=CHILDREN)
    service.until(f"/v1/runs/{run}/tree", lambda body: len(body["children"]) == CHILDREN)
    service.flagged(child(service, run, "00 broken"))
    return run


def child(service: Service, run: str, key: str) -> str:
    """Return the run of a child."""
    (found,) = [each["run"] for each in service.get(f"/v1/runs/{run}/tree").json()["children"] if each["key"] == key]
    return str(found)


def test_the_page_of_a_run_draws_its_tree_at_each_width(
    service: Service, root: str, open_page: Callable[..., Page]
) -> None:
    page = open_page(reduced_motion="reduce")
    page.goto(f"{service.url}/ui/runs/{root}/overview")
    expect(page.locator("#tree li")).to_have_count(CHILDREN)
    assert page.evaluate(STRANGERS) == 0
    assert [*complaints(page, "tree")] == []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#tree a").first.click()
    expect(page.locator("#child-of a")).to_have_text(root)
    assert [*complaints(page, "child")] == []


def test_the_explanation_of_the_root_leads_to_the_leaf(service: Service, root: str) -> None:
    found = service.get(f"/v1/runs/{root}/explain").json()
    leaf = child(service, root, "05 supplier-5")
    assert found["facts"]["path"] == f"{root} → {leaf}" and leaf in found["sentence"]
    assert f"outlast signal {leaf} said" in found["unblock"][0]


def test_the_list_filters_by_parent_and_root_and_says_so(service: Service, root: str) -> None:
    for name in ("parent", "root"):
        assert len(service.get(f"/v1/runs?{name}={root}").json()["runs"]) == CHILDREN
        page = service.get(f"/ui/runs?{name}={root}").text
        assert len(re.findall(r'<tr id="run-', page)) == CHILDREN and f"{name}:{root}" in page
        assert f"child of {root}" in page and f"outlast runs ls {name}:{root}" in html.unescape(page)
        for address in re.findall(r'href="(/ui/runs\?[^"]*)"', page):
            assert service.get(html.unescape(address)).status_code == 200, address
    page = service.get("/ui/runs?no_children=yes").text
    assert re.findall(r'<tr id="run-([^"]+)"', page) == [root] and "outlast runs ls is:top" in page


def test_the_board_names_the_parent_of_a_leaf_once(service: Service, root: str) -> None:
    broken = child(service, root, "00 broken")
    (item,) = service.get("/v1/attention").json()["attention"]
    assert (item["run"], item["parent"], item["holds_up"]) == (broken, root, 0), "the parent waits for another child"
    page = service.get("/ui/").text
    assert page.count('<form method="post" id="answer-') == 1, "the root has no item"
    assert f'child of <a class="id" href="/ui/runs/{root}"' in page


def test_a_child_is_detached_on_its_page(service: Service, root: str) -> None:
    run = child(service, root, "05 supplier-5")
    form = HtmlPage(service.get(f"/ui/runs/{run}/actions").text).form("detach-form").set(reason="it is on holiday")
    for _ in range(2):  # again changes nothing
        answer = service.client.post(form.action, content=form.body(), headers=FORM)
        assert answer.status_code == 303, answer.text
    service.flagged(root)
    (entry,) = service.get(f"/v1/runs/{root}").json()["attention"]
    assert "was detached and goes on alone: it is on holiday" in entry["detail"]
    service.waits(run)
    assert "; detached: it goes on alone</dd>" in service.get(f"/ui/runs/{run}/overview").text
    assert service.get(f"/ui/runs/{root}/overview").text.count('<span class="quiet">detached</span>') == 1
    refused = service.client.post(f"/ui/runs/{root}/detach", content=form.body(), headers=FORM)
    assert refused.status_code == 409 and "is no child" in refused.text

"""The demo in browsers to its award, with and without JavaScript; the history of a browser, and many tabs."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from examples.negotiation.samples import sample
from tests.e2e.helpers import when
from tests.e2e.over_http import Stage, stage
from tests.ui.conftest import Service

WITHIN_MS = 60_000
TABS = 8


@pytest.fixture(scope="module")
def auction(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, str]]:
    """Every process of the demo, and the address of its market."""
    with stage(tmp_path_factory.mktemp("story")) as made:
        yield made, made.open_all()


def signed_in(open_page: Callable[..., Page], made: Stage, name: str, path: str, **more: Any) -> Page:
    """Return a page of a caller who has signed in with their token on the way to a path."""
    page = open_page(**more)
    page.goto(made.url + path)
    page.fill("#credential", made.tokens[name])
    page.keyboard.press("Enter")
    page.wait_for_url(made.url + path)
    return page


def fill(page: Page, name: str, value: Any) -> None:
    """Type a value into the fields of a form, and add the rows that it needs."""
    if isinstance(value, dict) and not page.locator(f"[name='{name}/=']").count():
        for each in value:
            fill(page, f"{name}/{each}", value[each])
    elif isinstance(value, list):
        for n, each in enumerate(value):
            if not page.locator(f"[name^='{name}/{n}']").count():
                page.locator(f"button[value='add:{name}']").click()
                page.locator(f"[name^='{name}/{n}']").first.wait_for()
            fill(page, f"{name}/{n}", each)
    elif isinstance(value, dict):
        page.fill(f"[name='{name}']", json.dumps(value))
    else:
        field = page.locator(f"[name='{name}']")
        kind = field.first.evaluate("each => each.type")
        if kind == "select-one":
            field.select_option(str(value))
        elif kind == "radio":
            page.check(f"[name='{name}'][value='{value}']")
        else:
            field.fill(str(value))


def start(page: Page, made: Stage, market: str, reference: str) -> str:
    """Start a purchase by the form of its workflow and return the run."""
    page.goto(f"{made.url}/ui/workflows/negotiation")
    wanted = {**sample("leverage", market=market, today=datetime.now(UTC).date()), "reference": reference}
    fill(page, "input/purchase", wanted)
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(re.compile(r"/ui/runs/\w+"))
    return page.url.rpartition("/")[2]


def test_two_people_award_purchases_with_and_without_javascript(
    auction: tuple[Stage, str], open_page: Callable[..., Page]
) -> None:
    """Both purchases run at once. Ben decides the first one too late, and the second one without JavaScript."""
    made, market = auction
    ana = signed_in(open_page, made, "ana", "/ui/approvals")
    expect(ana.locator("#live-state")).to_have_text("live")
    buyer = signed_in(open_page, made, "buyer", "/ui/workflows/negotiation")
    run = start(buyer, made, market, "RFQ-1")
    plain = start(signed_in(open_page, made, "buyer", "/ui/runs", java_script_enabled=False), made, market, "RFQ-2")

    ana.goto(f"{made.url}/ui/approvals?run={run}")
    row = ana.locator(".inbox li > a")
    expect(row).to_be_visible(timeout=WITHIN_MS)  # without reload
    address = f"{made.url}{row.get_attribute('href')}"
    ben = signed_in(open_page, made, "ben", "/ui/approvals", expects="status of 409")
    ben.goto(address)
    ben.fill("#reason", "too dear")
    row.click()
    ana.fill("#reason", "under budget")
    expect(ana.locator("#again")).to_contain_text("(1 of 1 left)")
    ana.locator("#approve").click()
    ana.locator("#done a").click()
    expect(ana.locator("#decided")).to_contain_text("under budget")
    expect(ben.locator("#moved")).to_contain_text(re.compile("Approved by ana (.* ago|just now)"))  # without reload
    expect(ben.locator("#moved")).to_be_in_viewport()
    expect(ben.locator("#reject")).to_be_hidden()
    expect(ben.locator("#reason")).to_have_value("too dear")
    ana.goto(f"{made.url}/ui/runs/{run}")
    expect(ana.locator("main")).to_contain_text(re.compile("awarded", re.IGNORECASE), timeout=WITHIN_MS)

    still = signed_in(open_page, made, "ben", f"/ui/runs/{plain}", java_script_enabled=False)

    def seen(found: Locator) -> bool:
        still.reload()
        return found.count() > 0

    opens = still.get_by_role("link", name="Open the approval")
    when(lambda: seen(opens), made.said)
    opens.click()
    still.fill("#reason", "within the limit")
    still.locator("[name=shown_at]").evaluate("each => { each.value -= 1000; }")  # a person has read the page
    still.locator("#approve").click()
    still.locator("#done a").click()
    expect(still.locator("#decided")).to_contain_text("within the limit")
    still.goto(f"{made.url}/ui/runs/{plain}")
    when(lambda: seen(still.locator("main", has_text=re.compile("awarded", re.IGNORECASE))), made.said)


def test_back_forward_and_reload_keep_place_and_filters(service: Service, page: Page) -> None:
    for number in range(60):
        service.start("order", number=f"b{number}")
    page.goto(f"{service.url}/ui/runs?workflow=order")
    page.locator("a[rel=next]").click()
    page.wait_for_url(re.compile("cursor="))
    address, row = page.url, page.locator("tbody tr").last
    name = row.get_attribute("id")
    row.scroll_into_view_if_needed()
    row.locator("a[href*='/ui/runs/']").first.click()
    page.wait_for_url(re.compile(r"/ui/runs/\w+"))
    page.go_back()
    assert page.url == address
    expect(page.locator(f"#{name}")).to_be_in_viewport()
    page.go_forward()
    expect(page.locator("h1")).to_contain_text(str(name).removeprefix("run-"))
    page.go_back()
    page.reload()
    assert page.url == address and "workflow=order" in address
    expect(page.locator(f"#{name}")).to_be_in_viewport()


HIDDEN = """(() => {
    let hidden = false;
    Object.defineProperty(document, "hidden", {get: () => hidden});
    Object.defineProperty(document, "visibilityState", {get: () => hidden ? "hidden" : "visible"});
    window.hide = value => { hidden = value; document.dispatchEvent(new Event("visibilitychange")); };
})()"""
"""What a browser tells a tab behind another, because a browser without a window shows every tab."""


def test_eight_tabs_of_one_browser_stay_live(service: Service, open_page: Callable[..., Page]) -> None:
    first = open_page()
    first.context.add_init_script(HIDDEN)
    tabs = [first, *(first.context.new_page() for _ in range(TABS - 1))]
    for tab in tabs:  # a browser opens six connections to a host
        tab.goto(f"{service.url}/ui/runs")
        expect(tab.locator("#live-state")).to_have_text("live")
        tab.evaluate("hide(true)")
    run = service.start("wish", text="seen by all")
    for tab in tabs:
        tab.evaluate("hide(false)")
        expect(tab.locator(f"#run-{run}, #news").first).to_be_visible()
        tab.evaluate("hide(true)")

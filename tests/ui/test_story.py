"""The demo in a browser to its award, the history of the browser, and many tabs."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from examples.negotiation.samples import sample
from tests.e2e.over_http import Stage, stage
from tests.ui.conftest import Service

WITHIN_MS = 60_000
TABS = 8


@pytest.fixture(scope="module")
def auction(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, str]]:
    """Every process of the demo, and the address of its market."""
    with stage(tmp_path_factory.mktemp("story")) as made:
        yield made, made.open_all()


def signed_in(open_page: Callable[..., Page], made: Stage, name: str, path: str, **more: int) -> Page:
    """Return a page of a caller who has signed in with their token on the way to a path."""
    page = open_page(**more)
    page.goto(made.url + path)
    page.fill("#credential", made.tokens[name])
    page.keyboard.press("Enter")
    page.wait_for_url(made.url + path)
    return page


def fill(page: Page, name: str, value: Any) -> None:
    """Type a value into the fields of a form, and add the rows that it needs."""
    if page.locator(f"[name='{name}/=']").count():
        page.fill(f"[name='{name}']", json.dumps(value))
    elif isinstance(value, dict):
        for each in value:
            fill(page, f"{name}/{each}", value[each])
    elif isinstance(value, list):
        for n, each in enumerate(value):
            if not page.locator(f"[name^='{name}/{n}']").count():
                page.locator(f"button[value='add:{name}']").click()
                page.locator(f"[name^='{name}/{n}']").first.wait_for()
            fill(page, f"{name}/{n}", each)
    elif page.locator(f"select[name='{name}']").count():
        page.select_option(f"[name='{name}']", str(value))
    elif page.locator(f"[type=radio][name='{name}']").count():
        page.locator(f"[type=radio][name='{name}'][value='{value}']").check()
    else:
        page.fill(f"[name='{name}']", str(value))


def test_a_purchase_is_approved_and_awarded_by_buttons(
    auction: tuple[Stage, str], open_page: Callable[..., Page]
) -> None:
    made, market = auction
    board = signed_in(open_page, made, "ana", "/ui/approvals")
    expect(board.locator("#live-state")).to_have_text("live")
    buyer = signed_in(open_page, made, "buyer", "/ui/workflows/negotiation")
    fill(buyer, "input/purchase", sample("leverage", market=market, today=datetime.now(UTC).date()))
    buyer.get_by_role("button", name="Start", exact=True).click()
    buyer.wait_for_url(re.compile(r"/ui/runs/\w+"))
    run = buyer.url.rpartition("/")[2]
    row = board.locator("main a[href*='/ui/approvals/']").first
    expect(row).to_be_visible(timeout=WITHIN_MS)  # without reload
    row.click()
    board.fill("#reason", "under budget")
    expect(board.locator("#again")).to_contain_text("(1 of 1 left)")
    board.locator("#approve").click()
    expect(board.locator("main")).to_contain_text("approved")
    board.goto(f"{made.url}/ui/runs/{run}")
    expect(board.locator("main")).to_contain_text(re.compile("awarded", re.IGNORECASE), timeout=WITHIN_MS)


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

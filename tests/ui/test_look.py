"""The look of the pages: theme, density, ids that can be copied, and instants in the zone of the viewer."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import Service

GROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 28)"


@pytest.mark.parametrize("scripts", [True, False])
def test_a_person_chooses_a_theme(service: Service, open_page: Callable[..., Page], scripts: bool) -> None:
    page = open_page(scheme="light", java_script_enabled=scripts)
    page.goto(f"{service.url}/ui/runs?status=failed")
    page.click("#theme-dark")
    page.wait_for_url(f"{service.url}/ui/runs?status=failed")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.goto(f"{service.url}/ui/approvals")
    expect(page.locator("#theme-dark")).to_have_attribute("aria-pressed", "true")
    if scripts:
        assert page.evaluate(GROUND) == DARK
    page.click("#theme-system")
    assert page.locator("html").get_attribute("data-theme") is None
    if scripts:
        assert page.evaluate(GROUND) == LIGHT


def test_an_unknown_theme_is_refused_and_never_shown(service: Service) -> None:
    page = service.get("/ui/runs").text
    token = page.split('name="form_token" value="')[1].split('"')[0]
    sent = {"Origin": service.url, "Content-Type": "application/x-www-form-urlencoded"}
    refused = service.client.post("/ui/theme", content=f"form_token={token}&theme=%22x", headers=sent)
    assert refused.status_code == 422 and "themes are system, light, dark" in refused.text
    shown = service.client.get("/ui/runs", headers={"Cookie": 'outlast-theme="x onload=1"'}).text
    assert "data-theme" not in shown and "onload" not in shown


def test_a_tap_shows_an_instant_in_the_zone_of_the_viewer(service: Service, open_page: Callable[..., Page]) -> None:
    """A phone and a keyboard cannot read the title of an element."""
    run = service.start("job", rounds=1)
    service.ended(run)
    page = open_page(timezone_id="Asia/Tokyo", locale="en-US")
    page.goto(f"{service.url}/ui/runs")
    time = page.locator(f"tr[id='run-{run}'] time, li[id='run-{run}'] time").first
    expect(time).to_have_attribute("title", re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d GMT\+9"))
    time.click()
    assert "GMT+9" in time.inner_text()
    service.ended(service.start("job", rounds=1))
    expect(page.locator(".news")).to_be_visible()  # the list was refreshed
    assert "GMT+9" in time.inner_text()
    time.click()
    expect(time).to_have_text(re.compile(r"^(just now|\d+s ago)$"))


def test_tables_are_dense_and_fingers_have_room(service: Service, open_page: Callable[..., Page]) -> None:
    service.ended(service.start("job", rounds=1))
    page = open_page(width=1440)
    page.goto(f"{service.url}/ui/runs")
    size = page.evaluate("getComputedStyle(document.querySelector('table')).fontSize")
    assert 13 <= float(size.removesuffix("px")) <= 14
    phone = open_page(width=360, has_touch=True, is_mobile=True)
    phone.goto(f"{service.url}/ui/runs")
    heights = phone.evaluate("[...document.querySelectorAll('button:not(.copy)')].map(each => each.offsetHeight)")
    assert heights and min(height for height in heights if height) >= 44


def test_the_current_page_is_in_sight_in_rows_that_scroll(service: Service, open_page: Callable[..., Page]) -> None:
    run = service.start("job", rounds=1)
    service.ended(run)
    page = open_page(width=360)
    people = f"/ui/runs/{run}/people"
    for path, row in (("/ui/workers", ".top nav"), ("/ui/metrics/workers", ".tabs"), (people, ".tabs")):
        page.goto(service.url + path)
        seen = page.evaluate(
            """row => {
                const link = document.querySelector(row + " [aria-current]").getBoundingClientRect();
                const box = document.querySelector(row).getBoundingClientRect();
                return link.left >= box.left - 1 && link.right <= box.right + 1;
            }""",
            row,
        )
        assert seen, path
    page.set_viewport_size({"width": 900, "height": 800})
    assert page.evaluate("document.querySelector('.top nav').clientHeight") < 50, "the links are one row"


def test_lists_have_no_column_without_a_value(service: Service, page: Page) -> None:
    for order in ("A-1", "broken"):
        service.flagged(service.start("call", order=order))
    for path in ("/ui/attention/exception", "/ui/attention/effect_uncertain", "/ui/effects"):
        page.goto(service.url + path)
        empty = page.evaluate(
            """() => [...document.querySelectorAll("table.list")].flatMap(table =>
                [...table.tHead.rows[0].cells].filter((head, n) => head.textContent.trim()
                    && [...table.tBodies[0].rows].every(row => !row.cells[n].textContent.trim()))
                .map(head => head.textContent))"""
        )
        assert not empty, path


def test_the_text_of_an_empty_list_is_in_its_middle(service: Service, open_page: Callable[..., Page]) -> None:
    page = open_page(width=1440)
    page.goto(f"{service.url}/ui/runs?q=nothing-like-this")
    middle = "each => { const box = each.getBoundingClientRect(); return (box.left + box.right) / 2; }"
    expected = page.locator(".empty").evaluate(middle)
    assert [abs(page.locator(f".empty > p >> nth={n}").evaluate(middle) - expected) < 1 for n in (0, 1)] == [True, True]

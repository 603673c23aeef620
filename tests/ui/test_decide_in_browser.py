"""Approvals and effects in a real browser: on a phone, by the keyboard alone, and while events arrive."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from outlast.core.machine import ApprovalStatus
from tests.service.conftest import Service

TABS_MAX = 60


def test_a_phone_decides_by_two_taps(service: Service, open_page: Callable[..., Page]) -> None:
    approval, _ = service.asked()
    page = open_page(width=360, has_touch=True)
    page.goto(f"{service.url}/ui/approvals")
    page.locator(f"#approval-{approval} a").first.tap()
    button = page.locator("#approve")
    expect(button).to_be_in_viewport()
    box = button.bounding_box()
    assert box is not None and box["height"] >= 44
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    button.tap()
    expect(page.locator("#done")).to_contain_text("Approved by you: Refund 4200")
    page.locator("#done a").tap()
    expect(page.locator("#decided")).to_contain_text(f"{ApprovalStatus.APPROVED} by local:ana")


def test_a_typed_reason_survives_fifty_events(service: Service, page: Page) -> None:
    run = service.start()
    approval, _ = service.asked(run)
    page.goto(f"{service.url}/ui/approvals/{approval}")
    expect(page.locator("#live-state")).to_have_text("live")
    page.locator("#reason").type("half a sen")
    for n in range(50):
        service.post(f"/v1/runs/{run}/signals/said", {"payload": {"n": n}})
    service.post(f"/v1/approvals/{approval}/claim")
    service.post(f"/v1/runs/{run}/signals/said", {"payload": {}})
    expect(page.locator("#region-now li").filter(has_text="signal said")).to_have_count(51)
    expect(page.locator("#reason")).to_be_focused()
    page.keyboard.type("tence")
    expect(page.locator("#reason")).to_have_value("half a sentence")


def test_a_reason_typed_on_the_board_keeps_its_caret(service: Service, page: Page) -> None:
    run, other = (service.start("call", order="broken") for _ in "12")
    for each in (run, other):
        service.flagged(each)
    page.goto(f"{service.url}/ui/")
    expect(page.locator("#live-state")).to_have_text("live")
    field = page.locator(f"form[action$='/{run}/answer']").get_by_label("Reason, for the history")
    page.locator(f"#item-{run}-exception-").get_by_text("Answer or assign").click()
    field.click()
    page.keyboard.type("Line.")
    page.keyboard.press("ArrowLeft")
    text = " is up again, asked by telephone just now, twice"
    for n in range(50):
        service.post(f"/v1/runs/{run if n % 2 else other}/signals/said", {"payload": {"n": n}})
        if n % 10 == 0:
            service.start("call", order="broken")
        page.keyboard.type(text[n : n + 1])
    expect(page.locator("form[action$='/answer']")).to_have_count(7)  # without reload
    expect(field).to_be_focused()
    page.keyboard.type("!")
    expect(field).to_have_value(f"Line{text}!.")


def test_edited_arguments_are_approved_after_their_difference(service: Service, page: Page) -> None:
    approval, _ = service.asked()
    page.goto(f"{service.url}/ui/approvals/{approval}")
    page.locator(".edit summary").click()
    page.fill("[name='changes/cents']", "4100")
    page.fill("#reason", "agreed on less")
    expect(page.locator("#difference del")).to_have_text("4200")
    expect(page.locator("#difference ins")).to_have_text("4100")
    page.get_by_role("button", name="Approve with changes").click()
    page.locator("#done a").click()
    expect(page.locator("#decided")).to_contain_text("agreed on less")
    run = service.get(f"/v1/approvals/{approval}").json()["run"]
    assert service.ended(run)["outcome"].endswith("-4100")


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} was not reached by {TABS_MAX} Tabs")


@pytest.mark.req("EFF-2")
def test_the_keyboard_alone_approves_and_settles(service: Service, page: Page) -> None:
    approval, _ = service.asked()
    page.goto(f"{service.url}/ui/approvals")
    tab_to(page, f"#approval-{approval} a")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/approvals/{approval}")
    tab_to(page, "#reason")
    page.keyboard.type("as agreed")
    expect(page.locator("#approve")).to_be_enabled()  # a second after the page came
    tab_to(page, "#approve")
    page.keyboard.press("Enter")
    expect(page.locator("#done")).to_contain_text("Approved by you")
    tab_to(page, "#done a")
    page.keyboard.press("Enter")
    expect(page.locator("#decided")).to_contain_text("as agreed")
    run = service.start("call", order="keys")
    service.flagged(run)
    (effect,) = service.get(f"/v1/effects?run={run}").json()["effects"]
    page.goto(f"{service.url}/ui/effects")
    tab_to(page, f"a[href$='/ui/effects/{effect['id']}']")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/effects/{effect['id']}")
    for field, text in (("#external_id", "ext-7"), ("#response", "it rang"), ("#reason", "asked them")):
        tab_to(page, field)
        page.keyboard.type(text)
    tab_to(page, "#happened")
    page.keyboard.press("Enter")
    expect(page.locator("#region-effect")).to_contain_text("ext-7")

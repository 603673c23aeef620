"""Approvals and effects in a real browser: on a phone, by the keyboard alone, and while events arrive."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from outlast.core.machine import ApprovalStatus
from tests.service.conftest import Service


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


@pytest.mark.req("EFF-2")
def test_the_keyboard_alone_approves_and_settles(service: Service, page: Page) -> None:
    approval, _ = service.asked()
    page.goto(f"{service.url}/ui/approvals/{approval}")
    page.locator("#reason").focus()
    page.keyboard.type("as agreed")
    page.keyboard.press("Tab")
    expect(page.locator("#approve")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#decided")).to_contain_text("as agreed")
    run = service.start("call", order="keys")
    service.until(f"/v1/runs/{run}", lambda body: body["attention"])
    (effect,) = service.get(f"/v1/effects?run={run}").json()["effects"]
    page.goto(f"{service.url}/ui/effects/{effect['id']}")
    page.locator("#external_id").focus()
    for text in ("ext-7", "it rang", "asked them"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    expect(page.locator("#happened")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#region-effect")).to_contain_text("ext-7")

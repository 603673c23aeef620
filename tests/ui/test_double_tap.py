"""A decision is one press on a request that was read: double taps, double submits, and scrolls of the browser."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.service.conftest import ALL, Running, Service
from tests.ui.html_page import READ_MS, HtmlForm, HtmlPage
from tests.ui.inbox_flows import inbox_refunds
from tests.ui.test_inbox import FORM, asked, phone

pytestmark = pytest.mark.req("GATE-2")
BUTTON = ("decision", "approve")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Service of one test, because the next request is the next that waits."""
    with Running(f"sqlite:{tmp_path / 'outlast.db'}", (*ALL, inbox_refunds)) as running:
        yield running


def statuses(service: Service, approvals: list[str]) -> list[str]:
    return [service.get(f"/v1/approvals/{each}").json()["status"] for each in approvals]


def at_once(form: HtmlForm) -> HtmlForm:
    """Return a form as it is sent without reading its page."""
    return form.set(shown_at=str(int(dict(form.fields)["shown_at"]) + READ_MS))


@pytest.mark.parametrize("ms", [60, 120, 250, 600])
def test_a_double_tap_decides_one_request(service: Service, open_page: Callable[..., Page], ms: int) -> None:
    ids = asked(service, 2)
    page = phone(open_page, has_touch=True)
    page.goto(f"{service.url}/ui/approvals/{ids[0]}")
    expect(page.locator("#approve")).to_be_enabled()
    box = page.locator("#approve").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.touchscreen.tap(x, y)
    page.wait_for_timeout(ms)
    page.touchscreen.tap(x, y)
    expect(page.locator(f"#decide[action*='{ids[1]}']")).to_have_count(1)
    expect(page.locator("#approve")).to_be_enabled()  # a second later
    assert statuses(service, ids) == ["approved", "pending"]
    page.locator("#approve").tap()
    expect(page.locator(".before a")).to_have_attribute("href", f"/ui/approvals/{ids[0]}")
    assert statuses(service, ids) == ["approved", "approved"]


def test_a_press_that_began_before_the_page_decides_nothing(service: Service, page: Page) -> None:
    (approval,) = asked(service, 1)
    page.goto(f"{service.url}/ui/approvals/{approval}")
    page.locator("#approve").hover(force=True)
    page.mouse.down()
    page.wait_for_timeout(1_300)
    page.mouse.up()
    page.wait_for_timeout(300)
    assert statuses(service, [approval]) == ["pending"]
    page.locator("#approve").click()
    expect(page.locator("#done")).to_contain_text("Approved by you")


def test_without_scripts_a_form_that_is_sent_at_once_decides_nothing(service: Service) -> None:
    first, second = asked(service, 2)
    page = HtmlPage(service.get(f"/ui/approvals/{first}?after={second}").text)
    answer = service.client.post(
        page.form("decide").action, content=at_once(page.form("decide").set(reason="kept")).body(BUTTON), headers=FORM
    )
    again = HtmlPage(answer.text)
    assert answer.status_code == 422 and "s after this request was shown" in again.text
    assert statuses(service, [first]) == ["pending"]
    assert ("reason", "kept") in again.form("decide").fields and ("after", second) in again.form("decide").fields
    form = again.form("decide")
    assert service.client.post(form.action, content=form.body(BUTTON), headers=FORM).status_code == 303


def test_a_form_that_is_sent_twice_is_one_decision(service: Service) -> None:
    first, second, third = asked(service, 3)
    form = HtmlPage(service.get(f"/ui/approvals/{first}").text).form("decide").set(reason="as agreed")
    for _ in "12":
        answer = service.client.post(form.action, content=form.body(BUTTON), headers=FORM)
        assert answer.status_code == 303
        assert answer.headers["location"] == f"/ui/approvals/{second}?after={first}"
    assert statuses(service, [first, second, third]) == ["approved", "pending", "pending"]
    for other in (form.set(reason="another"), form.put({"changes/cents": "1", "edits": "1"})):
        assert service.client.post(other.action, content=other.body(BUTTON), headers=FORM).status_code != 303


@pytest.mark.parametrize("width", [360, 1_440])
def test_a_typed_reason_moves_nothing_and_shows_nothing(
    service: Service, open_page: Callable[..., Page], width: int
) -> None:
    (approval,) = asked(service, 1, customer="long " * 60)
    page = open_page(width=width)
    page.set_viewport_size({"width": width, "height": 560 if width == 360 else 380})
    page.goto(f"{service.url}/ui/approvals/{approval}")
    page.wait_for_timeout(1_200)
    before = page.locator("#reason").bounding_box()
    assert before is not None
    page.mouse.click(before["x"] + 20, before["y"] + 10)  # `click` of the locator would scroll
    page.keyboard.type("x")
    page.keyboard.type(" and a long reason of several lines" * 5)
    page.wait_for_timeout(300)
    assert page.evaluate("scrollY") == 0
    assert page.locator("#reason").bounding_box() == before
    expect(page.locator("#approve")).to_be_disabled()

"""The inbox of an approver: the list, the place in it, the button, and what follows a decision."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from outlast.ui.deadline_groups import day_of, zone_of
from tests.service.conftest import ALL, Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.inbox_flows import inbox_refunds

pytestmark = pytest.mark.req("GATE-2")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PHONE = {"width": 360, "height": 780}
DECISIONS, TAPS_MAX = 40, 45
NOW = datetime(2026, 11, 30, 22, 30, tzinfo=UTC)  # a Monday


@pytest.fixture
def service(tmp_path: Any) -> Iterator[Service]:
    """Service of one test, because places in a list count all that wait."""
    with Running(f"sqlite:{tmp_path / 'outlast.db'}", (*ALL, inbox_refunds)) as running:
        yield running


def asked(service: Service, count: int, **state: Any) -> list[str]:
    """Start runs that ask, and return their approvals in the order of the list."""
    for n in range(count):
        service.start("inbox_refund", n=n, **state)
    path = "/v1/approvals?status=pending&sort=deadline&limit=100"
    found = service.until(path, lambda body: len(body["approvals"]) == count)
    return [each["approval"] for each in found["approvals"]]


def phone(open_page: Callable[..., Page], **more: Any) -> Page:
    page = open_page(width=PHONE["width"], **more)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    return page


def press(service: Service, form: Any, button: str = "approve") -> HtmlPage:
    answer = service.client.post(form.action, content=form.body(("decision", button)), headers=FORM)
    return HtmlPage(service.get(answer.headers["location"]).text if answer.status_code == 303 else answer.text)


@pytest.mark.parametrize(
    ("hours", "zone", "name"),
    [
        (-1, "", "Overdue"),
        (0, "", "Overdue"),
        (1, "", "Today"),
        (2, "", "Tomorrow"),
        (1, "Europe/Berlin", "Tomorrow"),
        (5, "America/New_York", "Today"),
        (26, "", "This week"),
        (24 * 6, "", "This week"),
        (24 * 6 + 2, "", "Later"),
    ],
)
def test_a_deadline_is_in_the_group_of_its_day(hours: int, zone: str, name: str) -> None:
    assert day_of(NOW + timedelta(hours=hours), NOW, ZoneInfo(zone) if zone else None) == name


@pytest.mark.parametrize("name", ["", "UTC", "../etc/passwd", "Nowhere/City", "x" * 65, "a\x00b"])
def test_a_zone_that_is_none_is_utc(name: str) -> None:
    assert zone_of(name) is None


def test_a_list_names_the_main_arguments_and_days_in_the_zone_of_the_viewer(service: Service) -> None:
    (approval,) = asked(service, 1)
    (plan,) = service.get(f"/v1/approvals/{approval}").json()["plans"]
    assert plan["line"] == "999.00 EUR to hooli"
    assert plan["shown"] == [
        {"name": "cents", "text": "999.00 EUR"}, {"name": "customer", "text": "to hooli"},
    ]  # fmt: skip
    text = HtmlPage(service.get("/ui/approvals").text).text
    assert "999.00 EUR to hooli" in text and "(UTC)" in text
    text = HtmlPage(service.get("/ui/approvals", headers={"Cookie": "outlast-zone=Asia/Tokyo"}).text).text
    assert "(UTC)" not in text


def test_each_page_says_its_place_in_the_list_and_keeps_its_filters(service: Service) -> None:
    ids = asked(service, 3)
    for at, approval in enumerate(ids):
        page = HtmlPage(service.get(f"/ui/approvals/{approval}?show=undecided&role=finance").text)
        assert f"{at + 1} of 3" in page.text
        near = {each["rel"]: each["href"] for each in page.links if "rel" in each}
        wanted = {"prev": ids[at - 1] if at else "", "next": [*ids, ""][at + 1]}
        query = "?show=undecided&role=finance"
        assert near == {rel: f"/ui/approvals/{to}{query}" for rel, to in wanted.items() if to}
    page = HtmlPage(service.get(f"/ui/approvals/{ids[1]}?show=undecided&role=finance").text)
    after = press(service, page.form("decide").set(reason="no"), "reject")
    assert "2 of 2" in after.text and after.form("decide").action.startswith(f"/ui/approvals/{ids[2]}/")


def test_a_place_beyond_the_counted_ones_says_so(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = asked(service, 3)
    monkeypatch.setattr("outlast.ui.routes.approval_pages.PLACES_MAX", 2)

    def shown(at: int, query: str = "") -> str:
        return HtmlPage(service.get(f"/ui/approvals/{ids[at]}{query}").text).text

    assert "2 of 2 or more" in shown(1, "?role=finance") and "2 or more left" in shown(2, "?role=finance")
    assert "2 of 3" in shown(1) and "3 left" in shown(2), "the header has counted this list"
    assert "2 of 3" in shown(1, "?show=undecided")


def test_a_search_keeps_its_words_and_counts_what_it_found(service: Service) -> None:
    asked(service, 2)
    service.start("inbox_refund", n=7, customer="Initech")
    service.until("/v1/approvals?status=pending", lambda body: len(body["approvals"]) == 3)
    (found,) = service.get("/v1/approvals?text=999.00+initech+").json()["approvals"]
    for words in (found["run"], found["approval"], found["requested_by"] + " initech"):
        assert [each["approval"] for each in service.get(f"/v1/approvals?text={words}").json()["approvals"]] == [
            found["approval"]
        ]  # fmt: skip
    assert service.get("/v1/approvals?text=initech+hooli").json()["approvals"] == []
    assert service.get("/v1/approvals?text=init+9").json()["approvals"] == [], "digits are a whole word"
    page = HtmlPage(service.get("/ui/approvals?text=refund+hooli").text)
    assert "2 found. All words must be in a request." in page.text
    assert "Refund for hooli" in page.text and "Initech" not in page.text
    link = next(each["href"] for each in page.links if each["href"].startswith("/ui/approvals/ap_"))
    assert link.endswith("?text=refund+hooli") and "1 of 2" in HtmlPage(service.get(link).text).text
    assert "No approval matches." in HtmlPage(service.get("/ui/approvals?text=nothing").text).text


def test_a_search_that_stops_says_so_and_continues(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = asked(service, 4)
    monkeypatch.setattr("outlast.insight.approval_reads.SEARCHED_READS_MAX", 1)
    monkeypatch.setattr("outlast.insight.approval_reads.ROWS_PER_READ", 2)
    page = HtmlPage(service.get(f"/ui/approvals?text={ids[3]}&limit=1").text)
    assert "No match yet. A search stops after" in page.text and "No approval matches" not in page.text
    further = next(each["href"] for each in page.links if "cursor=" in each["href"])
    assert f"/ui/approvals/{ids[3]}?text={ids[3]}" in service.get(further).text
    assert "1 of 2 or more" in HtmlPage(service.get(f"/ui/approvals/{ids[0]}?text=refund").text).text


def test_without_scripts_a_decision_leads_on_and_an_edit_begins_with_its_difference(service: Service) -> None:
    first, second = asked(service, 2)
    text = service.get(f"/ui/approvals/{first}").text
    page = HtmlPage(text)
    assert "Approve 999.00 EUR to hooli" in page.text and not re.search(r'id="approve"[^>]*disabled', text)
    form = page.form("decide").put({"changes/cents": "850"})
    edited = service.client.post(form.action, content=form.body(("decision", "approve")), headers=FORM).text
    assert edited.index('id="changing"') < edited.index('id="sentence"')
    assert "Approve 8.50 EUR to hooli (asked 999.00 EUR)" in HtmlPage(edited).text
    after = press(service, HtmlPage(edited).form("decide"))
    assert "Approved by you with your values: inbox_pay 8.50 EUR to hooli" in after.text
    assert after.form("decide").action == f"/ui/approvals/{second}/decision"
    service.until(f"/v1/approvals/{first}", lambda body: body["call"] and body["call"]["settled"])
    decided = HtmlPage(service.get(f"/ui/approvals/{first}").text).text
    assert re.search(r"Approved by you with your values: .* · called [0-9.]+ s later, receipt-A-0", decided)
    assert "If you approve" not in decided
    last = press(service, after.form("decide"))
    assert "Approved by you: Refund for hooli" in last.text and "No approval waits for you." in last.text


def test_a_preview_changes_nothing(service: Service) -> None:
    (approval,) = asked(service, 1)
    form = HtmlPage(service.get(f"/ui/approvals/{approval}").text).form("decide").put({"changes/cents": "850"})
    path = f"/ui/approvals/{approval}/preview?region=choice"
    answer = service.client.post(path, content=form.body(), headers=FORM)
    assert answer.status_code == 200 and "Approve 8.50 EUR to hooli (asked 999.00 EUR)" in HtmlPage(answer.text).text
    found = service.get(f"/v1/approvals/{approval}").json()
    assert (found["status"], found["version"]) == ("pending", 1)
    stranger = {"form_token": "", **dict(form.fields)}
    stranger["form_token"] = "x"
    assert service.client.post(path, data=stranger).status_code == 403


def test_seven_requests_are_on_the_first_screen_of_a_phone(service: Service, open_page: Callable[..., Page]) -> None:
    asked(service, 9)
    page = phone(open_page)
    page.goto(f"{service.url}/ui/approvals")
    expect(page.locator(".inbox li")).to_have_count(9)
    boxes = [each.bounding_box() for each in page.locator(".inbox li").all()]
    assert all(box is not None and box["height"] == 72 for box in boxes)
    assert sum(box is not None and box["y"] + box["height"] <= PHONE["height"] for box in boxes) >= 7
    assert page.title().startswith("(9) Approvals")
    service.start("inbox_refund", n=50)
    expect(page).to_have_title(re.compile(r"^\(10\) Approvals"))  # without reload


def test_the_button_is_active_once_the_last_argument_was_seen(service: Service, open_page: Callable[..., Page]) -> None:
    (approval,) = asked(service, 1, customer="long " * 300)
    page = phone(open_page)
    page.goto(f"{service.url}/ui/approvals/{approval}")
    button = page.locator("#approve")
    expect(button).to_be_disabled()
    expect(page.locator("#approve-wait")).to_be_visible()
    page.wait_for_timeout(1_200)
    page.evaluate("document.querySelector('#arguments tbody tr:last-child').scrollIntoView({block: 'end'})")
    page.wait_for_timeout(300)
    expect(button).to_be_disabled()  # the page moved, and not by the person
    for _ in range(30):
        page.mouse.wheel(0, 60)
        page.wait_for_timeout(50)
    expect(button).to_be_enabled()
    page.reload()
    page.evaluate("scrollTo(0, 0)")
    page.reload()
    expect(button).to_be_disabled()
    page.locator("#approve-wait").click()
    expect(button).to_be_enabled()
    expect(page.locator("#approve-wait")).to_be_hidden()
    row, bar = page.locator("#arguments tbody tr").last.bounding_box(), page.locator("#decide .bar").bounding_box()
    assert row is not None and bar is not None and 0 < row["y"] + row["height"] <= bar["y"]
    page.evaluate("scrollTo(0, 0)")
    page.reload()
    page.locator("#arguments tbody tr").last.focus()
    expect(button).to_be_enabled()


def test_forty_decisions_take_at_most_forty_five_taps(service: Service, open_page: Callable[..., Page]) -> None:
    ids = asked(service, DECISIONS)
    page = phone(open_page, has_touch=True)
    taps = 0
    page.goto(f"{service.url}/ui/approvals")
    page.locator(".inbox li > a").first.tap()
    taps += 1
    for n, approval in enumerate(ids):
        page.wait_for_selector(f"#decide[action*='{approval}']")
        if n:
            expect(page.locator("#done")).to_contain_text("Approved by you")
        expect(page.locator("#approve")).to_be_in_viewport()
        expect(page.locator(".bar.decide #reject, .bar.decide #reason")).to_have_count(2)
        page.locator("#approve").tap()
        taps += 1
    expect(page.locator("main")).to_contain_text("No approval waits for you.")
    expect(page.locator("#done")).to_contain_text(re.compile(r"called [0-9.]+ s later, receipt-A-39"))  # without reload
    assert taps <= TAPS_MAX
    body = service.get("/v1/approvals?status=approved&limit=100").json()
    assert len(body["approvals"]) == DECISIONS


def test_an_amount_is_edited_as_money_and_a_wrong_value_is_named_at_once(
    service: Service, open_page: Callable[..., Page]
) -> None:
    (approval,) = asked(service, 1)
    page = open_page()
    page.goto(f"{service.url}/ui/approvals/{approval}")
    page.locator(".edit summary").first.click()
    expect(page.locator(".edit .hint").first).to_have_text("Write 99900 or 999.00.")
    field, button = page.locator("[name='changes/cents']"), page.locator("#approve")
    for text in ("400.5", "much"):
        field.fill(text)
        expect(page.locator("#wrong")).to_contain_text("Cents is not a whole number")
        expect(button).to_be_disabled()
    field.fill("400.00")
    expect(page.locator("#wrong")).to_have_count(0)
    expect(button).to_have_text("Approve 400.00 EUR to hooli (asked 999.00 EUR)")
    button.click()
    page.locator("#done a").click()
    line = "inbox_pay 400.00 EUR to hooli (asked 999.00 EUR, edited by local:ana)"
    expect(page.locator("h1")).to_have_text(line)
    assert service.get(f"/v1/approvals/{approval}").json()["plans"][1]["arguments"]["cents"] == 40000
    page.goto(f"{service.url}/ui/approvals?show=decided")
    expect(page.locator(".inbox li > a")).to_have_text(line)
    expect(page.locator(".inbox .asked")).to_contain_text("· called")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page.reload()
    assert page.evaluate(
        "[...document.querySelectorAll('.inbox li *')].every(each => each.scrollWidth <= each.clientWidth + 1 "
        "|| getComputedStyle(each).display === 'inline')"
    )
    chip = page.locator(".chips [aria-current]").bounding_box()
    assert chip is not None and chip["x"] >= 0 and chip["x"] + chip["width"] <= PHONE["width"]


def test_the_keyboard_decides_by_two_keys_and_no_single_one(service: Service, open_page: Callable[..., Page]) -> None:
    first, second = asked(service, 2, customer="long " * 60)
    page = open_page()
    page.set_viewport_size({"width": 1_440, "height": 400})
    page.goto(f"{service.url}/ui/approvals/{first}")
    page.wait_for_timeout(1_300)
    page.keyboard.press("Control+Enter")  # shows the last argument, which was not on the screen
    expect(page.locator("#arguments tbody tr").last).to_be_focused()
    expect(page.locator("#approve")).to_be_enabled()
    for key in "arjy":
        page.keyboard.press(key)
    expect(page.locator("#reason")).to_be_focused()
    page.locator("#reason").fill("as agreed")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#done")).to_contain_text("Approved by you")
    expect(page.locator("#request")).to_be_focused()
    assert service.get(f"/v1/approvals/{first}").json()["reason"] == "as agreed"
    assert service.get(f"/v1/approvals/{second}").json()["status"] == "pending"


def test_a_refusal_after_a_claim_speaks_of_people(service: Service) -> None:
    (approval,) = asked(service, 1)
    page = HtmlPage(service.get(f"/ui/approvals/{approval}").text)
    assert service.post(f"/v1/approvals/{approval}/claim", if_match='"v1"').status_code == 200
    text = press(service, page.form("decide")).text
    assert "local:ana began to review this request after you opened it" in text and "Nothing was decided" in text
    assert "`current`" not in text and "version is now" not in text


def test_an_approver_reads_words_and_exact_times(service: Service) -> None:
    (approval,) = asked(service, 1, customer="hooli ")
    for path in ("/ui/approvals", f"/ui/approvals/{approval}"):
        text = HtmlPage(service.get(path).text).text
        assert not re.search("REQUIRES_ATTENTION|PENDING_APPROVAL|«|%20", text)
        assert "for local:ana" in text
    assert re.search(r"Deadline \d\d \w{3} \d\d:\d\d:\d\d UTC ?, in 4h ?; then the run requires attention", text)
    assert '<mark class="odd blank"' in service.get(f"/ui/approvals/{approval}").text
    assert "due soonest first" in HtmlPage(service.get("/ui/approvals").text).text

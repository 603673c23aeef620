"""Pages of runs in a browser: accessible in both themes, and a typed reason survives the refreshes of its page."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.ui.conftest import Service
from tests.ui.test_run_pages import flagged

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}'`‮"


def test_a_typed_reason_survives_refreshes(service: Service, open_page: Callable[..., Page]) -> None:
    run = flagged(service)
    page = open_page(width=360)
    page.goto(f"{service.url}/ui/runs/{run}")
    expect(page.locator("#live-state")).to_have_text("live")
    typed = page.get_by_label("Reason, for the history")
    typed.fill("the line is up again")
    typed.focus()
    for n in range(3):
        service.post(f"/v1/runs/{run}/signals/note", {"payload": {"n": n}})
    service.post(f"/v1/runs/{run}/continue", {"reason": "try"})
    service.until(f"/v1/runs/{run}/events", lambda body: len(body["events"]) > 4)
    expect(page.locator("#story")).to_be_visible()
    expect(typed).to_have_value("the line is up again")


def test_a_refused_answer_stays_through_refreshes(service: Service, open_page: Callable[..., Page]) -> None:
    run = flagged(service)
    page = open_page(expects="status of 409")
    for path in (f"/ui/runs/{run}", "/ui/"):
        page.goto(service.url + path)
        card = page.locator(f"form[action$='/{run}/answer']")
        if not card.is_visible():  # on the board, behind the first of its reason
            page.locator("details.fold", has=card).locator("summary").first.click()
        card.get_by_label("Reason, for the history").fill("the line is up again")
        with page.expect_navigation():
            # In one step, because a refresh would bring back the right version.
            card.locator("button[name=choice]").first.evaluate(
                "each => { each.form.elements.version.value = '1'; each.click(); }"
            )
        expect(card.get_by_role("alert")).to_be_visible()
        expect(page.locator("#live-state")).to_have_text("live")
        page.locator("h1").click()  # the text has no focus
        with page.expect_response(lambda answer: "region=" in answer.url and answer.status == 200) as refreshed:
            service.start("call", order="broken")
            service.post(f"/v1/runs/{run}/signals/note", {"payload": {"path": path}})
        assert refreshed.value.request.method == "GET"
        expect(card.get_by_label("Reason, for the history")).to_have_value("the line is up again")


def test_hostile_texts_stay_texts(service: Service, open_page: Callable[..., Page]) -> None:
    run = service.start("wish", text=HOSTILE)
    service.waits(run)
    service.post(f"/v1/runs/{run}/signals/other", {"payload": {HOSTILE: HOSTILE}})
    service.post(f"/v1/runs/{run}/cancel", {"reason": HOSTILE})
    service.ended(run)
    page = open_page()
    for path in ("", "/events", "/data", "/people", "/timeline"):
        page.goto(f"{service.url}/ui/runs/{run}{path}")
        assert page.locator("img, script:not([src])").count() == 0
    expect(page.get_by_text("7*7").first).to_be_attached()


def test_a_card_leaves_the_page_where_it_is(service: Service, open_page: Callable[..., Page]) -> None:
    """A click scrolled the page to the panel, so the next one hit another row."""
    run = service.start("job", rounds=40)
    service.ended(run)
    page = open_page(width=1440)
    page.goto(f"{service.url}/ui/runs/{run}/checkpoints")
    page.mouse.wheel(0, 500)
    page.wait_for_function("scrollY > 300")
    links, panel = page.locator("a[id^=state-][data-card]"), page.locator("#panel")
    chosen = page.locator("[data-chosen]")
    for n in (25, 27):
        before = page.evaluate("scrollY")
        links.nth(n).click()
        number = links.nth(n).get_attribute("id")
        number = (number or "").removeprefix("state-")
        expect(panel.get_by_role("heading", name=f"State at checkpoint {number}")).to_be_visible()
        expect(panel).to_be_focused()
        assert page.evaluate("scrollY") == before
        expect(chosen).to_have_id(f"checkpoint-{number}")
        head, title = page.locator(".runhead").bounding_box(), panel.locator("h2").bounding_box()
        assert head is not None and title is not None and title["y"] >= head["y"] + head["height"]
    page.keyboard.press("Escape")
    expect(panel).to_be_empty()
    expect(chosen).to_have_count(0)
    expect(links.nth(27)).to_be_focused()


def test_a_card_on_a_narrow_screen_is_at_its_bottom_edge(service: Service, open_page: Callable[..., Page]) -> None:
    run = service.start("job", rounds=20)
    service.ended(run)
    page = open_page(width=360)
    page.goto(f"{service.url}/ui/runs/{run}/checkpoints")
    link = page.locator("a[id^=state-][data-card]").first
    link.click()
    panel = page.locator("#panel")
    expect(panel.get_by_role("button", name="Close")).to_be_in_viewport()
    expect(panel.get_by_role("heading").first).to_be_in_viewport()
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_empty()

"""Pages refresh themselves by signals, and say so if they cannot."""

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.ui.conftest import Service, Site

REFUND = Path(__file__).parents[2] / "examples" / "refund.py"


def test_a_new_run_appears_without_reload(service: Service, page: Page) -> None:
    page.goto(f"{service.url}/ui/runs")
    expect(page.locator("#live-state")).to_have_text("live")
    run = service.start()
    expect(page.locator(f"#run-{run}")).to_be_visible()


def test_an_unchanged_region_is_answered_304(service: Service) -> None:
    service.asked()
    first = service.get("/ui/runs?region=runs")
    again = service.get("/ui/runs?region=runs", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.text) == (200, 304, "")
    # The stored region carries the nonce of the policy it came with, and a 304 replaces the stored headers.
    assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    service.asked()
    changed = service.get("/ui/runs?region=runs", headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200


def test_a_page_says_that_the_service_is_gone_and_is_back(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    with Site(tmp_path, REFUND) as site:
        page = open_page()
        page.goto(f"{site.url}/ui/runs")
        state = page.locator("#live-state")
        expect(state).to_have_text("live")
        site.kill()
        expect(state).to_have_text(re.compile("behind since"))
        site.start()
        expect(state).to_have_text("live", timeout=60_000)

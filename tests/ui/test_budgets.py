"""Sizes of what a browser loads."""

import gzip
import re

from playwright.sync_api import Page, expect

from outlast.ui.rendering import ALL_SCRIPTS, asset
from tests.ui.conftest import Service

KIB = 1024


def gzipped(name: str) -> int:
    return len(gzip.compress(asset(name)[0], 9))


def test_scripts_and_styles_are_small() -> None:
    assert gzipped(ALL_SCRIPTS) <= 22 * KIB
    assert gzipped("outlast.css") <= 12 * KIB


def test_a_cold_page_takes_at_most_six_requests(service: Service, page: Page) -> None:
    service.asked()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{service.url}/ui/runs")
    expect(page.locator("#live-state")).to_have_text("live")
    page.wait_for_load_state("load")
    # Regions are then read again at the stream's first signal, because a page may be old when its stream begins.
    assert len([url for url in requests if "region=" not in url]) <= 6, requests
    assert {re.match("https?://[^/]+", url)[0] for url in requests} == {service.url}  # type: ignore[index]


def test_a_page_of_a_full_list_is_at_most_60_kb(service: Service) -> None:
    for _ in range(60):
        service.start()
    assert len(service.get("/ui/runs").content) <= 60 * KIB

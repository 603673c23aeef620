"""Sizes of what a browser loads."""

import gzip
import re

import pytest
from playwright.sync_api import Page, expect

from outlast.ui.rendering import ALL_SCRIPTS, asset
from outlast.ui.routes.board import AT_MOST
from tests.ui.conftest import Service

KIB = 1024


@pytest.mark.parametrize(("name", "most"), [(ALL_SCRIPTS, 22 * KIB), ("outlast.css", 12 * KIB)])
def test_scripts_and_styles_are_small(service: Service, name: str, most: int) -> None:
    address = f"/ui/static/{asset(name)[2]}/{name}"
    with service.client.stream("GET", address) as answer:
        assert answer.headers["content-encoding"] == "gzip" and answer.headers["vary"] == "Accept-Encoding"
        data = b"".join(answer.iter_raw())
    assert len(data) <= most and gzip.decompress(data) == asset(name)[0]
    plain = service.client.get(address, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.content == asset(name)[0]


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


def test_a_full_board_and_a_full_list_of_one_reason_are_at_most_60_kb(service: Service) -> None:
    """The detail of each item is a traceback."""
    for n in range(AT_MOST + 1):
        service.post("/v1/workflows/call/runs", {"input": {"order": "broken"}}, Idempotency_Key=f"broken-{n}")
    full = lambda body: len(body["attention"]) > AT_MOST  # noqa: E731
    service.until("/v1/attention?reason=exception", full)
    found = service.get("/ui/attention/exception")
    assert found.text.count('<tr id="item-') == AT_MOST and f"of the first {AT_MOST}" in found.text
    assert len(found.content) <= 60 * KIB
    assert len(service.get("/ui/").content) <= 60 * KIB

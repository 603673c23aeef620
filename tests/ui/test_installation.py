"""Pages of webhooks, deliveries, workers and the installation say what the commands say."""

import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from outlast.core.addresses import AddressPolicy
from outlast.core.rows.outbox_rows import SUBSCRIPTION
from tests.ui.conftest import Service


class Receiver(HTTPServer):
    """Receiver of webhooks that answers with one status."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(("127.0.0.1", 0), _Handler)
        Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(server.status)
        self.end_headers()
        self.wfile.write(b"<script>alert(1)</script>")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def receiver(service: Service) -> Any:
    service.state.reach = AddressPolicy.of(private=True, plain=True)
    with Receiver(500) as server:
        yield server
        server.shutdown()


def test_each_page_teaches_the_next_command_while_it_is_empty(service: Service) -> None:
    for path, command in (("deliveries", "outlast webhooks add"), ("webhooks", "outlast webhooks add")):
        page = service.get(f"/ui/{path}")
        assert page.status_code == 200 and command in page.text


def test_workers_show_lease_and_budget(service: Service) -> None:
    text = service.get("/ui/workers").text
    (worker,) = service.get("/v1/workers").json()["workers"]
    assert re.search(rf"</b> serves, \d+ of {worker['concurrency']} places taken", text)
    assert f'id="worker-{worker["worker"]}"' in text
    assert "Execution budget" in text and "renewed every" in text


def test_doctor_says_what_the_command_says(service: Service) -> None:
    text = service.get("/ui/doctor").text
    assert "schema" in text and "clock" in text and "outlast doctor" in text


def refresh(page: Page, region: str) -> None:
    """Let a region of a page ask for itself, as a signal does, and wait until it has."""
    with page.expect_response(lambda answer: f"region={region}" in answer.url) as asked:
        page.evaluate("htmx.trigger('#live', 'changed')")
    assert asked.value.status in (200, 304), asked.value.url


def sent(page: Page, path: str, **fields: str) -> str:
    """Send a form of the open page once more, and return the page that answers."""
    token = page.locator("[name=form_token]").first.input_value()
    headers = {"Origin": page.url.partition("/ui/")[0]}
    answer = page.request.post(f"{headers['Origin']}{path}", form={"form_token": token, **fields}, headers=headers)
    return answer.text()


def test_a_webhook_is_tested_rotated_disabled_and_enabled(
    service: Service, receiver: Receiver, open_page: Callable[..., Page]
) -> None:
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    hook = service.post("/v1/webhooks", {"url": url, "name": "ledger"}).json()["webhook"]
    page = open_page(expects="409.*/rotate")
    page.goto(f"{service.url}/ui/webhooks")
    page.get_by_role("link", name="ledger").click()
    page.get_by_role("button", name="Send a test event").click()
    expect(page.locator("main")).to_contain_text("answered 500 after")
    expect(page.locator("pre")).to_have_text("<script>alert(1)</script>")
    refresh(page, "webhook")  # on the page of a POST, too
    page.locator("#rotating summary").click()
    page.locator("#rotate").click()
    expect(page.locator("#secret")).to_have_text(re.compile("^whsec_"))
    first = page.locator("#secret").inner_text()
    page.reload()  # sends the form again
    expect(page.get_by_role("alert")).to_contain_text("has changed since you saw it")
    page.goto(f"{service.url}/ui/webhooks/{hook}")
    assert "whsec_" not in page.content()
    (row,) = service.call(service.state.store.page(SUBSCRIPTION, "default", {})).rows
    assert row.secret.key == first, "the receiver has this one"
    page.locator("#disabling summary").click()
    page.fill("#reason", "moved to another host")
    page.locator("#disable").click()
    expect(page.locator("main")).to_contain_text("moved to another host")
    again = sent(page, f"/ui/webhooks/{hook}/disable", reason="it is slow")
    assert "You had typed: it is slow" in again, "a refused form keeps the text"
    page.locator("#enable").click()
    expect(page.locator("#enable")).to_have_count(0)
    assert service.get(f"/v1/webhooks/{hook}").json()["status"] == "active"


def test_a_worker_is_drained_by_a_button(service: Service, open_page: Callable[..., Page]) -> None:
    """The last test of this module, because the service has no worker afterwards."""
    (worker,) = (each["worker"] for each in service.get("/v1/workers").json()["workers"])
    page = open_page()
    page.goto(f"{service.url}/ui/workers")
    page.locator(f"#drain-{worker} summary").click()
    expect(page.locator(f"#drain-{worker}")).to_contain_text(f"outlast workers drain {worker}")
    refresh(page, "workers")  # keeps the disclosure open
    page.fill(f"#reason-{worker}", "a new machine")
    page.locator(f"#drain-send-{worker}").click()
    expect(page.locator(f"#worker-{worker}")).to_contain_text("draining")
    expect(page.locator(f"#worker-{worker}")).to_contain_text("a new machine")
    expect(page.locator(f"#drain-{worker}")).to_have_count(0)
    again = service.post(f"/v1/workers/{worker}/drain", {"reason": "twice"})
    if again.status_code == 409:
        assert "has stopped" in again.text
    else:  # the worker has not stopped yet, and the first request counts
        found = again.json()
        assert (found["drain_reason"], found["drain_asked_by"]) == ("a new machine", "local:ana")
    assert service.post("/v1/workers/w-9/drain", {"reason": "unknown"}).status_code == 404

"""Two people with one approval open: each page names the other person, also if another process serves that page."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect
from pydantic import SecretStr

from outlast.clocks import SystemClock
from outlast.service.identity import AuthSettings, authenticator, new_token
from tests.service.conftest import Running, Service

ANA, ANA_LINE = new_token("ana", tenant="default", roles=["approver", "finance", "operator"], person=True)
BO, BO_LINE = new_token("bo", tenant="default", roles=["approver", "finance"], person=True)
LINES = f"{ANA_LINE}\n{BO_LINE}"
Open = Callable[..., Page]


HIDE = """() => {
    for (const [name, value] of [["hidden", true], ["visibilityState", "hidden"]])
        Object.defineProperty(document, name, {get: () => value});
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Script that tells a page that it is in the background."""


class Place(NamedTuple):
    """Service that knows ana and bo, the URL of its store, and pending approvals."""

    service: Service
    store: str
    approvals: list[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    store = f"sqlite:{tmp_path_factory.mktemp('presence') / 'outlast.db'}"
    with Running(store) as before:
        approvals = [before.asked()[0] for _ in "123"]
    who = authenticator(AuthSettings(tokens=SecretStr(LINES)), SystemClock())
    with Running(store, authenticator=who, worker=False) as running:
        yield Place(running, store, approvals)


@pytest.fixture
def other(place: Place) -> Iterator[str]:
    """Another process of the service, and its address."""
    command = [sys.executable, "-m", "tests.service.replica", place.store, LINES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


def signed_in(open_page: Open, url: str, token: str) -> Page:
    """Return a page of another browser, in which the person has signed in."""
    page = open_page()
    page.goto(f"{url.replace('127.0.0.1', 'localhost')}/ui/login")
    page.fill("#credential", token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".person")).to_be_visible()
    return page


def at(page: Page, path: str) -> None:
    page.goto(f"{page.url.partition('/ui')[0]}/ui{path}")
    expect(page.locator("#live-state")).to_have_text("live")


@pytest.mark.req("OBS-5")
def test_each_of_two_people_sees_that_the_other_has_it_open(place: Place, open_page: Open) -> None:
    approval, another = place.approvals[:2]
    ana, bo = (signed_in(open_page, place.service.url, token) for token in (ANA, BO))
    inbox = signed_in(open_page, place.service.url, ANA)
    at(inbox, "/approvals?show=undecided")
    at(ana, f"/approvals/{approval}")
    expect(ana.locator("#present")).to_have_count(0)
    at(bo, f"/approvals/{approval}")
    expect(ana.locator("#present")).to_have_text("bo has this open")
    expect(bo.locator("#present")).to_have_text("ana has this open")
    expect(inbox.locator(f"#approval-{approval} .present")).to_have_text("bo has this open")
    expect(inbox.locator(".present")).to_have_count(1)  # and not ana's own tab
    at(bo, f"/approvals/{another}")
    expect(ana.locator("#present")).to_have_count(0)
    expect(inbox.locator(f"#approval-{another} .present")).to_have_text("bo has this open")
    whole = place.service.get(f"/ui/approvals/{another}", headers={"Cookie": _cookies(ana)}).text
    assert "Who decides" in whole and "has this open" not in whole, "a page without the script would not remove it"


@pytest.mark.req("OBS-5")
def test_a_hidden_page_is_not_open(place: Place, open_page: Open) -> None:
    ana, bo = (signed_in(open_page, place.service.url, token) for token in (ANA, BO))
    for page in (ana, bo):
        at(page, f"/approvals/{place.approvals[2]}")
    expect(ana.locator("#present")).to_have_text("bo has this open")
    bo.evaluate(HIDE)
    expect(ana.locator("#present")).to_have_count(0)


@pytest.mark.req("OBS-5")
def test_two_processes_of_a_service_share_it(place: Place, other: str, open_page: Open) -> None:
    approval = place.approvals[0]
    ana, bo = signed_in(open_page, place.service.url, ANA), signed_in(open_page, other, BO)
    at(bo, f"/approvals/{approval}")
    at(ana, f"/approvals/{approval}")
    expect(ana.locator("#present")).to_have_text("bo has this open")
    expect(bo.locator("#present")).to_have_text("ana has this open")
    at(ana, "/approvals?show=undecided")
    expect(ana.locator(f"#approval-{approval} .present")).to_have_text("bo has this open")
    expect(bo.locator("#present")).to_have_count(0)


def _cookies(page: Page) -> str:
    return "; ".join(f"{each['name']}={each['value']}" for each in page.context.cookies())

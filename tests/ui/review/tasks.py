"""Tasks of the five people of the review, done in Chromium: `python -m tests.ui.review.tasks`.

Each task begins on the start page and counts clicks, pages and bytes. It ends when the page shows the answer.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from typing import Final

import click
from playwright.sync_api import Page, Response, expect

from tests.browsers import HINT, browser, executable
from tests.service.conftest import Running, Service
from tests.ui.review.flows import ALL
from tests.ui.review.store import CALLER, FAULTS, SHARES, Filled, filled

JOB_S: Final = 600
"""Time for the job that answers 2,088 runs."""


class Hand:
    """A person at a page, with the number of clicks, of pages that were opened, and of bytes that came."""

    def __init__(self, page: Page, service: Service) -> None:
        self.page = page
        self.url = service.url
        self.clicks = 0
        self.pages = 0
        self.bytes = 0
        page.on("response", self._came)

    def _came(self, response: Response) -> None:
        if "event-stream" in response.headers.get("content-type", "") or response.status in (303, 304):
            return
        self.pages += response.request.is_navigation_request()
        size = len(response.body())  # other responses come while it waits for the body
        self.bytes += size

    def begin(self) -> None:
        """Open the start page. Its bytes are not counted: each person has it open."""
        self.page.goto(f"{self.url}/ui/")
        expect(self.page.locator("#live-state")).to_have_text("live")
        self.clicks = self.pages = self.bytes = 0

    def click(self, selector: str) -> None:
        """Click on the first visible element."""
        self.page.locator(selector).locator("visible=true").first.click()
        self.page.wait_for_load_state("load")
        self.clicks += 1

    def type(self, selector: str, text: str) -> None:
        """Type into a field and press Enter. The click into the field counts."""
        self.click(selector)
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")
        self.page.wait_for_load_state("load")

    def sees(self, text: str) -> None:
        """Wait until the page shows a text."""
        expect(self.page.locator("main")).to_contain_text(text)


def why_no_restart(hand: Hand, found: Filled) -> None:
    """Why did the agent not restart the service search?"""
    hand.click("nav a:has-text('Runs')")
    hand.click(f"main a[href$='/runs/{found.agent}']")
    hand.sees("a deploy freeze is in force until Monday")


def cost_by_model(hand: Hand, found: Filled) -> None:
    """Which model cost most on a day?"""
    hand.click("nav a:has-text('Usage')")
    hand.click("#days a")
    hand.sees("by model")
    hand.sees("stand-in-1")


def stuck_run(hand: Hand, found: Filled) -> None:
    """Why does the order of a customer not go on?"""
    hand.click("nav a:has-text('Runs')")
    hand.type("#q", f"customer:{CALLER}")
    hand.sees("card_declined")  # in the row; the run has the whole message and what can be done
    hand.click("tr[id^=run-] a[href*='/ui/runs/']")
    hand.sees(f"of '{CALLER}'")
    hand.sees("If ignored")


def broken_by(hand: Hand, found: Filled) -> None:
    """Which deploy broke the orders?"""
    hand.click("tr[id^=cause-]:has-text('exception') a[href*='/causes/']")
    hand.sees("order-fulfilment@2")
    hand.sees("version 2 deployed")


def answer_exceptions(hand: Hand, found: Filled) -> None:
    """Let every run that failed go on."""
    hand.click("#reason-exception ~ p a:has-text('One answer for all')")
    hand.click("#for-all a:has-text('Continue all')")
    hand.type("#text", "the prices are mended")
    runs = sum(count // found.share for _, count in FAULTS)
    hand.sees(f"{runs:,} of {runs:,} answered")


def cancel_payouts(hand: Hand, found: Filled) -> None:
    """Cancel every payout that needs a person."""
    hand.click("nav a:has-text('Runs')")
    hand.type("#q", "workflow:payout is:flagged")
    hand.click("#tick-page")
    hand.click("#all-1")
    hand.page.keyboard.type("the bank is closed")  # the field of the reason has the focus
    hand.page.keyboard.press("Enter")
    hand.sees("answered")
    hand.sees("found by workflow:payout is:flagged")


Task = Callable[[Hand, Filled], None]
TASKS: Final[tuple[tuple[Task, int], ...]] = (
    (stuck_run, 4), (broken_by, 2), (why_no_restart, 3), (cost_by_model, 3), (cancel_payouts, 5),
    (answer_exceptions, 5),
)  # fmt: skip
"""Tasks with the most clicks that each may take. The last two change the runs."""


@click.command()
@click.option("--size", type=click.Choice(list(SHARES)), default="whole", help="Number of runs [whole].")
def main(size: str) -> None:
    """Do each task and print its clicks, pages and bytes."""
    if executable() is None:
        raise click.ClickException(f"no Chromium: {HINT}")
    over = 0
    expect.set_options(timeout=JOB_S * 1000)
    with tempfile.TemporaryDirectory() as stored, Running(f"sqlite:{stored}/outlast.db", ALL) as service:
        found = filled(service, size)
        with browser() as chromium:
            for task, most in TASKS:
                hand = Hand(chromium.new_page(), service)
                hand.begin()
                began = time.monotonic()
                task(hand, found)
                took = time.monotonic() - began
                over += hand.clicks > most
                counts = f"{hand.clicks} of {most} clicks, {hand.pages} pages, {hand.bytes:,} bytes"
                click.echo(f"{task.__name__}: {counts}, {took:.1f} s")
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()

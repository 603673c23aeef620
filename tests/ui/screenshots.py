"""Write the pictures of the web UI for README.md and docs/ui.md: `python -m tests.ui.screenshots`.

The auction runs as in tests/e2e/over_http.py until its approval waits, and a worker is killed in round 3. The service
has no clock that can be set: dates, random ids and the order of concurrent calls differ between two sets of pictures.
"""

import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import httpx2
from playwright.sync_api import Browser, Page, expect

from examples import buyer
from examples.negotiation.record import in_flight, read
from examples.negotiation.samples import sample
from tests.browsers import HINT, browser, executable
from tests.docs.pages import ROOT
from tests.e2e.helpers import when
from tests.e2e.over_http import KILL_ROUND, Stage, stage

FOLDER: Final = ROOT / "docs/images"
WIDTH: Final = 1100
HEIGHT: Final = 780
BYTES_MAX: Final = 180_000
APPROVER: Final = "ana"
SCHEMES: Final = ("light", "dark")
TO_GRAPH: Final = """(() => {
    const graph = document.querySelector(".graph");
    if (graph === null) return;
    const node = graph.querySelector(".node.current");
    if (node !== null) node.scrollIntoView({block: "nearest", inline: "center"});
    scrollTo(0, graph.getBoundingClientRect().top + scrollY - 60);
})()"""
"""Script that scrolls a page with a graph to the graph, and the graph to the current node."""


def waiting(made: Stage) -> dict[str, str]:
    """Play until the auction waits for its approval. Return the paths of the pages by the names of their pictures."""
    market = made.open_all()
    today = datetime.now(UTC).date()
    with made.client("buyer") as http, made.client("ops") as ops, made.client(APPROVER) as ana:
        given = sample("leverage", market=market, today=today)
        done = start(http, {**given, "reference": "RFQ-2040"})
        path = f"/v1/approvals/{when(lambda: buyer.waiting(ana, done), made.said)}"
        seen = {"If-Match": ana.get(path).headers["ETag"]}
        buyer.raised(ana.post(f"{path}/decision", json={"decision": "approve", "reason": "in budget"}, headers=seen))
        when(lambda: ops.get(f"/v1/runs/{done}").json()["ended_at"], made.said)
        record = len(read(made.record))
        run = start(http, given)
        when(lambda: in_flight(read(made.record)[record:], "invitations", KILL_ROUND), made.said)
        made.kill(str(when(lambda: ops.get(f"/v1/runs/{run}").json()["owner"], made.said)))
        approval = str(when(lambda: buyer.waiting(ana, run), made.said))
    return {
        "approval": f"/ui/approvals/{approval}",
        "run": f"/ui/runs/{run}",
        "graph": f"/ui/runs/{run}/overview",
        "runs": "/ui/runs",
    }


def start(http: httpx2.Client, given: dict[str, Any]) -> str:
    """Start a purchase and return its run."""
    started = http.post(
        "/v1/workflows/negotiation/runs", json={"input": given}, headers={"Idempotency-Key": given["reference"]}
    )
    buyer.raised(started)
    return str(started.json()["run"])


def signed_in(chromium: Browser, made: Stage, scheme: str) -> Page:
    """Return a page of the approver."""
    size: Any = {"width": WIDTH, "height": HEIGHT}
    page = chromium.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.goto(f"{made.url}/ui/login")
    page.fill("#credential", made.tokens[APPROVER])
    page.keyboard.press("Enter")
    page.wait_for_url(f"{made.url}/ui/approvals")  # the first page of a person who may only decide
    return page


def write(page: Page, url: str, file: Path) -> None:
    """Write the picture of a page. Raises ClickException if it is too large."""
    page.goto(url)
    expect(page.locator("#live-state")).to_have_text("live")
    page.evaluate(TO_GRAPH)
    page.screenshot(path=file)
    if (size := file.stat().st_size) > BYTES_MAX:
        raise click.ClickException(f"{file} has {size:,} bytes, more than {BYTES_MAX:,}")
    click.echo(f"{file.relative_to(ROOT)}  {size:,} bytes")


def main() -> None:
    """Write every picture in both themes."""
    if executable() is None:
        raise click.ClickException(f"no Chromium: {HINT}")
    began = time.monotonic()
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as made, browser() as chromium:
        paths = waiting(made)
        for scheme in SCHEMES:
            page = signed_in(chromium, made, scheme)
            for name, path in paths.items():
                write(page, made.url + path, FOLDER / f"{name}-{scheme}.png")
    click.echo(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except click.ClickException as e:
        e.show()
        sys.exit(e.exit_code)

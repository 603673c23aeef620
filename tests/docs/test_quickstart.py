"""Quickstart: every command runs as printed, in real terminals, with a worker that is really killed."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

LINES_MAX = 25


@pytest.mark.req("RT-2")
def test_the_quickstart_shows_the_real_output(page_runs: dict[Path, tuple[Path, "Future[int]"]]) -> None:
    folder, commands = page_runs[ROOT / "docs/quickstart.md"]
    assert commands.result() >= 10
    assert (folder / "orders.txt").read_text() == "acme 4200\n"


def test_the_workflow_is_as_short_as_the_page_says_and_the_same_in_the_readme() -> None:
    (flows,) = [block.body for block in blocks(ROOT / "docs/quickstart.md") if block.title == "flows.py"]
    assert len([line for line in flows.splitlines() if line.strip()]) <= LINES_MAX
    assert flows in [block.body for block in blocks(ROOT / "README.md")]

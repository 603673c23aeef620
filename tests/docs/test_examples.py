"""The small examples print the output that the pages show."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.terminal import agrees, difference, environment


@pytest.mark.parametrize(
    ("example", "page"),
    [("refund.py", "approvals.md"), ("trip.py", "compensation.md"), ("three_quotes.py", "children.md")],
)
def test_an_example_prints_what_its_page_shows(tmp_path: Path, example: str, page: str) -> None:
    (shown,) = [block.body for block in blocks(ROOT / "docs" / page) if block.language == "text"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert agrees(shown, done.stdout, {}), difference(shown, done.stdout)

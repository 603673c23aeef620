"""The small examples print what the pages say they print."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.docs.terminal import agrees, difference, environment


def test_the_refund_prints_what_the_page_shows(tmp_path: Path) -> None:
    (shown,) = [block.body for block in blocks(ROOT / "docs/approvals.md") if block.language == "text"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/refund.py")],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert agrees(shown, done.stdout, {}), difference(shown, done.stdout)

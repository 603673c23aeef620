"""The first program of the README is as short as the project promises, and runs."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.docs.terminal import environment

LINES_MAX, WORDS_MAX = (
    25,
    90,
)  # with approvals by two people; DBOS needs 21 lines and 73 words for it (docs/coming-from.md)
FIRST = next(block.body for block in blocks(ROOT / "README.md") if block.language == "python")


def test_the_first_program_is_short() -> None:
    assert len([line for line in FIRST.splitlines() if line.strip()]) <= LINES_MAX
    assert len(FIRST.split()) <= WORDS_MAX
    assert "quorum=2" in FIRST


def test_the_first_program_runs(tmp_path: Path) -> None:
    (tmp_path / "refunds.py").write_text(FIRST, encoding="utf-8")
    for _ in range(2):  # the second start with the same key is the same run
        done = subprocess.run(
            [sys.executable, "refunds.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
        )
        assert done.stdout == "receipt-A-1\n"

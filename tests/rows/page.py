"""Write the state and the proof of each row into docs/requirements.md: `python -m tests.rows`."""

import re
from pathlib import Path
from typing import Final

from tests.rows.marks import cited
from tests.rows.removed import sentence_of
from tests.rows.table import ROWS, proofs_of

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "requirements.md"
ROW: Final = re.compile(r"^\| ([A-Z]+-[0-9]+) \| ([^|\n]+) \|[^|\n]*\|$", re.MULTILINE)
MARK: Final = "<!-- proofs -->\n"
END: Final = "<!-- proofs: end -->"


def state_of(one: str) -> str:
    """Return `proven`, `partly` with the part that is missing, or `planned`."""
    if one not in cited():
        return "planned"
    missing = ROWS[one].missing
    return f"partly, without {missing}" if missing else "proven"


def proofs() -> str:
    """Return the table of proofs: each row with its test and the rule without which the test fails."""
    lines = [f"| {one} | `tests/{row.test}` | {sentence_of(row.removal)} |" for one in ROWS for row in proofs_of(one)]
    return "\n".join(["| id | test | fails without this rule |", "|---|---|---|", *lines]) + "\n"


def written(text: str) -> str:
    """Return the text of the page with the states and proofs as they are now."""
    rows, mark, rest = text.partition(MARK)
    rows = ROW.sub(lambda found: f"| {found[1]} | {found[2]} | {state_of(found[1])} |", rows)
    return rows + (f"{mark}{proofs()}{END}{rest.partition(END)[2]}" if mark else "")


def ids() -> list[str]:
    """Return the ids of the page in their order."""
    rows = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    return [found[1] for found in ROW.finditer(rows)]

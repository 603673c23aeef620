"""`python -m tests.rows` writes docs/requirements.md; `--prove [ID …]` runs the tests of rows without their rule."""

import sys

from tests.rows.page import PAGE, written
from tests.rows.proving import prove
from tests.rows.table import ROWS, proofs_of


def main(arguments: list[str]) -> int:
    """Write the page, or prove rows. Returns 1 if the test of a row notices nothing."""
    if not arguments:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    removed = "--with" not in arguments
    chosen = [one for one in arguments if not one.startswith("--")] or list(ROWS)
    wrong = 0
    for one, row in [(each, row) for each in chosen for row in proofs_of(each)]:
        noticed, text = prove(row, removed=removed, limit_s=900)
        wrong += noticed is not removed
        sys.stdout.write(f"{one:8} {'red  ' if noticed else 'green'} {row.removal:34} {text}\n")
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The page of requirements says what the tests prove, and each test fails without the rule that it proves."""

import pytest

from tests import slices
from tests.rows import proving
from tests.rows.marks import cited
from tests.rows.page import PAGE, ROW, ids, state_of, written
from tests.rows.removed import removal_of, sentence_of
from tests.rows.table import ALL, ROWS, Row, proofs_of

PROOFS = [(one, row) for one in ROWS for row in proofs_of(one)]
SHORT = [proof for proof in PROOFS if not proof[1].test.startswith(proving.LONG)]


def test_the_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert written(text) == text, "python -m tests.rows"


def test_the_page_and_the_table_have_the_same_rows() -> None:
    assert ids() == list(ROWS)


@pytest.mark.parametrize("one", ROWS)
def test_a_row_is_proven_by_a_test_or_says_that_it_is_planned(one: str) -> None:
    """Once the page printed four requirements as facts that no code had."""
    assert (one in cited()) is (ROWS[one].missing != ALL), "mark a test, or say PLANNED in tests/rows/table.py"


def test_a_mark_names_a_row() -> None:
    assert cited().keys() <= ROWS.keys()


@pytest.mark.parametrize(("one", "row"), PROOFS)
def test_the_test_of_a_row_is_there_and_cites_it(one: str, row: Row) -> None:
    assert row.test.partition("[")[0] in cited()[one]


@pytest.mark.parametrize("removal", sorted({row.removal for _, row in PROOFS}))
def test_a_removal_is_there_and_says_which_rule_it_takes_away(removal: str) -> None:
    assert callable(removal_of(removal))
    assert sentence_of(removal).endswith(".")


@pytest.mark.parametrize(("one", "row"), slices.params(SHORT, 1, "rows"))
def test_the_test_of_a_row_fails_without_its_rule(one: str, row: Row) -> None:
    noticed, text = proving.prove(row)
    if noticed is None:
        pytest.skip(text)
    assert noticed, text


def test_a_removal_that_its_test_does_not_notice_is_reported() -> None:
    calm = Row(
        "core/test_keys.py::test_idempotency_keys_tell_tenants_runs_and_visits_apart_and_fit_a_header", "no_audit"
    )
    noticed, text = proving.prove(calm)
    assert not noticed, text


def test_a_row_says_what_is_missing() -> None:
    assert state_of("REC-8") == "planned"
    assert state_of("RT-6").startswith("partly, without ")
    assert state_of("RUN-1") == "proven"


def test_a_state_on_the_page_that_is_not_true_is_corrected() -> None:
    line = "| REC-8 | A dead process is known at once. | proven |"
    assert ROW.match(line)
    assert written(line) == line.replace("proven", "planned")

"""Acts of a holder after the answers to its submitted commits: values in, values out (S-7)."""

from itertools import product
from typing import cast

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.run_rows import RUN
from outlast.engine.commit_chain import sort_answers
from outlast.engine.holder_clock import HolderClock
from outlast.engine.late_records import LateRecords
from outlast.errors import Ended, Rejected, Stale, StoreError, Unavailable, Uncertain
from outlast.store.port import Store
from tests.conformance import subject as make
from tests.mutants import remove

OF_RUN = make.run_row(epoch=1)
INTENT = make.effect_row()


def record(key: str) -> Commit:
    """Return a commit that records the answer of an effect."""
    effect = INTENT._replace(key=key)
    return make.record(effect, OF_RUN)._replace(label=f"record {key}")


def run_row_of(visit: int) -> Commit:
    """Return a commit that writes the run row: an advance if the visit is another, else entries of the log."""
    row = make.moved(OF_RUN, visit=visit)
    return Commit((Put(RUN, row, OF_RUN.version), Put(EFFECT, INTENT, 0)), make.fence(OF_RUN), label=f"run {visit}")


ADVANCE, LOG, FIRST, SECOND = run_row_of(2), run_row_of(1), record("a"), record("b")
CHAIN, VERSION, EPOCH = Stale("chain"), Stale("version"), Stale("epoch")
AWAY, LOST, OVER, TOO_LARGE = Unavailable("away"), Uncertain("lost"), Ended("over"), Rejected("too large")


@pytest.mark.req("EFF-1", "RUN-3")
@pytest.mark.parametrize("answer", [AWAY, LOST])
def test_records_of_a_store_that_was_away_are_submitted_again_in_order(answer: StoreError) -> None:
    found = sort_answers([(FIRST, None), (ADVANCE, answer), (SECOND, CHAIN)], refused=False)
    assert (found.again, found.away, found.lost, found.refused) == ([ADVANCE, SECOND], True, [], False)


@pytest.mark.req("EFF-1")
def test_a_refused_commit_is_dropped_and_the_records_behind_it_are_not() -> None:
    found = sort_answers([(FIRST, VERSION), (LOG, CHAIN), (SECOND, CHAIN)], refused=False)
    assert (found.again, found.refused, found.away) == ([SECOND], True, False)


@pytest.mark.req("EFF-1", "CKP-1")
@pytest.mark.parametrize("guarded", [True, False])
def test_an_advance_behind_a_refused_record_is_dropped_with_the_next_visit(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("advance_after_refusal", monkeypatch)
    found = sort_answers([(FIRST, VERSION), (ADVANCE, CHAIN), (SECOND, CHAIN)], refused=False)
    assert found.refused and (found.again == []) is guarded


@pytest.mark.req("EFF-1", "CKP-1")
def test_a_refusal_counts_in_later_rounds() -> None:
    again = sort_answers([(ADVANCE, AWAY), (SECOND, CHAIN)], refused=True)
    assert again.again == [], "it was refused in an earlier round"


@pytest.mark.req("EFF-2", "EFF-3")
@pytest.mark.parametrize("guarded", [True, False])
def test_a_call_that_was_given_up_is_not_made(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Its proof may be stored already, and a successor would make it a second time."""
    if not guarded:
        remove("called_after_giving_up", monkeypatch)
    late = LateRecords(cast(Store, None), OF_RUN.run, cast(HolderClock, None))
    late.intend((1, "a"), INTENT)
    late.intend((1, "b"), None)
    late.intend((1, "c"), INTENT._replace(key="c"))
    assert late.begin_call((1, "c"))
    assert late.give_up() == [INTENT], "of b an earlier attempt may have happened, and c counts as sent"
    assert late.begin_call((1, "a")) is not guarded


@pytest.mark.req("REC-3")
@pytest.mark.parametrize("answer", [EPOCH, OVER, Stale("missing")])
def test_the_answers_of_a_lost_run_are_all_kept_for_evidence(answer: StoreError) -> None:
    found = sort_answers([(FIRST, answer), (SECOND, CHAIN)], refused=False)
    assert (found.lost, found.again) == ([FIRST], [SECOND])


@pytest.mark.req("RUN-3")
def test_a_value_that_no_store_takes_is_reported_and_not_submitted_again() -> None:
    found = sort_answers([(FIRST, TOO_LARGE), (SECOND, CHAIN)], refused=False)
    assert (found.again, found.rejected, found.refused) == ([SECOND], TOO_LARGE, True)


def test_no_commit_overtakes_another_with_any_answers() -> None:
    """Every sequence of three commits, with every answer to each."""
    behind_another = (CHAIN, AWAY, LOST)
    for commits in product((ADVANCE, LOG, FIRST), repeat=3):
        numbered = [commit._replace(label=str(n)) for n, commit in enumerate(commits)]
        for errors in product((None, *behind_another, VERSION, EPOCH, OVER, TOO_LARGE), repeat=3):
            found = sort_answers(zip(numbered, errors, strict=True), refused=False)
            again = [int(commit.label) for commit in found.again]
            assert again == sorted(again) and all(errors[n] in behind_another for n in again)
            dropped = [n for n in range(3) if errors[n] in behind_another and n not in again]
            advances = [n for n in dropped if commits[n] is ADVANCE]
            assert not advances or all(n < advances[0] for n in again)
            records = [n for n in dropped if commits[n] is FIRST]
            assert all(advances and n > advances[0] for n in records), "a record is dropped with its visit only"

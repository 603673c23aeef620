"""Which children a parent undoes: pure decisions on the rows of its ledger (S-30)."""

import pytest

from outlast.core import compensation, verbs
from outlast.core.commit import Instant
from outlast.core.machine import EffectStatus
from outlast.core.recovery import may_have_changed
from outlast.core.rows.effect_columns import CHILD, ChildTerms, ChildUndo
from outlast.core.rows.effect_rows import Effect

RUN = verbs.moved(
    verbs.start(verbs.NewRun("t", "p", "w", "w@1", "a", "", b"{}", 0, "ana"), Instant(1, 1, 0), limited=False)
)


def child(close: str, status: EffectStatus) -> Effect:
    """Return the row of a child that has a plan for its undo."""
    terms = CHILD.encode(ChildTerms(close, undo=ChildUndo("release", "{}", "d")))
    settled = 0 if status is EffectStatus.INTENDED else 5
    return Effect(
        tenant="t", run="p", visit=0, key="c", version=1, status=status, activity="w", digest="d", node="a",
        args=b"{}", response=None, error_text="", external_id="c-1", attempts=1, waited_ms=0, ordinal=2, epoch=1,
        first_at=1, not_after=1, settle_after=0, covered_until=0, approval="", allowed_by="", undo="release",
        settled_at=settled, settled_by="", child_text=terms,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("close", "status", "owed", "must"),
    [
        ("cancel", EffectStatus.INTENDED, False, True),
        ("cancel", EffectStatus.DONE, True, True),
        ("abandon", EffectStatus.INTENDED, False, False),
        ("abandon", EffectStatus.DONE, False, False),
    ],
)
@pytest.mark.req("RUN-13")
def test_a_child_that_goes_on_alone_is_never_undone(close: str, status: EffectStatus, owed: bool, must: bool) -> None:
    """It may complete while its parent undoes: then it would be undone after an effect with a lower number."""
    row = child(close, status)
    assert bool(compensation.owed(RUN, [row])) is owed
    assert compensation.must_undo(RUN, [row]) is must


@pytest.mark.req("RUN-13")
def test_a_living_child_is_no_call_whose_outcome_a_restore_has_lost() -> None:
    """Its run is in the same backup."""
    living = child("cancel", EffectStatus.INTENDED)
    assert may_have_changed(living._replace(child_text="")) and not may_have_changed(living)

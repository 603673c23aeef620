"""Decision which of several waits ends first, and the commit that ends it: pure, without a store (S-29)."""

from itertools import permutations

import pytest

from outlast.core import first_wait
from outlast.core.commit import Put
from outlast.core.first_wait import Bound, Candidate, Winner, first_of
from outlast.core.machine import ApprovalStatus, Reason, WaitStatus
from outlast.core.rows.effect_rows import Approval, Memo, Wait
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import Run
from tests.core.drive import Drive
from tests.models.s20_approvals import question
from tests.models.world import at

NONE = Candidate("none")
EARLY = Candidate("early", 2, 10)
LATE = Candidate("late", 3, 50)
ENDS = Candidate("ends", 0, 0, 40, 45)


@pytest.mark.req("RUN-12")
def test_the_lowest_number_before_the_earliest_deadline_wins() -> None:
    for waits in permutations((NONE, EARLY, LATE, ENDS)):
        assert first_of(waits, 100) == Winner("early", False)
    for waits in permutations((NONE, LATE, ENDS)):
        assert first_of(waits, 100) == Winner("ends", True), "the message came after the deadline"


@pytest.mark.req("RUN-12")
def test_a_message_at_the_instant_of_the_deadline_loses() -> None:
    assert first_of((Candidate("m", 1, 40), ENDS), 100) == Winner("ends", True)
    assert first_of((Candidate("m", 1, 39), ENDS), 100) == Winner("m", False)


@pytest.mark.req("RUN-12")
def test_a_deadline_wins_once_it_has_passed_by_every_clock() -> None:
    assert first_of((NONE, ENDS), 44) is None
    assert first_of((NONE, ENDS), 45) == Winner("ends", True)
    assert first_of((LATE, ENDS), 44) is None, "a message at or after the deadline does not win before it"


@pytest.mark.req("RUN-12")
def test_of_two_deadlines_the_earlier_wins_and_of_equal_ones_the_first() -> None:
    other = Candidate("other", 0, 0, 39, 44)
    assert first_of((ENDS, other), 100) == Winner("other", True)
    same = Candidate("same", 0, 0, 40, 45)
    assert first_of((ENDS, same), 100) == Winner("ends", True)
    assert first_of((same, ENDS), 100) == Winner("same", True)


@pytest.mark.req("RUN-12")
def test_a_set_is_known_by_its_names_in_any_order() -> None:
    assert first_wait.set_key(["a", "b"]) == first_wait.set_key(["b", "a"]) != first_wait.set_key(["a", "c"])


@pytest.mark.req("RUN-12", "GATE-3")
def test_the_commit_of_the_winner_closes_withdraws_remembers_and_takes_the_question_back() -> None:
    drive = Drive().start().claim().declare()
    approval = question(1)
    timeout = Attention(Reason.APPROVAL_TIMEOUT, approval.within_until, "not decided", goes_on=True)
    of_another_set = timeout._replace(since=99)
    ceiling = Attention(Reason.TOTAL_TIMEOUT, 6, "too old")
    run = drive.run._replace(attention_text=ATTENTION.encode([timeout, of_another_set, ceiling]))
    lost = drive.wait._replace(key="lost", name="lost")
    commit = first_wait.end_first(
        run, ["wait?a", "wait?lost", "approval?pay"], "wait?a", bound=Bound(drive.wait, (1,), True), lost=[lost],
        withdrawn=[approval], inbox_seq=1, now=at(9),
    )  # fmt: skip
    rows = [write.row for write in commit.writes if isinstance(write, Put)]
    waits = {row.key: row.status for row in rows if isinstance(row, Wait)}
    assert waits == {drive.wait.key: WaitStatus.BOUND, "lost": WaitStatus.CLOSED}
    assert [row.status for row in rows if isinstance(row, Approval)] == [ApprovalStatus.WITHDRAWN]
    assert "wait?a" in [first_wait.winner_of(row) for row in rows if isinstance(row, Memo) and row.response]
    (left,) = [row.attention for row in rows if isinstance(row, Run)]
    assert left == (of_another_set, ceiling)
    assert commit.fence is not None and commit.fence.inbox_seq == 1

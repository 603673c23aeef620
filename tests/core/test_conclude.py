"""What follows a move of a held run: moves in, commits out. Each commit is landed by the real judge."""

from typing import Any, get_args

import pytest

from outlast.core.commit import Put
from outlast.core.conclude import (
    Admitting,
    Again,
    Completing,
    Conclusion,
    Entering,
    Flagged,
    HandBack,
    HeldRows,
    Move,
    Parked,
    Queueing,
    Relocating,
    Resting,
    Returned,
    StillFlagged,
    Stopping,
    StoreReads,
    Then,
    Unwound,
    ceiling_passed,
    conclude,
    ended_by,
    still_flagged,
)
from outlast.core.events import EventType
from outlast.core.failed_calls import (
    CallCount,
    EmptyEnd,
    FailureLimit,
    WhenEmpty,
    count_calls,
    when_nothing_was_produced,
)
from outlast.core.machine import EffectStatus, Reason, RunStatus
from outlast.core.route import ENGINE, EndCancelled, EndFailed
from outlast.core.rows.effect_rows import Effect, Memo
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_columns import Attention, Ending, Timer, WaitingFor
from outlast.core.rows.run_rows import Event
from outlast.core.rows.store_rows import STORE
from outlast.core.run_transition import LogEntry, SlotChange
from outlast.core.version_move import MoveTarget
from tests.core.drive import Drive
from tests.models.world import MAPPING, at

NOTHING_READ = StoreReads()
BID = Parked("park", WaitingFor("signal", "bid", since=1), Timer("wait bid", 50))
BACK_OFF = Parked("retry", WaitingFor("effect", "pay k", since=1), Timer("retry", 20, real=True))
SETTLES = Parked("await_settle", WaitingFor("effect", "pay k", since=1), Timer("settle", 30, real=True))
ASKED = Attention(Reason.EXCEPTION, 1, "ValueError")
FAILED = Ending(RunStatus.FAILED, "no bids", "")
ENTRY = LogEntry("line", "a line", {})


class Held:
    """A claimed run, and the conclusions that its holder gets."""

    def __init__(self) -> None:
        self.drive = Drive().start().claim()

    def rows(self, **values: Any) -> HeldRows:
        run = self.drive.run
        effects = {(row.visit, row.key): row for row in self.drive.rows if isinstance(row, Effect)}
        return HeldRows(run, run.inbox_seq, MAPPING, effects=effects)._replace(**values)

    def ask(self, move: Move, **values: Any) -> Conclusion:
        """Return the conclusion; nothing lands."""
        return conclude(self.rows(**values), move, at(self.drive.t))

    def land(self, move: Move, **values: Any) -> Conclusion:
        """Land the commit of the conclusion. Every invariant is checked as it lands."""
        end = self.ask(move, **values)
        self.drive.speak(end.commit)
        return end

    def done(self) -> "Held":
        """Record an effect that can be undone."""
        self.drive.intend().settle("record")
        return self


def slot(i: int, holder: str = "r") -> Slot:
    return Slot(STORE, i, 1, "t" if holder else "", holder)


def types(end: Conclusion) -> list[str]:
    """Return the types of the events that a conclusion writes."""
    assert end.commit is not None
    return [write.row.type for write in end.commit.writes if isinstance(write, Put) and isinstance(write.row, Event)]


# --- the next node ---------------------------------------------------------------------------------------
def test_a_node_that_returns_the_next_one_advances() -> None:
    held = Held()
    end = held.land(Entering("b", b'{"n":1}', status_label="BUSY", claim_ms=100))
    run = held.drive.run
    assert (end.then, end.durable, types(end)) == (Then.KEEP, False, [EventType.CHECKPOINT])
    assert (run.node, run.visit, run.status_label, run.due_at) == ("b", 2, "BUSY", at(1).real + 100)


def test_log_entries_land_before_the_next_node_begins() -> None:
    end = Held().land(Entering("b", b"{}"), log_entries=(ENTRY,))
    assert end.durable and types(end) == [EventType.LOGGED, EventType.CHECKPOINT]


def test_a_node_is_entered_max_visits_times() -> None:
    held = Held()
    held.land(Entering("b", b"{}", visits_max=1))
    assert held.ask(Entering("b", b"{}", visits_max=1)).then is Then.READ
    end = held.land(Entering("b", b"{}", visits_max=1), reads=NOTHING_READ)
    assert (end.then, [a.reason for a in end.called]) == (Then.RELEASE, [Reason.VISITS_EXHAUSTED])
    assert (held.drive.run.node, held.drive.run.visit) == ("b", 2)


def test_a_run_moves_to_another_version() -> None:
    held = Held()
    to = MoveTarget("w@2", "renamed", "", {"renamed": 1}, b"{}", "p", "")
    assert held.land(Relocating(to)).then is Then.KEEP
    assert (held.drive.run.lane, held.drive.run.node) == ("w@2", "renamed")


# --- releases --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("parked", "verb"), [((BID,), "park"), ((BID, BACK_OFF), "retry"), ((BID, BACK_OFF, SETTLES), "await_settle")]
)
def test_a_run_whose_waits_cannot_continue_parks(parked: tuple[Parked, ...], verb: str) -> None:
    held = Held()
    end = held.land(Resting(parked))
    run = held.drive.run
    assert end.then is Then.RELEASE and end.commit is not None and f" {verb} " in end.commit.label
    assert (run.owner, [w.what for w in run.waiting_for]) == ("", [p.waiting.what for p in parked])
    assert run.due_at == min(p.armed.at for p in parked if p.armed)


def test_a_message_refuses_the_park_of_a_holder_that_has_not_read_it() -> None:
    held = Held()
    rows = held.rows()
    held.drive.post()
    commit = conclude(rows, Resting((BID,)), at(1)).commit
    assert commit is not None and commit.fence is not None and commit.fence.inbox_seq == held.drive.run.inbox_seq - 1


def test_a_parked_run_returns_its_slots_unless_it_keeps_them() -> None:
    held = Held()
    held.drive.admit()
    free = {"keeps_slots": False, "reads": StoreReads((SlotChange(slot(0)._replace(version=2)),))}
    assert held.ask(Resting((BID,)), keeps_slots=False).then is Then.READ
    assert held.ask(Resting((BACK_OFF,)), keeps_slots=False).then is Then.RELEASE
    kept = held.ask(Resting((BID,)))
    assert kept.commit is not None and not any(isinstance(w, Put) and w.kind is SLOT for w in kept.commit.writes)
    held.land(Resting((BID,)), **free)
    assert held.drive.run.slots == ()


def test_a_flagged_run_waits_for_a_person_and_for_its_effects() -> None:
    held = Held()
    assert held.ask(Flagged((ASKED,))).then is Then.READ
    end = held.land(Flagged((ASKED,), (SETTLES,)), reads=NOTHING_READ, log_entries=(ENTRY,))
    run = held.drive.run
    assert (end.then, end.called, types(end)) == (Then.RELEASE, (ASKED,), [EventType.LOGGED, EventType.FLAGGED])
    assert [w.kind for w in run.waiting_for] == ["attention", "effect"] and run.due_at == 30


def test_the_flag_marks_effects_without_a_further_attempt_uncertain() -> None:
    held = Held()
    held.drive.intend()
    reads = StoreReads(exhausted=((held.drive.effect, "interrupted", "it was cut off"),))
    end = held.land(Flagged((ASKED,)), reads=reads)
    assert held.drive.effect.status is EffectStatus.UNCERTAIN
    assert [(a.reason, a.key, a.detail) for a in end.called][1:] == [
        (Reason.EFFECT_UNCERTAIN, "k", "interrupted: it was cut off")
    ]


def test_text_that_no_store_holds_is_escaped() -> None:
    end = Held().land(Flagged((ASKED._replace(detail="\ud83d"),)), reads=NOTHING_READ)
    assert [a.detail for a in end.called] == ["\\ud83d"]


def test_a_question_without_an_answer_stays_open() -> None:
    held = Held()
    held.land(Flagged((ASKED,)), reads=NOTHING_READ)
    held.drive.post()
    held.drive.claim()
    left = held.drive.run.attention
    end = held.land(StillFlagged(left, (SETTLES,)))
    assert end.then is Then.RELEASE and not end.called
    assert [w.kind for w in held.drive.run.waiting_for] == ["attention", "effect"]
    assert held.drive.run.attention == left


def test_a_run_is_handed_back_due_at_once() -> None:
    held = Held()
    assert held.land(HandBack("the worker drains")).then is Then.RELEASE
    assert (held.drive.run.owner, held.drive.run.due_at) == ("", at(held.drive.t).real)


@pytest.mark.parametrize("move", [Again("a message came"), EndCancelled("ana", "enough")])
def test_an_execution_that_must_see_fresh_rows_reloads_them(move: Move) -> None:
    assert Held().ask(move) == Conclusion(Then.RELOAD)


# --- admission ---------------------------------------------------------------------------------------------
def test_a_free_slot_admits_the_run_and_a_taken_one_queues_it() -> None:
    held = Held()
    held.drive.rows = (*held.drive.rows, slot(0, ""))
    assert held.land(Admitting((slot(0, ""),))).then is Then.KEEP
    assert held.drive.run.slots == ((STORE, 0),)
    other = Held()
    other.drive.rows = (*other.drive.rows, slot(0, "other"))
    assert other.land(Queueing((slot(0, "other"),))).then is Then.RELEASE
    assert (other.drive.run.queue, other.drive.run.owner) == ("t", "")


# --- ends --------------------------------------------------------------------------------------------------
def test_a_node_that_returns_none_completes_the_run() -> None:
    held = Held()
    end = held.land(Completing(b'{"n":2}', {"n": 2}, "AWARDED", {"count": 1, "emitted": 1}))
    assert (end.then, held.drive.run.status, held.drive.run.status_label) == (
        Then.RELEASE, RunStatus.COMPLETED, "AWARDED",
    )  # fmt: skip


def test_a_run_with_slots_reads_their_heirs_before_it_ends() -> None:
    held = Held()
    held.drive.admit()
    assert held.ask(Completing(b"{}", None)).then is Then.READ
    held.land(Completing(b"{}", None), reads=StoreReads((SlotChange(slot(0)._replace(version=2)),)))
    assert (held.drive.run.status, held.drive.run.slots) == (RunStatus.COMPLETED, ())


MISSED = Memo("t", "r", 1, "unanswered?q", "ask", "digest", None, '{"code": "gone"}', 1)


@pytest.mark.parametrize(
    ("mode", "results", "then"),
    [
        ("complete", 0, Then.RELEASE),
        ("fail", 1, Then.RELEASE),
        ("fail", 0, Then.UNWIND),
        ("ask_person", 0, Then.RELEASE),
    ],
)
def test_a_run_without_a_result_whose_calls_failed(mode: Any, results: int, then: Then) -> None:
    held, memos = Held(), {(1, MISSED.key): MISSED}
    move = Completing(b"{}", None, empty=EmptyEnd(mode))
    if mode != "complete":
        assert held.ask(move, memos=memos).then is Then.READ
    end = held.ask(move, memos=memos, reads=StoreReads(results=results))
    assert end.then is then
    if then is Then.UNWIND:
        assert end.ending == Ending(RunStatus.FAILED, "it produced no result, and 1 of its 1 calls failed", "")
    if mode == "ask_person":
        assert [a.reason for a in end.called] == [Reason.RESULTS_MISSING]


@pytest.mark.req("OUT-4", "OUT-7")
@pytest.mark.parametrize("emits", [True, False])
@pytest.mark.parametrize("own_end", [True, False])
@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("outcome", [None, "", " \n", [], {}, "sorry", [1], {"rows": []}, 0, False])
@pytest.mark.parametrize("calls", [CallCount(0, 0), CallCount(0, 3), CallCount(2, 3), CallCount(3, 3)])
def test_how_a_run_without_a_result_ends_by_default(
    emits: bool, own_end: bool, returns: bool, outcome: Any, calls: CallCount
) -> None:
    """The rule in full. The state (`returns` is False) never counts, and the source only if some calls succeeded."""
    something = outcome not in (None, "", " \n", [], {}) or outcome is False
    told_apart = own_end or (returns and something)
    fails = calls.failed > 0 and not told_apart and (emits or calls.failed == calls.settled)
    declared = EmptyEnd(None, emits, returns, own_end)
    assert when_nothing_was_produced(declared, outcome, calls) == ("fail" if fails else "complete")
    for mode in get_args(WhenEmpty):
        said = mode if calls.failed else "complete"
        assert when_nothing_was_produced(declared._replace(when_empty=mode), outcome, calls) == said


def test_a_declared_end_needs_no_further_row() -> None:
    held, memos = Held(), {(1, MISSED.key): MISSED}
    for empty in (EmptyEnd(returns=True), EmptyEnd(own_end=True)):
        assert held.ask(Completing(b"{}", "declined", empty=empty), memos=memos).then is Then.RELEASE
    assert held.ask(Completing(b"{}", "declined"), memos=memos).then is Then.READ
    ending = held.ask(Completing(b"{}", "declined"), memos=memos, reads=StoreReads()).ending
    assert ending is not None and all(way in ending.reason for way in ("end=", "return a value", "when_empty="))


def test_a_run_whose_calls_all_succeeded_may_end_without_a_result() -> None:
    assert Held().ask(Completing(b"{}", None, empty=EmptyEnd("fail"))).then is Then.RELEASE


def lookups(*failed: bool, activity: str = "fetch") -> dict[tuple[int, str], Memo]:
    """Answered and failed lookups."""
    rows = [
        MISSED._replace(key=f"unanswered?{activity}/{n}", activity=activity)
        if bad
        else Memo("t", "r", 1, f"{activity}/{n}", activity, "digest", b"1", "", 1)
        for n, bad in enumerate(failed)
    ]
    return {(row.visit, row.key): row for row in rows}


@pytest.mark.req("OUT-7")
@pytest.mark.parametrize(
    ("failed", "settled", "limit", "fails"),
    [
        (3, 30, FailureLimit(0.1, 1), True),  # 0.1 × 30 is above 3 in floating point
        (2, 30, FailureLimit(0.1, 1), False),
        (3, 30, FailureLimit(0.1, 4), False),
        (1, 30, FailureLimit(0.0001, 1), True),
        (30, 30, FailureLimit(1.0, 1), True),
        (29, 30, FailureLimit(1.0, 1), False),
        (0, 0, FailureLimit(0.5, 1), False),
        (3, 30, FailureLimit(0.1, 1, frozenset({"other"})), False),
        (3, 30, FailureLimit(0.1, 1, frozenset({"fetch", "other"})), True),
    ],
)
def test_a_run_fails_from_both_numbers_on(failed: int, settled: int, limit: FailureLimit, fails: bool) -> None:
    memos = lookups(*(n < failed for n in range(settled)))
    end = Held().ask(Completing(b"{}", None, results={"count": 7, "emitted": 7}, fails_if=limit), memos=memos)
    assert (end.then is Then.UNWIND) is fails
    if fails:
        assert end.ending is not None and end.ending.outcome is RunStatus.FAILED
        assert end.ending.reason.startswith(f"{failed} of its {settled} calls")


@pytest.mark.req("OUT-7")
def test_the_reason_has_the_numbers() -> None:
    end = Held().ask(
        Completing(b"{}", None, fails_if=FailureLimit(0.5, 1, frozenset({"fetch"}))),
        memos=lookups(True, True, False) | lookups(True, activity="other"),
    )
    assert end.ending is not None
    assert end.ending.reason == "2 of its 3 calls of fetch failed (66.7 %), and it fails from 50 % on"


@pytest.mark.req("OUT-7")
def test_calls_are_counted_once_and_verdicts_are_no_calls() -> None:
    """A lookup answered after a failure, a recorded verdict, a log entry: each was once counted as one call more."""
    memos = lookups(True, False)
    again = memos[1, "unanswered?fetch/0"]
    memos |= {(1, "fetch/0"): again._replace(key="fetch/0", error_text="", response=b"1")}
    memos |= {(1, "policy/call/d/1"): MISSED._replace(key="policy/call/d/1", digest="", error_text="", response=b"{}")}
    memos |= {(1, "a/0"): MISSED._replace(key="a/0", activity="outlast.admission", error_text="", response=b"{}")}
    held = Held().done()
    (done,) = held.rows().effects.values()
    assert count_calls(held.rows(memos=memos)) == (0, 3)
    asked = MISSED._replace(key="outlast.model/d", activity="outlast.model", error_text="", response=b"{}")
    assert count_calls(held.rows(memos={**memos, (1, asked.key): asked})) == (0, 4), "a request to a model is a call"
    assert count_calls(held.rows(memos=memos), of={done.activity}) == (0, 1)
    others = {"s": done._replace(key="s", status=EffectStatus.REFUSED)}
    assert count_calls(held.rows(memos=memos, others=others, noted={"s"})) == (1, 4)
    assert count_calls(held.rows(memos=memos, others=others)) == (0, 3), "it only read that row"


def test_the_decision_is_recorded_before_effects_are_undone() -> None:
    held = Held().done()
    end = held.land(Stopping(FAILED, held.drive.run.inbox_seq))
    assert (end.then, types(end)) == (Then.KEEP, [EventType.COMPENSATING])
    assert held.drive.run.ending == FAILED


def test_a_run_with_nothing_to_undo_is_unwound_at_once_and_ends_in_one_commit() -> None:
    held = Held()
    end = held.ask(Stopping(FAILED._replace(reason="\ud83d" * 5_000)))
    assert (end.then, end.commit) == (Then.UNWIND, None) and end.ending is not None
    assert end.ending.reason.startswith("\\ud83d") and len(end.ending.reason) < 5_000
    last = held.land(Unwound(FAILED), snapshot=b'{"n":1}', log_entries=(ENTRY,))
    assert (last.then, types(last)) == (Then.RELEASE, [EventType.LOGGED, EventType.FAILED])


def test_the_end_of_a_compensated_run_lists_its_effects() -> None:
    held = Held().done()
    held.land(Stopping(FAILED))
    held.drive.intend_undo().settle_undo("record")
    assert types(held.ask(Unwound(FAILED)))[0] == EventType.COMPENSATED


@pytest.mark.parametrize(
    ("way", "ending"),
    [
        (EndCancelled("ana", "enough"), Ending(RunStatus.CANCELLED, "cancelled by ana: enough", "ana")),
        (EndCancelled(ENGINE, "stale"), Ending(RunStatus.CANCELLED, "stale", ENGINE)),
        (EndFailed("ana", "hopeless"), Ending(RunStatus.FAILED, "failed by ana: hopeless", "ana")),
    ],
)
def test_no_later_message_changes_the_end_that_a_person_decided(way: EndCancelled | EndFailed, ending: Ending) -> None:
    assert ended_by(way) == Stopping(ending, None)


# --- decisions before a move -------------------------------------------------------------------------------
def test_a_run_passes_its_ceiling_once() -> None:
    run = Held().drive.run._replace(ceiling_at=10)
    assert ceiling_passed(run, 3, at(9)) is None
    assert ceiling_passed(run._replace(ceiling_at=0), 3, at(11)) is None
    passed = ceiling_passed(run, 3, at(10))
    assert passed is not None and (passed.reason, passed.seen) == (Reason.TOTAL_TIMEOUT, 3)


def test_a_flagged_run_keeps_each_wait_that_is_not_for_the_person() -> None:
    asked = (Attention(Reason.EFFECT_UNCERTAIN, 1, "lost", "a"), Attention(Reason.BUDGET_EXHAUSTED, 1, "used up"))
    assert still_flagged(asked, Resting((BID, BACK_OFF, SETTLES))) == StillFlagged(asked, (BID, BACK_OFF, SETTLES))
    assert still_flagged(asked, Returned(None)) == StillFlagged(asked)
    again = Flagged((asked[1]._replace(detail="used up again"),), (SETTLES,))
    assert still_flagged(asked, again) == StillFlagged(asked, (SETTLES,)), "nothing new to tell a person"
    new = Flagged((asked[0]._replace(key="b"),), (SETTLES,))
    assert still_flagged(asked, new) is new

"""History of a run from its events: visits, claims, takeovers, attempts and its end."""

import pytest

from outlast.core.events import EventType
from outlast.core.machine import EffectStatus, LeaseStatus
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.run_rows import Run
from outlast.core.rows.store_rows import Worker
from outlast.core.run_transition import event
from outlast.insight import row_models
from outlast.insight.agent_steps import StepRows, step_page
from outlast.insight.run_history import AttemptSpan, RunHistory, first_intent
from tests.conformance.subject import effect_row, run_row

RUN = run_row(node="pay", visit=2, created_at=1_000, entered_at=5_000, seq=3)
STARTED = (EventType.STARTED, "look", 1, 1_000, {})
Move = tuple[EventType, str, int, int, dict[str, object]]


def claim(at: int, epoch: int = 1, worker: str = "w-1", node: str = "look", visit: int = 1) -> Move:
    return EventType.CLAIMED, node, visit, at, {"worker": worker, "new_epoch": epoch}


def history(*moves: Move, run: Run = RUN) -> RunHistory:
    """Return the history with these events (type, node, visit, at, data) in order."""
    events = [
        event(run._replace(seq=n, node=node, visit=visit), type_, at, data)
        for n, (type_, node, visit, at, data) in enumerate(moves, 1)
    ]
    return RunHistory(run, events)


SAVED: Move = (EventType.CHECKPOINT, "pay", 2, 5_000, {"completed": "look", "next": "pay"})
MOVED: Move = (EventType.MOVED, "look_again", 1, 3_000, {"from": "auction@1", "lane": "auction@2", "by": "ann"})


def test_the_visits_of_a_run() -> None:
    found = history(STARTED, claim(2_000), SAVED).visits
    assert [(v.node, v.visit, v.event, v.entered, v.left) for v in found] == [
        ("look", 1, 1, 1_000, 5_000),
        ("pay", 2, 3, 5_000, 0),
    ]
    assert history(STARTED, claim(2_000), SAVED).visit_at(4_999) == 1
    assert history(STARTED, claim(2_000), SAVED).visit_at(5_000) == 2


@pytest.mark.parametrize("saved", [True, False], ids=["left", "present"])
def test_a_visit_in_which_the_run_was_moved_is_to_the_node_it_was_moved_to(saved: bool) -> None:
    run = RUN if saved else RUN._replace(node="look_again", visit=1, entered_at=1_000)
    found = history(STARTED, claim(2_000), MOVED, *([SAVED] if saved else []), run=run)
    visit = found.visits[0]
    assert (visit.node, len(found.visits)) == ("look_again", 1 + saved)
    assert [visit.node_at(at) for at in (1_000, 2_999, 3_000, 4_999)] == ["look", "look", "look_again", "look_again"]


def test_a_step_is_at_the_node_where_it_happened() -> None:
    found = history(STARTED, claim(2_000), MOVED, SAVED)
    page = step_page(StepRows(found, (), (), (), (), lambda at: at), limit=10)
    (checkpoint,) = page.steps
    assert (checkpoint.what, checkpoint.node, checkpoint.visit, checkpoint.detail) == (
        "look_again", "look_again", 1, "next: pay",
    )  # fmt: skip


def test_a_detail_counts_the_checkpoints_of_its_history() -> None:
    before = row_models.progress_of(history(STARTED), ())
    assert (before.checkpoints, before.last_checkpoint_at) == (0, None)
    after = row_models.progress_of(history(STARTED, claim(2_000), SAVED), ())
    assert after.checkpoints == 1 and after.last_checkpoint_at is not None


def test_a_claim_ends_with_the_release_and_the_last_one_lasts() -> None:
    parked: Move = (EventType.PARKED, "look", 1, 3_000, {"waiting_for": []})
    logged: Move = (EventType.FLAGGED, "look", 1, 2_500, {"key": "ceiling/9", "text": "total_timeout"})
    found = history(STARTED, claim(2_000), logged, parked, claim(4_000, 2, "w-2"))
    assert [(span.begin, span.end, span.event.seq) for span in found.held] == [(2_000, 3_000, 2), (4_000, 0, 5)]
    assert [(span.begin, span.end) for span in found.waited] == [(1_000, 2_000), (3_000, 4_000)]
    assert found.holders == {1: "w-1", 2: "w-2"}
    assert found.last_claim is found.events[-1]
    ended: Move = (EventType.FINISHED_WELL, "look", 1, 6_000, {"outcome": None, "reason": "", "not_undone": []})
    assert history(STARTED, claim(2_000), ended).held[-1].end == 6_000
    assert history(STARTED).last_claim is None


def test_takeovers_count_from_the_last_heartbeat() -> None:
    dead = Worker("*", "w-1", 2, LeaseStatus.CLOSED, 6_000, "claim@1", "", 0, 4_000, "")
    moves = history(
        STARTED,
        (EventType.TAKEN_OVER, "look", 1, 7_000, {"worker": "w-2", "from": "w-1"}),
        (EventType.TAKEN_OVER, "look", 1, 9_000, {"worker": "w-3", "from": "w-9"}),
    )
    first, second = moves.takeovers([dead], lambda at: at)
    assert (first.from_, first.to, first.after_ms) == ("w-1", "w-2", 3_000)
    assert second.after_ms is None


def call(attempts: int, **changes: object) -> Effect:
    row = effect_row()._replace(first_at=2_500, settled_at=0, status=EffectStatus.INTENDED, attempts=attempts)
    return row._replace(**changes)  # type: ignore[arg-type]


THREE_CLAIMS = history(
    STARTED, claim(2_000), (EventType.PARKED, "look", 1, 3_000, {}), claim(4_000, 2),
    (EventType.PARKED, "look", 1, 4_500, {}), claim(6_000, 3), (EventType.PARKED, "look", 1, 7_000, {}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("effect", "attempts"),
    [
        (call(3), [(1, 2_500, 3_000, 2), (2, 4_000, 4_500, 4), (3, 6_000, 7_000, 6)]),
        (call(5), [(1, 2_500, 3_000, 2), (2, 4_000, 4_500, 4), (5, 6_000, 7_000, 6)]),
        (call(2), [(1, 2_500, 3_000, 2), (2, 6_000, 7_000, 6)]),
        (call(1, status=EffectStatus.DONE, settled_at=2_800), [(1, 2_500, 2_800, 2)]),
        (call(1, status=EffectStatus.DONE, first_at=2_900, settled_at=2_800), [(1, 2_800, 2_800, 2)]),
        (call(1, status=EffectStatus.UNCERTAIN, first_at=6_100), [(1, 6_100, 7_000, 6)]),
        (call(1, status=EffectStatus.DONE, first_at=100, settled_at=200), [(1, 100, 200, 0)]),
    ],
    ids=["one-a-claim", "more-than-claims", "a-claim-without", "settled", "clock-ahead", "uncertain", "no-claim"],
)
def test_attempts_are_cut_where_the_claim_changed(effect: Effect, attempts: list[tuple[int, int, int, int]]) -> None:
    assert THREE_CLAIMS.attempts(effect, lambda at: at, 9_000) == [AttemptSpan(*each) for each in attempts]


def test_a_call_begins_at_its_first_intent_and_not_after_its_end() -> None:
    assert first_intent(call(1), lambda at: at + 5) == 2_505
    assert first_intent(call(1, settled_at=2_501), lambda at: at + 5) == 2_501


def test_an_ending() -> None:
    data: dict[str, object] = {"outcome": {"a": 1}, "reason": "x", "not_undone": ["pay pay/7"]}
    assert row_models.ending_of(history((EventType.FAILED, "pay", 2, 9_000, data))) == data
    assert row_models.ending_of(history(STARTED)) == {}
    assert RunHistory(RUN, ()).end is None


def test_a_history_without_events_is_one_visit() -> None:
    """Retention may have deleted the events of an ended run."""
    (visit,) = RunHistory(RUN._replace(ended_at=9_000), ()).visits
    assert (visit.node, visit.visit, visit.left) == ("pay", 2, 9_000)
    assert RunHistory(RUN, ()).entry(2) == RunHistory(RUN, ()).entry(7)


def test_each_fact_is_derived_once() -> None:
    found = history(STARTED, claim(2_000), SAVED)
    assert found.visits is found.visits and found.held is found.held and found.holders is found.holders

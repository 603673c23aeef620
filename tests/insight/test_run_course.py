"""How a run spent its time, from its events and calls."""

from outlast.core.events import EventType
from outlast.core.machine import RunStatus
from outlast.core.rows.run_rows import Event, Run
from outlast.core.run_transition import event
from outlast.insight.run_course import TimeSpent, run_time
from outlast.insight.run_history import RunHistory
from outlast.store.measured_rows import MeasuredCall
from tests.conformance.subject import run_row

RUN = run_row(
    node="pay", visit=2, created_at=1_000, entered_at=5_000, seq=9, ended_at=30_000, status=RunStatus.COMPLETED
)
WAITS_FOR = {"waiting_for": [{"kind": "timer", "what": "a rest"}]}
ASKS = {"waiting_for": [{"kind": "approval", "what": "ap-1"}, {"kind": "timer", "what": "a deadline"}]}


def claim(at: int, epoch: int) -> tuple[EventType, str, int, int, dict[str, object]]:
    return (
        EventType.CLAIMED,
        "pay" if at > 5_000 else "look",
        2 if at > 5_000 else 1,
        at,
        {"worker": "w", "new_epoch": epoch},
    )


def history(run: Run = RUN) -> RunHistory:
    """Return a run that waits for a worker 500 ms, rests 1 s in its first node and asks a person for 20 s."""
    moves = [
        (EventType.STARTED, "look", 1, 1_000, {}),
        claim(1_500, 1),
        (EventType.PARKED, "look", 1, 3_000, WAITS_FOR),
        claim(4_000, 2),
        (EventType.CHECKPOINT, "pay", 2, 5_000, {"completed": "look", "next": "pay"}),
        (EventType.PARKED, "pay", 2, 6_000, ASKS),
        claim(26_000, 3),
        (EventType.FINISHED_WELL, "pay", 2, 30_000, {}),
    ]
    events: list[Event] = [
        event(run._replace(seq=n, node=node, visit=visit), type_, at, data)
        for n, (type_, node, visit, at, data) in enumerate(moves, 1)
    ]
    return RunHistory(run, events)


def test_waits_for_people_are_told_apart_from_other_waits_and_calls() -> None:
    calls = [MeasuredCall(2_000, 2_500), MeasuredCall(2_200, 2_700), MeasuredCall(27_000, 29_000)]
    found = run_time(history(), calls, lambda real: real)
    assert found.spent == TimeSpent(29_000, 20_000, 1_500, 2_700)
    assert [(each.node, each.spent) for each in found.visits] == [
        ("look", TimeSpent(4_000, 0, 1_500, 700)),
        ("pay", TimeSpent(25_000, 20_000, 0, 2_000)),
    ]


def test_a_call_counts_while_a_worker_held_the_run() -> None:
    found = run_time(history(), [MeasuredCall(5_500, 0)], lambda real: real)
    assert found.spent.calls == 500 + 4_000  # it has no end, and the run was parked from 6 s to 26 s
    ahead = run_time(history(), [MeasuredCall(500, 2_500)], lambda real: real + 1_500)
    assert ahead.spent.calls == 500


def test_a_flagged_run_waits_for_a_person() -> None:
    run = RUN._replace(visit=1, node="look", entered_at=1_000)
    moves = [
        (EventType.STARTED, 1_000, {}),
        (EventType.CLAIMED, 2_000, {"worker": "w", "new_epoch": 1}),
        (EventType.FLAGGED, 3_000, {"reasons": ["exception"], "detail": ""}),
        (EventType.REQUEUED, 8_000, {}),
        (EventType.CLAIMED, 9_000, {"worker": "w", "new_epoch": 2}),
        (EventType.FAILED, 30_000, {}),
    ]
    events = [event(run._replace(seq=n), type_, at, data) for n, (type_, at, data) in enumerate(moves, 1)]
    found = run_time(RunHistory(run, events), (), lambda real: real)
    assert found.spent == TimeSpent(29_000, 5_000, 2_000, 0)

"""The timeline of a run, from rows that are made here: spans, attempts, waits, marks and groups."""

import json
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.commit import Instant
from outlast.core.events import TYPES, EventType
from outlast.core.machine import ENDED, ApprovalStatus, EffectStatus, RunStatus, WaitStatus
from outlast.core.rows.effect_rows import Approval, Effect, Wait
from outlast.core.rows.run_columns import WAITING_FOR, WaitingFor
from outlast.core.rows.run_rows import Event, Run
from outlast.errors import InvalidInput
from outlast.insight.run_history import RunHistory
from outlast.insight.run_timeline import BARS_MAX, TimelineRows, grouped_bars, timeline_of
from outlast.models import exact_instant, milliseconds
from outlast.models.timeline import Timeline, TimelineBar
from tests.conformance.subject import approval_row, effect_row, run_row

T = 1_000_000


def event(seq: int, kind: str, at: int, *, visit: int = 1, node: str = "plan", **data: Any) -> Event:
    details = json.dumps(data, separators=(",", ":")).encode() if data else b""
    return Event(
        "acme",
        "run-1",
        seq,
        kind.removeprefix(TYPES),
        T + at,
        node,
        visit,
        seq,
        1,
        "auction",
        "",
        "",
        details,
        "",
        None,
    )


def history(*given: tuple[str, int, dict[str, Any]]) -> list[Event]:
    return [event(n, kind, at, **data) for n, (kind, at, data) in enumerate(given, 1)]


def parked(at: int, kind: str, what: str, **more: Any) -> tuple[str, int, dict[str, Any]]:
    wait = WaitingFor(kind, what, **more)._asdict()  # type: ignore[arg-type]
    return EventType.PARKED, at, {"waiting_for": [wait]}


STARTED = (EventType.STARTED, 0, {"by": "ann"})
CLAIMED = (EventType.CLAIMED, 1, {"worker": "w-1", "new_epoch": 1})
COMPLETED = {"outcome": None, "reason": "", "not_undone": []}


def over(at: int, **changes: Any) -> Run:
    return run_row(
        created_at=T, ended_at=T + at, owner=ENDED, status=RunStatus.COMPLETED, due_at=None, entered_at=T, **changes
    )


def waiting(*waits: WaitingFor) -> Run:
    return run_row(created_at=T, waiting_for_text=WAITING_FOR.encode(waits), status=RunStatus.WAITING, entered_at=T)


def call(**changes: Any) -> Effect:
    row = effect_row()._replace(
        status=EffectStatus.DONE, first_at=T + 2, settled_at=T + 9, settled_by="call", response=b'"ok"', error_text=""
    )
    return row._replace(**changes)


def drawn(
    run: Run,
    events: list[Event],
    effects: tuple[Effect, ...] = (),
    waits: tuple[Wait, ...] = (),
    approvals: tuple[Approval, ...] = (),
    **span: Any,
) -> Timeline:
    now = Instant(T + 1_000, T + 1_000, 0)
    history = RunHistory(run, events)
    rows = TimelineRows(history, effects, waits, approvals, (), now, lambda at: at, lambda at: at)
    return timeline_of(rows, **span)


def spans(found: Timeline, kind: str) -> list[tuple[str, int, int | None, str]]:
    """Return what, begin, end and outcome of the bars of a kind."""
    return [
        (bar.wait or bar.what, milliseconds(bar.began) - T, milliseconds(bar.ended) - T if bar.ended else None,
         bar.outcome)
        for bar in found.bars
        if bar.kind == kind
    ]  # fmt: skip


@pytest.mark.req("OBS-4")
def test_a_retry_that_parks_the_run_is_two_attempts() -> None:
    events = history(
        STARTED, CLAIMED, parked(4, "retry", "attempt 2 of 5 of invite", who="http_503"),
        (EventType.CLAIMED, 8, {"worker": "w-1", "new_epoch": 3}), (EventType.FINISHED_WELL, 12, COMPLETED),
    )  # fmt: skip
    found = drawn(over(12), events, (call(attempts=2, first_at=T + 2, settled_at=T + 10),))
    assert spans(found, "attempt") == [("invite", 2, 4, "repeated"), ("invite", 8, 10, "done")]
    assert [(bar.attempt, bar.attempts, bar.event) for bar in found.bars if bar.kind == "attempt"] == [
        (1, 2, 2), (2, 2, 4),
    ]  # fmt: skip
    assert spans(found, "wait") == [("worker", 0, 1, "ended"), ("retry", 4, 8, "ended")]
    assert spans(found, "visit") == [("plan", 0, 12, RunStatus.COMPLETED.value)]
    assert [(mark.kind, mark.event) for mark in found.marks] == [("ended", 5)]


def test_a_crash_cuts_the_call_and_is_marked() -> None:
    events = history(
        STARTED, CLAIMED, (EventType.TAKEN_OVER, 6, {"worker": "w-2", "new_epoch": 2, "from": "w-1"}),
        (EventType.REQUEUED, 8, {"from": "w-2", "held": 3}), (EventType.CLAIMED, 9, {"worker": "w-3", "new_epoch": 4}),
    )  # fmt: skip
    run = run_row(created_at=T, owner="w-3", status=RunStatus.RUNNING, entered_at=T)
    open_call = call(status=EffectStatus.INTENDED, settled_at=0, settled_by="", response=None, attempts=3)
    found = drawn(run, events, (open_call,))
    assert spans(found, "attempt") == [
        ("invite", 2, 6, "repeated"), ("invite", 6, 8, "repeated"), ("invite", 9, None, "open"),
    ]  # fmt: skip
    assert [(mark.kind, mark.text) for mark in found.marks] == [
        ("takeover", "w-2 took it over from w-1"), ("crash", "worker w-2 is gone"),
    ]  # fmt: skip
    assert (found.ended, found.takeovers[0].to) == (None, "w-2")


def test_an_uncertain_call_ends_where_the_worker_gave_the_run_back() -> None:
    flag = {"reasons": ["effect_uncertain"], "detail": "no answer"}
    events = history(STARTED, CLAIMED, (EventType.FLAGGED, 20, flag))
    doubt = call(status=EffectStatus.UNCERTAIN, settled_at=0, settled_by="", response=None)
    found = drawn(waiting(WaitingFor("attention", "a person: effect_uncertain", since=T + 20)), events, (doubt,))
    assert spans(found, "attempt") == [("invite", 2, 20, "uncertain")]
    assert spans(found, "wait")[-1] == ("attention", 20, None, "open")
    assert [mark.kind for mark in found.marks] == ["attention"]


def test_a_run_that_is_woken_and_parks_again_waits_once() -> None:
    ask = {"what": "ap-1 «Refund 5»", "who": "finance", "since": T + 3, "until": T + 90, "then": "REQUIRES_ATTENTION"}
    events = history(
        STARTED, CLAIMED, parked(4, "approval", **ask), (EventType.CLAIMED, 6, {"worker": "w-1", "new_epoch": 3}),
        parked(7, "approval", **ask), (EventType.CLAIMED, 40, {"worker": "w-1", "new_epoch": 5}),
    )  # fmt: skip
    run = run_row(created_at=T, owner="w-1", status=RunStatus.RUNNING, entered_at=T)
    answered = approval_row()._replace(status=ApprovalStatus.APPROVED)
    found = drawn(run, events, approvals=(answered,))
    assert spans(found, "wait")[1:] == [("approval", 3, 40, "approved")]
    (bar,) = [bar for bar in found.bars if bar.approval]
    assert (bar.approval, bar.who, bar.event) == ("ap-1", "finance", 3)
    assert bar.until == exact_instant(T + 90)


@pytest.mark.parametrize(("binding", "outcome"), [("deadline", "deadline"), ("[1]", "ended")])
def test_a_wait_for_a_signal_says_how_it_ended(binding: str, outcome: str) -> None:
    events = history(
        STARTED, CLAIMED, parked(4, "signal", "bid", since=T + 4, until=T + 30),
        (EventType.CLAIMED, 30, {"worker": "w-1", "new_epoch": 3}),
    )  # fmt: skip
    wait = Wait("acme", "run-1", 1, "bid", 2, WaitStatus.BOUND, "receive", "bid", T + 30, 0, binding, T + 4)
    run = run_row(created_at=T, owner="w-1", status=RunStatus.RUNNING, entered_at=T)
    assert spans(drawn(run, events, waits=(wait,)), "wait")[-1] == ("signal", 4, 30, outcome)


def test_a_log_entry_of_a_release_releases_nothing() -> None:
    tripped = {"key": "ceiling/9", "text": "total_timeout", "reasons": ["total_timeout"]}
    events = history(STARTED, CLAIMED, (EventType.FLAGGED, 5, tripped), (EventType.FINISHED_WELL, 12, COMPLETED))
    found = drawn(over(12), events, (call(),))
    assert spans(found, "attempt") == [("invite", 2, 9, "done")]
    assert [mark.kind for mark in found.marks] == ["attention", "ended"]


def test_a_run_that_was_moved_is_in_the_lane_of_the_node_that_completed_its_visit() -> None:
    moved = event(3, EventType.MOVED, 5, node="plan_again", lane="auction@2", by="ann")
    saved = event(4, EventType.CHECKPOINT, 9, visit=2, node="done", completed="plan_again", next="done")
    run = run_row(created_at=T, entered_at=T + 9, owner="w-1", status=RunStatus.RUNNING, node="done", visit=2)
    found = drawn(run, [*history(STARTED, CLAIMED), moved, saved])
    assert [(visit.node, visit.visit) for visit in found.visits] == [("plan_again", 1), ("done", 2)]
    assert spans(found, "visit") == [("plan_again", 0, 9, "done"), ("done", 9, None, "open")]


def test_an_open_run_has_its_next_deadline_and_a_part_of_time_its_bars() -> None:
    waits = (WaitingFor("signal", "bid", since=T + 4, until=T + 5_000, then="continues without it"),)
    events = history(STARTED, CLAIMED, parked(4, "signal", "bid", since=T + 4, until=T + 5_000))
    found = drawn(waiting(*waits), events)
    assert found.next_deadline == exact_instant(T + 5_000)
    assert found.next_text == "signal bid: continues without it"
    assert (found.began, found.to) == (exact_instant(T), exact_instant(T + 1_000))
    late = drawn(waiting(*waits), events, begin=exact_instant(T + 100), end=exact_instant(T + 200))
    assert [bar.kind for bar in late.bars] == ["visit", "wait"] and late.total == 2
    assert drawn(waiting(*waits), events, end=exact_instant(T + 1)).bars[-1].wait == "worker"
    with pytest.raises(InvalidInput):
        drawn(waiting(), events, begin=exact_instant(T + 2), end=exact_instant(T))
    with pytest.raises(InvalidInput):
        drawn(waiting(), events, begin=exact_instant(T).replace(tzinfo=None))


def bars(n: int, nodes: int = 1) -> list[TimelineBar]:
    (bar,) = [each for each in drawn(over(12), history(STARTED, CLAIMED), (call(),)).bars if each.kind == "attempt"]
    return [
        bar.model_copy(
            update={
                "id": f"attempt/{i}", "node": f"n{i % nodes}", "began": exact_instant(T + i),
                "ended": None if i == n - 1 else exact_instant(T + i + 1),
                "outcome": "uncertain" if i == 7 else "done",
            }
        )
        for i in range(n)
    ]  # fmt: skip


@pytest.mark.parametrize(("n", "nodes"), [(401, 1), (5_000, 3), (5_000, 200), (5_000, 700)])
def test_many_bars_are_grouped_by_lane(n: int, nodes: int) -> None:
    found = grouped_bars(bars(n, nodes), T, T + n)
    assert len(found) <= BARS_MAX and sum(bar.count for bar in found) == n
    assert sum(bar.ended is None for bar in found) == 1
    assert "uncertain" in {bar.outcome for bar in found}
    assert found[0].began == exact_instant(T)
    assert [bar.began for bar in found] == sorted(bar.began for bar in found)


def test_few_bars_stay_as_they_are() -> None:
    assert grouped_bars(bars(400, 4), T, T + 400) == bars(400, 4)


def test_a_long_history_is_drawn_in_few_bars() -> None:
    """5,000 events and 500 effects take 0.15 s; a page that shows them has 0.2 s."""
    events = [event(1, EventType.STARTED, 0)]
    for n in range(2, 5_000, 2):
        events.append(event(n, EventType.CLAIMED, n, worker="w-1", new_epoch=n))
        wait = WaitingFor("signal", f"bid-{n}", since=T + n)._asdict()
        events.append(event(n + 1, EventType.PARKED, n + 1, waiting_for=[wait]))
    effects = tuple(call(key=f"k/{n}", first_at=T + n * 10, settled_at=T + n * 10 + 1) for n in range(500))
    found = drawn(waiting(), events, effects, end=exact_instant(T + 10_000))
    assert found.grouped and found.total > 2_900 and len(found.bars) <= BARS_MAX
    assert max(bar.count for bar in found.bars) > 1
    assert found.to - found.began >= timedelta(seconds=1)

"""Every commit fits into one transaction of DynamoDB, also if all its parts have their maximum size."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from outlast.core import attention, budget, effect_verbs, mailbox, recovery, verbs
from outlast.core.commit import AppendMessage, Commit, Drop, Expect, Fence, Put, Wake, actions_of, in_portions
from outlast.core.conclude import (
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
    Stopping,
    StoreReads,
    Then,
    Unwound,
    conclude,
)
from outlast.core.limits import (
    ACTIONS_MAX,
    ARGUMENTS_BYTES_MAX,
    CALLS_PER_VISIT_MAX,
    COMMIT_BYTES_MAX,
    INPUT_BYTES_MAX,
    LOG_ENTRIES_MAX,
    LOG_ENTRY_BYTES_MAX,
    MODELS_PER_ATTEMPT_MAX,
    ROW_BYTES_MAX,
    SMALL_ROWS_MAX,
)
from outlast.core.machine import Choice, EffectStatus, LeaseStatus, Reason, RunStatus
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import EFFECT, MEMO, Approval, Effect, Memo
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_columns import Attention, Ending, WaitingFor
from outlast.core.rows.run_rows import EVENT, RUN, TOKEN
from outlast.core.rows.store_rows import STORE, WRITER, Writer
from outlast.core.run_transition import LogEntry, SlotChange, write_log
from outlast.core.usage import Used
from outlast.core.version_move import MoveTarget
from outlast.engine.snapshots import first_snapshot
from outlast.errors import Rejected
from outlast.store.bounds import check
from tests.conformance.subject import T0, approval_row, effect_row, event_row, message_row, run_row, token_row
from tests.core.drive import Drive
from tests.models.world import MAPPING, at

SLOTS = 2_000  # of both limits of a run


def row_of_run(**changes: Any) -> Any:
    """Return the row of a run that a worker holds, with a large text."""
    return Drive().start().claim().run._replace(queue="t", **changes)


def entries(n: int) -> tuple[LogEntry, ...]:
    return tuple(LogEntry(f"line/{i}", "x" * (LOG_ENTRY_BYTES_MAX - 200), {}) for i in range(n))


def approvals_of(run: Any, n: int, size: int = 1_000) -> dict[str, Approval]:
    rows = [approval_row(f"ap-{i}", run.run, run.tenant)._replace(plans_text="x" * size) for i in range(n)]
    return {row.id: row for row in rows}


def effects_of(run: Any, n: int, status: EffectStatus = EffectStatus.INTENDED, size: int = 10) -> list[Effect]:
    rows = [effect_row(run.run, f"k/{i}", run.tenant)._replace(args=b"x" * size, status=status) for i in range(n)]
    if status is not EffectStatus.REFUSED:
        return rows
    error = ERROR.encode(EffectError(Reason.RETRIES_EXHAUSTED.value, "tried 3 times"))
    return [row._replace(error_text=error, settled_at=T0, settled_by="call") for row in rows]


def slots_of(run: Any) -> StoreReads:
    """Return slots that a run frees, two of each limit, with their heirs, and all the others of its limits."""
    mine = [Slot(tenant, i, 1, run.tenant, run.run) for tenant in (STORE, run.tenant) for i in (1, 2)]
    freed = tuple(SlotChange(slot, run_row(f"heir-{n}", run.tenant)) for n, slot in enumerate(mine))
    return StoreReads(freed, tuple(Slot(STORE, i, 1, "t", f"r-{i}") for i in range(3, SLOTS)))


MOVES: dict[str, Move] = {
    "advance": Entering("b", b"{}", results={"count": 9, "emitted": 9}),
    "complete": Completing(b"{}", {"x": "y" * 200_000}),
    "fail": Unwound(Ending(RunStatus.FAILED, "no bids", "")),
    "compensate": Stopping(Ending(RunStatus.CANCELLED, "a person", "p"), 0),
    "park": Resting((Parked("park", WaitingFor("signal", "bid", since=1), None),)),
    "queue": Queueing(tuple(Slot(STORE, i, 1, "t", f"r-{i}") for i in range(SLOTS))),
    "hand back": HandBack("the worker drains"),
    "flag": Flagged((Attention(Reason.EXCEPTION, 1, "ValueError"),), (), (Expect(TOKEN, ("t", "", "day"), 1),)),
    "move": Relocating(MoveTarget("w@2", "b", "", {"b": 1}, b"{}", "p", "")),
}


def landed(rows: HeldRows, end: Conclusion) -> HeldRows:
    """Return the rows after the commit of a conclusion that is asked again."""
    assert end.commit is not None
    written = [write.row for write in end.commit.writes if isinstance(write, Put)]
    memos = {row.key for row in written if isinstance(row, Memo)}
    left = tuple(e for e in rows.log_entries if f"tell/{e.key}" not in memos)
    run = next((row for row in written if isinstance(row, type(rows.run))), rows.run)
    asked = {**rows.approvals, **{row.id: row for row in written if isinstance(row, Approval)}}
    return rows._replace(run=run, log_entries=left, approvals=asked)


def commits_of(rows: HeldRows, move: Move) -> Iterator[tuple[HeldRows, Commit]]:
    """Yield the commits of a move as the holder lands them, each with the rows before it."""
    for _ in range(1_000):
        end = conclude(rows, move, at(5))
        assert end.commit is not None
        yield rows, end.commit
        if end.then is not Then.AGAIN:
            return
        rows = landed(rows, end)
    raise AssertionError("the holder never comes to an end")


def largest(name: str, large: bool) -> HeldRows:
    """Return rows with the maximum of everything that the commits of a move can hold, by number or by size."""
    run = row_of_run()
    size, n = (ROW_BYTES_MAX - 5_000, 6) if large else (1_000, CALLS_PER_VISIT_MAX)
    effects = effects_of(run, n, size=ARGUMENTS_BYTES_MAX if large else 10)
    if name == "compensate":
        effects = [effects[0]._replace(undo="cancel_invite")]
    return HeldRows(
        run, run.inbox_seq, MAPPING, entries(60), keeps_slots=False, approvals=approvals_of(run, n, size),
        effects={(e.visit, e.key): e for e in effects},
        reads=slots_of(run)._replace(exhausted=tuple((e, "exhausted", "3 attempts") for e in effects)),
    )  # fmt: skip


@pytest.mark.parametrize("large", [False, True], ids=["many", "large"])
@pytest.mark.parametrize("name", MOVES)
def test_every_move_of_a_holder_fits(name: str, large: bool) -> None:
    rows = largest(name, large)
    commits = [commit for _, commit in commits_of(rows, MOVES[name])]
    for commit in commits:
        check(commit)
    assert len(commits) > 1, "so the bounds of a move are reached"
    withdrawn = {w.row.id for c in commits for w in c.writes if isinstance(w, Put) and isinstance(w.row, Approval)}
    if name in ("complete", "fail", "compensate"):
        assert withdrawn == rows.approvals.keys(), "no approval of a run that ends stays open"


def test_a_start_with_the_largest_input_fits() -> None:
    run = Drive().start().run
    snapshot, chunks = first_snapshot("t", "r", os.urandom(INPUT_BYTES_MAX), 1)
    event = event_row()._replace(snapshot=snapshot)
    check(Commit((Put(RUN, run, 0), Put(EVENT, event, 0), Put(TOKEN, token_row(), 0), *chunks)))


def test_a_restore_of_a_run_with_many_uncertain_calls_fits() -> None:
    run = row_of_run()
    for effects in (effects_of(run, 300), effects_of(run, 20, size=ARGUMENTS_BYTES_MAX)):
        *first, last = in_portions(recovery.open_after_restore(effects, at(5)))
        for portion in first:
            check(Commit(portion, expects=(Expect(RUN, run[:2], run.version),)))
        left = [e for e in effects if any(put.row[:4] == e[:4] for put in last)]
        check(recovery.restore_run(run, left, generation=2, actor="p", now=at(5), mapping=MAPPING))


@pytest.mark.parametrize("choice", [Choice.RETRY, Choice.GIVE_UP])
def test_an_answer_about_many_calls_fits(choice: Choice) -> None:
    run = row_of_run()
    refused = effects_of(run, CALLS_PER_VISIT_MAX, EffectStatus.REFUSED)
    entries_ = tuple(Attention(Reason.RETRIES_EXHAUSTED, 1, "", e.key, e.visit) for e in refused)
    run = run._replace(attention_text=attention.ATTENTION.encode(entries_))
    rows = attention.AttentionRows(run, tuple(refused), tuple(approvals_of(run, 200).values()))
    answer = attention.AttentionAnswer(choice, "try again")
    commit = attention.person_answers(rows, answer, actor="p", now=at(5)).commit
    first, last = mailbox.before_message(commit)
    for each in (*first, last):
        check(each)
    assert isinstance(last.writes[0], AppendMessage)
    assert not any(isinstance(write, AppendMessage) for each in first for write in each.writes)
    keys = {w.row.key for c in (*first, last) for w in c.writes if isinstance(w, Put) and isinstance(w.row, Effect)}
    assert keys == {e.key for e in refused}
    # a process that died between the first two commits left the others to a second answer
    gone = {w.row.key for w in first[0].writes if isinstance(w, Put) and isinstance(w.row, Effect)}
    reopened = [w.row for w in first[0].writes if isinstance(w, Put) and isinstance(w.row, Effect)]
    rows = rows._replace(effects=(*reopened, *(e for e in refused if e.key not in gone)))
    again = attention.person_answers(rows, answer, actor="p", now=at(5)).commit
    assert len(again.writes) < len(commit.writes)


def test_a_cancel_of_a_run_with_many_approvals_fits() -> None:
    run = row_of_run()
    for n, size in ((CALLS_PER_VISIT_MAX, 100), (6, ROW_BYTES_MAX - 5_000)):
        check(mailbox.cancel(run, tuple(approvals_of(run, n, size).values()), actor="p", reason="r", now=at(5)))


def test_log_entries_usage_and_decisions_of_the_policy_fit() -> None:
    run = row_of_run()
    check(write_log(run, entries(LOG_ENTRIES_MAX), now=at(5)))
    used = [Used(1, f"model-{i}", 2, 1, 1, 3, 1) for i in range(1_000)]
    rows = budget.usage_rows(run, (1, "k"), "ask", used, after=0, now=at(5))
    assert len(rows) == MODELS_PER_ATTEMPT_MAX
    assert [sum(row.tokens for row in rows), sum(row.money for row in rows)] == [2_000, 3_000]
    memos = [Memo(run.tenant, run.run, 1, f"m/{i}", "", "", b"{}", "", 1) for i in range(CALLS_PER_VISIT_MAX)]
    commits = effect_verbs.remember_all(run, memos)
    for commit in commits:
        check(commit)
    assert sum(len(commit.writes) for commit in commits) == len(memos)


def test_a_chunk_of_results_fits() -> None:
    assert verbs.CHUNK_ROWS + 2 < ACTIONS_MAX


# --- the count -------------------------------------------------------------------------------------------
HELD = run_row()._replace(version=2, owner="worker", status=RunStatus.RUNNING)
FENCE = Fence("acme", "run-1", 1, 1)
MESSAGE = AppendMessage(message_row())


@pytest.mark.parametrize(
    ("commit", "actions"),
    [
        (Commit((Put(TOKEN, token_row(), 0),)), 2),
        (Commit((Put(EVENT, event_row(), 0),)), 3),
        (Commit((Put(EFFECT, effect_row(), 0),), FENCE), 3),
        (Commit((Put(RUN, HELD, 1), Put(EVENT, event_row(), 0)), FENCE), 4),
        (Commit((Put(RUN, HELD, 1), Put(EVENT, event_row(), 0))), 5),
        (Commit((MESSAGE, Put(TOKEN, token_row(), 0))), 4),
        (Commit((MESSAGE, MESSAGE)), 4),
        (Commit((Wake("acme", "run-1"),), expects=(Expect(RUN, ("acme", "run-1"), 1),)), 2),
        (Commit((Drop("acme", "run-1", 1),)), 2),
        (Commit((Put(TOKEN, token_row(), 0),), expects=(Expect(SLOT, (STORE, 1), 1),)), 3),
        (Commit((Put(WRITER, Writer(STORE, "w", 2, LeaseStatus.CLOSED, 0, 1), 1),)), 18),
    ],
    ids=["row", "event", "fence", "move", "claim", "message", "messages", "wake", "drop", "expect", "writer"],
)
def test_actions_are_counted(commit: Commit, actions: int) -> None:
    assert actions_of(commit) == actions


def test_a_large_row_counts_its_further_items() -> None:
    big = Memo("acme", "run-1", 1, "k", "", "", b"x" * (ROW_BYTES_MAX - 100), "", 1)
    few = [Put(TOKEN, token_row(str(i)), 0) for i in range(ACTIONS_MAX - 5)]
    check(Commit((*few, Put(MEMO, big, 0))))
    with pytest.raises(Rejected, match="101 actions in one commit; the limit is 100"):
        check(Commit((*few, Put(TOKEN, token_row("one more"), 0), Put(MEMO, big, 0))))


def test_portions_hold_all_rows_in_order() -> None:
    puts = [Put(TOKEN, token_row(str(i)), 0) for i in range(SMALL_ROWS_MAX * 3 + 1)]
    portions = in_portions(puts, SMALL_ROWS_MAX)
    assert [put for portion in portions for put in portion] == puts
    assert [len(portion) for portion in portions] == [SMALL_ROWS_MAX] * 3 + [1]
    large = [Put(MEMO, Memo("t", "r", 1, str(i), "", "", b"x" * 500_000, "", 1), 0) for i in range(5)]
    assert [len(portion) for portion in in_portions(large, bytes_max=COMMIT_BYTES_MAX // 3)] == [2, 2, 1]
    assert in_portions([]) == []

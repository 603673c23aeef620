"""Verbs keep the invariants, in any order: random sequences of the table's moves."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.core import attention, effect_verbs, mailbox, run_transition, verbs
from outlast.core.commit import Put
from outlast.core.durations import Liveness
from outlast.core.machine import ENDED, TERMINAL, ApprovalStatus, EffectStatus, Reason, RunStatus, can
from outlast.core.row_checks import check_run
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import has_expired
from outlast.core.run_transition import LogEntry
from outlast.core.verbs import moved
from outlast.engine.lease import opened
from outlast.errors import Corrupt, IllegalMove
from tests.core.drive import INTENT, WAITING, Drive
from tests.models.world import MAPPING, at, land

GIVES = ("park", "retry", "await_settle", "hand_back", "flag", "queue")
MOVES = (*GIVES, "claim", "take_over", "advance", "admit", "post", "complete", "fail", "cancel", "tick")
ENDS = {"complete": RunStatus.COMPLETED, "fail": RunStatus.FAILED, "cancel": RunStatus.CANCELLED}


def speak(drive: Drive, move: str) -> None:
    """One move, where the run may make it; `Drive` checks numbers, chain, mail and epochs as each lands."""
    run = drive.run
    held = run.owner not in ("", ENDED)
    if move == "tick":
        drive.t += 1
    elif move == "post" and run.owner != ENDED:
        drive.post()
    elif move == "claim" and run.owner == "" and run.due_at is not None and run.due_at <= drive.t:
        drive.claim()
    elif move == "take_over" and held:
        drive.take_over()
    elif held and move in GIVES:
        drive.give(move)
    elif held and move in ENDS:
        drive.finish(ENDS[move])
    elif held and move == "advance":
        drive.advance(log_entries=[LogEntry(f"k{run.visit}", "said", {"n": 1})])
    elif held and move == "admit" and not run.slots:
        drive.admit()


@pytest.mark.req("RUN-2", "RUN-3", "OUT-1")
@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(MOVES), max_size=30))
def test_numbers_have_no_gap_epochs_never_fall_and_an_ended_run_never_changes(moves: list[str]) -> None:
    drive = Drive().start()
    for move in ["claim", *moves]:
        before = drive.run
        speak(drive, move)
        after = drive.run
        check_run(after)
        assert after.version in (before.version, before.version + 1)
        assert after.epoch in (before.epoch, before.epoch + 1)
        assert (after.epoch > before.epoch) == (move not in ("advance", "admit") and after.version > before.version)
        if before.status in TERMINAL:
            assert after == before


@pytest.mark.req("RUN-3")
@pytest.mark.parametrize("verb", [*GIVES, *ENDS])
def test_a_give_back_raises_the_epoch_and_names_the_mail(verb: str) -> None:
    drive = Drive().start().claim().post()
    before = drive.run
    commit = give(drive, verb)
    after = moved(commit)
    assert after.epoch == before.epoch + 1 and after.owner in ("", ENDED)
    assert commit.fence is not None and commit.fence[:4] == (before.tenant, before.run, before.epoch, before.visit)
    assert commit.fence.inbox_seq == before.inbox_seq
    assert after.inbox_seq == before.inbox_seq, "a holder's write never sets the mail"
    drive.post()
    assert land(drive.rows, commit, drive.t).refused == "inbox_seq"


def give(drive: Drive, verb: str) -> "verbs.Commit":
    run, now, inbox_seq = drive.run, at(drive.t), drive.run.inbox_seq
    if verb in ENDS:
        return verbs.finish(
            run,
            ENDS[verb],
            inbox_seq=inbox_seq,
            state=b"{}",
            result=None,
            reason="",
            not_undone=(),
            approvals=(),
            slots=(),
            now=now,
        )
    if verb == "flag":
        return attention.flag(run, [Attention(Reason.EXCEPTION, 1)], inbox_seq=inbox_seq, now=now, mapping=MAPPING)
    if verb == "queue":
        return run_transition.queue(run, (), now=now, mapping=MAPPING)
    if verb == "hand_back":
        return verbs.hand_back(run, inbox_seq=inbox_seq, now=now, mapping=MAPPING, why="")
    return verbs.park(run, verb, inbox_seq=inbox_seq, waiting=WAITING, timers=(), now=now, mapping=MAPPING)


@pytest.mark.req("RUN-3", "FAIL-6")
def test_a_replaced_holder_writes_nothing() -> None:
    drive = Drive().start().claim()
    old = drive.run
    drive.take_over()
    late = [
        verbs.advance(old, node="b", status_label="", state=b"{}", now=at(1), claim_ms=9),
        effect_verbs.intend(old, INTENT, None, ordinal=1, now=at(1)),
        verbs.hand_back(old, inbox_seq=None, now=at(1), mapping=MAPPING, why=""),
    ]
    assert [land(drive.rows, commit, 1).refused for commit in late] == ["epoch"] * 3


@pytest.mark.req("RUN-2")
def test_calling_a_person_keeps_position_and_visit() -> None:
    drive = Drive().start().claim().advance()
    before = drive.run
    drive.give("flag")
    assert drive.run.status is RunStatus.WAITING
    assert (drive.run.node, drive.run.visit) == (before.node, before.visit) and drive.run.attention


def test_an_ended_run_takes_no_note() -> None:
    drive = Drive().start().claim().finish(RunStatus.COMPLETED)
    commit = mailbox.append_message(tenant="t", run="r", kind="signal", name="n", actor="a", now=at(1))
    assert land(drive.rows, commit, 1).refused == "ended"


def test_no_verb_but_a_post_and_the_store_touches_mail() -> None:
    drive = Drive().start().claim().post()
    stale = drive.run._replace(inbox_seq=0)
    commit = verbs.advance(stale, node="b", status_label="", state=b"{}", now=at(1), claim_ms=9)
    drive.speak(commit)
    assert drive.run.inbox_seq == 1


def test_end_withdraws_pending_approvals() -> None:
    drive = Drive().start().claim().ask().finish(RunStatus.CANCELLED)
    assert drive.approval.status is ApprovalStatus.WITHDRAWN


def test_a_repeated_log_entry_is_one_row_in_front_of_its_move() -> None:
    drive = Drive().start().claim()
    commit = verbs.advance(
        drive.run,
        node="b",
        status_label="",
        state=b"{}",
        now=at(1),
        claim_ms=9,
        log_entries=[LogEntry("a", "x", {}), LogEntry("b", "y", {})],
    )
    events = [json.loads(w.row.body) for w in commit.writes if isinstance(w, Put) and hasattr(w.row, "body")]
    assert [e["sequence"] for e in events] == ["0000000003", "0000000004", "0000000005"]
    assert [e["type"].rpartition(".")[2] for e in events] == ["logged", "logged", "checkpoint"]


@pytest.mark.req("EFF-2", "EFF-3")
def test_did_not_happen_waits_for_the_quiet_time() -> None:
    drive = Drive().start().claim().intend().settle("mark_uncertain")
    commit = mailbox.resolve_effect(drive.effect, "did_not_happen", by="p", reason="", now=at(1))
    quiet = drive.effect.settle_after
    assert land(drive.rows, commit, quiet - 1).refused == "settle"
    drive.t = quiet
    drive.speak(commit)
    assert drive.effect.status is EffectStatus.REFUSED and can("intend", drive.effect.status)


@pytest.mark.req("EFF-2")
def test_an_effect_resolved_as_happened_needs_a_response() -> None:
    effect = Drive().start().claim().intend().settle("mark_uncertain").effect
    with pytest.raises(Corrupt, match="done without a response"):
        mailbox.resolve_effect(effect, "happened", by="p", reason="", now=at(1))


def test_no_move_out_of_turn() -> None:
    queued = Drive().start().run
    with pytest.raises(IllegalMove, match="cannot advance from queued"):
        verbs.advance(queued, node="b", status_label="", state=b"{}", now=at(1), claim_ms=9)


@pytest.mark.req("EFF-3")
def test_an_intent_ends_with_its_slice() -> None:
    drive = Drive().start().claim(claim_ms=INTENT.timeout_ms + 700)
    effect = effect_verbs.intended(effect_verbs.intend(drive.run, INTENT, None, ordinal=1, now=at(1)))
    assert drive.run.due_at is not None
    assert effect.not_after + INTENT.timeout_ms <= drive.run.due_at
    assert effect.settle_after == effect.not_after + INTENT.timeout_ms + INTENT.settle_margin_ms


@pytest.mark.req("EFF-3")
def test_a_shorter_timeout_does_not_end_the_settle_time_of_an_earlier_attempt() -> None:
    """A deploy shortens it between two attempts, of which the first may still arrive."""
    drive = Drive().start().claim().intend()
    before = drive.effect
    shorter = INTENT._replace(timeout_ms=INTENT.timeout_ms // 2)
    commit = effect_verbs.intend(drive.run, shorter, before, ordinal=1, now=at(drive.t))
    assert effect_verbs.intended(commit).settle_after == before.settle_after


# --- instants that one process wrote, judged by the clock of another (S-4) ------------------------------
SKEW = 4_000


@pytest.mark.req("REC-1", "REC-6")
def test_an_owned_run_is_due_only_once_its_budget_is_over_by_every_clock() -> None:
    held = Drive().start().claim(claim_ms=9).run
    assert held.due_at is not None
    claims = {
        real: verbs.claim(held, worker="w2", now=at(real), claim_ms=9, skew=SKEW)
        for real in (held.due_at, held.due_at + SKEW - 1, held.due_at + SKEW)
    }
    assert [commit is not None for commit in claims.values()] == [False, False, True]
    closed = verbs.claim(held, worker="w2", now=at(held.due_at), claim_ms=9, closed={held.owner: 1}, skew=SKEW)
    assert closed is not None, "the row of a dead worker was closed by its lease, not by the budget"
    free = Drive().start().run
    assert free.due_at is not None
    assert verbs.claim(free, worker="w2", now=at(free.due_at), claim_ms=9, skew=SKEW) is not None


@pytest.mark.req("REC-6")
def test_a_lease_ends_by_every_clock() -> None:
    worker = opened("w", name="", lanes="", now_real=1_000, now_business=1, live=Liveness())
    last = worker.lease_until
    assert [has_expired(worker, last + more, SKEW) for more in (0, SKEW - 1, SKEW)] == [False, False, True]
    assert has_expired(worker, last, 0)


@pytest.mark.req("REC-6", "RUN-4")
def test_a_deadline_waits_for_messages_that_were_stamped_before_it() -> None:
    faster = MAPPING._replace(version=2, rate=10.0)
    assert effect_verbs.closes_at(50_000, MAPPING, 0) == 50_000
    assert effect_verbs.closes_at(50_000, MAPPING, SKEW) == 50_000 + SKEW
    assert effect_verbs.closes_at(50_000, faster, SKEW) == 50_000 + 10 * SKEW, "the skew is real time"


@pytest.mark.req("EFF-3")
def test_a_further_attempt_by_a_clock_that_is_behind_is_a_sound_row() -> None:
    drive = Drive(t=9_000).start().claim(claim_ms=90_000).intend()
    brief = INTENT._replace(start_budget_ms=1_000)
    again = effect_verbs.intend(drive.run, brief, drive.effect, ordinal=1, now=at(9_000 - SKEW))
    row = effect_verbs.intended(again)
    assert row.first_at == 9_000 - SKEW and row.not_after > row.first_at


# --- an exhaustive small world: every order of up to five moves of one effect --------------------------
EFFECT_VERBS = ("intend", "record", "settle", "refuse", "mark_uncertain", "defer", "happened", "give_up", "reopen")


def one_more(drive: Drive, verb: str) -> Drive:
    """The same world one move of its effect later."""
    if verb in ("happened", "give_up"):
        return drive.resolve(verb)
    if verb in ("intend", "reopen"):
        return drive.intend() if verb == "intend" else drive.reopen()
    return drive.settle(verb)


def reachable(depth: int) -> list[Effect]:
    """Every effect row that `depth` moves can make."""
    found: dict[Row, None] = {}
    todo = [Drive().start().claim().intend()]
    for _ in range(depth):
        after: list[Drive] = []
        for drive in todo:
            found[drive.effect] = None
            verbs_now = [verb for verb in EFFECT_VERBS if can(verb, drive.effect.status)]
            after += [one_more(Drive(drive.t, drive.rows), verb) for verb in verbs_now]
        todo = after
    return [row for row in found if isinstance(row, Effect)]


@pytest.mark.req("EFF-1", "EFF-2")
def test_every_order_of_an_effects_moves_leaves_a_sound_row() -> None:
    rows = reachable(5)
    assert {row.status for row in rows} == set(EffectStatus) - {EffectStatus.UNDONE}
    assert all((row.response is not None) == (row.status is EffectStatus.DONE) for row in rows)
    assert all(row.attempts <= row.version for row in rows)


def test_a_run_row_holds_no_cargo() -> None:
    """The row has at most 1 KB; other rows hold large values."""
    drive = Drive().start().claim().give("park")
    assert sum(len(str(value)) for value in drive.run) < 1_024
    assert isinstance(drive.run, Run) and RUN.key == 2

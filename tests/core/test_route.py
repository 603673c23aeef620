"""Routes of a claimed run: every reason for attention, every mailbox, every status of its effect."""

import json
from itertools import product

import pytest

from outlast.core.attention import AttentionRows, person_continues
from outlast.core.commit import Instant
from outlast.core.durations import APPROVAL_STALE_AFTER
from outlast.core.machine import CHOICES, OVERLAY_ONLY, Choice, EffectStatus, Reason
from outlast.core.mailbox import GIVEN_UP, REOPENED
from outlast.core.route import (
    ANSWERED_BY_CONTINUE,
    ENGINE,
    STALE_REASON,
    Answer,
    EndCancelled,
    EndFailed,
    Rest,
    WalkOn,
    route,
)
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import Message, Run
from outlast.errors import Conflict
from tests.core.drive import Drive

RUN: Run = Drive().start().claim().run
EFFECT: Effect = Drive().start().claim().intend().effect
NOW = 2
SEEN = 2  # the mailbox as it was read when the person was called
MAILBOXES = [(), ("signal",), ("continue",), ("decision", "resolve"), ("cancel",), ("continue", "cancel")]
EFFECTS = [None, *EffectStatus]
CASES = list(product([None, *Reason], MAILBOXES, EFFECTS, (SEEN, SEEN + 5)))


def note(n: int, kind: str) -> Message:
    return Message("t", "r", n, kind, kind, b'{"reason":"no more"}', "", "ann", 0)


def entry(reason: Reason) -> Attention:
    return Attention(reason, 1, "", "k", 1, seen=SEEN)


def expected(reason: Reason | None, kinds: tuple[str, ...], status: EffectStatus | None, first: int) -> object:
    """A cancel has priority, then the run rests while an answer is missing, else its node is executed."""
    if "cancel" in kinds:
        return EndCancelled("ann", "no more")
    if reason is None:
        return WalkOn()
    a = entry(reason)
    if reason in ANSWERED_BY_CONTINUE and "continue" in kinds and first > SEEN:
        return WalkOn((), (Answer(a, ANSWERED_BY_CONTINUE[reason], "ann", "no more", 0),))
    if reason is Reason.EFFECT_UNCERTAIN and status is not EffectStatus.UNCERTAIN:
        return WalkOn((), (Answer(a, Choice.HAPPENED, EFFECT.settled_by if status else "", "", 0),))
    return WalkOn((a,)) if reason in OVERLAY_ONLY else Rest((a,))


@pytest.mark.parametrize("reason", [None, *Reason])
def test_every_reason_mailbox_and_effect(reason: Reason | None) -> None:
    for _, kinds, status, first in (case for case in CASES if case[0] is reason):
        run = RUN._replace(attention_text=ATTENTION.encode([entry(reason)] if reason else []))
        notes = [note(first + i, kind) for i, kind in enumerate(kinds)]
        effects = {(1, "k"): EFFECT._replace(status=status)} if status else {}
        assert route(run, notes, effects, NOW) == expected(reason, kinds, status, first), (kinds, status, first)


def test_rest_names_only_what_is_still_open() -> None:
    open_, answered = Attention(Reason.EFFECT_UNCERTAIN, 1, "", "k", 1), Attention(Reason.EXCEPTION, 1, seen=SEEN)
    run = RUN._replace(attention_text=ATTENTION.encode([open_, answered]))
    effects = {(1, "k"): EFFECT._replace(status=EffectStatus.UNCERTAIN)}
    found = route(run, [note(SEEN + 1, "continue")], effects, NOW)
    assert found == Rest((open_,), (Answer(answered, Choice.CONTINUE, "ann", "no more", 0),))


def test_a_continue_read_before_the_person_was_called_answers_nothing() -> None:
    run = RUN._replace(attention_text=ATTENTION.encode([Attention(Reason.EXCEPTION, 1, seen=SEEN)]))
    assert isinstance(route(run, [note(SEEN, "continue")], {}, NOW), Rest)


def test_continue_answers_what_offers_to_go_on() -> None:
    """A reason whose choices include `continue` is answered by it."""
    assert {reason for reason, choices in CHOICES.items() if Choice.CONTINUE in choices} <= set(ANSWERED_BY_CONTINUE)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason not in ANSWERED_BY_CONTINUE])
def test_a_refused_continue_names_an_answer_of_the_reason(reason: Reason) -> None:
    run = RUN._replace(attention_text=ATTENTION.encode([entry(reason)]))
    with pytest.raises(Conflict, match=f"continue does not answer {reason}") as refused:
        person_continues(AttentionRows(run), actor="ann", reason="mended", now=Instant(NOW, NOW, 0))
    named = refused.value.fix.replace("-", "_")
    assert any(choice in named for choice in CHOICES[reason] if choice is not Choice.CANCEL), refused.value.fix


# --- answers by reason, and the week after which an approval is stale --------------------------------------
ANSWERS = [(reason, choice) for reason in Reason for choice in CHOICES[reason] if reason is not Reason.EFFECT_UNCERTAIN]


def said(reason: Reason, choice: Choice, *, n: int = SEEN + 1, key: str = "", by_ms: int = 0) -> Message:
    payload = {"choice": choice.value, "key": key, "reason": "why", "by_ms": by_ms}
    return Message("t", "r", n, "answer", reason.value, json.dumps(payload).encode(), "", "ann", 0)


@pytest.mark.req("GATE-3", "GATE-4")
@pytest.mark.parametrize(("reason", "choice"), ANSWERS)
def test_every_choice_of_every_reason(reason: Reason, choice: Choice) -> None:
    """Cancel and fail end the run, other answers continue it. Older messages and other keys are ignored."""
    run = RUN._replace(attention_text=ATTENTION.encode([entry(reason)]))
    want: object = WalkOn((), (Answer(entry(reason), choice, "ann", "why", 5),))
    if choice in (Choice.CANCEL, Choice.FAIL):
        want = {Choice.CANCEL: EndCancelled, Choice.FAIL: EndFailed}[choice]("ann", "why")
    if (reason, choice) == (Reason.CHILD_FAILED, Choice.FAIL):  # the child is on the path of the failure
        want = EndFailed("ann", "why", child="1:k")
    for key in ("", "k"):
        assert route(run, [said(reason, choice, key=key, by_ms=5)], {}, NOW) == want
    still = WalkOn((entry(reason),)) if reason in OVERLAY_ONLY else Rest((entry(reason),))
    assert route(run, [said(reason, choice, n=SEEN)], {}, NOW) == still
    assert route(run, [said(reason, choice, key="another")], {}, NOW) == still


@pytest.mark.req("GATE-3")
@pytest.mark.parametrize("reason", list(Reason))
def test_only_an_undecided_approval_goes_stale(reason: Reason) -> None:
    """Seven days to the millisecond, counted from its own entry, whatever other reasons the run has (S-21)."""
    beside = Attention(Reason.TOTAL_TIMEOUT, -10 * APPROVAL_STALE_AFTER, seen=SEEN)
    run = RUN._replace(attention_text=ATTENTION.encode([beside, entry(reason)]))
    assert not isinstance(route(run, [], {}, APPROVAL_STALE_AFTER), EndCancelled)
    stale = route(run, [], {}, 1 + APPROVAL_STALE_AFTER)
    assert (stale == EndCancelled(ENGINE, STALE_REASON)) is (reason is Reason.APPROVAL_TIMEOUT)
    if reason is Reason.APPROVAL_TIMEOUT:
        in_time = said(reason, Choice.ASK_AGAIN)
        assert isinstance(route(run, [in_time], {}, 1 + APPROVAL_STALE_AFTER), WalkOn), "answered is answered"


@pytest.mark.req("EFF-2")
@pytest.mark.parametrize(
    ("code", "choice"),
    [(REOPENED, Choice.DID_NOT_HAPPEN), (GIVEN_UP, Choice.GIVE_UP), ("", Choice.HAPPENED)],
)
def test_the_answer_to_an_uncertain_effect_is_passed_on_unchanged(code: str, choice: Choice) -> None:
    run = RUN._replace(attention_text=ATTENTION.encode([entry(Reason.EFFECT_UNCERTAIN)]))
    error = json.dumps({"code": code, "detail": "asked them"}) if code else ""
    row = EFFECT._replace(status=EffectStatus.REFUSED if code else EffectStatus.DONE, error_text=error, settled_by="op")
    found = route(run, [], {(1, "k"): row}, NOW)
    assert isinstance(found, WalkOn) and (found.answers[0].choice, found.answers[0].by) == (choice, "op")

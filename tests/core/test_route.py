"""What a holder does with a run it has just claimed: every reason, every mailbox, every state of its effect."""

from itertools import product

import pytest

from outlast.core.machine import CHOICES, Choice, EffectStatus, Reason
from outlast.core.overlay import Attention, dump_attention
from outlast.core.route import ANSWERED_BY_CONTINUE, Cancel, Rest, WalkOn, route
from outlast.core.rows import Effect, Note, Run
from tests.core.drive import Drive

RUN: Run = Drive().start().claim().run
EFFECT: Effect = Drive().start().claim().intend().effect
SEEN = 2  # the mailbox as it was read when the person was called
MAILBOXES = [(), ("signal",), ("continue",), ("decision", "resolve"), ("cancel",), ("continue", "cancel")]
EFFECTS = [None, *EffectStatus]
CASES = list(product([None, *Reason], MAILBOXES, EFFECTS, (SEEN, SEEN + 5)))


def note(n: int, kind: str) -> Note:
    return Note("t", "r", n, kind, kind, b'{"reason":"no more"}', "", "ann", 0)


def expected(reason: Reason | None, kinds: tuple[str, ...], status: EffectStatus | None, first: int) -> object:
    """The rule in one breath: cancel before all else, then rest while a person has not answered, else walk."""
    if "cancel" in kinds:
        return Cancel("ann", "no more")
    if reason is None:
        return WalkOn()
    continued = reason in ANSWERED_BY_CONTINUE and "continue" in kinds and first > SEEN
    settled = reason is Reason.EFFECT_UNCERTAIN and status is not EffectStatus.UNCERTAIN
    if continued or settled:
        return WalkOn(cleared=True, one_more=reason is Reason.VISITS_EXHAUSTED)
    return Rest


@pytest.mark.parametrize("reason", [None, *Reason])
def test_every_reason_mailbox_and_effect(reason: Reason | None) -> None:
    for _, kinds, status, first in (case for case in CASES if case[0] is reason):
        run = RUN._replace(attention=dump_attention([Attention(reason, 1, "", "k", 1, SEEN)] if reason else []))
        notes = [note(first + i, kind) for i, kind in enumerate(kinds)]
        effects = {(1, "k"): EFFECT._replace(status=status)} if status else {}
        found = route(run, notes, effects)
        want = expected(reason, kinds, status, first)
        assert found == want if not isinstance(want, type) else isinstance(found, want), (kinds, status, first)


def test_rest_names_only_what_is_still_open() -> None:
    open_, answered = Attention(Reason.EFFECT_UNCERTAIN, 1, "", "k", 1), Attention(Reason.EXCEPTION, 1, seen=SEEN)
    run = RUN._replace(attention=dump_attention([open_, answered]))
    effects = {(1, "k"): EFFECT._replace(status=EffectStatus.UNCERTAIN)}
    assert route(run, [note(SEEN + 1, "continue")], effects) == Rest((open_,))


def test_a_continue_read_before_the_person_was_called_answers_nothing() -> None:
    run = RUN._replace(attention=dump_attention([Attention(Reason.EXCEPTION, 1, seen=SEEN)]))
    assert isinstance(route(run, [note(SEEN, "continue")], {}), Rest)


def test_continue_answers_what_offers_to_go_on() -> None:
    """A reason whose choices include `continue` is answered by it, unless a later release brings that reason."""
    later = {Reason.POISONED, Reason.RESTORED, Reason.RESULTS_MISSING}
    offered = {reason for reason, choices in CHOICES.items() if Choice.CONTINUE in choices}
    assert offered - later <= ANSWERED_BY_CONTINUE

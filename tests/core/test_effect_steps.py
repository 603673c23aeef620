"""The next step of an effect, decided from values (S-17, S-19, S-20)."""

from typing import Any

import pytest

from outlast.core.commit import Instant
from outlast.core.effect_steps import (
    Answered,
    AskReceiver,
    Defer,
    DidNotHappen,
    Happened,
    Intend,
    Known,
    LeaveOpen,
    MarkUncertain,
    Maybe,
    Moment,
    No,
    Purpose,
    RecordResponse,
    Refuse,
    Terms,
    Unknown,
    Unsent,
    WaitUntil,
    next_step,
)
from outlast.core.effect_verbs import TOO_LATE
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_columns import ERROR, EffectError
from tests.insight.situations import EFFECT

START, DEFERRED, CANCEL = Moment.START, Moment.DEFERRED, Moment.CANCEL
NOW = Instant(100_000, 100_000, 1)
ASK = Terms(False, 3, 60_000, 1_000, 2.0, 45_000, 0, 10_000, 5_000, 5_000)
RECONCILE = ASK._replace(asks_receiver=True)
RESEND = ASK._replace(remembered_for=100_000)
BOTH = RECONCILE._replace(remembered_for=100_000)
# an effect whose second attempt was intended a second ago and may have been sent
OPEN = EFFECT._replace(
    status=EffectStatus.INTENDED, attempts=2, first_at=90_000, not_after=104_000, settle_after=119_000, undo="refund"
)
SETTLED = NOW._replace(real=120_000)
LATE = NOW._replace(real=170_001)  # an attempt begun now arrives after the receiver has forgotten the first
MAYBE, PROBING, RESTORED = Known(maybe_done=True), Known(probing=True), Known(restored=True)
EARLIER = Known(maybe_done=True, in_transit=True)
AGAIN = Intend(maybe_done=True, in_transit=True)
LAPSED = "approval_lapsed"
EXHAUSTED = "retries_exhausted"


def effect(code: str = "", until: int = 0, **changes: Any) -> Any:
    """Return the open effect, deferred with this code if one is given."""
    error = ERROR.encode(EffectError(code, "it was away", until)) if code else ""
    return OPEN._replace(error_text=error, **changes)


def ending(terms: Terms) -> Terms:
    """Return the terms of the same call when its run ends."""
    return terms._replace(purpose=Purpose.SETTLE)


def shown(step: Any) -> Any:
    """Return a step without the sentence for people."""
    if isinstance(step, AskReceiver):
        return step._replace(first=shown(step.first)) if step.first else step
    return step._replace(detail="") if hasattr(step, "detail") else step


GONE = effect("away", settle_after=0)  # its latest attempt had no effect
PUT_OFF = effect("away", until=105_000, settle_after=0)
DOUBTED = effect("timeout")  # its latest attempt may have happened
NEW = {
    "no row": (None, ASK, START, NOW, Known(), Intend()),
    "reopened": (effect(status=EffectStatus.REFUSED), ASK, START, NOW, Known(), Intend()),
    "undone": (effect(status=EffectStatus.UNDONE), ASK, START, NOW, Known(), Intend()),
    "no row, restored": (None, ASK, START, NOW, RESTORED, Intend(maybe_done=True, lost=True)),
    "undone, restored": (effect(status=EffectStatus.UNDONE), ASK, START, NOW, RESTORED, Intend(True, lost=True)),
    "no row, restored, in a transaction": (
        None, ASK._replace(in_transaction=True), START, NOW, RESTORED, Intend()
    ),
}  # fmt: skip
FOUND_OPEN = {
    "cut off": (OPEN, ASK, START, NOW, Known(), MarkUncertain("interrupted", "")),
    "cut off, and now in a transaction": (
        OPEN, ASK._replace(in_transaction=True), START, NOW, Known(), MarkUncertain("interrupted", "")
    ),
    "cut off, restored": (OPEN._replace(attempts=1), ASK, START, NOW, RESTORED, MarkUncertain("restored", "")),
    "the receiver can be asked": (OPEN, RECONCILE, START, NOW, Known(), AskReceiver()),
    "the receiver remembers": (OPEN, RESEND, START, NOW, Known(), AGAIN),
    "the receiver remembers, and the settle time has passed": (
        OPEN, RESEND, START, SETTLED, Known(), Intend(maybe_done=True)
    ),
    "the receiver may have forgotten": (OPEN, RESEND, START, LATE, Known(), MarkUncertain("interrupted", "")),
    "no attempt is left": (effect("timeout", attempts=3), RESEND, START, NOW, Known(), MarkUncertain(EXHAUSTED, "")),
    "an attempt that was cut off counts for nothing": (
        effect(attempts=3), RESEND, START, NOW, Known(), AGAIN
    ),
    "deferred": (PUT_OFF, ASK, START, NOW, Known(), WaitUntil(105_000)),
    "the deferral is over": (PUT_OFF, ASK, START, SETTLED, Known(), Intend()),
    "not sent": (effect(TOO_LATE, settle_after=0), ASK, START, NOW, Known(), Intend()),
    "it did nothing, and no attempt is left": (
        effect("away", settle_after=0, attempts=3), ASK, START, NOW, Known(), Refuse(EXHAUSTED, "")
    ),
    "its approval lapsed": (effect(covered_until=99_000), RESEND, START, NOW, Known(), MarkUncertain(LAPSED, "")),
    "its approval lapsed, it did nothing": (
        effect("away", settle_after=0, covered_until=99_000), ASK, START, NOW, Known(), Refuse(LAPSED, "")
    ),
}  # fmt: skip
AT_THE_END = {
    "it did nothing": (PUT_OFF, ending(ASK), START, NOW, Known(), Refuse("run_cancelled", "")),
    "the receiver is asked at once": (effect("away", 105_000), ending(RECONCILE), START, NOW, Known(), AskReceiver()),
    "it can be undone": (OPEN, ending(RESEND), START, NOW, Known(), AGAIN),
    "it can be undone, later": (effect("away", 105_000), ending(RESEND), START, NOW, Known(), WaitUntil(105_000)),
    "it cannot be undone": (
        effect(undo="no: kept"), ending(RESEND), START, NOW, Known(), MarkUncertain("interrupted", "")
    ),
    "a person decides": (OPEN, ending(ASK), START, NOW, Known(), MarkUncertain("interrupted", "")),
    "no attempt is left": (
        effect("timeout", attempts=3), ending(RESEND), START, NOW, Known(), MarkUncertain(EXHAUSTED, "")
    ),
    "its approval lapsed": (
        effect(covered_until=99_000), ending(RESEND), START, NOW, Known(), MarkUncertain(LAPSED, "")
    ),
    "it did not happen": (OPEN, ending(RECONCILE), DidNotHappen(), SETTLED, Known(asked_at=120_000),
                          Refuse("run_cancelled", "")),
}  # fmt: skip
AFTER_A_DEFERRAL = {
    "not due": (PUT_OFF, RECONCILE, DEFERRED, NOW, Known(), WaitUntil(105_000)),
    "due": (GONE, RECONCILE, DEFERRED, NOW, Known(), Intend()),
    "due, it may have happened": (DOUBTED, BOTH, DEFERRED, NOW, Known(), AGAIN),
    "the receiver may have forgotten": (DOUBTED, RESEND, DEFERRED, LATE, Known(), MarkUncertain("timeout", "")),
    "its approval lapsed": (
        effect("away", settle_after=0, covered_until=99_000), ASK, DEFERRED, NOW, Known(), Refuse(LAPSED, "")
    ),
}  # fmt: skip
A_CANCEL = {
    "it was not sent": (OPEN, ASK, CANCEL, NOW, Known(), Refuse("run_cancelled", "")),
    "an earlier attempt may have happened": (OPEN, RESEND, CANCEL, NOW, MAYBE, LeaveOpen()),
}
AN_ATTEMPT = {
    "answered": (OPEN, ASK, Answered(1), NOW, Known(), RecordResponse(1)),
    "refused": (OPEN, RESEND, No("card", ""), NOW, MAYBE, Refuse("card", "")),
    "refused, an earlier request may still arrive": (
        OPEN, RESEND, No("card", ""), NOW, EARLIER, Defer("card", "", 19_000, True, counts=False, settles=True)
    ),
    "refused without a code, an earlier request may still arrive": (
        OPEN, RESEND, No("", ""), NOW, EARLIER, Defer("refused", "", 19_000, True, counts=False, settles=True)
    ),
    "refused, and the receiver forgets before the settle time": (
        OPEN, RESEND._replace(remembered_for=49_000), No("card", ""), NOW, EARLIER, MarkUncertain("card", "")
    ),
    "refused after the settle time": (OPEN, RESEND, No("card", ""), SETTLED, EARLIER,
                                      Defer("card", "", 0, True, counts=False, settles=True)),
    "too late": (OPEN, ASK, Unsent(TOO_LATE, ""), NOW, Known(), Defer(TOO_LATE, "", 0, happened=False)),
    "too late after one that may have happened": (
        OPEN, RESEND, Unsent(TOO_LATE, ""), NOW, MAYBE, Defer(TOO_LATE, "", 0, happened=True)
    ),
    "not sent": (OPEN, ASK, Unsent("away", ""), NOW, Known(), Defer("away", "", 1_000, happened=False)),
    "not sent, with jitter": (OPEN, ASK, Unsent("away", ""), NOW, Known(jitter=0.5), Defer("away", "", 1_500, False)),
    "the receiver asks to wait": (OPEN, ASK, Unsent("away", "", 9_000), NOW, Known(), Defer("away", "", 9_000, False)),
    "it asks to wait for too long": (OPEN, ASK, Unsent("away", "", 60_001), NOW, Known(), Refuse(EXHAUSTED, "")),
    "not sent, the last attempt": (effect(attempts=3), ASK, Unsent("away", ""), NOW, Known(), Refuse(EXHAUSTED, "")),
    "the last attempt, an earlier one may have happened": (
        effect(attempts=3), RESEND, Unsent("away", ""), NOW, MAYBE, MarkUncertain(EXHAUSTED, "")
    ),
    "a try behind a breaker does not count": (
        effect(attempts=3), ASK, Unsent("away", ""), NOW, PROBING, Defer("away", "", 0, happened=False, counts=False)
    ),
    "maybe: a person": (OPEN, ASK, Maybe("timeout", ""), NOW, Known(), MarkUncertain("timeout", "")),
    "maybe: the receiver": (
        OPEN, BOTH, Maybe("timeout", ""), NOW, Known(), AskReceiver(Defer("timeout", "", 0, happened=True))
    ),
    "maybe: the receiver asks to wait for too long": (
        OPEN, RECONCILE, Maybe("http_408", "", after_ms=60_001), NOW, Known(),
        AskReceiver(Defer(EXHAUSTED, "", 0, happened=True)),
    ),
    "maybe: again": (OPEN, RESEND, Maybe("timeout", ""), NOW, Known(), Defer("timeout", "", 1_000, happened=True)),
    "maybe: the receiver may have forgotten": (
        OPEN, RESEND, Maybe("timeout", ""), LATE, Known(), MarkUncertain("timeout", "")
    ),
    "maybe: a thread may still send": (
        OPEN, BOTH, Maybe("timeout", "", abandoned=True), NOW, Known(), MarkUncertain("timeout", "")
    ),
}  # fmt: skip
ON_TIME, EARLY = Known(asked_at=120_000), Known(asked_at=118_999)
AN_ANSWER = {
    "yes": (OPEN, RECONCILE, Happened(1, "x"), NOW, EARLY, RecordResponse(1, "x", found=True)),
    "yes, under the id that is known": (
        effect(external_id="y"), RECONCILE, Happened(1), NOW, EARLY, RecordResponse(1, "y", found=True)
    ),
    "no, before the settle time": (OPEN, RECONCILE, DidNotHappen(), NOW, EARLY, WaitUntil(119_000, settles=True)),
    "no, then the settle time ended": (OPEN, RECONCILE, DidNotHappen(), SETTLED, EARLY, AskReceiver()),
    "no": (OPEN, RECONCILE, DidNotHappen(), SETTLED, ON_TIME, Intend()),
    "no, and the next attempt is not due": (
        effect("away", 125_000), RECONCILE, DidNotHappen(), SETTLED, ON_TIME, WaitUntil(125_000)
    ),
    "no, and no attempt is left": (
        effect("away", attempts=3), RECONCILE, DidNotHappen(), SETTLED, ON_TIME, Refuse(EXHAUSTED, "")
    ),
    "no, and the receiver asked for too long a wait": (
        effect(EXHAUSTED), RECONCILE, DidNotHappen(), SETTLED, ON_TIME, Refuse(EXHAUSTED, "")
    ),
    "no, and its approval lapsed": (
        effect(covered_until=99_000), RECONCILE, DidNotHappen(), SETTLED, ON_TIME, Refuse(LAPSED, "")
    ),
    "unknown, before the settle time": (OPEN, BOTH, Unknown(""), NOW, EARLY, WaitUntil(119_000, settles=True)),
    "unknown, and it remembers": (
        OPEN, BOTH, Unknown(""), SETTLED, ON_TIME, Defer("unknown_outcome", "", 1_000, happened=True)
    ),
    "unknown": (OPEN, RECONCILE, Unknown(""), SETTLED, ON_TIME, MarkUncertain("unknown_outcome", "")),
}  # fmt: skip
TABLES = {
    "new": NEW, "open": FOUND_OPEN, "at the end": AT_THE_END, "deferred": AFTER_A_DEFERRAL, "cancel": A_CANCEL,
    "attempt": AN_ATTEMPT, "answer": AN_ANSWER,
}  # fmt: skip
CASES = {f"{table}: {name}": case for table, cases in TABLES.items() for name, case in cases.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_next_step(name: str) -> None:
    row, terms, outcome, now, known, step = CASES[name]
    assert shown(next_step(row, terms, outcome, now, known)) == step


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[1].purpose is Purpose.DO])
def test_an_undo_goes_the_same_way(name: str) -> None:
    row, terms, outcome, now, known, step = CASES[name]
    assert shown(next_step(row, terms._replace(purpose=Purpose.UNDO), outcome, now, known)) == step


def test_a_wait_is_decided_again_from_the_same_outcome() -> None:
    """After the wait the same values give another step, so that no executor waits twice."""
    for row, terms, outcome, now, known, step in CASES.values():
        if isinstance(step, WaitUntil):
            later = now._replace(real=step.until)
            assert not isinstance(next_step(row, terms, outcome, later, known), WaitUntil)


def test_the_sentences_name_the_attempts_and_the_wait() -> None:
    step = next_step(effect(attempts=2, waited_ms=55_000), ASK, Unsent("away", "no line", 9_000), NOW)
    assert isinstance(step, Refuse)
    why = "the receiver asks to wait 9 s, and retry.total_wait leaves 5 s"
    assert step.detail == f"after 2 attempts: away: no line; {why}"

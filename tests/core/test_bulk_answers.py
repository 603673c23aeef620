"""Decisions of a job that answers runs: which runs fit, which choices it may give, and when a number is confirmed."""

import pytest

from outlast.core.bulk_answers import (
    CONFIRM_ABOVE,
    AfterAnswer,
    BulkFilter,
    after_answer,
    bulk_keys,
    check_bulk,
    check_confirmed,
    check_found,
)
from outlast.core.machine import CHOICES, Choice, Reason, RunStatus
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import Run
from outlast.errors import Conflict, NotFound
from tests.insight.situations import RUN

EXCEPTION = Reason.EXCEPTION


def flagged(*entries: Attention, **more: object) -> Run:
    return RUN._replace(attention_text=ATTENTION.encode(list(entries)))._replace(**more)  # type: ignore[arg-type]


BROKEN = flagged(Attention(EXCEPTION, 1_000, "KeyError: no price list for region EU"))


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        (BulkFilter(EXCEPTION), True),
        (BulkFilter(Reason.POISONED), False),
        (BulkFilter(EXCEPTION, workflow="refund", node="pay", version=1), True),
        (BulkFilter(EXCEPTION, workflow="loan"), False),
        (BulkFilter(EXCEPTION, node="look"), False),
        (BulkFilter(EXCEPTION, version=2), False),
        (BulkFilter(EXCEPTION, text="PRICE LIST"), True),
        (BulkFilter(EXCEPTION, text="division"), False),
        (BulkFilter(EXCEPTION, activity="mail"), False),
        (BulkFilter(EXCEPTION, cause="0123456789ab"), False),
    ],
)
def test_a_filter(given: BulkFilter, fits: bool) -> None:
    assert given.fits(BROKEN) is fits


def test_a_run_that_was_flagged_after_the_job_began_is_left_alone() -> None:
    given = BulkFilter(EXCEPTION)
    assert bulk_keys(given, BROKEN, before=1_000) == ("",)
    assert bulk_keys(given, BROKEN, before=999) == ()
    twice = flagged(Attention(EXCEPTION, 1_000, "a", key="x"), Attention(EXCEPTION, 2_000, "b", key="y"))
    assert bulk_keys(given, twice, before=1_500) == (), "its answer would be for the newer entry, too"


def test_a_cause_is_that_of_each_entry() -> None:
    one, two = (Attention(EXCEPTION, 1_000, "it broke", key=key, cause=f"c{key}") for key in ("1", "2"))
    given = BulkFilter(EXCEPTION, cause="c1")
    assert given.fits(flagged(one)) and not given.fits(flagged(two))
    assert not given.fits(flagged(one, two)), "the answer would be for both"
    assert BulkFilter(EXCEPTION, cause="exception").fits(BROKEN), "an entry of a version without causes"
    uncertain = [each._replace(reason=Reason.EFFECT_UNCERTAIN) for each in (one, two)]
    keys = bulk_keys(BulkFilter(Reason.EFFECT_UNCERTAIN, cause="c1"), flagged(*uncertain), before=1_000)
    assert keys == ("1",), "each of them has its own answer"


def test_each_uncertain_effect_has_its_own_answer() -> None:
    uncertain = [Attention(Reason.EFFECT_UNCERTAIN, 1_000, "it is unknown", key=key) for key in ("pay/1", "pay/2")]
    given = BulkFilter(Reason.EFFECT_UNCERTAIN)
    assert bulk_keys(given, flagged(*uncertain, BROKEN.attention[0]), before=1_000) == ("pay/1", "pay/2")


def test_missing_calls_of_one_activity() -> None:
    given = BulkFilter(Reason.NODE_DIVERGED, activity="mail")
    for missing, fits in ((("mail?mail/1",), True), (("mail?mail/2", "pay?pay/1"), False), ((), False)):
        assert given.fits(flagged(Attention(Reason.NODE_DIVERGED, 1_000, missing=missing))) is fits


@pytest.mark.parametrize("choice", [Choice.HAPPENED, Choice.DID_NOT_HAPPEN])
def test_a_job_records_nothing_about_uncertain_effects(choice: Choice) -> None:
    with pytest.raises(Conflict, match="cannot be recorded"):
        check_bulk(Reason.EFFECT_UNCERTAIN, choice)


def test_a_job_gives_every_other_choice_that_needs_no_amount() -> None:
    for reason, offered in CHOICES.items():
        for choice in set(offered) - {Choice.HAPPENED, Choice.DID_NOT_HAPPEN, Choice.RAISE}:
            check_bulk(reason, choice)
    with pytest.raises(Conflict, match="does not offer"):
        check_bulk(EXCEPTION, Choice.EXTEND)


@pytest.mark.parametrize("choice", [Choice.CANCEL, Choice.FAIL])
def test_more_than_a_hundred_runs_are_ended_only_with_their_number(choice: Choice) -> None:
    check_confirmed(CONFIRM_ABOVE, choice, 0)
    check_confirmed(2_088, choice, 2_088)
    check_confirmed(2_088, Choice.CONTINUE, 0)
    for runs, confirm in ((CONFIRM_ABOVE + 1, 0), (2_088, 2_087)):
        with pytest.raises(Conflict) as error:
            check_confirmed(runs, choice, confirm)
        assert error.value.refusal == "unconfirmed" and f"{runs}" in error.value.what


def test_a_number_that_has_changed_is_refused_for_every_choice() -> None:
    with pytest.raises(Conflict, match="3 runs would get this answer, and 2 were confirmed"):
        check_confirmed(3, Choice.CONTINUE, 2)


def test_a_job_without_runs_is_not_started() -> None:
    with pytest.raises(NotFound, match="no run that fits"):
        check_found(0, EXCEPTION)


OVER = {"owner": "~", "ended_at": 5_000, "attention_text": ""}
NEWER = Attention(EXCEPTION, 2_000, "KeyError: no price list for region US")
ASKED = Attention(Reason.EFFECT_UNCERTAIN, 500, "perhaps", key="A-17")


@pytest.mark.parametrize(
    ("run", "choice", "found"),
    [
        (BROKEN._replace(status=RunStatus.COMPLETED, **OVER), Choice.CONTINUE, AfterAnswer.RECOVERED),
        (BROKEN._replace(status=RunStatus.FAILED, **OVER), Choice.CONTINUE, AfterAnswer.FAILED),
        (BROKEN._replace(status=RunStatus.CANCELLED, **OVER), Choice.CONTINUE, AfterAnswer.FAILED),
        (BROKEN._replace(status=RunStatus.FAILED, **OVER), Choice.FAIL, AfterAnswer.RECOVERED),
        (BROKEN._replace(attention_text=""), Choice.CONTINUE, AfterAnswer.UNFINISHED),
        (BROKEN, Choice.CONTINUE, AfterAnswer.UNFINISHED),  # it has not read the answer yet
        (flagged(NEWER), Choice.CONTINUE, AfterAnswer.SAME),
        (flagged(NEWER._replace(reason=Reason.POISONED)), Choice.CONTINUE, AfterAnswer.OTHER),
        (flagged(ASKED), Choice.CONTINUE, AfterAnswer.OTHER),  # not answered by the job, and older
    ],
)
def test_what_has_become_of_an_answered_run(run: Run, choice: Choice, found: AfterAnswer) -> None:
    assert after_answer(BulkFilter(EXCEPTION), choice, run, before=1_000) is found


def test_a_cancelled_run_needs_a_person_for_its_uncertain_effect_only() -> None:
    every = BulkFilter(None)
    assert after_answer(every, Choice.CANCEL, BROKEN, before=1_000) is AfterAnswer.UNFINISHED
    assert after_answer(every, Choice.CANCEL, flagged(ASKED), before=1_000) is AfterAnswer.OTHER


def test_the_same_cause_is_that_of_the_filter() -> None:
    of_cause = BulkFilter(EXCEPTION, cause="c1")
    for cause, found in (("c1", AfterAnswer.SAME), ("c2", AfterAnswer.OTHER)):
        again = flagged(NEWER._replace(cause=cause))
        assert after_answer(of_cause, Choice.CONTINUE, again, before=1_000) is found

"""Answers of people about calls: the time for corrections, and their record in the inbox and the history (EFF-2)."""

import pytest

from outlast.core import compensation, effect_verbs, mailbox
from outlast.core.attention import corrections
from outlast.core.row_checks import check_effect
from outlast.core.rows.effect_rows import STATED
from outlast.core.rows.run_rows import MESSAGE, Message
from outlast.errors import Conflict, Corrupt
from tests.core.drive import INTENT, Drive
from tests.models.world import at, land

pytestmark = pytest.mark.req("EFF-2")


def doubtful() -> Drive:
    return Drive().start().claim().intend().settle("mark_uncertain")


def stated(drive: Drive, verb: str, response: bytes = b"1", by: str = "ana") -> Drive:
    drive.t = max(drive.t, drive.effect.settle_after)
    return drive.speak(
        mailbox.resolve_effect(
            drive.effect, verb, by=by, reason="asked", now=at(drive.t), response=response, external_id="X", in_visit=1
        )
    )


def messages(drive: Drive) -> list[Message]:
    return [row for row in drive.rows if isinstance(row, Message)]


def test_each_answer_stays_in_the_inbox_and_each_correction_is_an_event() -> None:
    drive = stated(stated(stated(doubtful(), "happened"), "happened", b'"two"', "ben"), "give_up", by="cem")
    said = mailbox.stated(messages(drive))
    assert [(m.actor, s.verb, s.response, s.corrects) for m, s in said] == [
        ("ana", "happened", "1", ""),
        ("ben", "happened", '"two"', "ana"),
        ("cem", "give_up", "1", "ben"),
    ]
    logged = corrections(drive.run, messages(drive))
    assert [entry.key for entry in logged] == ["corrected/2", "corrected/3"]
    assert logged[0].data == {
        "answers": [
            {
                "reason": "effect_uncertain", "choice": "happened", "by": "ben", "text": "asked", "key": "k",
                "external_id": "X", "response": '"two"', "corrects": "ana",
            }
        ]
    }  # fmt: skip
    assert corrections(drive.run._replace(visit=2), messages(drive)) == [], "an event of its visit only"


def test_a_large_response_is_kept_by_its_digest() -> None:
    drive = stated(doubtful(), "happened", b'"' + b"x" * 5_000 + b'"')
    ((_, said),) = mailbox.stated(messages(drive))
    assert said.response.startswith("sha256:") and len(said.response) == 71


def test_an_answer_of_a_store_from_before_is_read_and_counts_as_used() -> None:
    drive = stated(doubtful(), "happened")
    (message,) = messages(drive)
    old = message._replace(payload=b'{"verb": "happened", "key": "k", "visit": 1, "reason": "asked"}')
    assert [s.corrects for _, s in mailbox.stated([old])] == [""] and MESSAGE.row is Message
    with pytest.raises(Conflict, match="is not uncertain"):
        mailbox.check_resolvable(drive.effect._replace(shared=0), "happened", at(1), correct=True)


def test_another_answer_needs_the_word_correct_and_another_response_does_not() -> None:
    """A second person who has not seen the first answer must not turn a call that happened into a second one."""
    effect, late = stated(doubtful(), "happened").effect, at(10**9)
    mailbox.check_resolvable(effect, "happened", late)
    for verb in ("did_not_happen", "give_up"):
        with pytest.raises(Conflict, match="ana has answered: it happened, as X"):
            mailbox.check_resolvable(effect, verb, late)  # type: ignore[arg-type]
        mailbox.check_resolvable(effect, verb, late, correct=True)  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="ana has given the same answer"):
        mailbox.check_correction(effect, "happened", b"1", "X")
    mailbox.check_correction(effect, "happened", b"2", "X")
    mailbox.check_correction(effect, "happened", b"1", "Y")
    with pytest.raises(Conflict, match="too early"):
        mailbox.check_resolvable(effect, "did_not_happen", at(effect.settle_after - 1), correct=True)


@pytest.mark.parametrize("verb", ["happened", "did_not_happen", "give_up"])
def test_a_correction_and_the_run_that_uses_the_answer_exclude_each_other(verb: str) -> None:
    drive = stated(doubtful(), verb)
    uses = effect_verbs.give(drive.run, drive.effect)
    if verb == "did_not_happen":
        uses = effect_verbs.intend(drive.run, INTENT, drive.effect, ordinal=1, now=at(drive.t))
    corrects = mailbox.resolve_effect(drive.effect, "happened", by="ben", reason="", now=at(drive.t), response=b"2")
    for first, second in ((uses, corrects), (corrects, uses)):
        left = land(drive.rows, first, drive.t)
        assert not left.refused and land(left.rows, second, drive.t).refused == "version"


def test_the_start_of_its_undo_ends_the_time_of_corrections() -> None:
    drive = stated(doubtful(), "happened").compensate().intend_undo()
    assert drive.effect.shared == 0 and not mailbox.may_answer(drive.effect)
    by_hand = stated(doubtful(), "happened").compensate().withhold()
    row = compensation._undone(by_hand.effect).row
    assert row.shared == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("status", ["intended", "uncertain", "undone"])
def test_only_a_settled_effect_has_an_answer_to_correct(status: str) -> None:
    effect = stated(doubtful(), "happened").effect
    wrong = effect._replace(status=type(effect.status)(status), settled_at=0 if status != "undone" else 1)
    with pytest.raises(Corrupt, match="may be corrected"):
        check_effect(wrong._replace(shared=STATED))

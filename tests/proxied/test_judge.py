"""The judge of a round: which claims it calls false, and which it does not."""

import pytest

from tests.proxied.callers import DONE, MAYBE, NOT_DONE, Said, is_denied
from tests.proxied.round import Stored, claims_of, judge


def stored(*hooks: str, rotated: int = 0) -> Stored:
    found = Stored.empty()
    found.hooks.update(hooks)
    found.rotated["m1"] = rotated
    return found


@pytest.mark.parametrize(
    ("heard", "hooks", "fault"),
    [
        (DONE, ["m1"], ""),
        (NOT_DONE, [], ""),
        (MAYBE, ["m1"], ""),
        (MAYBE, [], ""),
        (DONE, [], "was acknowledged, and is not in the store"),
        (NOT_DONE, ["m1"], "was called not done, and is in the store"),
        (DONE, ["m1", "m1"], "is in the store 2 times"),
        (MAYBE, ["m1", "m1"], "is in the store 2 times"),
        (NOT_DONE, ["m1", "m1"], "is in the store 2 times"),
    ],
)
def test_a_claim_is_compared_with_the_store(heard: str, hooks: list[str], fault: str) -> None:
    wrong = judge([Said("add webhook", "m1", heard, "")], stored(*hooks), [])
    assert len(wrong) == bool(fault) and fault in "".join(wrong)


@pytest.mark.parametrize(
    ("heard", "n", "fault"),
    [
        ([DONE, MAYBE], 1, ""),
        ([DONE, MAYBE], 2, ""),
        ([DONE, NOT_DONE], 1, ""),
        ([DONE, NOT_DONE], 2, "of others was called not done"),
        ([DONE, DONE], 1, "was acknowledged 2 times, and happened 1 times"),
        ([DONE, MAYBE], 3, "happened 3 times"),
    ],
)
def test_acts_that_add_up_are_counted(heard: list[str], n: int, fault: str) -> None:
    wrong = judge([Said("rotate", "m1", each, "") for each in heard], stored(rotated=n), [])
    assert len(wrong) == bool(fault) and fault in "".join(wrong)


def test_an_effect_happens_once() -> None:
    assert judge([], Stored.empty(), ["m1", "m2"]) == []
    assert judge([], Stored.empty(), ["m1", "m2", "m1"]) == ["the effect m1 happened 2 times"]


@pytest.mark.parametrize(
    ("heard", "denied"),
    [([DONE], False), ([NOT_DONE, DONE], True), ([NOT_DONE, MAYBE, DONE], False), ([MAYBE, DONE], False)],
)
def test_a_run_that_is_found_was_denied_unless_an_attempt_is_uncertain(heard: list[str], denied: bool) -> None:
    assert is_denied(heard, created=False) is denied
    assert not is_denied(heard, created=True)


def test_the_share_of_definite_claims_is_printed() -> None:
    said = [Said("add webhook", "m1", each, "why: m000001") for each in (DONE, NOT_DONE, MAYBE, MAYBE)]
    figures = claims_of(said, stored("m1"), [])
    assert figures["definite"] == 0.5 and figures["uncertain acts that happened"] == 2
    assert figures["reasons"] == {"uncertain: why: …": 2, "not done: why: …": 1}

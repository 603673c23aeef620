"""Which open effects are uncertain because no attempt and no look-up can follow (EFF-2)."""

import json

import pytest

from outlast.core.machine import EffectStatus
from outlast.core.recovery import without_attempts
from tests.runtime.situations import EFFECT, RUN

OPEN = EFFECT._replace(
    status=EffectStatus.INTENDED, response=None, settled_at=0, settled_by="", attempts=2, error_text=""
)
FAILED = json.dumps({"code": "timeout", "detail": "", "until": 0})


@pytest.mark.parametrize(
    ("mode", "changes", "code"),
    [
        ("ask_person", {}, "interrupted"),
        ("resend", {}, None),  # the death used up none of its attempts
        ("resend", {"error_text": FAILED}, "retries_exhausted"),
        ("reconcile", {"error_text": FAILED}, None),  # its receiver is asked
        ("ask_person", {"settle_after": 0, "error_text": FAILED}, None),  # it is known to have done nothing
        ("ask_person", {"status": EffectStatus.UNCERTAIN}, None),
    ],
)
def test_an_open_effect_is_uncertain_if_nothing_can_settle_it(
    mode: str, changes: dict[str, object], code: str | None
) -> None:
    found = without_attempts(RUN, OPEN._replace(**changes), mode, 2)  # type: ignore[arg-type]
    assert (found and found[0]) == code


def test_after_a_restore_its_first_attempt_may_be_of_the_lost_time() -> None:
    restored = RUN._replace(restored=1)
    assert (without_attempts(restored, OPEN._replace(attempts=1), "ask_person", 3) or ("",))[0] == "restored"

"""The step of a takeover and its effects: it denies a second sending only if the rows prove that there was none."""

from types import SimpleNamespace
from typing import Any

import pytest

from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import Effect
from outlast.insight.course_steps import CourseRows, _calls_text, takeover_text
from tests.conformance.subject import T0, effect_row, event_row

NONE = "no effect was sent again"
TAKEOVER = event_row(seq=5)._replace(at=T0 + 1_000, visit=1, epoch=2, details=b'{"new_epoch":2}')
SETTLED = effect_row()._replace(status=EffectStatus.DONE, response=b"1", settled_at=T0 + 2_000)


def sentences(*effects: Effect) -> list[str]:
    timeline: Any = SimpleNamespace(effects=effects)
    return list(_calls_text(CourseRows(timeline, (), None, whole=True), TAKEOVER))


@pytest.mark.parametrize(
    "effect",
    [
        SETTLED._replace(settled_at=T0 + 500, attempts=2),  # before the takeover
        SETTLED._replace(epoch=2, attempts=1),  # begun after it
        SETTLED._replace(epoch=1, attempts=1),  # its answer came although the worker was replaced
        SETTLED._replace(epoch=2, attempts=2, visit=2),  # in a later visit
    ],
)
def test_no_second_sending_is_said_if_the_rows_prove_it(effect: Effect) -> None:
    assert NONE in sentences(effect)


@pytest.mark.parametrize("status", [EffectStatus.DONE, EffectStatus.INTENDED, EffectStatus.UNCERTAIN])
def test_an_effect_with_a_second_attempt_after_the_takeover_is_named_instead(status: EffectStatus) -> None:
    again = SETTLED._replace(epoch=2, attempts=2, status=status, settled_at=T0 + 2_000 if status == "done" else 0)
    (found,) = sentences(again)
    assert found.startswith("invite invite/1: ") and NONE not in found


def test_an_effect_that_was_open_at_the_takeover_is_named() -> None:
    found = sentences(effect_row()._replace(status=EffectStatus.UNCERTAIN))
    assert found[0] == NONE and found[1].startswith("invite invite/1: ")


@pytest.mark.parametrize("whole", [True, False])
def test_nothing_is_said_of_effects_if_rows_were_purged(whole: bool) -> None:
    history = SimpleNamespace(takeovers=lambda *_: [])
    timeline: Any = SimpleNamespace(effects=[], history=history, workers=(), real=T0)
    assert takeover_text(CourseRows(timeline, (), None, whole), TAKEOVER) == (NONE if whole else "")

"""A row that breaks an invariant is refused, before it is written and after it is read."""

from typing import Any

import pytest

from outlast.core.commit import changed, check_effect, check_run
from outlast.core.effect_rows import Effect
from outlast.core.machine import ENDED, EffectStatus, RunStatus
from outlast.core.row_kind import key_of, version_of
from outlast.core.rows import KINDS, RUN, Run
from outlast.errors import Corrupt
from tests.core.drive import Drive

RUN_ROW: Run = Drive().start().run
HELD: Run = Drive().start().claim().run
OVER: Run = Drive().start().claim().finish(RunStatus.COMPLETED).run
EFFECT_ROW: Effect = Drive().start().claim().intend().effect
DONE: Effect = Drive().start().claim().intend().settle("record").effect

PLANTED_RUNS: list[tuple[Run, dict[str, Any]]] = [
    (OVER, {"owner": ""}),  # an ended run that a worker could claim
    (OVER, {"owner": "w"}),
    (OVER, {"ended_at": 0}),
    (OVER, {"due_at": 5}),
    (OVER, {"waiting_for_text": "[]"}),
    (OVER, {"slots_text": "*/0"}),
    (OVER, {"queue": "t"}),
    (OVER, {"status": RunStatus.WAITING}),
    (RUN_ROW, {"owner": ENDED}),  # ended, yet not over
    (RUN_ROW, {"ended_at": 7}),
    (RUN_ROW, {"owner": "w"}),  # owned, yet queued
    (RUN_ROW, {"due_at": None, "waiting_for_text": ""}),  # no worker would ever claim it
    (HELD, {"due_at": None}),  # a holder without an end of its budget
    (HELD, {"status": RunStatus.WAITING}),
    (HELD, {"owner": "", "due_at": None}),
    *((RUN_ROW, {name: below}) for name, below in
      {"version": 0, "seq": 0, "visit": 0, "inbox_seq": -1, "epoch": -1}.items()),
]  # fmt: skip
PLANTED_EFFECTS: list[tuple[Effect, dict[str, Any]]] = [
    (EFFECT_ROW, {"settled_at": 9}),  # open, yet settled
    (EFFECT_ROW, {"status": EffectStatus.UNCERTAIN, "settled_at": 9}),
    (DONE, {"settled_at": 0}),
    (DONE, {"response": None}),
    (EFFECT_ROW, {"status": EffectStatus.REFUSED}),
    (EFFECT_ROW, {"attempts": 0}),
    (EFFECT_ROW, {"ordinal": 0}),
    (EFFECT_ROW, {"not_after": EFFECT_ROW.first_at - 1}),
]


@pytest.mark.parametrize("row", [RUN_ROW, HELD, OVER])
def test_a_sound_run_passes(row: Run) -> None:
    check_run(row)


@pytest.mark.parametrize(("row", "planted"), PLANTED_RUNS)
def test_a_corrupt_run_is_refused(row: Run, planted: dict[str, Any]) -> None:
    with pytest.raises(Corrupt, match="run r"):
        check_run(row._replace(**planted))


@pytest.mark.parametrize("row", [EFFECT_ROW, DONE])
def test_a_sound_effect_passes(row: Effect) -> None:
    check_effect(row)


@pytest.mark.parametrize(("row", "planted"), PLANTED_EFFECTS)
def test_a_corrupt_effect_is_refused(row: Effect, planted: dict[str, Any]) -> None:
    with pytest.raises(Corrupt, match="effect k"):
        check_effect(row._replace(**planted))


@pytest.mark.req("RUN-5")
def test_the_tenant_leads_every_key() -> None:
    assert {kind.columns[0] for kind in KINDS} == {"tenant"}
    assert key_of(RUN, RUN_ROW) == ("t", "r") and version_of(RUN, RUN_ROW) == 1


@pytest.mark.parametrize("row", [RUN_ROW, EFFECT_ROW])
def test_a_changed_row_is_the_replaced_row(row: Run | Effect) -> None:
    after = changed(row, version=7, node="other")
    assert after == row._replace(version=7, node="other") and type(after) is type(row)
    assert changed(row) == row
    with pytest.raises(KeyError):
        changed(row, unknown=1)

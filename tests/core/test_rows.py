"""A row that breaks an invariant is refused, before it is written and after it is read."""

from typing import Any

import pytest

from outlast.core.commit import Commit, Put, changed
from outlast.core.limits import OBJECTIVE_CHARS_MAX
from outlast.core.machine import ENDED, ApprovalStatus, EffectStatus, LeaseStatus, RunStatus, WaitStatus
from outlast.core.row_checks import check_effect, check_run
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, WAIT, Effect, Wait
from outlast.core.rows.limit_rows import CALL_USAGE, SLOT
from outlast.core.rows.outbox_rows import CURSOR, Cursor
from outlast.core.rows.row_kind import AnyKind, key_of, version_of
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import WORKER, lanes_served
from outlast.core.usage import CallUsage, day_of
from outlast.errors import Corrupt, Rejected
from outlast.store.bounds import check
from tests.conformance.subject import T0, approval_row, slot_row, worker_row
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
REFUSED: Effect = Drive().start().claim().intend().settle("refuse").effect
UNSETTLED: list[tuple[Effect, dict[str, Any]]] = [
    (DONE, {"settled_by": ""}),
    (REFUSED, {"settled_by": ""}),
    (REFUSED, {"error_text": ""}),
    (REFUSED, {"error_text": "{"}),
]
APPROVED = approval_row()._replace(status=ApprovalStatus.APPROVED, chosen="d", decided_by="ann", decided_at=T0)
PLANTED_ROWS: list[tuple[AnyKind, Row, dict[str, Any]]] = [
    (RUN, RUN_ROW, {"objective": "x" * (OBJECTIVE_CHARS_MAX + 1)}),
    (APPROVAL, APPROVED, {"decided_by": ""}),
    (APPROVAL, APPROVED, {"chosen": ""}),
    (APPROVAL, APPROVED, {"decided_at": T0 - 1}),
    (APPROVAL, APPROVED, {"decided_at": APPROVED.within_until}),
    (APPROVAL, APPROVED, {"status": ApprovalStatus.PENDING}),
    (APPROVAL, APPROVED, {"not_requester": 1, "requested_by": "local:ann"}),
    (APPROVAL, APPROVED, {"quorum": 2}),
    (WAIT, Wait("t", "r", 1, "k", 1, WaitStatus.OPEN, "receive", "bid", 0, 0, "", 1), {"binding_text": "[1]"}),
    (SLOT, slot_row(), {"holder_tenant": "t"}),
    (WORKER, worker_row(), {"lease_until": T0 - 1}),
    (CALL_USAGE, CallUsage("t", "r", 1, 1, 1, "k", 1, "a", day_of(T0), "m", 1, 1, 0, 1, 1, T0), {"day": 1}),
    (CURSOR, Cursor("t", "r", "wh_1", 1, 0, "", None, 1, 1, 1, 0, 0, T0), {"upto": 2}),
    *((EFFECT, row, planted) for row, planted in UNSETTLED),
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


@pytest.mark.parametrize(("row", "planted"), UNSETTLED)
def test_an_effect_that_nobody_settled_is_refused_before_a_write_and_readable_after_it(
    row: Effect, planted: dict[str, Any]
) -> None:
    """Earlier versions wrote withheld undos so: `fsck` is to report a row, and a run must stay readable."""
    wrong = row._replace(**planted)
    check_effect(wrong, stored=True)
    with pytest.raises(Corrupt):
        check_effect(wrong)


@pytest.mark.req("TEST-4")
@pytest.mark.parametrize(("kind", "row", "planted"), PLANTED_ROWS)
def test_no_commit_writes_a_row_that_fsck_reports(kind: AnyKind, row: Row, planted: dict[str, Any]) -> None:
    replaces = version_of(kind, row) - 1
    check(Commit((Put(kind, row, replaces),)))
    with pytest.raises(Rejected):
        check(Commit((Put(kind, row._replace(**planted), replaces),)))  # type: ignore[attr-defined]


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


@pytest.mark.parametrize("status", LeaseStatus)
@pytest.mark.parametrize("left", [-1, 0, 1])
@pytest.mark.parametrize("lane", ["refund@1", "refund@10", "temporal:refund@1", "refund", ""])
def test_a_worker_serves_its_lanes_while_its_lease_is_valid(status: LeaseStatus, left: int, lane: str) -> None:
    worker = worker_row()._replace(status=status, lease_until=T0 + left, lanes="order@2 refund@1")
    is_alive = status is LeaseStatus.ALIVE and left > 0
    assert worker.is_alive(T0) is is_alive
    assert worker.serves(lane, T0) is (is_alive and lane == "refund@1")
    assert lanes_served([worker], T0) == ({"order@2", "refund@1"} if is_alive else set())

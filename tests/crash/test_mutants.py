"""Processes that are killed, frozen and woken: each case holds, and fails when its safeguard is taken out.

A frozen process is stopped by a signal at an exact place; time passes for it while others act; then it goes on.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from outlast.testing.crash_points import Action, CheckFailed, ScenarioState
from outlast.testing.crash_runs import CrashCase, Reference, crash_at, recover, run_reference
from outlast.testing.driver import PAST_LEASE_MS, Driver
from outlast.testing.fork_server import ForkServer
from outlast.testing.run_snapshot import read_run
from tests.crash.refund import SNEAK
from tests.crash.stories import refund_story

Case = Callable[[Driver, Reference, Path], None]


@pytest.fixture(scope="module")
def told(forking: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return run_reference(Driver(forking, refund_story()), tmp_path_factory.mktemp("told"))


def place(told: Reference, label: str, point: str, n: int = 1) -> CrashCase:
    return next(p for p in told.places if p.cell[:2] == (point, f"r1 {label}") and p.n == n)


def frozen(teller: Driver, at: CrashCase, folder: Path) -> ScenarioState:
    """The story with a process stopped at this place."""
    state = at.before.copy(folder)
    teller.live(state, at.action, at.cell._replace(act="stop"))
    return state


def killed_in_the_call(teller: Driver, told: Reference, folder: Path) -> None:
    recover(teller, crash_at(teller, place(told, "call book/o-7", "call:inside"), folder), told)


def killed_before_the_advance(teller: Driver, told: Reference, folder: Path) -> None:
    recover(teller, crash_at(teller, place(told, "advance check#1", "store.batch:before"), folder), told)


def killed_then_another_amount(teller: Driver, told: Reference, folder: Path) -> None:
    """The worker dies with the approval unused; the next one's code pays more than was approved."""
    state = crash_at(teller, place(told, "intend refund/o-7", "store.batch:before"), folder)
    teller.env[SNEAK] = "100"
    teller.live(state, Action("work", at=state.at + PAST_LEASE_MS))
    paid = [key for key in teller.story.executed(state) if "refund/" in key]
    if paid:
        raise CheckFailed("it paid what nobody approved")
    assert [a["reason"] for a in read_run(state.db).attention] == ["policy_denied"]


def frozen_before_it_sends(teller: Driver, told: Reference, folder: Path) -> None:
    """Its successor asks the receiver after the settle time, calls, and ends the run; then it wakes."""
    state = frozen(teller, place(told, "call reserve/o-7", "call:before"), folder)
    teller.jump(state, PAST_LEASE_MS)
    teller.finish(state, lambda life: teller.jump(state, PAST_LEASE_MS))
    teller.go_on()
    recover(teller, state, told)


def frozen_while_it_sends(teller: Driver, told: Reference, folder: Path) -> None:
    """Its request is in the air: the receiver does not know it yet when the successor asks."""
    state = frozen(teller, place(told, "call reserve/o-7", "call:flight"), folder)
    teller.jump(state, PAST_LEASE_MS)
    teller.live(state, Action("work"))
    teller.go_on()
    recover(teller, state, told)


def frozen_before_its_intent(teller: Driver, told: Reference, folder: Path) -> None:
    """The run is cancelled and ends meanwhile; what wakes must not begin anything."""
    state = frozen(teller, place(told, "intend reserve/o-7", "store.batch:before"), folder)
    teller.jump(state, PAST_LEASE_MS)
    teller.live(state, Action("cancel"))
    left = teller.finish(state)
    assert left.run["status"] == "cancelled"
    teller.go_on()
    after = read_run(state.db)
    if after.effects or after.run != left.run:
        raise CheckFailed(f"a replaced holder wrote: {after.effects} {after.run}")


def frozen_before_it_parks(teller: Driver, told: Reference, folder: Path) -> None:
    """The signal it waits for comes between its look and its sleep."""
    state = frozen(teller, place(told, "park wait#2", "store.batch:before", n=2), folder)
    post = next(p.action for p in told.places if p.action.do == "post")
    assert teller.live(state, post).answer == "accepted"
    teller.go_on()
    if read_run(state.db).run["node"] == "wait":
        raise CheckFailed("asleep with unread mail, until its ceiling")
    recover(teller, state, told)


def two_decide(teller: Driver, told: Reference, folder: Path) -> None:
    """One has read the request and is slow; another rejects it; then the first one's approval arrives."""
    at = place(told, "decide pay_out", "store.batch:before")
    state = frozen(teller, at, folder)
    assert teller.live(state, Action("reject", at.action.args)).answer == "accepted"
    slow = teller.go_on()
    left = teller.finish(state)
    if slow.answer == "accepted" or left.run["status"] != "cancelled" or left.approvals[0]["status"] != "rejected":
        raise CheckFailed(f"decided twice: {slow.answer}, {left.approvals[0]['status']}, {left.run['status']}")


def two_resolve(teller: Driver, told: Reference, folder: Path) -> None:
    """One is about to say that it did not happen, another says that it did; it did."""
    state = crash_at(teller, place(told, "call book/o-7", "call:inside"), folder)
    while not read_run(state.db).attention:
        action = teller.next(state)
        assert action is not None
        teller.live(state, action)
    teller.jump(state, 1_000_000)
    happened = teller.next(state)
    assert happened is not None and happened.args["verb"] == "happened"
    no = Action("resolve", {**happened.args, "verb": "did_not_happen", "response": None})
    cell = place(told, "decide pay_out", "store.batch:before").cell
    teller.live(state, no, cell._replace(label="r1 did_not_happen book/o-7", nth=1, act="stop"))
    assert teller.live(state, happened).answer == "accepted"
    slow = teller.go_on()
    recover(teller, state, told)
    assert slow.answer.startswith("refused")


CASES: list[tuple[str, Case, str]] = [
    ("call_first", killed_in_the_call, "book/o-7 was executed 2 times"),
    ("no_ledger_hit", killed_before_the_advance, "reserve/o-7 was executed 2 times"),
    ("no_digest", killed_then_another_amount, "paid what nobody approved"),
    ("no_last_check", frozen_before_it_sends, "reserve/o-7 was executed 2 times"),
    ("no_settle_time", frozen_while_it_sends, "reserve/o-7 was executed 2 times"),
    ("no_fence", frozen_before_its_intent, "a replaced holder wrote"),
    ("no_inbox_check", frozen_before_it_parks, "asleep with unread mail"),
    ("decided_twice", two_decide, "decided twice"),
    ("no_validation", two_resolve, "book/o-7 was executed 2 times"),
]


@pytest.mark.req("EFF-1", "EFF-2", "EFF-3", "FAIL-4", "FAIL-6", "FAIL-12")
@pytest.mark.parametrize("case", [case for _, case, _ in CASES])
def test_it_holds(forking: ForkServer, told: Reference, tmp_path: Path, case: Case) -> None:
    case(Driver(forking, refund_story()), told, tmp_path / "run")


@pytest.mark.parametrize(("mutant", "case", "seen"), CASES, ids=[mutant for mutant, _, _ in CASES])
def test_without_it_does_not(
    forking: ForkServer, told: Reference, tmp_path: Path, mutant: str, case: Case, seen: str
) -> None:
    with pytest.raises(CheckFailed, match=seen):
        case(Driver(forking, refund_story(), more={"mutant": mutant}), told, tmp_path / "run")

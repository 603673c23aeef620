"""Killed, frozen and resumed processes: each case passes, and fails when its safeguard is removed.

A frozen process is stopped by a signal at a crash point. Time passes while others act; then it continues.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from outlast.testing.crash_runs import CrashCase, Reference, crash_at, recover, run_reference
from outlast.testing.crash_values import Action, CheckFailed, ScenarioState
from outlast.testing.driver import PAST_LEASE_MS, Driver
from outlast.testing.fork_server import ForkServer
from outlast.testing.run_snapshot import read_run
from tests.crash.refund import SNEAK
from tests.crash.scenarios import refund_scenario

Case = Callable[[Driver, Reference, Path], None]


@pytest.fixture(scope="module")
def reference(forking: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return run_reference(Driver(forking, refund_scenario()), tmp_path_factory.mktemp("reference"))


def place(reference: Reference, label: str, point: str, n: int = 1) -> CrashCase:
    return next(p for p in reference.cases if p.point[:2] == (point, f"r1 {label}") and p.n == n)


def frozen(driver: Driver, at: CrashCase, folder: Path) -> ScenarioState:
    """Return the scenario with a process stopped in this case."""
    state = at.before.copy(folder)
    driver.run_process(state, at.action, at.point._replace(act="stop"))
    return state


def killed_in_the_call(driver: Driver, reference: Reference, folder: Path) -> None:
    recover(driver, crash_at(driver, place(reference, "call book/o-7", "call:inside"), folder), reference)


def killed_before_the_advance(driver: Driver, reference: Reference, folder: Path) -> None:
    recover(driver, crash_at(driver, place(reference, "advance check#1", "store.batch:before"), folder), reference)


def killed_then_another_amount(driver: Driver, reference: Reference, folder: Path) -> None:
    """The worker dies before the approval is used, and the next one's code pays more than was approved."""
    state = crash_at(driver, place(reference, "intend refund/o-7", "store.batch:before"), folder)
    driver.env[SNEAK] = "100"
    driver.run_process(state, Action("work", at=state.at + PAST_LEASE_MS))
    paid = [key for key in driver.scenario.executed(state) if "refund/" in key]
    if paid:
        raise CheckFailed("it paid an amount that was not approved")
    assert [a["reason"] for a in read_run(state.db).attention] == ["policy_denied"]


def frozen_before_it_sends(driver: Driver, reference: Reference, folder: Path) -> None:
    """The successor asks the receiver, calls, and ends the run. Then the first process continues."""
    state = frozen(driver, place(reference, "call reserve/o-7", "call:before"), folder)
    driver.jump(state, PAST_LEASE_MS)
    driver.finish(state, lambda result: driver.jump(state, PAST_LEASE_MS))
    driver.resume()
    recover(driver, state, reference)


def frozen_while_it_sends(driver: Driver, reference: Reference, folder: Path) -> None:
    """The request is in flight, so the receiver does not know it when the successor asks."""
    state = frozen(driver, place(reference, "call reserve/o-7", "call:flight"), folder)
    driver.jump(state, PAST_LEASE_MS)
    driver.run_process(state, Action("work"))
    driver.resume()
    recover(driver, state, reference)


def frozen_before_its_intent(driver: Driver, reference: Reference, folder: Path) -> None:
    """The run is cancelled and ends. The frozen process must not begin a call afterwards."""
    state = frozen(driver, place(reference, "intend reserve/o-7", "store.batch:before"), folder)
    driver.jump(state, PAST_LEASE_MS)
    driver.run_process(state, Action("cancel"))
    left = driver.finish(state)
    assert left.run["status"] == "cancelled"
    driver.resume()
    after = read_run(state.db)
    if after.effects or after.run != left.run:
        raise CheckFailed(f"a replaced holder wrote: {after.effects} {after.run}")


def frozen_before_it_parks(driver: Driver, reference: Reference, folder: Path) -> None:
    """The signal arrives between the process's last read of the inbox and its park."""
    state = frozen(driver, place(reference, "park wait#2", "store.batch:before", n=2), folder)
    post = next(p.action for p in reference.cases if p.action.do == "post")
    assert driver.run_process(state, post).answer == "accepted"
    driver.resume()
    if read_run(state.db).run["node"] == "wait":
        raise CheckFailed("asleep with unread mail, until its ceiling")
    recover(driver, state, reference)


def two_decide(driver: Driver, reference: Reference, folder: Path) -> None:
    """One approver has read the request. Another rejects it, then the first one's approval arrives."""
    at = place(reference, "decide pay_out", "store.batch:before")
    state = frozen(driver, at, folder)
    assert driver.run_process(state, Action("reject", at.action.args)).answer == "accepted"
    slow = driver.resume()
    left = driver.finish(state)
    if slow.answer == "accepted" or left.run["status"] != "cancelled" or left.approvals[0]["status"] != "rejected":
        raise CheckFailed(f"decided twice: {slow.answer}, {left.approvals[0]['status']}, {left.run['status']}")


def two_resolve(driver: Driver, reference: Reference, folder: Path) -> None:
    """One person is about to resolve "did not happen" when another resolves "happened", which is true."""
    state = crash_at(driver, place(reference, "call book/o-7", "call:inside"), folder)
    while not read_run(state.db).attention:
        action = driver.next(state)
        assert action is not None
        driver.run_process(state, action)
    driver.jump(state, 1_000_000)
    happened = driver.next(state)
    assert happened is not None and happened.args["verb"] == "happened"
    no = Action("resolve", {**happened.args, "verb": "did_not_happen", "response": None})
    point = place(reference, "decide pay_out", "store.batch:before").point
    driver.run_process(state, no, point._replace(label="r1 did_not_happen book/o-7", nth=1, act="stop"))
    assert driver.run_process(state, happened).answer == "accepted"
    slow = driver.resume()
    recover(driver, state, reference)
    assert slow.answer.startswith("refused")


CASES: list[tuple[str, Case, str]] = [
    ("call_first", killed_in_the_call, "book/o-7 was executed 2 times"),
    ("no_ledger_hit", killed_before_the_advance, "reserve/o-7 was executed 2 times"),
    ("no_digest", killed_then_another_amount, "paid an amount that was not approved"),
    ("no_last_check", frozen_before_it_sends, "reserve/o-7 was executed 2 times"),
    ("no_settle_time", frozen_while_it_sends, "reserve/o-7 was executed 2 times"),
    ("no_fence", frozen_before_its_intent, "a replaced holder wrote"),
    ("no_inbox_check", frozen_before_it_parks, "asleep with unread mail"),
    ("decided_twice", two_decide, "decided twice"),
    ("no_validation", two_resolve, "book/o-7 was executed 2 times"),
]


@pytest.mark.req("EFF-1", "EFF-2", "EFF-3", "FAIL-4", "FAIL-6", "FAIL-12")
@pytest.mark.parametrize("case", [case for _, case, _ in CASES])
def test_the_case_passes(forking: ForkServer, reference: Reference, tmp_path: Path, case: Case) -> None:
    case(Driver(forking, refund_scenario()), reference, tmp_path / "run")


@pytest.mark.parametrize(("mutant", "case", "seen"), CASES, ids=[mutant for mutant, _, _ in CASES])
def test_the_case_fails_without_its_safeguard(
    forking: ForkServer, reference: Reference, tmp_path: Path, mutant: str, case: Case, seen: str
) -> None:
    with pytest.raises(CheckFailed, match=seen):
        case(Driver(forking, refund_scenario(), more={"mutant": mutant}), reference, tmp_path / "run")

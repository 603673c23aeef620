"""Which runs a worker may claim, and when it looks again: values in, values out (S-5)."""

from types import SimpleNamespace
from typing import Any

import pytest

from outlast.clocks import VirtualClock
from outlast.core.rows.run_rows import Run
from outlast.engine.capacity import NO_OWNERS, TAKE_MAX, TAKE_OVER_MAX, Capacity, Look, LostClaim
from tests.core.drive import Drive
from tests.models.world import MAPPING, TENANT, at, born


def run_named(name: str, **columns: Any) -> Run:
    drive = Drive().speak(born(name))
    row = next(row for row in drive.rows if isinstance(row, Run))
    return row._replace(**columns)


def held(name: str, **columns: Any) -> Any:
    """Return a session of a run, as far as a capacity reads it."""
    run = run_named(name, owner="", **columns)
    return SimpleNamespace(held=SimpleNamespace(run=run, group=run.group_max))


def begin(capacity: Capacity, **owners: int | None) -> Any:
    return capacity.begin_take("wk", 60_000, ("w@1",), owners or NO_OWNERS, lambda run: True)


@pytest.mark.parametrize(
    ("holds", "taken", "look"), [(0, 0, Look.WHEN_DUE), (1, 1, Look.NOW), (2, 1, Look.WHEN_RELEASED)]
)
def test_it_looks_again_when_a_run_may_fit(holds: int, taken: int, look: Look) -> None:
    capacity = Capacity(2, VirtualClock())
    for n in range(holds):
        capacity.hold(held(f"r{n}"))
    assert capacity.next_look(taken) is look


def test_a_take_reads_as_many_runs_as_fit_and_as_the_last_one_skipped() -> None:
    capacity = Capacity(1_000, VirtualClock())
    capacity.hold(held("r0"))
    taking = begin(capacity)
    assert taking.most == TAKE_MAX
    assert taking.step(run_named("r0"), at(1), MAPPING) is None, "its executor is about to release it"
    capacity.end_take(taking, ())
    assert begin(capacity).most == TAKE_MAX + 1 and capacity.next_look(0) is Look.SOON
    assert begin(capacity, dead=3).most == TAKE_OVER_MAX


def test_a_claim_without_an_answer_takes_a_slot_until_it_is_returned() -> None:
    capacity = Capacity(2, VirtualClock())
    run = run_named("r1")
    taking = begin(capacity)
    assert taking.step(run, at(1), MAPPING) is not None
    capacity.lose_take(taking)
    assert (capacity.group().held, capacity.next_look(0)) == (1, Look.WHEN_DUE)
    capacity.lost_claims.clear()
    assert capacity.group().held == 0


def test_a_run_alone_whose_claim_has_no_answer_may_be_claimed_again_and_no_other_beside_it() -> None:
    capacity = Capacity(10, VirtualClock())
    alone = run_named("r1")._replace(group_max=1)
    lost = begin(capacity)
    assert lost.step(alone, at(1), MAPPING) is not None
    capacity.lose_take(lost)
    again = begin(capacity)
    assert again.most >= 1, "it is offered again although the worker has no free slot"
    assert again.step(run_named("r2"), at(1), MAPPING) is None
    assert again.step(alone, at(1), MAPPING) is not None
    smaller = run_named("r3")._replace(group_max=1)
    capacity.lost_claims = {(TENANT, "r3"): LostClaim(0), (TENANT, "r4"): LostClaim(0)}
    assert begin(capacity).step(smaller, at(1), MAPPING) is None, "its group has shrunk since it was counted"


def test_a_group_limits_what_else_is_held_until_its_run_advances() -> None:
    capacity = Capacity(10, VirtualClock())
    session = held("r1", group_max=1)
    capacity.hold(session)
    assert (capacity.group().free, capacity.next_look(0)) == (0, Look.SOON)
    session.held.run = session.held.run._replace(group_max=0)
    assert capacity.group().free == 0, "its advance has not landed"
    session.held.group = 0
    assert capacity.group().free == 9


def test_the_last_slots_are_reserved_for_tenants_with_a_small_share() -> None:
    clock = VirtualClock()
    capacity = Capacity(10, clock)
    capacity.hold(held("other", tenant="t2"))
    for n in range(8):
        capacity.hold(held(f"r{n}"))
    taking = begin(capacity)
    assert taking.step(run_named("r9"), at(1), MAPPING) is None
    capacity.end_take(taking, ())
    assert capacity.next_look(0) is Look.SOON
    assert begin(capacity).step(run_named("r9", tenant="t2"), at(1), MAPPING) is not None


def test_a_released_run_wakes_the_worker_if_another_waited_for_it() -> None:
    capacity = Capacity(2, VirtualClock())
    first, second, third = held("r1"), held("r2"), held("r3", group_max=5)
    for session in (first, second):
        capacity.hold(session)
    capacity.release(first, "wk")
    assert capacity.changed.is_set(), "it was full"
    capacity.changed.clear()
    capacity.release(second, "wk")
    assert not capacity.changed.is_set() and not capacity.held
    capacity.hold(third)
    capacity.release(third, "wk")
    assert capacity.changed.is_set(), "its group is gone"


def test_a_run_that_its_executor_left_owned_counts_as_a_lost_claim() -> None:
    capacity = Capacity(2, VirtualClock())
    session = held("r1")
    capacity.hold(session)
    session.held.run = session.held.run._replace(owner="wk")
    capacity.release(session, "wk")
    assert capacity.lost_claims == {(TENANT, "r1"): LostClaim(0)}

"""Real processes on one SQLite file are killed, frozen and stopped, and no receiver gets a letter twice."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.core.events import EventType
from outlast.core.rows.run_rows import is_over
from tests.e2e.flows import LETTERS
from tests.e2e.helpers import GIVE_UP_S, Installation, installation, when
from tests.frozen import freeze

TAKEN_OVER = EventType.TAKEN_OVER.value


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path) as opened:
        yield opened


def each_once(s: Installation, runs: int = 1) -> None:
    assert sorted(s.receiver.seen.values()) == [1] * (runs * LETTERS), s.receiver.seen


def in_the_middle_of_a_call(s: Installation, run: str) -> None:
    """Two workers, one of which has sent a letter and has no answer."""
    s.receiver.may_answer.clear()
    s.start(run)
    s.hire()
    when(lambda: s.receiver.seen, s.said)
    s.hire()
    when(lambda: len(s.alive()) == 2, s.said)


@pytest.mark.req("REC-1", "REC-3", "REC-5", "RUN-1")
def test_a_worker_killed_in_the_middle_of_a_call_is_replaced_and_the_call_is_not_made_again(s: Installation) -> None:
    in_the_middle_of_a_call(s, "r1")
    victim = s.holder("r1")
    assert victim is s.workers[0]
    victim.kill()
    assert victim.wait(GIVE_UP_S) == -signal.SIGKILL
    s.receiver.may_answer.set()
    when(lambda: is_over(s.run("r1")), s.said)
    (over,) = [event for event in s.history("r1") if event.type == TAKEN_OVER]
    assert f'"from":"w-{victim.pid}-' in over.body.decode()
    assert over.visit == 1, "the run continued in the interrupted visit"
    assert f'"worker":"w-{s.workers[1].pid}-' in over.body.decode()
    each_once(s)


@pytest.mark.req("REC-1", "REC-6")
def test_a_worker_is_replaced_though_the_wall_clock_was_set_back_by_hours(s: Installation) -> None:
    """Leases follow the boot-time clock: the takeover came once the wall clock had caught up, six hours later."""
    in_the_middle_of_a_call(s, "r1")
    s.set_wall_clock(-6 * 3_600)
    when(lambda: "behind the store's: it was set" in s.said(), s.said)
    s.workers[0].kill()
    s.receiver.may_answer.set()
    when(lambda: is_over(s.run("r1")), s.said)
    each_once(s)
    s.start("r2")
    when(lambda: is_over(s.run("r2")), s.said)


@pytest.mark.req("REC-1", "REC-6")
def test_no_healthy_worker_is_replaced_because_the_wall_clock_was_set_forward(s: Installation) -> None:
    """Business time follows the clock; the leases of both workers go on."""
    in_the_middle_of_a_call(s, "r1")
    before = s.do(lambda ops: ops.store.now())
    s.set_wall_clock(6 * 3_600)
    when(lambda: s.do(lambda ops: ops.store.now()).business >= before.business + 6 * 3_600_000, s.said)
    s.receiver.may_answer.set()
    when(lambda: is_over(s.run("r1")), s.said)
    assert s.do(lambda ops: ops.store.now()).real < before.real + 60_000
    assert len(s.alive()) == 2 and not [e for e in s.history("r1") if e.type == TAKEN_OVER]
    each_once(s)


@pytest.mark.req("FAIL-11", "REC-1", "REC-3")
def test_the_worker_that_takes_over_dies_in_the_middle_of_it_and_a_third_goes_on(s: Installation) -> None:
    in_the_middle_of_a_call(s, "r1")
    s.workers[0].kill()
    when(lambda: len(s.receiver.seen) == 2, s.said)  # the second has settled the first letter and is sending the next
    assert s.holder("r1") is s.workers[1]
    s.workers[1].kill()
    assert {worker.wait(GIVE_UP_S) for worker in s.workers} == {-signal.SIGKILL}
    s.receiver.may_answer.set()
    s.hire()
    when(lambda: is_over(s.run("r1")), s.said)
    assert [event.visit for event in s.history("r1") if event.type == TAKEN_OVER] == [1, 2]
    each_once(s)


@pytest.mark.req("FAIL-12", "REC-1", "REC-3")
def test_a_frozen_worker_that_wakes_after_its_lease_was_taken_does_nothing_more(s: Installation) -> None:
    in_the_middle_of_a_call(s, "r1")
    frozen = s.holder("r1")
    assert frozen is s.workers[0]
    freeze(frozen, s.folder / "outlast.db")
    when(lambda: any(event.type == TAKEN_OVER for event in s.history("r1")), s.said)
    s.receiver.may_answer.set()
    when(lambda: is_over(s.run("r1")), s.said)
    before = s.history("r1")
    frozen.send_signal(signal.SIGCONT)
    when(lambda: f"continues as w-{frozen.pid}-" in s.said(), s.said)  # it has noticed the replacement
    when(lambda: len([w for w in s.alive() if w.startswith(f"w-{frozen.pid}-")]) == 1, s.said)  # under its new id
    assert len(set(s.alive())) == 2, "the worker that took over still serves"
    assert s.history("r1") == before
    each_once(s)


@pytest.mark.req("FAIL-6", "REC-1", "REC-5", "RUN-1")
def test_two_workers_on_one_file_share_runs_that_were_started_before_any_worker(s: Installation) -> None:
    runs = [f"r{n}" for n in range(20)]
    s.start(*runs)
    assert s.run("r0").owner == ""
    s.hire()
    s.hire()
    when(lambda: all(is_over(s.run(run)) for run in runs), s.said)
    claims = [[e for e in s.history(run) if e.type == EventType.CLAIMED.value] for run in runs]
    assert {len(each) for each in claims} == {1}, "each run was claimed once, by one of the two workers"
    each_once(s, len(runs))


@pytest.mark.req("REC-3", "REC-5")
def test_a_stopped_worker_settles_its_call_and_another_worker_continues(s: Installation) -> None:
    s.receiver.may_answer.clear()
    s.start("r1")
    first = s.hire()
    when(lambda: s.receiver.seen, s.said)
    first.send_signal(signal.SIGTERM)
    when(lambda: "stopping" in s.said(), s.said)
    s.receiver.may_answer.set()
    assert first.wait(GIVE_UP_S) == 0, s.said()
    assert s.run("r1").owner == ""
    assert s.alive() == []
    s.hire()
    when(lambda: is_over(s.run("r1")), s.said)
    assert [e for e in s.history("r1") if e.type == TAKEN_OVER] == [], "the run was released, not taken over"
    each_once(s)

"""A sample of the crash cases: each kills a real process, and the run ends as without a crash.

`scripts/crash` runs all of them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.testing.crash_runs import CrashCase, Reference, Tally, draw_one, run_case, run_pairs, run_reference
from outlast.testing.driver import Driver
from outlast.testing.fork_server import ForkServer
from tests.crash.market_server import MarketServer, market_server
from tests.crash.scenarios import MUTE_SUPPLIER, auction_scenario, calm, mute, refund_scenario
from tests.slices import drawn

DRAWN = 8
"""Cases of a long list in a default run, each with processes. `TEST_SEED=all` and `scripts/crash` play all of them."""
CALLS = ("call:before", "call:flight", "call:inside", "call:after")


@pytest.fixture(scope="module")
def refund(forking: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Driver, Reference]:
    driver = Driver(forking, refund_scenario())
    return driver, run_reference(driver, tmp_path_factory.mktemp("refund"))


@pytest.fixture(scope="module")
def market() -> Iterator[MarketServer]:
    with market_server(calm()) as one:
        yield one


def kill_each(driver: Driver, cases: list[CrashCase], reference: Reference, folder: Path) -> Tally:
    tally = Tally()
    for n, place in enumerate(cases):
        run_case(driver, place, reference, folder / str(n), tally)
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.run == tally.killed == tally.equal == len(cases) > 0
    return tally


def at(reference: Reference, *labels: str) -> list[CrashCase]:
    """Return the cases whose label starts with one of these."""
    return [
        place for place in reference.cases if place.point.label.startswith(tuple(f"r1 {label}" for label in labels))
    ]


@pytest.mark.req("CKP-1")
def test_every_kind_of_crash_point_is_reached(refund: tuple[Driver, Reference]) -> None:
    points = {place.point.name for place in refund[1].cases}
    batch = {f"store.batch:{side}" for side in ("before", "inside", "after")}
    assert points == {*batch, *CALLS, "store.checkpoint:before", "store.checkpoint:after", "store.migration:inside"}
    verbs = {place.point.label.split()[1] for place in refund[1].cases if place.point.label.startswith("r1 ")}
    assert verbs == {
        *("start", "claim", "admit", "lookup", "remember", "intend", "call", "record", "open_wait", "bind"),
        *("park", "advance", "ask", "decide", "post", "complete", "log"),
    }


@pytest.mark.req("EFF-1", "EFF-2", "FAIL-3")
def test_a_crash_between_intent_and_answer_is_settled_as_declared(
    refund: tuple[Driver, Reference], tmp_path: Path
) -> None:
    driver, reference = refund
    tally = kill_each(driver, [p for p in at(reference, "call ") if p.point.name != "call:flight"], reference, tmp_path)
    assert set(tally.uncertain) == {"refund/o-7", "book/o-7"}, "only where the receiver can do neither"


@pytest.mark.req("EFF-1", "FAIL-4", "FAIL-8", "CKP-2")
def test_a_crash_after_the_answer_repeats_nothing(refund: tuple[Driver, Reference], tmp_path: Path) -> None:
    driver, reference = refund
    some = [p for p in at(reference, "record ", "advance ") if p.point.name != "store.batch:before"]
    kill_each(driver, drawn(some, DRAWN, "crashes after the answer"), reference, tmp_path)


def test_a_crash_before_admission_leaves_nothing_behind(refund: tuple[Driver, Reference], tmp_path: Path) -> None:
    driver, reference = refund
    kill_each(driver, [p for p in at(reference, "claim", "admit") if p.n == 1], reference, tmp_path)


def test_a_command_repeated_after_a_crash_counts_once(refund: tuple[Driver, Reference], tmp_path: Path) -> None:
    driver, reference = refund
    some = at(reference, "start", "post ", "decide ")
    kill_each(driver, drawn(some, DRAWN, "crashes of commands"), reference, tmp_path)


@pytest.mark.parametrize(("threads", "one_commit_each"), [(False, True), (True, False)], ids=["one thread", "batched"])
def test_the_other_ways_to_run_a_worker(
    forking: ForkServer, tmp_path: Path, threads: bool, one_commit_each: bool
) -> None:
    """The heartbeat in the event loop, and many commits in one transaction as in production."""
    driver = Driver(forking, refund_scenario(), threads=threads, one_commit_each=one_commit_each)
    reference = run_reference(driver, tmp_path / "reference")
    some = [p for p in at(reference, "record ", "call ") if p.point.name in ("store.batch:inside", "call:before")]
    kill_each(driver, some[::3], reference, tmp_path)


@pytest.mark.req("FAIL-11")
def test_a_second_crash_during_the_recovery(refund: tuple[Driver, Reference], tmp_path: Path) -> None:
    driver, reference = refund
    tally = Tally()
    for n, place in enumerate(at(reference, "call ")[::4]):
        run_pairs(driver, place, reference, tmp_path / str(n), tally, draw_one(7, n))
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.equal == tally.run > 0


@pytest.mark.req("CKP-1", "CKP-2", "EFF-1")
def test_an_auction_is_awarded_despite_crashes(forking: ForkServer, market: MarketServer, tmp_path: Path) -> None:
    driver = Driver(forking, auction_scenario(market, rounds=2))
    reference = run_reference(driver, tmp_path / "reference")
    some = [p for p in at(reference, "call ", "advance ") if p.point.name in ("call:inside", "store.batch:inside")]
    kill_each(driver, drawn(some, DRAWN, "crashes of an auction"), reference, tmp_path)
    assert reference.end["outcome"]["supplier_id"]


@pytest.mark.req("EFF-2")
def test_only_the_supplier_that_cannot_be_asked_leaves_an_uncertain_effect(forking: ForkServer, tmp_path: Path) -> None:
    with market_server(mute()) as market:
        driver = Driver(forking, auction_scenario(market, rounds=1, doubtful=f"/{MUTE_SUPPLIER}/"))
        reference = run_reference(driver, tmp_path / "reference")
        cases = [p for p in at(reference, "call invite/") if p.point.name in ("call:before", "call:inside")]
        tally = kill_each(driver, cases, reference, tmp_path)
        assert set(tally.uncertain) == {f"invite/{MUTE_SUPPLIER}/1"}

"""A sample of the crash cases on DynamoDB; `scripts/crash --store dynamodb` runs all of them.

Each kills a real process, or loses one of its transactions or an answer, and the run ends as without a crash.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from outlast.testing.crash_runs import CrashCase, Reference, Tally, run_case, run_reference
from outlast.testing.driver import Driver
from outlast.testing.fork_server import ForkServer, fork_server
from tests.crash.scenarios import refund_scenario
from tests.dynamodb.scenario import FATES, Environments, LostTransactions, on_emulator, unnoticed

INTENT, STEP, DECISION, MESSAGE = "effect run", "event run", "approval message run", "message run token"


class Campaign(NamedTuple):
    """Values that the cases of this module share."""

    forking: ForkServer
    store: Environments
    monitor: LostTransactions
    reference: Reference

    def driver(self, without: str = "") -> Driver:
        """Return a driver of the refund, perhaps without a safeguard."""
        workflow = refund_scenario()
        workflow.monitor = self.monitor
        return Driver(self.forking, workflow, store=self.store, more={"mutant": without} if without else {})

    def run(self, folder: Path, *names: str, without: str = "") -> Tally:
        """Run the cases with these names."""
        cases = {case.name: case for case in self.reference.cases}
        tally, driver = Tally(), self.driver(without)
        for n, name in enumerate(names):
            case: CrashCase = cases[name]
            run_case(
                driver, case, self.reference, folder / f"{without}-{n}", tally, unnoticed(driver, case, self.reference)
            )
        return tally


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with on_emulator() as (store, monitor, code), fork_server(code) as forking:
        workflow = refund_scenario()
        workflow.monitor = monitor
        reference = run_reference(Driver(forking, workflow, store=store), tmp_path_factory.mktemp("refund"))
        yield Campaign(forking, store, monitor, reference)


def test_every_transaction_has_each_fate(campaign: Campaign) -> None:
    listed = [case.point for case in campaign.reference.cases]
    transactions = sum(point.name == "request:lost" for point in listed)
    assert transactions > 50
    for name in FATES:
        assert sum(point.name == name for point in listed) == transactions
    commits = {point.label.split()[1] for point in listed if point.name == "store.batch:inside" and " " in point.label}
    assert {"start", "claim", "intend", "record", "park", "bind", "advance", "decide", "post", "complete"} <= commits


@pytest.mark.req("EFF-1", "REC-1", "RT-5", "CKP-1")
@pytest.mark.parametrize(
    ("names", "late"),
    [
        ((f"{INTENT} request:lost #4", f"{MESSAGE} request:unanswered"), ""),
        ((f"{STEP} request:fenced #7",), "late: they were refused"),
        ((f"{DECISION} request:resent",), "late: they were refused"),
        ((f"{INTENT} request:before #9", f"{INTENT} request:after #8"), ""),
        ((f"{STEP} request:late #9",), "late: they were refused"),
        (("r1 call book/o-7 call:inside",), ""),
    ],
    ids=lambda given: given[0].replace(" ", "_") if isinstance(given, tuple) else "",
)
def test_the_run_ends_as_without_a_crash(campaign: Campaign, tmp_path: Path, names: tuple[str, ...], late: str) -> None:
    campaign.monitor.late.clear()
    tally = campaign.run(tmp_path, *names)
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.equal == tally.run == len(names) and not tally.twice
    assert dict(campaign.monitor.late) == ({late: 1} if late else {})


NOTICED = [
    ("receipts_not_compared", f"{STEP} request:fenced #7", "a transaction landed after its fence"),
    ("lost_answers_count_as_refused", "worker request:unanswered #7", "ended it with 2"),
    ("call_first", "r1 call book/o-7 call:inside", "book/o-7 was executed 2 times"),
]


@pytest.mark.parametrize(("without", "name", "seen"), NOTICED, ids=[without for without, _, _ in NOTICED])
def test_a_removed_safeguard_is_noticed(campaign: Campaign, tmp_path: Path, without: str, name: str, seen: str) -> None:
    tally = campaign.run(tmp_path, name, without=without)
    assert not tally.equal and seen in tally.failures[0]

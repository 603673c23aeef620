"""Fixtures and hooks of all tests: the check of requirement marks, and the distribution over processes."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests import slices
from tests.rows.table import ROWS

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell makes background jobs ignore Ctrl-C, and processes of tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A client of HTTP loads the trusted certificates, also for plain HTTP. Those of a machine take 28 ms of CPU for each
# client and each store on DynamoDB, one takes 0.6 ms. Its key is lost, so only peers are trusted that a test names.
for name in ("SSL_CERT_FILE", "AWS_CA_BUNDLE"):
    os.environ[name] = str(Path(__file__).with_name("authorities.pem"))

NOT_BUILT = {one: row.missing for one, row in ROWS.items()}
"""What this release does not have of each requirement: nothing, a part in words, or "all"."""
REQUIREMENT_IDS = frozenset(NOT_BUILT)


# Hypothesis fails an example that takes 200 ms, which a busy machine makes of any. Times are measured by scripts/bench.
settings.register_profile("outlast", deadline=None)
settings.load_profile("outlast")
slices.seed()  # drawn before xdist starts its processes, so that all of them draw the same cases


def pytest_report_header() -> str:
    """Print the seed of the cases that this session plays of long campaigns."""
    return f"{slices.SEED}={slices.seed()} draws the cases of long campaigns; {slices.SEED}={slices.ALL} plays each"


def wrong_marks(ids: tuple[object, ...]) -> list[str]:
    """Return why a `req` mark is wrong: an id that is no requirement, or one that the page calls not built."""
    if not ids:
        return ["(none), which docs/requirements.md does not list"]
    unknown = [f"{one}, which docs/requirements.md does not list" for one in ids if one not in REQUIREMENT_IDS]
    return unknown + [
        f"{one}, which docs/requirements.md calls not built" for one in ids if NOT_BUILT.get(f"{one}") == "all"
    ]


# --- several processes (`-n`) ----------------------------------------------------------------------------
# One process runs a whole file, except for these parts. The first match counts.
TOGETHER = (
    "tests/chaos/",  # measures durations, so its tests never run at the same time
    "tests/docs/",  # one run plays all blocks of a page
    "tests/crash/",  # they share one fork server
    "tests/temporal/",  # they share one Temporal server
)
APART = ("tests/models/test_models.py", "tests/testing/test_every_crash.py")  # long, and its tests share nothing
LONG = (
    *(
        "tests/ui/",
        "tests/docs/",
        "tests/chaos/",
        "tests/temporal/",
        "tests/runtimes/",
        "tests/security/test_canaries.py",
        "tests/e2e/",
        "tests/testing/test_every_crash.py",
        "tests/models/",
    ),
    *("tests/crash/", "tests/bench/", "tests/conformance/", "tests/postgres/", "tests/service/test_fuzz.py"),
    *("tests/examples/test_samples.py", "tests/testing/", "tests/outbox/", "tests/security/test_matrix.py"),
    *("tests/store/test_processes.py", "tests/service/test_multiprocess.py", "tests/simulation/", "tests/dynamodb/"),
    *("tests/pydantic_ai/test_every_crash.py", "tests/examples/test_researcher.py", "tests/cli/test_both_clients.py"),
    *("tests/test_prose.py", "tests/test_tidy.py", "tests/test_layers.py", "tests/typing/"),
)  # started first, because a long part at the end would leave the other processes idle


def part_of(nodeid: str) -> str:
    """Return the part of the session that runs in one process."""
    if nodeid.startswith(APART):
        return nodeid
    return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])


class Parts(LoadScopeScheduling):
    """Scheduler that hands whole parts to the processes of `scripts/test`, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Parts:
    """Distribute whole parts. `--dist` would distribute single tests."""
    config.option.loadscopereorder = False
    return Parts(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Any:
    """Replace text that is not UTF-8 in captured logs, because xdist sends reports as UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """Collect the tests without garbage collection, which would take a fifth of the CPU and find nothing.

    Later it skips the loaded modules and the collected tests, which stay until the end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module")
def uncollected() -> Iterator[None]:
    """Read syntax trees of the whole project without garbage collection: they have no cycles.

    It took half of the CPU of such a module. Later it skips the trees that the module keeps.
    """
    gc.collect()  # so that no garbage of other tests is frozen below
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _rank(item: pytest.Item) -> int:
    return next((n for n, first in enumerate(LONG) if item.nodeid.startswith(first)), len(LONG))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Stop the session if a test claims a requirement that does not exist."""
    if hasattr(config, "workerinput"):  # a worker process of xdist
        items.sort(key=_rank)
    wrong = [
        f"{item.nodeid}: @pytest.mark.req names {why}"
        for item in items
        for mark in item.iter_markers("req")
        for why in wrong_marks(mark.args)
    ]
    if wrong:
        raise pytest.UsageError("\n".join(wrong))

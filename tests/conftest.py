"""What every test gets: the check that a test names only requirements that exist, and its place among processes."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it runs with `&` ignore Ctrl-C, and the processes of tests would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

REQUIREMENTS = Path(__file__).parents[1] / "docs" / "requirements.md"
REQUIREMENT_IDS = frozenset(
    re.findall(r"^\| ([A-Z]+-[0-9]+) \|", REQUIREMENTS.read_text(encoding="utf-8"), re.MULTILINE)
)


def unknown_requirements(ids: tuple[object, ...]) -> list[str]:
    """What a `req` mark names that is no requirement; a mark that names nothing is unknown as a whole."""
    if not ids:
        return ["(none)"]
    return [str(one) for one in ids if one not in REQUIREMENT_IDS]


# --- several processes (`-n`) ----------------------------------------------------------------------------
# What is handed to one process as a whole is a file, but for these. The first that fits counts.
TOGETHER = (
    "tests/chaos/",  # its rounds measure how long things take: never beside each other
    "tests/docs/",  # every page is played at once, for all of its files
    "tests/crash/",  # one forker for all
)
APART = ("tests/models/test_models.py", "tests/testing/test_every_crash.py")  # long, and no test shares anything
LONG = (
    *(
        "tests/docs/",
        "tests/chaos/",
        "tests/security/test_canaries.py",
        "tests/e2e/",
        "tests/testing/test_every_crash.py",
        "tests/models/",
    ),
    *("tests/crash/", "tests/bench/", "tests/conformance/", "tests/postgres/", "tests/service/test_fuzz.py"),
    *("tests/examples/test_samples.py", "tests/testing/", "tests/outbox/", "tests/security/test_matrix.py"),
)  # these begin first, so that no process is left alone with one of them at the end


def part_of(nodeid: str) -> str:
    """What is run in one process."""
    if nodeid.startswith(APART):
        return nodeid
    return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])


class Parts(LoadScopeScheduling):
    """Hands whole parts to the processes of `scripts/test`, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Parts:
    """`--dist` says how many tests a process gets at a time; here it is always a part."""
    config.option.loadscopereorder = False
    return Parts(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Any:
    """What a test logged goes from one process to the other as UTF-8, and hostile text may be none."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


def _rank(item: pytest.Item) -> int:
    return next((n for n, first in enumerate(LONG) if item.nodeid.startswith(first)), len(LONG))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse the run when a test claims a requirement that is not in the list."""
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=_rank)
    wrong = [
        f"{item.nodeid}: @pytest.mark.req names {', '.join(unknown)}, which docs/requirements.md does not list"
        for item in items
        for mark in item.iter_markers("req")
        if (unknown := unknown_requirements(mark.args))
    ]
    if wrong:
        raise pytest.UsageError("\n".join(wrong))

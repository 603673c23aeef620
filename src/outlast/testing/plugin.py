"""The pytest plugin: options, the report of crash cells, fixtures. Loads nothing of Outlast until a test needs it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from outlast.testing.app import AppFactory
    from outlast.testing.fake_receivers import FakeReceivers


class CrashReports:
    """Where a session keeps its reports."""

    key: Final = pytest.StashKey[list[tuple[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of `every_crash`."""
    group = parser.getgroup("outlast", "every crash of a workflow")
    group.addoption("--crash-case", default="", metavar="NAME", help="replay this cell alone (a failure names it)")
    group.addoption("--crash-jobs", default=0, type=int, metavar="N", help="so many cells at once [as the test says]")
    group.addoption("--crash-pairs", default="", choices=["sampled", "all"], help="a second death in each recovery")
    group.addoption("--crash-report", default="", metavar="FILE", help="write a line for each cell to this file")


def option(config: pytest.Config, name: str) -> Any:
    """An option of ours; None where the plugin is switched off."""
    return config.getoption(name, default=None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line for each test that crashes; with -v, or into --crash-report, one for each cell."""
    told = config.stash.get(CrashReports.key, [])
    if not told:
        return
    terminalreporter.section("crash cells")
    for nodeid, report in told:
        terminalreporter.line(f"{nodeid}: {report.summary()}")
        if config.get_verbosity() > 0:
            for line in report.lines():
                terminalreporter.line(f"  {line}")
    if path := option(config, "crash_report"):
        lines = [f"{nodeid}\t{line}" for nodeid, report in told for line in report.lines()]
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


@pytest.fixture
def receivers() -> "Iterator[FakeReceivers]":
    """A hostile receivers that runs for this test: `outlast.testing.FakeReceivers`."""
    from outlast.testing.fake_receivers import FakeReceivers

    with FakeReceivers() as one:
        yield one


@pytest.fixture
def outlast_app() -> "Iterator[AppFactory]":
    """Makes runtimes in virtual time: `app = outlast_app(workflow)`; see `outlast.testing.app.App`."""
    from outlast.testing.app import app_factory

    with app_factory() as make:
        yield make

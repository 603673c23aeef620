"""The pytest plugin: options, fixtures and the report of crash cases. Loads Outlast only when a test uses it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from outlast.testing.fake_receivers import FakeReceivers
    from outlast.testing.virtual_runtime import AppFactory


class CrashReports:
    """Key of a session's crash reports in pytest's stash."""

    key: Final = pytest.StashKey[list[tuple[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `every_crash` and `any_story`."""
    group = parser.getgroup("outlast", "crash tests of workflows")
    group.addoption("--crash-case", default="", metavar="NAME", help="replay one crash case; failures print its name")
    group.addoption(
        "--crash-jobs", default=0, type=int, metavar="N", help="number of cases at the same time [as the test declares]"
    )
    group.addoption("--crash-pairs", default="", choices=["sampled", "all"], help="crash each recovery a second time")
    group.addoption("--crash-all", action="store_true", help="run all crash cases of tests that draw a few (cases=)")
    group.addoption("--crash-cases", default=0, type=int, metavar="N", help="number of cases that each test draws")
    group.addoption("--outlast-lint", action="store_true", help="check each file of workflows by the rules of lint")
    group.addoption("--stories", default=0, type=int, metavar="N", help="number of stories of each any_story test")
    group.addoption("--story-seed", default=None, type=int, metavar="N", help="draw the stories by this seed")
    group.addoption("--crash-report", default="", metavar="FILE", help="write a line to this file as each case ends")


def option(config: pytest.Config, name: str) -> Any:
    """Return an option of this plugin, or None if the plugin is disabled."""
    return config.getoption(name, default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Empty the file of --crash-report, unless this is a process of pytest-xdist."""
    if (path := option(config, "crash_report")) and not hasattr(config, "workerinput"):
        Path(path).write_text("", encoding="utf-8")


def report_case(config: pytest.Config, line: str) -> None:
    """Append a line to the file of --crash-report, so that a session that is ended early leaves what it has seen."""
    if path := option(config, "crash_report"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "pytest.Collector | None":
    """With --outlast-lint, add an item for each Python file."""
    if file_path.suffix != ".py" or not option(parent.config, "outlast_lint"):
        return None
    from outlast.testing.lint_item import LintedFile

    return cast(pytest.Collector, LintedFile.from_parent(parent, path=file_path))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a line for each crash test; with -v, a line for each case."""
    reports = config.stash.get(CrashReports.key, [])
    if not reports:
        return
    terminalreporter.section("crash cases")
    for nodeid, report in reports:
        terminalreporter.line(f"{nodeid}: {report.summary()}")
        if config.get_verbosity() > 0:
            for line in report.lines():
                terminalreporter.line(f"  {line}")


@pytest.fixture
def receivers() -> "Iterator[FakeReceivers]":
    """Run fake receivers for this test: `outlast.testing.FakeReceivers`."""
    from outlast.testing.fake_receivers import FakeReceivers

    with FakeReceivers() as one:
        yield one


@pytest.fixture
def outlast_app() -> "Iterator[AppFactory]":
    """Return a function that creates runtimes in virtual time: `app = outlast_app(workflow)`."""
    from outlast.testing.virtual_runtime import app_factory

    with app_factory() as make:
        yield make

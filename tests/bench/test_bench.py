"""Every measurement of the bench runs and prints the figures that it declares. Speed is not tested."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import plots, postgres, table
from bench.__main__ import NAMES, STORES, Job
from bench.engines import Setup, engine_of
from bench.figures import NOT_MEASURED, Goal, Size, counted, percentile, slope
from bench.load.stack import ROOT
from tests import slices
from tests.postgres import server

ON = {
    "postgres": {"control", "steps_effectful", "steps_readonly", "state", "takeover", "service", "graph_threads"},
    "dynamodb": {"units"},
}
"""Each method of the server's engine is used by one of them. `scripts/bench --quick --store postgres` runs the rest."""
APART = {"cores", "deaths", "fairness", "history", "schedulers", "service_several"}
"""Take 7 to 19 s each, and one starts a Temporal server; `python -m bench.one NAME tiny sqlite 1` is run by hand.

Of two, the gate plays the parts: `test_two_workers_share_the_steps` for `cores`, and `purge` for `history`.
"""
MEASURED = [
    (name, store)
    for name in NAMES
    for store in getattr(import_module(f"bench.measures.{name}"), "STORES", STORES)
    if name not in APART and name in ON.get(store, NAMES)
]
DRAWN = 3
MUST = {
    "failed": 0, "refused": 0, "sse_missed": 0, "sse_wrong": 0, "sse_streams": 20, "lost": 0, "never_usable": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_server(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Return the session's server if this test needs one."""
    if "postgres" in request.node.name:
        monkeypatch.setenv(postgres.GIVEN, server.url())


LIMIT_S = 150
"""Time of one measurement. Below `faulthandler_timeout`, which would end the process and leave what it has started."""


@pytest.fixture
def in_time() -> Iterator[None]:
    """Raise TimeoutError in the test where it waits after LIMIT_S, so that its processes are ended."""

    def late(*_: object) -> None:
        raise TimeoutError(f"the measurement has not ended after {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize(("name", "store"), slices.params(MEASURED, DRAWN, "bench"))
def test_the_smallest_measurement_prints_every_declared_figure(name: str, store: str) -> None:
    job = Job(name, store, 1)
    figures = job.module.measure(Size.TINY, Setup(engine_of(store)))
    assert set(figures) == {goal.name for goal in job.goals(Size.TINY)}
    assert {name: value for name, value in figures.items() if name in MUST}.items() <= MUST.items(), "however fast"


PARENT = """
import sys, time
from pathlib import Path
from bench.load import stack
with stack.serving_here(sys.argv[1], Path(sys.argv[2]), stack.PAGES) as (_, pid):
    print(pid, flush=True)
    time.sleep(600)
"""
"""Program that starts a service, prints its process id and waits."""


def test_a_service_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, f"sqlite:{tmp_path / 'bench.db'}", str(tmp_path / "log.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        service = int(parent.stdout.readline())
        assert _runs(service)
        parent.kill()
    until = time.monotonic() + 30
    while _runs(service):
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.05)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_missing_wrk_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="wrk, which is not installed: apt-get install wrk"):
        import_module("bench.measures.service").measure(Size.QUICK, Setup(engine_of("sqlite")))


def test_two_workers_share_the_steps() -> None:
    figures = import_module("bench.measures.steps_readonly").measure(Size.TINY, Setup(engine_of("sqlite"), 2))
    assert figures["steps_per_s"] > 0


def test_a_verdict_compares_with_gate_and_aim() -> None:
    rate = Goal("rate", "/s", gate=10, aim=20, least=True)
    assert [rate.verdict(value) for value in (9, 10, 20)] == [
        "gate missed, aim missed", "gate met, aim missed", "gate met, aim met",
    ]  # fmt: skip
    assert Goal("ms", "ms", gate=5).verdict(5) == "gate met"
    assert Goal("shown", "").verdict(1) == ""


@pytest.mark.parametrize("name", ["scale", "history"])
@pytest.mark.parametrize("size", list(Size))
def test_the_name_of_a_figure_has_the_count_that_was_measured(name: str, size: Size) -> None:
    """Once `scale --quick` printed `take_p50_1m` for 10,000 runs."""
    measure = import_module(f"bench.measures.{name}")
    counts = {counted(count) for count in measure.COUNTS[size]}
    named = {goal.name.rpartition("_")[2] for goal in Job(name, "sqlite", 1).goals(size)} - {"most"}
    assert named == counts
    assert max(measure.COUNTS[Size.QUICK]) == 10_000 and "1m" not in {counted(n) for n in measure.COUNTS[Size.QUICK]}


@pytest.mark.parametrize("name", NAMES)
def test_no_other_figure_has_a_count_in_its_name(name: str) -> None:
    """A count that differs with the size is a figure itself, such as `many_runs`."""
    module = import_module(f"bench.measures.{name}")
    if not hasattr(module, "GOALS_OF"):
        named = [goal.name for goal in Job(name, "sqlite", 1).goals(Size.FULL)]
        assert [
            one for one in named if re.search(r"(^|_)\d+[km]?(_|$)", one) and not re.search(OTHER_NUMBERS, one)
        ] == []


OTHER_NUMBERS = r"^(few|many)_[0-3]_|^memory_\d{3}_mb$"
"""Deaths of a worker, and percents of the time under load, which are the same numbers at each size."""


def test_a_count_is_written_in_full_units_only() -> None:
    assert [counted(n) for n in (0, 10, 1_000, 1_500, 10_000, 1_000_000, 2_500_000)] == [
        "0", "10", "1k", "1500", "10k", "1m", "2500k",
    ]  # fmt: skip


def test_a_share_of_nothing_is_not_measured_and_meets_no_gate() -> None:
    """Once a share of needless questions was 0 % and "gate met" if no question was asked."""
    goal = Goal("needless_pct", "%", gate=30)
    assert goal.verdict(NOT_MEASURED) == "not measured"
    (line,) = table.rows("sending", [goal], [{"needless_pct": NOT_MEASURED}])
    assert line[2:5] == ("–", "–", "–") and line[-1] == "not measured"
    (line,) = table.rows("sending", [goal], [{"needless_pct": NOT_MEASURED}, {"needless_pct": 20.0}])
    assert line[2:5] == ("20", "20", "20") and line[-1] == "gate met"


def test_a_figure_without_a_goal_is_refused() -> None:
    with pytest.raises(ValueError, match="scale has no goal for take_p50_1m"):
        list(table.rows("scale", [Goal("take_p50_10k", "ms")], [{"take_p50_1m": 1.0}]))


def test_a_quick_measurement_says_so() -> None:
    job = Job("scale", "sqlite", 1)
    assert (job.at(Size.FULL), job.at(Size.QUICK)) == ("scale sqlite", "scale sqlite quick")


def test_a_table_shows_minimum_median_and_maximum() -> None:
    (line,) = table.rows("steps", [Goal("rate", "/s", digits=1)], [{"rate": 3.0}, {"rate": 1.0}, {"rate": 2.0}])
    assert line[:5] == ("steps ×3", "rate", "1.0", "2.0", "3.0")


def test_a_percentile_is_a_measured_value() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0


def test_a_slope_is_per_hour() -> None:
    assert slope([(0.0, 10.0), (30.0, 11.0), (60.0, 12.0)]) == pytest.approx(120)


def test_each_figure_is_plotted(tmp_path: Path) -> None:
    goals = [Goal("rate", "steps/s", gate=10, least=True), Goal("none", "")]
    plots.draw({"steps <sqlite>": (goals, [{"rate": 3.0}, {"rate": 12.0}])}, tmp_path / "plots")
    (picture,) = (tmp_path / "plots").iterdir()
    words = [each.text for each in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert words == ["rate (steps/s)", "steps <sqlite>", "8", "gate 10"]

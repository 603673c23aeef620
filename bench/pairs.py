"""`scripts/bench pairs BASE METRIC STORE`: compare this checkout with another one, slice by slice.

Single figures vary with the load of the machine, so two processes alternate: one slice (100 runs of 10 steps) on BASE,
one on this checkout, in random order, while the other process is idle. The median of the ratios counts. A comparison of
a commit with itself gives 0.97 to 1.03 on a quiet machine. Beside other work the error is larger: `±` is one standard
error of the median, and `--pairs 48` makes it smaller. The number of Python calls hardly depends on the load.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

from bench import place, postgres
from bench.engines import engine_of
from bench.usage import tree

HERE = Path(__file__).parents[1]
STORES = ("sqlite", "postgres", "memory")
METRICS = ("steps_effectful", "steps_readonly", "one_run", "one_run_readonly", "state", "logged", "flagged")
ACTS = ("start", "signal")
"""Calls of a client in the measured process."""
ACTS_OVER_HTTP = ("start_http", "signal_http")
"""Calls of a client to a service in another process."""
END_S = 30.0
PAIRS, WARM = 16, 2
ROUND = 4  # pairs, then new processes: the layout of one process's memory makes up to 3 %
COUNTED = 3  # slices of which the median number of calls is shown
SHOWN = {
    "cpu_us": "CPU",
    "loop_us": "  loop thread",
    "writer_us": "  writer thread",
    "server_us": "server CPU",
    "service_us": "service CPU",
    "wall_us": "wall",
    "commits": "transactions",
    "kept_bytes": "bytes kept",
    "written_bytes": "bytes written",
}
Costs = dict[str, float]


class Side:
    """A process that measures slices of one checkout, and the CPU that its slices cost the server."""

    def __init__(self, checkout: Path, metric: str, url: str, server: int, mode: str = "time") -> None:
        path = os.pathsep.join((str(checkout / "src"), str(checkout)))
        self._server = server
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "bench" / "slices.py"), metric, url, mode],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = Path(self._line())
        if not found.is_relative_to(checkout):
            raise SystemExit(f"{sys.executable} imports outlast from {found}, not from {checkout}")

    def slice(self) -> Costs:
        """Measure one slice."""
        assert self._process.stdin is not None
        before = tree(self._server).cpu_s
        self._process.stdin.write("slice\n")
        self._process.stdin.flush()
        costs: Costs = json.loads(self._line())
        costs["server_us"] = (tree(self._server).cpu_s - before) / costs["steps"] * 1e6
        return costs

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a measured process has ended: {self._process.wait()}")
        return line.strip()

    def end(self) -> None:
        """End the process, with the service that it has started. Its store is removed afterwards."""
        try:
            self._process.communicate(timeout=END_S)  # which ends its input
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@contextmanager
def checkout_of(base: str) -> Iterator[Path]:
    """Yield the folder itself, or a temporary worktree of the commit."""
    if (Path(base) / "src" / "outlast").is_dir():
        yield Path(base).resolve()
        return
    git = ["git", "-C", str(HERE), "worktree"]
    with place.folder() as folder:
        at = folder.resolve() / "base"
        try:
            subprocess.run([*git, "add", "--quiet", "--detach", str(at), base], check=True)
            yield at
        finally:
            subprocess.run([*git, "remove", "--force", str(at)], stderr=subprocess.DEVNULL, check=False)


@contextmanager
def side(checkout: Path, metric: str, store: str, mode: str = "time") -> Iterator[Side]:
    """Run a process on a separate store for this block, warm."""
    with ExitStack() as stack:
        url, server = "memory:", 0
        if store != "memory":
            at = stack.enter_context(engine_of(store).place())
            url, server = at.url, at.server
        process = Side(checkout, metric, url, server, mode)
        stack.callback(process.end)
        for _ in range(WARM):
            process.slice()
        yield process


def compare(base: Side, change: Side, pairs: int) -> list[tuple[Costs, Costs]]:
    """Measure pairs of slices, in random order within a pair."""
    found = []
    for _ in range(pairs):
        sides = [base, change]
        random.shuffle(sides)
        costs = {each: each.slice() for each in sides}
        found.append((costs[base], costs[change]))
    return found


def lines(found: list[tuple[Costs, Costs]]) -> Iterator[str]:
    """Return the table: both medians, and the quartiles of the ratio."""
    yield f"{'per step, times µs':<18}{'base':>9}{'change':>9}{'ratio':>9}   ± error   quartiles"
    for name, shown in SHOWN.items():
        both = [(before[name], after[name]) for before, after in found if before.get(name, 0.0) > 0]
        if both:
            ratios = [after / before for before, after in both]
            low, middle, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
            before, after = (median(each) for each in zip(*both, strict=True))
            error = 0.93 * (high - low) / len(ratios) ** 0.5  # 0.93: of a median, for a normal distribution
            yield f"{shown:<18}{before:>9.1f}{after:>9.1f}{middle:>9.3f}   ± {error:.3f}   {low:.3f} to {high:.3f}"


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench pairs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", metavar="BASE", help="commit, or folder of a checkout, to compare with")
    metrics = (*METRICS, *ACTS, *ACTS_OVER_HTTP)
    parser.add_argument("metric", metavar="METRIC", choices=metrics, help=", ".join(metrics))
    parser.add_argument("store", metavar="STORE", choices=STORES, help=", ".join(STORES))
    parser.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help=f"number of pairs [{PAIRS}]")
    parser.add_argument("--no-calls", action="store_true", help="do not count calls of Python functions")
    asked = parser.parse_args()
    if asked.metric in ACTS_OVER_HTTP and asked.store == "memory":
        parser.error("a service in another process cannot open a store in memory")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a time limit leaves nothing behind
    with ExitStack() as stack:
        if asked.store == "postgres":
            os.environ[postgres.GIVEN] = stack.enter_context(postgres.server())
        checkouts = (stack.enter_context(checkout_of(asked.base)), HERE)
        what = (asked.metric, asked.store)
        found: list[tuple[Costs, Costs]] = []
        while len(found) < asked.pairs:
            with side(checkouts[0], *what) as base, side(checkouts[1], *what) as change:
                found += compare(base, change, min(ROUND, asked.pairs - len(found)))
            if sys.stderr.isatty():
                print(f"\r{len(found)}/{asked.pairs} ", end="", file=sys.stderr, flush=True)
        print(f"{asked.metric} {asked.store}: {asked.pairs} pairs, change / base", *lines(found), sep="\n", flush=True)
        if not asked.no_calls:
            calls = []
            for each in checkouts:
                with side(each, *what, "count") as counted:
                    calls.append(median(counted.slice()["calls"] for _ in range(COUNTED)))
            print(f"{'Python calls':<18}{calls[0]:>9.1f}{calls[1]:>9.1f}{calls[1] / calls[0]:>9.3f}   per step")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)

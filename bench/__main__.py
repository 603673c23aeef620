"""`python -m bench`: run the measurements, each repeat in a new process, and print figures beside goals."""

import argparse
import json
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import bench.engines
from bench import dynamodb, machine, plots, postgres, table
from bench.engines import Setup, engine_of
from bench.figures import Figures, Goal, Size

EVERYDAY = (
    "control",
    "steps_effectful",
    "steps_readonly",
    "one_run",
    "decision",
    "decision_across",
    "takeover",
    "waiting",
    "state",
    "cold",
)
LONG = (
    "many_waiting",
    "many_held",
    "deaths",
    "history",
    "scale",
    "purge",
    "steps_told",
    "steps_logged",
    "cores",
    "fairness",
    "sending",
    "service",
    "service_several",
    "pages",
    "open_pages",
    "in_browser",
    "agent",
    "agents",
    "schedulers",
    "graph_threads",
    "child_ends",
    "tree_usage",
    "lint",
    "units",
)
NAMES = (*EVERYDAY, *LONG)
WORKLOADS = {
    "W1": ("one_run",),
    "W2": ("steps_effectful", "steps_readonly"),
    "W3": ("many_waiting",),
    "W4": ("many_held",),
    "W5": ("state",),
    "W7": ("service", "service_several"),
}
STORES = tuple(sorted((found.name for found in pkgutil.iter_modules(bench.engines.__path__)), reverse=True))
ON_REQUEST = ("dynamodb",)
"""Stores that are measured only if they are named, or if a measurement is of no other."""
QUICK_REPEATS = 1
LIMIT_S = 900  # time limit of one repeat; a measurement with a LIMIT_S has its own


class Job(NamedTuple):
    """One measurement on one store, with a number of worker processes."""

    name: str
    store: str
    workers: int

    @property
    def shown(self) -> str:
        """Name of the job in tables and JSON."""
        return f"{self.name} {self.store}" + (f" {self.workers}w" if self.workers > 1 else "")

    def at(self, size: Size) -> str:
        """Name of the job with its size, unless that is the full one."""
        return self.shown if size is Size.FULL else f"{self.shown} {size}"

    @property
    def module(self) -> ModuleType:
        """Module of the measurement in bench/measures."""
        return import_module(f"bench.measures.{self.name}")

    def goals(self, size: Size) -> tuple[Goal, ...]:
        """Goals of the measurement on this store. Their names have the counts of this size."""
        goals: tuple[Goal, ...]
        if hasattr(self.module, "goals"):
            goals = self.module.goals(Setup(engine_of(self.store), self.workers))
        elif hasattr(self.module, "GOALS_OF"):
            goals = self.module.GOALS_OF[size]
        else:
            goals = self.module.GOALS
        return goals


def main() -> None:
    """Measure, print a table, and write JSON and plots if requested."""
    asked = _arguments()
    size = Size.QUICK if asked.quick else Size.FULL
    jobs = list(_jobs(asked))
    before = machine.facts()
    with _server(jobs):
        found = _measure(jobs, size, asked.repeats or (QUICK_REPEATS if asked.quick else None))
    facts = {**before, "load": f"{before['load']} before, {machine.load()} after"}
    print(" · ".join(f"{key} {value}" for key, value in facts.items()))
    if facts["file_system"] in machine.MEMORY_ONLY:
        print("these files are in memory: set OUTLAST_BENCH_DIR to a folder on a disk, or durability costs nothing")
    print(table.text([line for job in jobs for line in table.rows(job.at(size), job.goals(size), found[job])]))
    if asked.json:
        figures = {job.at(size): found[job] for job in jobs}
        asked.json.write_text(json.dumps({"machine": facts, "size": size, "figures": figures}, indent=2) + "\n")
    if asked.plots:
        plots.draw({job.at(size): (job.goals(size), found[job]) for job in jobs}, asked.plots)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"measurements [{', '.join(EVERYDAY)}]; also {', '.join(LONG)}, and the groups {', '.join(WORKLOADS)}",
    )
    parser.add_argument(
        "--store", action="append", choices=STORES, help="store to measure; may be repeated [all but dynamodb]"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="number of worker processes, if a measurement supports several"
    )
    parser.add_argument(
        "--repeats", type=int, metavar="N", help="maximum number of repeats [5, fewer for long measurements]"
    )
    parser.add_argument("--quick", action="store_true", help="measure less of each, once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of every repeat to this file")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write an SVG plot of each figure to this folder")
    asked = parser.parse_args()
    asked.names = [each for name in asked.names for each in WORKLOADS.get(name.upper(), (name,))]
    if unknown := set(asked.names) - set(NAMES):
        parser.error(f"no measurement {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    return asked


def _jobs(asked: argparse.Namespace) -> Iterator[Job]:
    for name in asked.names or EVERYDAY:
        module = import_module(f"bench.measures.{name}")
        counts = getattr(module, "WORKERS", (1,))
        if asked.workers and hasattr(module, "WORKERS"):
            counts = (asked.workers,)
        there = getattr(module, "STORES", STORES)
        for store in asked.store or [each for each in there if each not in ON_REQUEST] or there:
            if store in there:
                yield from (Job(name, store, workers) for workers in counts)


@contextmanager
def _server(jobs: list[Job]) -> Iterator[None]:
    """Run one server of each kind for all repeats, if a job needs it."""
    with ExitStack() as stack:
        for store, module in (("postgres", postgres), ("dynamodb", dynamodb)):
            if any(job.store == store for job in jobs):
                os.environ[module.GIVEN] = stack.enter_context(module.server())
        yield


def _measure(jobs: list[Job], size: Size, repeats: int | None) -> dict[Job, list[Figures]]:
    """Run all repeats. Every other round runs backwards, so that no job always follows the same other."""
    found: dict[Job, list[Figures]] = {job: [] for job in jobs}
    times = {job: min(repeats or job.module.REPEATS, job.module.REPEATS) for job in jobs}
    for number in range(max(times.values())):
        for job in jobs[:: -1 if number % 2 else 1]:
            if number < times[job]:
                found[job].append(_once(job, size))
    return found


def _once(job: Job, size: Size) -> Figures:
    begun = time.perf_counter()
    command = [sys.executable, "-m", "bench.one", job.name, size, job.store, str(job.workers)]
    limit = getattr(job.module, "LIMIT_S", LIMIT_S)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=limit, check=False)
    if done.returncode:
        sys.exit(f"{job.shown} failed: see above")
    print(f"  {job.shown}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()

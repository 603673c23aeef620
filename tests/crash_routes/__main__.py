"""`scripts/crash routes [--seeds N] [--route NAME] [--jobs N]`: print a line per run, then a table."""

import argparse
import asyncio
import sys
import tempfile
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.crash_routes.cases import CASES
from tests.crash_routes.route import RouteResult, run_route
from tests.measured import unmeasured

Ran = tuple[str, int, bool, "RouteResult | str"]


SUMS = ("kills", "sent", "repeated", "unsettled", "slots", "calls")


def say(text: str) -> None:
    """Print a line and flush it, also into a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def one(route: str, seed: int, kill: bool, folder: str) -> Ran:
    place = Path(folder) / f"{route}-{seed}-{'killed' if kill else 'plain'}"
    place.mkdir(parents=True)
    try:
        return route, seed, kill, asyncio.run(run_route(CASES[route], seed, place, kill=kill))
    except BaseException:
        return route, seed, kill, traceback.format_exc()


def wrong(told: RouteResult, plain: RouteResult) -> list[str]:
    """Return the differences from the run without kills."""
    found = [] if told.end == plain.end else [f"another end\n    {told.end}\n    {plain.end}"]
    if told.repeated:
        found.append(f"{told.repeated} effects repeated")
    if told.slots or told.unsettled:
        found.append(f"{told.slots} slots held, {told.unsettled} effects unsettled")
    return found


def main() -> int:
    cli = argparse.ArgumentParser(prog="scripts/crash routes", description=__doc__)
    cli.add_argument("--seeds", type=int, default=50)
    cli.add_argument("--first", type=int, default=0)
    cli.add_argument("--route", choices=list(CASES), action="append")
    cli.add_argument("--jobs", type=int, default=2)
    given = cli.parse_args()
    routes = given.route or list(CASES)
    seeds = range(given.first, given.first + given.seeds)
    with tempfile.TemporaryDirectory(prefix="outlast-routes-") as folder, ProcessPoolExecutor(given.jobs) as pool:
        plain = {}
        for ran in as_completed([pool.submit(one, r, parity, False, folder) for r in routes for parity in (0, 1)]):
            route, seed, _, told = ran.result()
            if isinstance(told, str):
                say(f"{route} without kills: {told}")
                return 1
            plain[route, seed] = told
        rows: dict[str, list[RouteResult]] = {route: [] for route in routes}
        bad = played = 0
        for ran in as_completed([pool.submit(one, r, seed, True, folder) for seed in seeds for r in routes]):
            route, seed, _, told = ran.result()
            problems = [told] if isinstance(told, str) else wrong(told, plain[route, seed % 2])
            played += 1
            bad += bool(problems)
            if not isinstance(told, str):
                rows[route].append(told)
                say(f"{route:<11} seed {seed:>3}  {told.kills:>3} kills  {told.seconds:5.1f} s")
            for problem in problems:
                say(f"  WRONG {route} seed {seed}: {problem}")
        _table(rows)
    for problem in (nothing := unmeasured(runs=played)):
        say(problem)
    return 1 if bad or nothing else 0


def _table(rows: dict[str, list[RouteResult]]) -> None:
    say(f"\n{'route':<11}{'runs':>6}" + "".join(f"{name:>11}" for name in (*SUMS, "median s")))
    for route, told in rows.items():
        if told:
            median = sorted(t.seconds for t in told)[len(told) // 2]
            sums = "".join(f"{sum(getattr(t, name) for t in told):>11}" for name in SUMS)
            say(f"{route:<11}{len(told):>6}{sums}{median:>11.1f}")


if __name__ == "__main__":
    sys.exit(main())

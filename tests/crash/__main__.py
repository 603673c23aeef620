"""`scripts/crash`: kill three workflows, or twelve trees of runs, at every crash point, or in pairs.

The exit code is 1 if a case fails.
On DynamoDB, a proxy also loses every transaction or its answer, or delays it, in a process that goes on or is killed.
"""

import argparse
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from outlast.core.crash_points import POINTS
from outlast.testing.crash_runs import CrashCase, Judge, Reference, Tally, draw_one, run_case, run_pairs, run_reference
from outlast.testing.driver import Driver
from outlast.testing.fork_server import fork_server
from outlast.testing.run_snapshot import ScenarioFile, ScenarioStore
from tests.crash.market_server import market_server
from tests.crash.scenarios import CODE, MUTE_SUPPLIER, auction_scenario, calm, mute, refund_scenario, trip_scenario
from tests.crash.tree_scenarios import BUILT, TREE_CODE, tree_scenario
from tests.measured import unmeasured

ROOT: Final = Path(__file__).resolve().parents[2]
SCENARIOS = ("refund", "refund-batched", "trip", "trip-booked", "auction", "auction-batched", "auction-mute")
OF_TREES = tuple(BUILT)
BY_STORE = {
    "sqlite": SCENARIOS,
    "postgres": ("refund", "trip", "trip-booked"),
    "dynamodb": ("refund", "trip", "trip-booked"),
}
ALL: Final = -1  # value of --pairs all
EVERY_PROCESS: Final = 10**6
SECONDS_EACH: Final = 4  # sampled second crashes for one first crash
CALLS = tuple(point for point in POINTS if point.startswith(("store.batch", "call:")))
PLACES = {
    "sqlite": tuple(point for point in POINTS if not point.startswith("outbox.")),  # tests/outbox covers the others
    "postgres": CALLS,
    "dynamodb": (
        *CALLS,
        *(f"request:{when}" for when in ("lost", "unanswered", "fenced", "resent", "before", "after", "late")),
    ),
}
OURS = ("call:flight", "call:inside")


HEAD = "scenario          points    run     -9  equal uncertain  twice      s     /s"


def say(line: str) -> None:
    """Print a line and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Part(NamedTuple):
    """A share of one scenario's crash cases, for one process."""

    store: str
    scenario: str
    part: int
    parts: int
    rounds: int
    pairs: int
    seed: int
    only: str
    until: float  # monotonic time; 0: no limit


def _may_go_on(part: Part, tally: Tally) -> bool:
    """True if there is time for another case. A case that is skipped is counted."""
    if not part.until or time.monotonic() < part.until:
        return True
    tally.left += 1
    return False


def run_part(part: Part) -> Tally:
    """Run the cases of a part one after the other."""
    logging.disable(logging.CRITICAL)
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="outlast-crash-", dir=base))
    try:
        with contextlib.ExitStack() as stack:
            return _run_part(part, folder, stack)
    finally:
        shutil.rmtree(folder)


def _run_part(part: Part, folder: Path, stack: contextlib.ExitStack) -> Tally:
    store: ScenarioStore = ScenarioFile()
    monitor, code, judge = None, CODE, _no_judge
    if part.store == "dynamodb":
        from tests.dynamodb.scenario import on_emulator, unnoticed  # loads the SDK

        judge = unnoticed
        store, monitor, code = stack.enter_context(on_emulator())
    if part.store == "postgres":
        from tests.postgres.scenario import on_server

        store, code = stack.enter_context(on_server("/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    if part.scenario in OF_TREES:
        code = replace(code, modules=(*code.modules, *TREE_CODE.modules), workflows=TREE_CODE.workflows)
    forking = stack.enter_context(fork_server(code))
    if part.scenario in OF_TREES:
        workflow = tree_scenario(part.scenario)
    elif part.scenario.startswith("refund"):
        workflow = refund_scenario()
    elif part.scenario.startswith("trip"):
        workflow = trip_scenario("booked" if part.scenario.endswith("booked") else "failed")
    else:
        is_mute = part.scenario.endswith("mute")
        market = stack.enter_context(market_server(mute() if is_mute else calm()))
        workflow = auction_scenario(market, part.rounds, f"/{MUTE_SUPPLIER}/" if is_mute else "/nobody/")
    workflow.monitor = monitor
    driver = Driver(forking, workflow, one_commit_each=not part.scenario.endswith("batched"), store=store)
    reference = run_reference(driver, folder / "reference")
    tally = Tally(listed=len(reference.cases))
    if monitor is not None:
        stack.callback(lambda: tally.reached.update(monitor.late))
    cases = [case for case in reference.cases if part.only in case.name]
    if part.pairs == ALL:
        for n, case in enumerate(_share(part, cases)):
            if _may_go_on(part, tally):
                run_pairs(driver, case, reference, folder / f"pair-{n}", tally, list, processes=EVERY_PROCESS)
        return tally
    n = 0
    while tally.run < part.pairs and _may_go_on(part, tally):
        drawn = (part.seed, part.scenario, part.part, n)
        (first,) = draw_one(*drawn, "first")(cases)
        run_pairs(driver, first, reference, folder / f"pair-{n}", tally, _some(drawn, part.pairs - tally.run))
        n += 1
    if part.pairs:
        return tally
    if part.scenario.endswith("mute"):  # the calm auction covers the other suppliers
        cases = [case for case in cases if MUTE_SUPPLIER in case.point.label]
    for n, case in enumerate(_share(part, cases)):
        if _may_go_on(part, tally):
            run_case(driver, case, reference, folder / f"case-{n}", tally, judge(driver, case, reference))
    return tally


def _share(part: Part, cases: list[CrashCase]) -> list[CrashCase]:
    """Return the cases of this process. They are shared by name, because each process lists them by itself.

    Lists differ if a lease was renewed once more.
    """
    return [case for case in cases if crc32(case.name.encode()) % part.parts == part.part]


def _no_judge(driver: Driver, case: CrashCase, reference: Reference) -> Judge:
    """Return a check that accepts every end that equals the reference."""
    return lambda state, left: None


def _some(drawn: tuple[object, ...], most: int) -> Callable[[list[CrashCase]], list[CrashCase]]:
    """Return a function that selects a few second cases for one first: finding them takes as long as running one."""

    def choose(cases: list[CrashCase]) -> list[CrashCase]:
        found = [draw_one(*drawn, m)(cases) for m in range(min(most, SECONDS_EACH))]
        return list({case.name: case for some in found for case in some}.values())

    return choose


def _all_parts(scenario: str, given: argparse.Namespace) -> Tally:
    """Run each part in a separate process, and add up their counts."""
    share = given.pairs if given.pairs == ALL else -(-given.pairs // given.jobs)
    command = [sys.executable, "-m", "tests.crash", "--part"]
    until = time.monotonic() + given.minutes * 60 if given.minutes else 0
    rest = (given.rounds, share, given.seed, given.only, until)
    parts = [Part(given.store, scenario, n, given.jobs, *rest) for n in range(given.jobs)]
    running = [subprocess.Popen([*command, json.dumps(part)], stdout=subprocess.PIPE) for part in parts]
    tally = Tally()
    for process in running:
        said, _ = process.communicate()
        if process.returncode:
            tally.failures.append(f"a part ended with {process.returncode}")
        else:
            tally.add(Tally(**json.loads(said)))
    return tally


def main() -> int:
    """Run the selected scenarios. Returns 1 if a case failed or a crash point was never reached."""
    given = _arguments()
    if given.part:
        say(json.dumps(vars(run_part(Part(*json.loads(given.part))))))
        return 0
    scenarios = given.scenario or (OF_TREES if given.trees else BY_STORE[given.store])
    say(HEAD)
    failures: list[str] = []
    reached: Counter[str] = Counter()
    rows: dict[str, Any] = {}
    for scenario in scenarios:
        began = time.monotonic()
        tally = _all_parts(scenario, given)
        seconds = time.monotonic() - began
        _print(scenario, tally, seconds)
        rows[scenario] = {**vars(tally), "seconds": round(seconds)}
        failures += [f"{scenario}: {text}" for text in [*tally.failures, *unmeasured(cases=tally.run)]]
        reached += tally.reached
    cut = any(row["left"] for row in rows.values())  # by --minutes, so a place may be in a case that was not run
    if not (given.only or given.pairs or given.trees or cut):
        failures += [f"{point} was never reached" for point in (*PLACES[given.store], *OURS) if not reached[point]]
    if given.json:
        _write(given, rows)
    for text in failures:
        say(f"FAILED {text[:3000]}")
    return 1 if failures else 0


def _write(given: argparse.Namespace, rows: dict[str, Any]) -> None:
    """Write the figures and the commit they were measured at, for scripts/reliability."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    about = {
        "what": "single cells" if not given.pairs else "all pairs" if given.pairs == ALL else "sampled pairs",
        "command": "scripts/crash " + " ".join(sys.argv[1:]),
        "commit": subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "python": sys.version.split()[0],
        "seed": given.seed,
        "stories": rows,
    }
    Path(given.json).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _pairs(text: str) -> int:
    return ALL if text == "all" else int(text)


def _print(scenario: str, tally: Tally, seconds: float) -> None:
    doubts = sum(tally.uncertain.values())
    say(
        f"{scenario:16} {tally.listed:7} {tally.run:6} {tally.killed:6} {tally.equal:6} {doubts:9} {tally.twice:6} "
        f"{seconds:6.0f} {tally.run / seconds:6.1f}"
    )
    if tally.missed:
        say(f"{'':16} {tally.missed} repeated commits were not reached again")
    if tally.left:
        say(f"{'':16} the time was up: {tally.left} cases were not run")
    for name in (name for name in sorted(tally.reached) if name.startswith("late:")):
        say(f"{'':16} {tally.reached[name]} requests arrived {name}")
    for key, n in sorted(tally.uncertain.items()):
        say(f"{'':16} uncertain {n} times, resolved from the receiver's record: {key}")


def _arguments() -> argparse.Namespace:
    cli = argparse.ArgumentParser(prog="scripts/crash", description=__doc__)
    cli.add_argument(
        "--scenario",
        action="append",
        choices=(*SCENARIOS, *OF_TREES),
        help="scenario to run; may be repeated [all; on other stores than SQLite refund, trip, trip-booked]",
    )
    cli.add_argument(
        "--trees", action="store_true", help="the scenarios of trees of runs, in place of those of one run"
    )
    cli.add_argument("--store", default="sqlite", choices=BY_STORE, help="store of the scenarios [sqlite]")
    cli.add_argument("--only", default="", help="only cases whose name contains this text")
    cli.add_argument("--rounds", type=int, default=5, help="rounds of the auction [5]")
    cli.add_argument(
        "--pairs",
        type=_pairs,
        default=0,
        metavar="N|all",
        help="number of pairs of each scenario, instead of single cases",
    )
    cli.add_argument("--json", default="", metavar="FILE", help="write the figures to this file")
    cli.add_argument("--seed", type=int, default=0, help="seed of the choice of pairs [0]")
    cli.add_argument("--minutes", type=float, default=0, help="time limit of each scenario [none]")
    cli.add_argument("--part", default="", help=argparse.SUPPRESS)
    cli.add_argument("--jobs", type=int, default=2, help="number of processes [2]")
    return cli.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench`: runs the measurements, each repeat in a fresh process, and prints figures beside goals."""

import argparse
import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType

from bench import machine, table
from bench.figures import Figures, Size

NAMES = (
    "control",
    "steps_effectful",
    "steps_readonly",
    "one_run",
    "decision",
    "decision_across",
    "takeover",
    "waiting",
    "cold",
)
QUICK_REPEATS = 1
LIMIT_S = 180  # for one repeat: then something hangs


def main() -> None:
    """Measure, print, and write the JSON where it was asked for."""
    asked = _arguments()
    size = Size.QUICK if asked.quick else Size.FULL
    measures = {name: import_module(f"bench.measures.{name}") for name in asked.names or NAMES}
    before = machine.facts()
    found = _measure(measures, size, asked.repeats or (QUICK_REPEATS if asked.quick else None))
    facts = {**before, "load": f"{before['load']} before, {machine.load()} after"}
    lines = [line for name, each in measures.items() for line in table.rows(name, each.GOALS, found[name])]
    print(" · ".join(f"{key} {value}" for key, value in facts.items()))
    if facts["file_system"] in machine.MEMORY_ONLY:
        print("these files are in memory: set OUTLAST_BENCH_DIR to a folder on a disk, or durability costs nothing")
    print(table.text(lines))
    if asked.json:
        asked.json.write_text(json.dumps({"machine": facts, "size": size, "figures": found}, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(NAMES)}; all if none is named")
    parser.add_argument("--repeats", type=int, metavar="N", help="at most so often; 5 unless a measurement is long")
    parser.add_argument("--quick", action="store_true", help="a look: less of each, once; under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every repeat's figures there too")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(NAMES):
        parser.error(f"no measurement {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    return asked


def _measure(measures: dict[str, ModuleType], size: Size, repeats: int | None) -> dict[str, list[Figures]]:
    """Round by round, every other round backwards, so that none is always measured after the same other."""
    found: dict[str, list[Figures]] = {name: [] for name in measures}
    times = {name: min(repeats or each.REPEATS, each.REPEATS) for name, each in measures.items()}
    for number in range(max(times.values())):
        for name in list(measures)[:: -1 if number % 2 else 1]:
            if number < times[name]:
                found[name].append(_once(name, size))
    return found


def _once(name: str, size: Size) -> Figures:
    begun = time.perf_counter()
    command = [sys.executable, "-m", "bench.one", name, size]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        sys.exit(f"{name} failed: see above")
    print(f"  {name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()

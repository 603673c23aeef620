"""Play seeds: `python -m tests.simulation [--seeds A-B | --seed N | --mutants | --corpus] [--jobs N] …`."""

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.measured import unmeasured
from tests.mutants import BY_ID, SIMULATION, of, remove
from tests.simulation.dice import FAULTS
from tests.simulation.sim import Played, played, prepare

ROOT: Final = Path(__file__).resolve().parents[2]
CORPUS: Final = Path(__file__).with_name("corpus.txt")
CHUNK: Final = 100  # seeds that one process plays
AGAIN_EVERY: Final = 100  # of so many seeds one is played twice and compared
MUTANT_SEEDS: Final = 3_000
SHOWN: Final = 5


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def corpus() -> list[int]:
    """Return the seeds that ever failed; they are played first."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def chunk(seeds: list[int]) -> dict[str, Any]:
    """Play some seeds in a separate process."""
    prepare()
    fired: Counter[str] = Counter()
    failed: list[Played] = []
    turns = virtual = 0
    began = time.process_time()
    for seed in seeds:
        result = played(seed)
        if not result.wrong and seed % AGAIN_EVERY == 0 and played(seed).trace != result.trace:
            result = result._replace(wrong=("played again, it went another way",))
        fired.update(result.fired)
        turns += result.turns
        virtual += result.virtual_ms
        if result.wrong:
            failed.append(result)
    return {
        "seeds": len(seeds),
        "turns": turns,
        "virtual_ms": virtual,
        "cpu_s": time.process_time() - began,
        "fired": fired,
        "failed": failed,
    }


def show(result: Played) -> None:
    """Print a failed seed: its finding, its last log lines, and the command that plays it again."""
    say(f"seed {result.seed} FAILED: {result.wrong[0]}")
    for line in result.lines:
        say(f"    {line}")
    say(f"  again: scripts/simulate --seed {result.seed} --trace")


def spread(seeds: list[int], jobs: int) -> Iterator[dict[str, Any]]:
    """Yield finished chunks, each played in a separate process."""
    parts = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(chunk, parts)


def run_seeds(given: argparse.Namespace, seeds: list[int]) -> int:
    """Play all seeds; return 1 if one fails."""
    total: Counter[str] = Counter()
    fired: Counter[str] = Counter()
    failed: list[Played] = []
    cpu, began = 0.0, time.monotonic()
    for part in spread(seeds, given.jobs):
        total.update({name: part[name] for name in ("seeds", "turns", "virtual_ms")})
        cpu += part["cpu_s"]
        fired.update(part["fired"])
        for result in part["failed"]:
            if len(failed) < SHOWN:
                show(result)
            failed.append(result)
        if given.minutes and time.monotonic() - began > given.minutes * 60:
            break
    never = [name for name in FAULTS if not fired[name]]
    say(
        f"{total['seeds']:,} seeds, {len(failed)} failed; {total['turns']:,} turns, "
        f"{total['virtual_ms'] / 3_600_000:,.0f} h of virtual time; {total['seeds'] / max(cpu, 0.01):.0f} seeds/s"
    )
    for name, text in FAULTS.items():
        say(f"  {fired[name]:>9,}  {name}: {text}")
    if given.json:
        write(given.json, "simulated seeds", {
            "first": min(seeds, default=-1), "last": max(seeds, default=-1),
            "seeds": total["seeds"], "turns": total["turns"],
            "virtual_hours": round(total["virtual_ms"] / 3_600_000), "cpu_s": round(cpu),
            "failed": [[r.seed, r.wrong[0]] for r in failed], "fired": dict(sorted(fired.items())),
        })  # fmt: skip
    for fault in (faults := unmeasured(seeds=total["seeds"], turns=total["turns"])):
        say(fault)
    if never and total["seeds"] >= 1_000:
        say(f"never fired: {', '.join(never)}")
        return 1
    return int(bool(failed or faults))


def first_death(name: str, most: int = MUTANT_SEEDS) -> tuple[str, int, str]:
    """Return the first seed with a finding without this safeguard, or -1."""
    prepare()
    remove(name)
    for seed in range(most):
        result = played(seed)
        if result.wrong:
            return name, seed, result.wrong[0]
    return name, -1, ""


def run_mutants(given: argparse.Namespace) -> int:
    """Remove each safeguard once; return 1 if a removal has no finding."""
    deaths: dict[str, Any] = {}
    names = given.only or [mutant.id for mutant in of(SIMULATION)]
    with multiprocessing.get_context("fork").Pool(given.jobs, maxtasksperchild=1) as pool:
        for name, seed, found in pool.imap_unordered(first_death, names):
            deaths[name] = {"seed": seed, "found": found, "safeguard": BY_ID[name].removed}
            say(f"{name:<22} {'SURVIVED' if seed < 0 else f'dies at seed {seed}'}: {found[:150]}")
    if given.json:
        write(given.json, "simulated mutants", {"most": MUTANT_SEEDS, "mutants": dict(sorted(deaths.items()))})
    return int(any(each["seed"] < 0 for each in deaths.values()))


def write(path: str, what: str, result: dict[str, Any]) -> None:
    """Write the figures and their conditions for scripts/reliability."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    about = {
        "what": what,
        "command": "scripts/simulate " + " ".join(sys.argv[1:]),
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
        "python": sys.version.split()[0],
    }
    Path(path).write_text(json.dumps({**about, **result}, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Parse the command line and play the seeds it names."""
    parser = argparse.ArgumentParser(prog="scripts/simulate", description="Seeded schedules of faults on virtual time.")
    parser.add_argument("--seeds", default="0-1999", help="A-B, both included (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--trace", action="store_true", help="with --seed: all its lines")
    parser.add_argument("--corpus", action="store_true", help="the seeds that ever failed")
    parser.add_argument("--mutants", action="store_true", help="remove each safeguard once and say where it is missed")
    parser.add_argument("--only", action="append", help="with --mutants: this one (may be repeated)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=0, help="begin nothing new after so long")
    parser.add_argument("--json", help="write the figures into this file")
    given = parser.parse_args()
    if given.mutants:
        return run_mutants(given)
    if given.seed is not None:
        prepare()
        result = played(given.seed, lines=10**6 if given.trace else 0)
        for line in result.lines:
            say(line)
        say(f"trace {result.trace:016x}, {result.turns} turns, {result.virtual_ms / 1000:.0f} s of virtual time")
        say("\n".join(result.wrong) or "nothing found")
        return int(bool(result.wrong))
    first, _, last = given.seeds.partition("-")
    return run_seeds(given, corpus() if given.corpus else list(range(int(first), int(last or first) + 1)))


if __name__ == "__main__":
    raise SystemExit(main())

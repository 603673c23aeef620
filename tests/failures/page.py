"""RELIABILITY.md, written from the tables of failures and mutants and from figures that commands have measured."""

import json
from pathlib import Path
from typing import Any, Final

from tests.failures.table import FAILURES, ROOT, is_complete
from tests.mutants import MODELS, SIMULATION, SUITES, of, table
from tests.simulation.dice import FAULTS

PAGE: Final = ROOT / "RELIABILITY.md"
RESULTS: Final = ROOT / "tests" / "simulation" / "results"
SAMPLED: Final = "sampled pairs"
KILLS: Final = ROOT / "tests" / "crash" / "results"


def results(name: str) -> dict[str, Any]:
    """Return the figures of a simulation campaign."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def kills() -> list[dict[str, Any]]:
    """Return the figures of the crash campaigns: one file for each run of `scripts/crash --json`."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(KILLS.glob("*.json"))]


def page() -> str:
    """Return the text of RELIABILITY.md."""
    parts = (_summary(), _failures(), _kills(), _seeds(), _safeguards(), _reproduce(), _limits())
    return "\n".join(line for part in parts for line in part)


def write() -> Path:
    """Write RELIABILITY.md and return its path."""
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE


# --- the summary ------------------------------------------------------------------------------------
def _summary() -> list[str]:
    rows = [row for campaign in kills() for row in campaign["stories"].values()]
    total = {name: sum(row[name] for row in rows) for name in ("run", "killed", "equal", "twice")}
    seeds, mutants = results("seeds"), table()
    return [
        "# Reliability",
        "",
        "This page shows how Outlast behaves when processes die, stores fail and messages are lost, so that you can",
        "decide whether to trust it with side effects that must not happen twice. `scripts/reliability` writes it",
        "from the tests and from measured figures. Do not edit it by hand.",
        "",
        "## Results at a glance",
        "",
        "| check | size | result |",
        "|---|---|---|",
        f"| Processes killed by SIGKILL at a chosen place | {total['killed']:,} kills | {total['equal']:,} runs ended"
        f" like the run that was not killed; {total['twice']} effects carried out twice |",
        f"| Simulated schedules with injected faults | {seeds['seeds']:,} schedules,"
        f" {seeds['virtual_hours']:,} hours of virtual time | {len(seeds['failed'])} failed |",
        f"| Required failure scenarios | {len(FAILURES)} | each has a test and a safeguard |",
        f"| Safeguards removed on purpose | {len(mutants)} | each removal makes the suites fail that rely on it |",
        "",
        "An effect whose outcome cannot be known is reported as *uncertain* and is not sent again. That is the only",
        "result besides «done» and «refused». [docs/reliability.md](docs/reliability.md) explains the guarantees.",
        "",
    ]


# --- the failures -------------------------------------------------------------------------------------
def _failures() -> list[str]:
    lines = [
        "## Twelve failures",
        "",
        "Each failure has a test, and a safeguard that prevents the damage. The last column names the removal (see",
        "[below](#removed-safeguards)) that makes a suite fail, so the test cannot pass by accident.",
        "",
        "| | failure | safeguard | test | removal |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {f.id} | {f.what} | {f.safeguard} | `{f.test}` | `{f.mutant}` |" for f in FAILURES]
    return [*lines, ""]


# --- the kills ----------------------------------------------------------------------------------------
def _kills() -> list[str]:
    lines = [
        "## Killed processes",
        "",
        "A crash point lies before, inside or after a commit, or before, during or after a call. A real process is",
        "killed there by SIGKILL and records the place. A new process takes over, and the end must equal the end of",
        "the run that was not killed: status, outcome, nodes, effects, approvals, and the record of the receivers. A",
        "pair is killed a second time during the recovery.",
        "",
        "*Uncertain* counts effects whose receiver neither recognises a repeated key nor can be asked. In these tests",
        "they are resolved from the receiver's record, as a person would do it. *Complete* means that every crash",
        "point of the workflow was visited.",
        "",
    ]
    for campaign in kills():
        lines += [
            f"### {campaign['what'].capitalize()}",
            "",
            f"Measured at `{campaign['commit']}` on {campaign['date']} with `{campaign['command']}`.",
            "",
            "| workflow | crash points | visited | kills | same end | effects twice | uncertain | seconds | complete |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for name, row in campaign["stories"].items():
            uncertain = ", ".join(f"`{key}` {n:,}" for key, n in sorted(row["uncertain"].items())) or "none"
            complete = "yes" if is_complete(campaign["what"], row) and campaign["what"] != SAMPLED else "no"
            lines.append(
                f"| {name} | {row['listed']:,} | {_visited(campaign['what'], row)} | {row['killed']:,} "
                f"| {row['equal']:,} | {row['twice']} | {uncertain} | {row['seconds']:,} | {complete} |"
            )
        failed = [f"- FAILED {name}: {text}" for name, row in campaign["stories"].items() for text in row["failures"]]
        lines += ["", *failed, *([""] if failed else [])]
    return lines


def _visited(what: str, row: dict[str, Any]) -> str:
    """Return how many first crash points a campaign visited; a sample of pairs may draw one more than once."""
    return "sampled" if what == SAMPLED else f"{row['listed'] - row.get('left', 0):,}"


# --- the simulation -------------------------------------------------------------------------------------
def _seeds() -> list[str]:
    seeds = results("seeds")
    lines = [
        "## Simulated schedules",
        "",
        "The real engine runs over a simulated store, network and clock. A seed decides every fault and every order of",
        "events, so each failure can be repeated. Invariants are checked after every step.",
        "",
        f"{seeds['seeds']:,} seeds ({seeds['first']}-{seeds['last']}), {seeds['turns']:,} steps,"
        f" {seeds['virtual_hours']:,} hours of virtual time, {seeds['cpu_s']:,} s of CPU:"
        f" {len(seeds['failed'])} failed.",
        f"Measured at `{seeds['commit']}` on {seeds['date']} with `{seeds['command']}`.",
        "",
        *(f"- FAILED seed {seed}: {found}" for seed, found in seeds["failed"]),
        "| fault | description | injected |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {text} | {seeds['fired'].get(name, 0):,} |" for name, text in FAULTS.items()]
    return [*lines, ""]


# --- the safeguards -------------------------------------------------------------------------------------
def _safeguards() -> list[str]:
    measured = results("mutants")
    lines = [
        "## Removed safeguards",
        "",
        "A suite that finds nothing proves nothing. Each safeguard is removed once, and the suites named here must",
        "then fail. The table is `tests/mutants.py`; the functions that remove them are in `tests/removals`.",
        "",
    ]
    for suite in SUITES:
        lines += [f"### {suite.title.capitalize() if suite.title[0].islower() else suite.title}", ""]
        lines += [f"`{suite.path}`: `{suite.command}`.", ""]
        if suite is MODELS:
            lines += ["| rule without | the search |", "|---|---|"]
        elif suite is SIMULATION:
            lines[-1] = f"Measured at `{measured['commit']}` on {measured['date']} with `{measured['command']}`."
            lines += ["", "| id | what no longer holds | first seed | violated |", "|---|---|---|---|"]
        else:
            lines += ["| id | what no longer holds |", "|---|---|"]
        for mutant in of(suite):
            name = mutant.id if suite is MODELS else f"`{mutant.id}`"
            row = f"| {name} | {mutant.removed} |"
            if suite is SIMULATION:
                one = measured["mutants"].get(mutant.id, {"seed": -1, "found": "not measured"})
                row += f" {one['seed']} | {one['found'].split(': t:')[0].split(':')[0]} |"
            lines.append(row)
        lines.append("")
    return lines


# --- the reader's own run -------------------------------------------------------------------------------
def _reproduce() -> list[str]:
    return [
        "## Reproduce it",
        "",
        "After `scripts/setup`:",
        "",
        "| command | what it repeats |",
        "|---|---|",
        "| `scripts/test` | every suite, with a sample of the kills and of the seeds |",
        "| `scripts/crash` | every single kill; `--pairs N` or `--pairs all` for pairs |",
        "| `scripts/simulate --seeds A-B` | the simulated schedules; `--seed N --trace` for one |",
        "| `scripts/simulate --mutants` | the removals that the simulation must notice |",
        "| `scripts/models` | the exhaustive search over the rules |",
        "| `scripts/chaos` | workers, network and a real PostgreSQL under faults |",
        "| `scripts/reliability` | this page |",
        "",
    ]


def _limits() -> list[str]:
    return [
        "## Limits",
        "",
        "- The figures describe the workflows of the tests. Your workflow has its own crash points:",
        "  [`every_crash`](docs/testing.md) visits them.",
        "- SIGKILL ends a process, not the machine. Loss of power is tested only as far as `fsync` reports truthfully.",
        "- The simulation injects the faults of its table. Other faults are not injected.",
        "- A receiver that neither recognises a key nor can be asked leaves an effect uncertain. No engine can know",
        "  more.",
        "",
    ]

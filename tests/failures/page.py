"""RELIABILITY.md: tables of failures and safeguards, and figures that commands have written; nothing by hand."""

import json
from pathlib import Path
from typing import Any, Final

from tests.failures.table import FAILURES, HARNESSES, ROOT, is_complete, removed_in
from tests.simulation.dice import FAULTS

PAGE: Final = ROOT / "RELIABILITY.md"
RESULTS: Final = ROOT / "tests" / "simulation" / "results"
SAMPLED: Final = "sampled pairs"
KILLS: Final = ROOT / "tests" / "crash" / "results"


def results(name: str) -> dict[str, Any]:
    """What a command has written."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def kills() -> list[dict[str, Any]]:
    """What `scripts/crash --json` has written, a file for each time it was called."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(KILLS.glob("*.json"))]


def page() -> str:
    """The whole page."""
    return "\n".join([*_head(), *_failures(), *_kills(), *_safeguards(), *_seeds(), ""])


def _head() -> list[str]:
    return [
        "# Reliability, as measured",
        "",
        "Made by `scripts/reliability` from the tests and from figures that the named commands wrote; do not edit.",
        "What the checks are and what they cannot show stands in [docs/reliability.md](docs/reliability.md).",
        "",
    ]


def _failures() -> list[str]:
    lines = [
        "## Twelve failures, each with its test and its safeguard",
        "",
        "| | failure | test | it rests on | removed by |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {f.id} | {f.what} | `{f.test}` | {f.safeguard} | `{f.removed}` |" for f in FAILURES]
    return [*lines, "", "Run one: `scripts/test FILE -k NAME`. All: `scripts/test -k fail`.", ""]


def _kills() -> list[str]:
    """A table for each call of the command."""
    lines = [
        "## Real kills",
        "",
        "A cell is a place where a process dies by SIGKILL: before, inside or after a commit, and before, during and",
        "after a call. It was killed there (the dying process wrote down where), its successor went on, and the end",
        "is compared with that of the run nobody killed. A pair dies once more in its recovery. An effect that was",
        "left uncertain is one whose receiver neither dedupes nor can be asked; a person answered it from its record.",
        "Gone to: the places where a first death was tried; the last column says whether those are all of the story.",
        "",
    ]
    for each in kills():
        lines += [
            f"{each['what'].capitalize()}, at {each['commit']} on {each['date']} with `{each['command']}`:",
            "",
            "| story | places | gone to | run | killed | equal | left uncertain, and where | done twice | s | all |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for name, row in each["stories"].items():
            doubts = ", ".join(f"`{key}` {n:,}" for key, n in sorted(row["uncertain"].items())) or "none"
            numbers = f"{row['run']:,} | {row['killed']:,} | {row['equal']:,} | {doubts} | {row['twice']}"
            places = f"{row['listed']:,} | {_gone_to(each['what'], row)}"
            whole = "yes" if is_complete(each["what"], row) and each["what"] != SAMPLED else "no"
            lines.append(f"| {name} | {places} | {numbers} | {row['seconds']:,} | {whole} |")
        lines += [
            "",
            *(f"- FAILED {name}: {text}" for name, row in each["stories"].items() for text in row["failures"]),
        ]
    return lines


def _gone_to(what: str, row: dict[str, Any]) -> str:
    """How many places a campaign went to for a first death; a sample of pairs draws them, perhaps some twice."""
    return "drawn" if what == SAMPLED else f"{row['listed'] - row.get('left', 0):,}"


def _safeguards() -> list[str]:
    mutants = results("mutants")
    removed = {path: removed_in(path) for path, _, _ in HARNESSES}
    lines = ["## Safeguards, removed one by one", ""]
    lines += [
        f"{sum(map(len, removed.values()))} in {len(HARNESSES)} harnesses; some are removed in more than one.",
        "",
    ]
    for path, what, command in HARNESSES:
        lines += [f"### {what}: `{path}`", "", f"`{command}` turns red without each of these."]
        died = mutants["mutants"] if path.startswith("tests/simulation") else {}
        if died:
            lines.append(f"Measured at {mutants['commit']} on {mutants['date']} with `{mutants['command']}`.")
        lines += ["", "| removed | what it keeps, or what breaks |" + (" first seed | found |" if died else "")]
        lines.append("|---|---|" + ("---|---|" if died else ""))
        for name, text in removed[path]:
            row = f"| `{name}` | {text} |"
            if died:
                one = died.get(name, {"seed": -1, "found": "not measured"})
                row += f" {one['seed']} | {one['found'].split(': t:')[0].split(':')[0]} |"
            lines.append(row)
        lines.append("")
    return lines


def _seeds() -> list[str]:
    seeds = results("seeds")
    lines = [
        "## Simulated seeds",
        "",
        f"{seeds['seeds']:,} seeds, the first of {seeds['first']}-{seeds['last']}, at {seeds['commit']} on "
        f"{seeds['date']} with `{seeds['command']}`: {len(seeds['failed'])} failed. {seeds['turns']:,} turns of the",
        f"loop, {seeds['virtual_hours']:,} hours of virtual time, {seeds['cpu_s']:,} s of CPU. Again:",
        "`scripts/simulate --seed N --trace`.",
        "",
    ]
    lines += [f"- seed {seed}: {found}" for seed, found in seeds["failed"]]
    lines += ["", "| fault | what it is | fired |", "|---|---|---|"]
    lines += [f"| {name} | {text} | {seeds['fired'].get(name, 0):,} |" for name, text in FAULTS.items()]
    return lines


def write() -> Path:
    """Write it."""
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE

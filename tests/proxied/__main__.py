"""A round of clients behind a proxy that breaks answers.

Usage: scripts/proxied [--minutes N] [--seed S] [--callers N] [--rate SHARE] [--without ID] [--report FILE]
"""

import json
import sys
import time
from pathlib import Path

import click

from tests.mutants import remove
from tests.proxied.round import Plan, play

IDS = (
    "answers_of_other_requests_believed", "answers_of_proxies_believed", "opened_streams_are_signs",
    "unanswered_writes_called_undone",
)  # fmt: skip
DEFINITE = 0.6
"""Least share of definite claims of a round that proves something."""


@click.command()
@click.option("--minutes", type=float, default=1.0, help="How long the callers act [1].")
@click.option("--seed", type=int, help="Chooses acts and faults [the time].")
@click.option("--callers", type=click.IntRange(1, 100), default=8, help="Concurrent clients [8].")
@click.option("--rate", type=click.FloatRange(0, 1), default=0.35, help="Share of answers that are broken [0.35].")
@click.option("--without", type=click.Choice(IDS), help="Remove a safeguard of the clients: the round turns red.")
@click.option("--report", type=click.Path(path_type=Path), help="Write the figures there, as JSON.")
def main(minutes: float, seed: int | None, callers: int, rate: float, without: str | None, report: Path | None) -> None:
    """Act through a proxy that breaks answers, then compare each claim with the store."""

    def say(text: str) -> None:
        click.echo(text, err=True)

    if without:
        remove(without)
    plan = Plan(int(time.time()) if seed is None else seed, minutes * 60, callers, rate, say=say, definite=DEFINITE)
    figures, wrong = play(plan)
    figures["wrong"] = wrong
    click.echo(json.dumps(figures, indent=1))
    if report is not None:
        report.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

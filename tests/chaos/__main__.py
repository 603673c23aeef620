"""Rounds of chaos: real processes, real kills, and a report.

Usage: scripts/chaos [--minutes N] [--seed S] [--store postgres|sqlite] [--workers N] [--report FILE] [--help]
"""

import sys
import time
from pathlib import Path

import click

from tests.chaos.report import summary, write
from tests.chaos.round import Plan, play
from tests.chaos.without import NAMES


@click.command()
@click.option("--minutes", type=float, default=1.0, help="How long the enemies act [1].")
@click.option("--seed", type=int, help="Chooses what is done, and when [the time].")
@click.option("--store", type=click.Choice(["postgres", "sqlite"]), default="postgres")
@click.option("--workers", type=click.IntRange(2, 64), default=8)
@click.option("--rate", type=float, default=4.0, help="Runs started in a second [4].")
@click.option("--without", type=click.Choice(NAMES), default=None, help="Remove a safeguard: the round turns red.")
@click.option("--report", type=click.Path(path_type=Path), help="JSON there, and Markdown beside it.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep logs, history and the world's record there.")
def main(
    minutes: float,
    seed: int | None,
    store: str,
    workers: int,
    rate: float,
    without: str | None,
    report: Path | None,
    keep: Path | None,
) -> None:
    """Kill, freeze, cut and skew for so long; then everything has to be accounted for. Exit code 1 if it is not."""

    def say(text: str) -> None:
        click.echo(text, err=True)

    seed = int(time.time()) if seed is None else seed
    made, wrong = play(Plan(store, seed, minutes * 60, workers, rate, say, without or "", keep))
    click.echo(summary(made))
    if report is not None:
        write(report, [made])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

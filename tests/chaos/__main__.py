"""Rounds of chaos: real processes, real kills, and a report.

Usage: scripts/chaos [--minutes N] [--seed S] [--store postgres|sqlite] [--workers N] [--report FILE]
       scripts/chaos --in-flight N [--holders one|half|both] [--store postgres|sqlite|both] [--workers N]
       scripts/chaos --temporal [--seed S]
"""

import json
import resource
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any, cast

import click

from tests.chaos.fleet import CALL_S
from tests.chaos.in_flight import Flight, Holders, fly, too_few_descriptors
from tests.chaos.removals import FAULTS_OF, IDS
from tests.chaos.report import of_any, write
from tests.chaos.round import Plan, play


@click.command()
@click.option("--minutes", type=float, default=1.0, help="How long the enemies act [1].")
@click.option("--seed", type=int, help="Chooses what is done, and when [the time].")
@click.option("--store", type=click.Choice(["postgres", "sqlite", "both"]), default="postgres")
@click.option("--workers", type=click.IntRange(2, 64), help="[8; with --in-flight 4, --holders one: 2]")
@click.option("--in-flight", type=click.IntRange(1, 20_000), help="So many runs in slow calls; workers die (REC-4).")
@click.option(
    "--holders",
    type=click.Choice(["one", "half", "both"]),
    default="half",
    help="The killed ones: one that holds all runs, or the fuller half [half].",
)
@click.option("--window", type=float, default=15.0, help="Of a heartbeat, in s; with --in-flight [15].")
@click.option("--rate", type=float, default=4.0, help="Runs started in a second [4].")
@click.option("--without", type=click.Choice(IDS), default=None, help="Remove a safeguard: the round turns red.")
@click.option("--report", type=click.Path(path_type=Path), help="JSON there, and Markdown beside it.")
@click.option(
    "--temporal", is_flag=True, help="Runs that a Temporal server schedules: 20 workers die, 5 times the server."
)
@click.option("--keep", type=click.Path(path_type=Path), help="Keep logs, history and the world's record there.")
def main(
    minutes: float,
    seed: int | None,
    store: str,
    workers: int | None,
    in_flight: int | None,
    holders: str,
    window: float,
    rate: float,
    without: str | None,
    report: Path | None,
    temporal: bool,
    keep: Path | None,
) -> None:
    """Kill, freeze, cut off and skew processes, then check every acknowledgement and every effect."""

    def say(text: str) -> None:
        click.echo(text, err=True)

    seed = int(time.time()) if seed is None else seed
    if temporal:
        from tests.temporal import campaign  # needs the server's wheel

        figures, errors = campaign.play(campaign.Campaign(seed, say=say))
        click.echo(json.dumps(figures, indent=1))
        for error in errors:
            say(error)
        sys.exit(1 if errors else 0)
    if in_flight is not None:
        if refused := too_few_descriptors(in_flight, resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
            raise click.UsageError(refused)
        flights = [
            _flight(each, in_flight, cast("Holders", case), workers)._replace(
                window_s=window, say=say, keep=keep and keep / f"{case}-{each}"
            )
            for case, each in product(_each(holders, "one", "half"), _each(store, "sqlite", "postgres"))
        ]
        _print([fly(flight) for flight in flights], report)
    else:
        if store == "both":
            raise click.UsageError("--store both needs --in-flight")
        only, longest_s = FAULTS_OF.get(without or "", ((), CALL_S))
        plan = Plan(store, seed, minutes * 60, workers or 8, rate, say, without or "", keep, only, longest_s)
        _print([play(plan)], report)


def _each(choice: str, *all_: str) -> tuple[str, ...]:
    return all_ if choice == "both" else (choice,)


def _flight(store: str, runs: int, holders: Holders, workers: int | None) -> Flight:
    workers = workers or (2 if holders == "one" else 4)
    return Flight(store, runs, workers, 1 if holders == "one" else workers // 2, holders=holders)


def _print(played: list[tuple[dict[str, Any], list[str]]], report: Path | None) -> None:
    for made, _ in played:
        click.echo(of_any(made))
    if report is not None:
        write(report, [made for made, _ in played])
    sys.exit(1 if any(wrong for _, wrong in played) else 0)


if __name__ == "__main__":
    main()

"""Rounds of an example whose workers are killed, as a command: play each, print a line, keep the folder of a fault."""

import argparse
import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import click

from outlast.testing.record import RecordEntry
from tests.measured import unmeasured
from tests.reading_model import VARIANTS


class Judged(NamedTuple):
    """The figures of a round as text, and what was wrong with it."""

    figures: str
    problems: list[str]


PlayRound = Callable[[Path, int], Awaitable[Judged]]
"""Play the round of a seed in a new folder."""


def asked_otherwise(killed: Iterable[RecordEntry], calm: Iterable[RecordEntry]) -> list[str]:
    """Return a fault if the requests to the model differ by their contents. Each list has those that were paid."""
    same = Counter(entry.sha256 for entry in killed) == Counter(entry.sha256 for entry in calm)
    return [] if same else ["the model was asked something else"]


def command(module: str, about: str | None, *, rounds: int, kills: int) -> argparse.ArgumentParser:
    """Return the command line of a campaign with the options that all have."""
    cli = argparse.ArgumentParser(prog=f"tests.examples.{module}", description=about)
    cli.add_argument("--rounds", type=int, default=rounds, help=f"rounds, each with and without kills [{rounds}]")
    cli.add_argument("--kills", type=int, default=kills, help=f"kills in a round [{kills}]")
    cli.add_argument("--seed", type=int, default=0, help="seed of the first round [0]")
    cli.add_argument("--model", choices=VARIANTS, default="reading", help="model that decides [reading]")
    return cli


def campaign(given: argparse.Namespace, play: PlayRound) -> int:
    """Play the rounds, print a line each, and return the exit code."""
    return 1 if asyncio.run(wrong_rounds(given, play)) else 0


async def wrong_rounds(given: argparse.Namespace, play: PlayRound) -> int:
    """Play the rounds, print a line each, and return the number of those that went wrong."""
    folder, bad = Path(tempfile.mkdtemp(prefix="outlast-rounds-")), 0
    for seed in range(given.seed, given.seed + given.rounds):
        place = folder / f"{seed}"
        place.mkdir()
        figures, problems = await play(place, seed)
        bad += bool(problems)
        click.echo(f"seed {seed}, {given.model}: {figures}: {'; '.join(problems) or 'equal'}")
    bad += len(unmeasured(rounds=given.rounds))
    click.echo(f"{bad} of {given.rounds} rounds wrong" + (f"; everything is in {folder}" if bad else ""))
    if not bad:
        shutil.rmtree(folder)
    return bad

"""The answering researcher in processes that are killed: `python -m tests.examples.answering_killed --rounds 20`.

A round starts a register, a stand-in that reads, and two workers on a new store, and kills workers with SIGKILL at
random moments. The same questions were answered before without a kill. Answers and records must be equal, and each
request to the model is paid once.
"""

import argparse
import asyncio
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from examples.researcher.answering import Answers, answering
from examples.researcher.proof import WINDOW_S
from examples.researcher.world.pages import Shape
from examples.researcher.world.record import Hit, busiest, read
from examples.researcher.world.register import Register
from outlast import Client, connect
from outlast.testing import ModelServer
from outlast.testing.record import Record, RecordEntry
from tests.examples.killed_rounds import Judged, asked_otherwise, campaign, command
from tests.examples.researching import GIVE_UP_S, PACKAGE, Fleet, fleet
from tests.measured import unmeasured
from tests.reading_model import Variant, reader

BETWEEN_S: Final = (0.1, 1.5)
"""Shortest and longest time between two kills."""


class End(NamedTuple):
    """The end of a run: status, answers, results by key, the paid requests to the model, the kills, and the seconds."""

    status: str
    answers: Answers
    rows: dict[str, Any]
    paid: list[RecordEntry]
    kills: int
    seconds: float


class Round(NamedTuple):
    """Two runs of the same questions about the same site, and the records of the model and of the site."""

    calm: End
    killed: End
    model: Record
    hits: list[Hit]


async def play(folder: Path, site: Register, variant: Variant, *, kills: int, seed: int = 0) -> Round:
    """Play one round: first a run without kills, then one with. `seed` chooses the moments of the kills."""
    models = ModelServer(reader(variant, site.shape.seed))
    with fleet(folder, f"{PACKAGE}.answering") as all_:
        models.listen(folder / "models.jsonl")
        try:
            world = await all_.world(site.shape, "--register", f"{site.shape.seed}")
            all_.model(models.url)
            for _ in range(2):
                all_.worker()
            async with connect(f"sqlite:{folder / 'outlast.db'}", workflows=[answering]) as client:
                given = {"site": world["url"], "questions": world["questions"]}
                calm = await _carried(all_, client, given, models.record, 0, random.Random(seed))
                killed = await _carried(all_, client, given, models.record, kills, random.Random(seed))
            return Round(calm, killed, models.record, read(all_.record))
        finally:
            models.stop()


async def _carried(
    all_: Fleet, client: Client, given: dict[str, Any], record: Record, kills: int, dice: random.Random
) -> End:
    """Start a run, kill its holder at random moments, and return its end."""
    started_at, killed, killed_at = time.monotonic(), 0, ("", 0)
    run = await client.start("answering", given)
    next_kill = started_at + dice.uniform(*BETWEEN_S)
    while (detail := await client.run(run.id)).ended_at is None:
        assert time.monotonic() - started_at < GIVE_UP_S and not detail.attention, detail.explained
        place, holder = (detail.node, detail.visit), all_.of(detail.owner)
        # Each kill follows on a checkpoint: a run whose holders die one after the other in one place asks a person.
        if killed < kills and time.monotonic() >= next_kill and holder and place != killed_at:
            await all_.kill(holder)
            killed, killed_at, next_kill = killed + 1, place, time.monotonic() + dice.uniform(*BETWEEN_S)
        await asyncio.sleep(0.05)
    rows = {row.key: row.data for row in (await client.results(run.id, limit=200)).results}
    paid = [entry for entry in record.of("executed") if f":{run.id}:" in entry.key]
    return End(detail.shown, Answers.model_validate(detail.outcome), rows, paid, killed, time.monotonic() - started_at)


def wrong(round_: Round) -> list[str]:
    """Return what differs between the two runs, and each request that was paid twice."""
    calm, killed = round_.calm, round_.killed
    found = [] if killed.answers == calm.answers else ["other answers"]
    found += [] if killed.rows == calm.rows else ["other records"]
    found += [] if killed.status == calm.status == "COMPLETED" else [f"{killed.status} after {calm.status}"]
    found += asked_otherwise(killed.paid, calm.paid)
    hits = [hit for hit in round_.hits if hit.server.startswith("site")]
    allowed = round(WINDOW_S / Shape().delay) + 1
    found += [] if busiest(hits, WINDOW_S) <= allowed else ["faster than the site allows"]
    found += round_.model.repeated() + unmeasured(paid=len(killed.paid), kills=killed.kills)
    return found + unmeasured(answers=len(killed.answers.answers), rows=len(killed.rows), requests=len(hits))


async def judged(given: argparse.Namespace, folder: Path, seed: int) -> Judged:
    """Play the round of a seed and judge it."""
    round_ = await play(folder / "round", Register(seed, given.entries), given.model, kills=given.kills, seed=seed)
    killed = round_.killed
    figures = (
        f"{killed.kills} kills, {len(killed.rows)} records, {len(killed.paid)} answers paid, "
        f"{len(round_.model.repeated())} twice, {killed.seconds:.0f} s"
    )
    return Judged(figures, wrong(round_))


if __name__ == "__main__":
    cli = command("answering_killed", __doc__, rounds=20, kills=10)
    cli.add_argument("--entries", type=int, default=60, help="entries of each of the three topics [60]")
    options = cli.parse_args()
    sys.exit(campaign(options, partial(judged, options)))

"""Agents negotiate in processes that are killed: `python -m tests.examples.negotiating_killed --rounds 10`.

A round draws a world, plays it once without kills, and once with: workers are killed with SIGKILL at random moments
while agents negotiate. Effects, positions, outcome and the requests to the model must be equal, and each request is
paid once.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from examples.negotiation import record
from examples.negotiation.demo.processes import DemoFolder, Processes
from examples.negotiation.demo.scenario import operations_for
from examples.negotiation.inbox import inbox_app, posting
from examples.negotiation.loopback import serve
from examples.negotiation.suppliers import INBOX
from outlast.core.rows.run_rows import Run, is_over
from outlast.insight.labels import shown_status
from outlast.models.effects import EffectRecord
from outlast.runtime.in_process import state_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.testing import ModelServer
from outlast.testing.model_server import URL
from outlast.testing.record import Record
from tests.examples.helpers import GIVE_UP_S
from tests.examples.killed_rounds import Judged, asked_otherwise, campaign, command
from tests.examples.tenders import world
from tests.measured import unmeasured
from tests.reading_model import Variant, reader

BETWEEN_S: Final = (0.05, 0.8)
"""Shortest and longest time between two kills."""
KILLS_MAX: Final = 2
"""Kills in one visit. A third worker that dies with the run alone is a question to a person."""
PAUSE_S: Final = 0.02
NEGOTIATING: Final = ("auction", "strategic")


class End(NamedTuple):
    """Everything about the end of a run that a crash must not change, the record of the model, and the kills."""

    shown: str
    outcome: Any
    effects: dict[tuple[int, str], Any]
    state: dict[str, Any]
    model: Record
    repeated: int
    kills: int


async def play(folder: Path, seed: int, variant: Variant, *, kills: int) -> End:
    """Play the world of a seed in new processes, and kill the holder of the run while agents negotiate."""
    here, dice = world(seed), random.Random(seed)
    suppliers = {who: each.model_copy(update={"bids_after": 0.05}) for who, each in here.suppliers.items()}
    scenario = folder / "scenario.json"
    texts = {who: each.model_dump(mode="json") for who, each in suppliers.items()}
    scenario.write_text(json.dumps({"name": f"world {seed}", "suppliers": texts}), encoding="utf-8")
    url = f"sqlite:{folder / 'outlast.db'}"
    processes = Processes(DemoFolder(folder, url, url, True), example="examples.negotiation", server="market")
    models = ModelServer(reader(variant, seed // 2))
    models.listen(folder / "models.jsonl")
    store = await open_store(url)
    ops = operations_for(store)
    try:
        processes.open_server("--scenario", f"{scenario}")
        async with serve(inbox_app(posting(ops.signal))) as inbox, asyncio.timeout(2 * GIVE_UP_S):
            processes.env = {INBOX: inbox, "OUTLAST_MODEL": f"local:{variant}", URL: models.url}
            market, today = await processes.server_url(), datetime.now(UTC).date()
            purchase = world(seed, market=market, today=today).purchase
            processes.start_worker()
            processes.start_worker()
            run = (await ops.start_run("negotiation", purchase)).run
            killed = await _carried(ops, processes, run, kills, dice)
        effects: list[EffectRecord] = await ops.effects(run)
        counts = record.summary(record.read(processes.record), run)
        return End(
            shown_status(await ops.rows.run(run)),
            (await ops.run(run)).outcome,
            {(each.visit, each.key): (each.status, _timeless(each.arguments)) for each in effects},
            {
                name: each
                for name, each in json.loads(json.dumps(await state_of(ops, run))).items()
                if name != "purchase"
            },
            models.record,
            sum(count.repeated for count in counts.values()),
            killed,
        )
    finally:
        models.stop()
        await processes.stop_workers()
        await processes.close()
        await store.close()


async def _carried(ops: Operations, processes: Processes, run: str, kills: int, dice: random.Random) -> int:
    """Approve what is asked and kill the holder until the run is over. Return the number of kills."""
    killed, at, known = 0, 0.0, ""
    while not is_over(row := await ops.rows.run(run)):
        assert not row.attention, row.attention
        if killed < min(kills, KILLS_MAX):
            if row.owner != known:
                known, at = row.owner, time.monotonic() + dice.uniform(*BETWEEN_S)
            killed += await _killed(processes, row, at)
        for approval in (await ops.rows.approvals(status="pending"))[0]:
            await ops.approve(approval.id, reason="in order")
        await asyncio.sleep(PAUSE_S)
    return killed


async def _killed(processes: Processes, row: Run, at: float) -> bool:
    """Kill the holder of a run that negotiates, once this time has come, and start another worker."""
    holder = processes.holder(row.owner)
    if holder is None or row.node not in NEGOTIATING or time.monotonic() < at:
        return False
    await processes.kill(holder)
    processes.start_worker()
    return True


def _timeless(arguments: Any) -> Any:
    """Return arguments without addresses, ids of runs and instants."""
    if isinstance(arguments, dict):
        left = {"mailbox", "closes_at", "run_id"}
        return {name: _timeless(each) for name, each in arguments.items() if name not in left}
    return arguments


def wrong(killed: End, calm: End) -> list[str]:
    """Return what differs from the run without kills, and each request that was sent or paid twice."""
    names = ("shown", "outcome", "effects", "state")
    found = [f"another {name}" for name in names if getattr(killed, name) != getattr(calm, name)]
    found += [f"the run is {killed.shown}"] if killed.shown != "AWARDED" else []
    found += [f"{killed.repeated} letters repeated"] if killed.repeated else []
    found += asked_otherwise(killed.model.of("executed"), calm.model.of("executed"))
    found += killed.model.repeated() + unmeasured(paid=len(killed.model.of("executed")), kills=killed.kills)
    return found + unmeasured(effects=len(killed.effects))


async def judged(given: argparse.Namespace, folder: Path, seed: int) -> Judged:
    """Play the world of a seed without kills and with kills, and compare."""
    for name in ("calm", "killed"):
        (folder / name).mkdir()
    calm = await play(folder / "calm", seed, given.model, kills=0)
    killed = await play(folder / "killed", seed, given.model, kills=given.kills)
    figures = (
        f"{killed.kills} kills, {len(killed.effects)} effects, {len(killed.model.of('executed'))} answers paid, "
        f"{len(killed.model.repeated())} twice, {killed.repeated} letters repeated"
    )
    return Judged(figures, wrong(killed, calm))


if __name__ == "__main__":
    options = command("negotiating_killed", __doc__, rounds=10, kills=KILLS_MAX).parse_args()
    sys.exit(campaign(options, partial(judged, options)))

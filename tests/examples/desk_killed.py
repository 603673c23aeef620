"""The desk in real processes that are killed at random: `python -m tests.examples.desk_killed --rounds 20`.

A round starts an office whose systems lose answers, a stand-in that reads, and three workers on a new store. It works
drawn incidents and kills workers with SIGKILL. People approve every call, and look at the office's record for a mail
without an answer. The same incidents were worked before without a kill. Each must end equal. The records of office and
model must show every request executed and paid once.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import outlast
from examples.desk import incident, office
from examples.desk.incident import World
from examples.desk.workflow import desk
from examples.negotiation.demo.processes import DemoFolder, Processes
from outlast.core.approvals import Actor
from outlast.core.events import EventType
from outlast.core.machine import ApprovalStatus, Choice, EffectStatus, Reason
from outlast.core.rows.run_rows import Run, is_over
from outlast.errors import Conflict
from outlast.insight.labels import shown_status
from outlast.models.attention import Verb
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.testing.model_server import URL, ModelServer
from outlast.testing.record import Record
from tests.examples.incidents import Case, case
from tests.examples.killed_rounds import Judged, asked_otherwise, campaign, command
from tests.measured import unmeasured
from tests.reading_model import Variant, reader

GIVE_UP_S: Final = 240
"""Time limit of a round. Only a failing round reaches it."""
WORKERS: Final = 3
BETWEEN_S: Final = (0.1, 1.5)
"""Shortest and longest time between two kills."""
LEAD: Final = Actor("bo", frozenset({"lead"}))
SEEN: Final = {"id": "seen in the outbox"}
"""Answer of a person about a mail that was sent."""


class Round(NamedTuple):
    """A finished round: the end of each incident, the records of office and model, the kills, and the seconds."""

    ends: dict[str, dict[str, Any]]
    office: Record
    paid: Record
    kills: int
    seconds: float


def joined(cases: list[Case]) -> World:
    """Return one world with all incidents."""
    worlds = [each.world.model_dump() for each in cases]
    tables = ("tickets", "services", "runbooks", "orders")
    merged = {name: {key: row for world in worlds for key, row in world[name].items()} for name in tables}
    return World(**merged, ailing=[service for world in worlds for service in world["ailing"]])


class Campaign:
    """One round in one folder."""

    def __init__(self, folder: Path, cases: list[Case], variant: Variant, *, kills: int, seed: int) -> None:
        folder.mkdir(parents=True)
        self._store = f"sqlite:{folder / 'outlast.db'}"
        self._processes = Processes(
            DemoFolder(folder, self._store, self._store, True), example="examples.desk", server="office"
        )
        self._folder, self._cases, self._variant, self._seed = folder, cases, variant, seed
        self._dice, self._kills, self._killed = random.Random(seed), kills, 0
        self._decided: set[str] = set()

    async def play(self) -> Round:
        """Play to the end of every incident and stop every process."""
        processes, began_at = self._processes, time.monotonic()
        world = self._folder / "world.json"
        world.write_text(joined(self._cases).model_dump_json(), encoding="utf-8")
        processes.open_server("--misbehaves", "trouble", "--world", f"{world}")
        models = ModelServer(reader(self._variant))
        models.listen(self._folder / "models.jsonl")
        store = await open_store(self._store)
        ops = Operations(store, tenant="default", actor=LEAD, workflows={desk.name: desk})
        try:
            url = await processes.server_url()
            office.freeze(url, *(service for each in self._cases for service in each.frozen))
            processes.env = {office.ENV: url, "OUTLAST_LOG_LEVEL": "warning", URL: models.url}
            processes.env |= {"OUTLAST_MODEL": f"local:{self._variant}"}
            for _ in range(WORKERS):
                processes.start_worker()
            async with asyncio.timeout(GIVE_UP_S):
                runs = await self._work(ops)
            ends = {number: await self._end(ops, run) for number, run in runs.items()}
            return Round(ends, Record(processes.record), models.record, self._killed, time.monotonic() - began_at)
        finally:
            models.stop()
            await processes.stop_workers()
            await processes.close()
            await store.close()

    async def _work(self, ops: Operations) -> dict[str, str]:
        """Start every incident; approve, look after mails and kill until all have ended."""
        runs: dict[str, str] = {}
        async with outlast.connect(self._store, workflows=[desk]) as client:
            for each in self._cases:
                runs[each.number] = (await client.start("desk", {"objective": incident.objective(each.number)})).id
        kill_at = time.monotonic() + self._dice.uniform(*BETWEEN_S)
        while left := [run for run in [await ops.rows.run(each) for each in runs.values()] if not is_over(run)]:
            pending, _ = await ops.rows.approvals(status=ApprovalStatus.PENDING.value)
            for approval in pending:
                if approval.id not in self._decided:
                    self._decided.add(approval.id)
                    await ops.approve(approval.id, reason="in order")
            for run in left:
                await self._look_after(ops, await ops.rows.run(run.run))  # as it is now
            self._processes.check()
            if self._killed < self._kills and time.monotonic() >= kill_at:
                kill_at = time.monotonic() + self._dice.uniform(*BETWEEN_S)
                await self._kill(left)
            await asyncio.sleep(0.05)
        return runs

    async def _look_after(self, ops: Operations, run: Run) -> None:
        """Settle a mail without an answer by the office's record, and let a run go on."""
        for open_ in run.attention:
            if open_.reason is Reason.EFFECT_UNCERTAIN:
                assert open_.key.startswith("mail/"), (run.run, open_)
                if (await ops.rows.effect(run.run, open_.key)).effect.status is not EffectStatus.UNCERTAIN:
                    continue  # it has an answer, and no worker has taken the run yet
                sent = Record(self._processes.record).executed(open_.key)
                verb: Verb = "happened" if sent else "did_not_happen"
                response = SEEN if sent else None
                await ops.resolve_effect(run.run, open_.key, verb, reason="the outbox", response=response)
            else:  # its holders died one after the other in one place, or a fact came too late
                choice = Choice.RETRY if open_.reason is Reason.RETRIES_EXHAUSTED else Choice.CONTINUE
                with contextlib.suppress(Conflict):  # a worker was faster, and it runs
                    await ops.answer(run.run, choice, reason=open_.reason, text="go on", key=open_.key)

    async def _kill(self, left: list[Run]) -> None:
        """Kill a worker, mostly one that holds a run, and start another."""
        holders = [each for run in left if (each := self._processes.holder(run.owner)) is not None]
        await self._processes.kill(self._dice.choice(holders or self._processes.workers))
        self._processes.start_worker()
        self._killed += 1

    async def _end(self, ops: Operations, run_id: str) -> dict[str, Any]:
        """Return everything about the end of a run that a crash must not change."""
        run, effects = await ops.rows.run(run_id), await ops.rows.effects(run_id)
        assert not [effect.key for effect in effects if not effect.settled_at], run_id
        detail, history = await ops.run(run_id), await ops.rows.history(run_id)
        denied = [event.data() for event in history if event.type == EventType.DENIED.value]
        return {
            "end": shown_status(run),
            "outcome": detail.outcome,
            "effects": {effect.key: (effect.status.value, effect.args) for effect in effects},
            "refused": {(each["effect_key"], each["rule"]) for each in denied},
            "nodes": run.visits,
        }


def wrong(killed: Round, calm: Round) -> list[str]:
    """Return what differs from the round without kills, and each request that was executed or paid twice."""
    found = [f"{key}: {end} instead of {calm.ends[key]}" for key, end in killed.ends.items() if end != calm.ends[key]]
    found += killed.office.repeated() + killed.paid.repeated()
    found += unmeasured(incidents=len(calm.ends), kills=killed.kills, paid=len(killed.paid.of("executed")))
    found += [] if executed(killed.office) == executed(calm.office) else ["the office executed other requests"]
    return found + asked_otherwise(killed.paid.of("executed"), calm.paid.of("executed"))


def executed(record: Record) -> Counter[tuple[str, str, str]]:
    """Return each executed request as path, key within its run, and content."""
    return Counter((e.route, e.key.split(":", 3)[-1], e.sha256) for e in record.of("executed"))


async def play(folder: Path, variant: Variant, *, incidents: int, kills: int, seed: int) -> tuple[Round, Round]:
    """Play a round without kills and the same with kills. `seed` chooses the incidents and the moments of the kills."""
    cases = [case(seed * incidents + n) for n in range(incidents)]
    calm = await Campaign(folder / "calm", cases, variant, kills=0, seed=seed).play()
    return calm, await Campaign(folder / "killed", cases, variant, kills=kills, seed=seed).play()


async def judged(given: argparse.Namespace, folder: Path, seed: int) -> Judged:
    """Play the round of a seed and judge it."""
    calm, killed = await play(folder, given.model, incidents=given.incidents, kills=given.kills, seed=seed)
    figures = (
        f"{killed.kills} kills, {len(killed.ends)} incidents, "
        f"{len(killed.office.of('executed'))} requests executed, {len(killed.office.repeated())} repeated, "
        f"{len(killed.paid.of('executed'))} answers paid, {len(killed.paid.repeated())} twice, {killed.seconds:.0f} s"
    )
    return Judged(figures, wrong(killed, calm))


if __name__ == "__main__":
    cli = command("desk_killed", __doc__, rounds=20, kills=10)
    cli.add_argument("--incidents", type=int, default=6, help="incidents in a round [6]")
    options = cli.parse_args()
    sys.exit(campaign(options, partial(judged, options)))

"""The acquisition in real processes that are killed at random: `scripts/acquisition --runtime own`.

A round starts an office whose systems lose answers, an engine and three workers on a new store. It sends inquiries,
decides proposals, and kills workers with SIGKILL at random moments. The same inquiries were worked before without a
kill. Each inquiry must end equal, and the office's own record must show every request executed once. With `--model`, a
stand-in that reads decides (`tests/reading_model`), and its own record must show every request paid once.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import click

import outlast
from examples.acquisition import office
from examples.acquisition.workflow import acquisition
from examples.negotiation.demo.output import PlainOutput
from examples.negotiation.demo.processes import SHORT, DemoFolder, Processes
from outlast.core.approvals import Actor
from outlast.core.commit import Mapping
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.run_rows import Run, is_over
from outlast.core.run_transition import rearmed
from outlast.insight.labels import shown_status
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.store.port import maintenance
from outlast.testing.model_server import URL, ModelServer
from outlast.testing.record import Record
from tests.examples.inquiries import world
from tests.examples.killed_rounds import asked_otherwise
from tests.measured import unmeasured
from tests.reading_model import VARIANTS, Variant, reader
from tests.runtimes.engines import NAMES, Engine, engine, missing

GIVE_UP_S: Final = 240
"""Time limit of a round. Only a failing round reaches it."""
WORKERS: Final = 3
BETWEEN_S: Final = (0.1, 1.5)
"""Shortest and longest time between two kills."""
PEOPLE: Final = Actor("bo", frozenset({"sales"}))
DRAFTS_WANTED: Final = 2


class Decider(NamedTuple):
    """The model of a campaign: a variant of the stand-in with its seed, or the script of the office."""

    variant: Variant | Literal["script"] = "script"
    seed: int = 0

    def server(self, folder: Path) -> ModelServer | None:
        """Return the server of a stand-in, which listens and keeps a record; None for the script."""
        if self.variant == "script":
            return None
        found = ModelServer(reader(self.variant, self.seed))
        found.listen(folder / "models.jsonl")
        return found


class Lead(NamedTuple):
    """An inquiry, and what people do about it."""

    given: dict[str, Any]
    decides: str
    """approve, reject, or again: wants one more draft."""
    replies: bool

    @property
    def email(self) -> str:
        """The address, by which its run is known."""
        return str(self.given["email"])


def leads(count: int, *, drawn: bool = False) -> list[Lead]:
    """Return inquiries of every kind: large or small, approved, rejected or drafted again, with a reply or without.

    `drawn`: they are companies of `inquiries.py`, each with another address.
    """
    found = []
    for n in range(count):
        given = (
            {**world(n).given, "email": f"contact{n}@works{n}.example"}
            if drawn
            else {
                "company": f"Works {n}",
                "domain": f"works{n}.example",
                "contact": f"Ada {n}",
                "email": f"ada{n}@works{n}.example",
                "country": "DE" if n % 4 else "FR",
                "industry": "retail" if n % 7 else "gambling",
                "employees": 900 if n % 3 == 0 else 40 + n,
                "message": "see wiki.internal" if n % 2 else "hello",
            }
        )
        found.append(Lead(given, "reject" if n % 5 == 4 else "again" if n % 5 == 2 else "approve", n % 3 == 1))
    return found


class Round(NamedTuple):
    """A finished round: the end of each inquiry by its address, the record, the kills, and the seconds."""

    ends: dict[str, dict[str, Any]]
    record: Record
    paid: Record | None
    """Record of the stand-in; None if the office's script was the model."""
    kills: int
    seconds: float


class Campaign:
    """One round in one folder."""

    def __init__(
        self, folder: Path, with_: Engine, wanted: list[Lead], *, kills: int, seed: int, model: Decider
    ) -> None:
        folder.mkdir(parents=True)
        self._model, self._folder = model, folder
        store = f"sqlite:{folder / 'outlast.db'}"
        self._engine, self._kills = with_, kills
        self._leads = {lead.email: lead for lead in wanted}
        self._dice = random.Random(seed)
        self._store = store
        self._processes = Processes(
            DemoFolder(folder, store, store, True),
            example="examples.acquisition",
            server="office",
            options=(*SHORT, *with_.options),
        )
        self._killed = 0
        self._asked: Counter[str] = Counter()
        self._decided: set[str] = set()
        self._replied: set[str] = set()

    async def play(self) -> Round:
        """Play to the end of every inquiry and stop every process."""
        processes, begun = self._processes, time.monotonic()
        processes.open_server("--misbehaves", "trouble")
        models = self._model.server(self._folder)
        decided_by = {} if models is None else {"OUTLAST_MODEL": f"local:{self._model.variant}", URL: models.url}
        await self._engine.open()
        store = await open_store(self._store)
        ops = Operations(store, tenant="default", actor=PEOPLE, workflows={acquisition.name: acquisition})
        try:
            processes.env = (
                {
                    office.ENV: await processes.server_url(),
                    "OUTLAST_LOG_LEVEL": "warning",
                }
                | self._engine.env
                | decided_by
            )
            for _ in range(WORKERS):
                processes.start_worker()
            async with asyncio.timeout(GIVE_UP_S):
                async with outlast.connect(self._store, workflows=[acquisition]) as client:
                    runs = await self._work(ops, self._engine.runtime(client))
            ends = {email: await self._end(ops, run) for email, run in runs.items()}
            paid = models.record if models is not None else None
            return Round(ends, Record(processes.record), paid, self._killed, time.monotonic() - begun)
        finally:
            if models is not None:
                models.stop()
            await processes.stop_workers()
            await processes.close()
            await store.close()

    async def _work(self, ops: Operations, runtime: Any) -> dict[str, str]:
        """Start the inquiries one after the other; decide, kill and let time pass until all have ended."""
        runs: dict[str, str] = {}
        waiting = list(self._leads.values())
        kill_at = time.monotonic() + self._pause()
        while True:
            if waiting:
                lead = waiting.pop(0)
                begun = await runtime.start(
                    workflow_name=acquisition.name,
                    input=lead.given,
                    idempotency_key=lead.email,
                    correlation_id=lead.email,
                )
                runs[lead.email] = begun.id
            rows = {email: await ops.rows.run(run) for email, run in runs.items()}
            left = {email: run for email, run in rows.items() if not is_over(run)}
            for email, run in left.items():
                assert not run.attention, (email, run.attention)
            if not waiting and not left:
                return runs
            await self._answer(ops, runtime, left)
            if not waiting and all(_waits_for_reply(run) for run in left.values()):
                await _skip(ops, max(each.until for run in left.values() for each in run.waiting_for) + 1)
            self._processes.check()
            if self._killed < self._kills and time.monotonic() >= kill_at:
                kill_at = time.monotonic() + self._pause()
                await self._kill(left)
            await asyncio.sleep(0.05)

    def _pause(self) -> float:
        return self._dice.uniform(*BETWEEN_S)

    async def _kill(self, left: dict[str, Run]) -> None:
        """Kill a worker, mostly one that holds a run, and start another."""
        holders = [each for run in left.values() if (each := self._processes.holder(run.owner)) is not None]
        victim = self._dice.choice(holders or self._processes.workers)
        await self._processes.kill(victim)
        self._processes.start_worker()
        self._killed += 1

    async def _answer(self, ops: Operations, runtime: Any, left: dict[str, Run]) -> None:
        """Decide the proposals that wait, and send the replies."""
        by_run = {run.run: email for email, run in left.items()}
        pending, _ = await ops.rows.approvals(status=ApprovalStatus.PENDING.value)
        for approval in pending:
            if approval.id in self._decided or approval.run not in by_run:
                continue
            self._decided.add(approval.id)
            lead = self._leads[by_run[approval.run]]
            self._asked[lead.email] += 1
            if lead.decides == "reject":
                await ops.reject(approval.id, reason="too early")
            elif lead.decides == "again" and self._asked[lead.email] < DRAFTS_WANTED and approval.again:
                await ops.reject(approval.id, reason="shorter, please", again=True)
            else:
                await ops.approve(approval.id, reason="in order")
        for email, run in left.items():
            if self._leads[email].replies and _waits_for_reply(run) and email not in self._replied:
                self._replied.add(email)
                await runtime.signal(run.run, "reply", {"text": f"yes, {email}"}, f"reply/{email}")

    async def _end(self, ops: Operations, run_id: str) -> dict[str, Any]:
        """Return everything about the end of a run that a crash must not change."""
        run, effects = await ops.rows.run(run_id), await ops.rows.effects(run_id)
        detail = await ops.run(run_id)
        assert not [effect.key for effect in effects if not effect.settled_at], run_id
        return {
            "end": shown_status(run),
            "reason": detail.reason,
            "outcome": detail.outcome,
            "effects": {effect.key: effect.status.value for effect in effects},
            "nodes": run.visits,
        }


def _waits_for_reply(run: Run) -> bool:
    return not run.owner and any(each.kind == "signal" and each.what == "reply" for each in run.waiting_for)


async def _skip(ops: Operations, until: int) -> None:
    """Move business time to an instant."""
    now = await ops.store.now()
    if until > now.business:
        await maintenance(ops.store).set_mapping(Mapping(0, now.real, until, 1.0), rearmed)


def wrong(killed: Round, calm: Round) -> list[str]:
    """Return what differs from the round without kills, and each request that was executed twice."""
    found = [
        f"{email}: {end} instead of {calm.ends[email]}" for email, end in killed.ends.items() if end != calm.ends[email]
    ]
    found += killed.record.repeated() + unmeasured(inquiries=len(calm.ends), kills=killed.kills)
    if killed.paid is not None and calm.paid is not None:
        found += killed.paid.repeated() + unmeasured(paid=len(killed.paid.of("executed")))
        found += asked_otherwise(killed.paid.of("executed"), calm.paid.of("executed"))
    return found + ([] if executed(killed.record) == executed(calm.record) else ["the office executed other requests"])


def executed(record: Record) -> Counter[tuple[str, str, str]]:
    """Return each executed request as path, key within its run, and content; not those to the model."""
    return Counter(
        (e.route, e.key.split(":", 3)[-1], e.sha256) for e in record.of("executed") if office.MODEL not in e.route
    )


async def campaign(given: argparse.Namespace) -> int:
    """Play the rounds, print a line each, and return the number of those that went wrong."""
    folder, out, model = (
        Path(tempfile.mkdtemp(prefix="outlast-acquisition-")),
        PlainOutput(),
        Decider(given.model, given.lie),
    )
    wanted = leads(given.leads, drawn=model.variant != "script")

    async def play(name: str, kills: int, seed: int) -> Round:
        with_ = engine(given.runtime)
        with_.start()
        try:
            return await Campaign(folder / name, with_, wanted, kills=kills, seed=seed, model=model).play()
        finally:
            with_.stop()

    calm = await play("calm", 0, 0)
    ends = Counter(end["end"] for end in calm.ends.values())
    out.line(
        f"{given.runtime}, model {model.variant}, no kill: {len(calm.ends)} inquiries, {dict(ends)}, {_sums(calm)}"
    )
    bad = int(bool(calm.record.repeated() or unmeasured(rounds=given.rounds)))
    for seed in range(given.seed, given.seed + given.rounds):
        round_ = await play(f"{seed}", given.kills, seed)
        problems = wrong(round_, calm)
        bad += bool(problems)
        out.line(
            f"{given.runtime}, seed {seed}: {round_.kills} kills, {_sums(round_)}, {'; '.join(problems) or 'equal'}"
        )
    out.line(f"{bad} of {given.rounds + 1} rounds wrong" + (f"; everything is in {folder}" if bad else ""))
    if not bad:
        shutil.rmtree(folder)
    return bad


def _sums(round_: Round) -> str:
    done, paid = round_.record.of("executed"), round_.paid
    answers = "" if paid is None else f"{len(paid.of('executed'))} answers paid, {len(paid.repeated())} twice, "
    repeated = len(round_.record.repeated())
    return f"{len(done)} requests executed, {repeated} repeated, {answers}{round_.seconds:.0f} s"


def main() -> int:
    """Parse the command line and play."""
    cli = argparse.ArgumentParser(prog="scripts/acquisition", description=__doc__)
    cli.add_argument("--runtime", choices=NAMES, default="own", help="engine that schedules the runs [own]")
    cli.add_argument("--rounds", type=int, default=3, help="rounds with kills [3]")
    cli.add_argument("--kills", type=int, default=10, help="kills in a round [10]")
    cli.add_argument("--leads", type=int, default=20, help="inquiries in a round [20]")
    cli.add_argument("--seed", type=int, default=0, help="seed of the first round [0]")
    cli.add_argument("--model", choices=("script", *VARIANTS), default="script", help="model that decides [script]")
    cli.add_argument("--lie", type=int, default=0, help="question about which a lying model lies, 0 to 3 [0]")
    given = cli.parse_args()
    if why := missing(given.runtime):
        click.echo(f"this engine cannot run here: {why}", err=True)
        return 2
    return 1 if asyncio.run(campaign(given)) else 0


if __name__ == "__main__":
    sys.exit(main())

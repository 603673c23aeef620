"""The researcher in real processes that are killed at random: `python -m tests.examples.researching --rounds 20`.

A round starts a world, a service and two workers on a new store, and kills at random moments the worker that holds the
run, another worker, or the service with its dispatcher. The same question was answered before without a kill. Rows,
counts and delivered events must be equal, and each answer of the model is paid once.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from examples.negotiation.demo.proof import Claim
from examples.researcher import proof
from examples.researcher.fetching import AGENT
from examples.researcher.robots import parse
from examples.researcher.watch import Watch
from examples.researcher.world import record
from examples.researcher.world.pages import Shape, Site
from outlast import connect
from tests import forked
from tests.measured import unmeasured

ROOT = Path(__file__).parents[2]
GIVE_UP_S = 120
"""Time limit of one run. Only a failing test reaches it."""
QUESTION = "Which heat pumps are quiet?"
PACKAGE = "examples.researcher"
SHORT = ("--heartbeat-window", "2s", "--heartbeat-every", "500ms", "--attempt-timeout", "30s")


class Round(NamedTuple):
    """A finished run, the killed processes, and the number of polls at which count and rows were compared."""

    outcome: proof.Outcome
    secret: str
    site: str
    kills: list[str]
    polls: int
    cli_polls: int
    hits: list[record.Hit]


class Fleet:
    """The processes of one round. Each can be killed and started again."""

    def __init__(self, folder: Path, module: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._module = module
        self.folder = folder
        self.record = folder / "world.jsonl"
        self._processes: dict[str, subprocess.Popen[Any]] = {}
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")},
            "PYTHONPATH": f"{ROOT}",
            "OUTLAST_STORE": f"sqlite:{folder / 'outlast.db'}",
            "OUTLAST_MODEL": "chat:planner",
            "OUTLAST_WEBHOOKS__ALLOW_PRIVATE": "true",
            "OUTLAST_WEBHOOKS__ALLOW_HTTP": "true",
        }
        self._port = "0"
        self._numbers = itertools.count(1)

    def begin(self, name: str, *command: str) -> subprocess.Popen[Any]:
        """Start a process, its output in NAME.log."""
        with (self.folder / f"{name}.log").open("wb") as log, (self.folder / f"{name}-err.log").open("ab") as err:
            child = self._processes[name] = forked.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=err, env=self._env,
                start_new_session=True,
            )  # fmt: skip
        return child

    async def facts(self, name: str) -> dict[str, Any]:
        """Wait for the ready line of a process and return it."""
        give_up = time.monotonic() + GIVE_UP_S
        while "\n" not in (text := (self.folder / f"{name}.log").read_text()):
            assert self._processes[name].poll() is None and time.monotonic() < give_up, self.errors(name)
            await asyncio.sleep(0.02)
        found: dict[str, Any] = json.loads(text.partition("\n")[0])
        return found

    async def world(self, shape: Shape, *options: str) -> dict[str, Any]:
        """Start the world and return its addresses."""
        self.begin("world", f"{PACKAGE}.world", "--record", f"{self.record}", "--entries", f"{shape.entries}", *options)
        facts = await self.facts("world")
        self.model(facts["model"])
        return facts

    def model(self, url: str) -> None:
        """Let the workers that start from now on ask the model at this address."""
        self._env["OUTLAST_MODEL_URL"] = url

    async def serve(self) -> str:
        """Start the service on its former port and return its address."""
        command = ("outlast", "-o", "ndjson", "serve", f"{PACKAGE}.workflow", "--no-worker", "--port", self._port)
        self.begin("service", *command)
        url = str((await self.facts("service"))["url"])
        self._port = url.rpartition(":")[2]
        return url

    def worker(self) -> None:
        """Start one more worker."""
        name = f"w-{next(self._numbers)}"
        self.begin(name, "outlast", "worker", self._module, "--name", name, *SHORT)

    def of(self, owner: str) -> str:
        """Return the name of the worker with this id; '' if there is none."""
        pid = owner.split("-")[1] if owner.count("-") == 2 else ""
        return next((name for name, child in self._processes.items() if f"{child.pid}" == pid), "")

    def workers(self) -> list[str]:
        """Return the names of the workers that run."""
        return [name for name, child in self._processes.items() if name.startswith("w-") and child.poll() is None]

    async def kill(self, name: str) -> None:
        """Kill a process with SIGKILL and start its successor."""
        self._processes[name].kill()
        assert self._processes.pop(name).wait(GIVE_UP_S) == -signal.SIGKILL, self.errors(name)
        if name == "service":
            await self.serve()
        else:
            self.worker()

    def runs_show(self, run: str) -> int:
        """Return the count of results that the command line shows beside the status."""
        command = ("outlast", "-o", "json", "runs", "show", run)
        done = forked.run(*command, env=self._env, cwd=ROOT, capture_output=True, timeout=GIVE_UP_S)
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["results"])

    def errors(self, name: str) -> str:
        """Return what a process wrote."""
        return "".join((self.folder / f"{name}{part}.log").read_text()[-2_000:] for part in ("", "-err"))

    def close(self) -> None:
        """End every process."""
        for child in self._processes.values():
            child.kill()
            child.wait(GIVE_UP_S)


@contextlib.contextmanager
def fleet(folder: Path, module: str = f"{PACKAGE}.workflow") -> Iterator[Fleet]:
    """Yield the processes of one round, whose workers carry the workflows of a module; none is left behind."""
    made = Fleet(folder, module)
    try:
        yield made
    finally:
        made.close()


async def play(folder: Path, shape: Shape, *, kills: int = 0, seed: int = 0) -> Round:
    """Play one round and return what came of it."""
    dice, killed, cli_polls = random.Random(seed), list[str](), 0
    with fleet(folder) as all_:
        world = await all_.world(shape)
        url, site = await all_.serve(), world["url"]
        for _ in range(2):
            all_.worker()
        async with connect(url) as client:
            secret = (await client.webhooks.add(world["receiver"], from_start=True)).secret
            run = await client.start("research", {"site": site, "question": QUESTION})
            watch = Watch(client, run.id)
            async for left in _until_ended(watch, kills, dice):
                if left:
                    name = _victim(all_, (await client.run(run.id)).owner, dice)
                    killed.append(name)
                    await all_.kill(name)
                    low, shown = len(watch.rows), await asyncio.to_thread(all_.runs_show, run.id)
                    await watch.poll()
                    assert low <= shown <= len(watch.rows), "the command line shows another count"
                    cli_polls += 1
            outcome = await proof.outcome(client, run.id)
            assert all_.runs_show(run.id) == len(outcome.rows)
            await delivered(all_.record, outcome)
        return Round(outcome, secret, site, killed, watch.polls, cli_polls + 1, record.read(all_.record))


async def _until_ended(watch: Watch, kills: int, dice: random.Random) -> AsyncIterator[bool]:
    """Poll until the run has ended; yield True when something is to be killed. Each kill follows on progress."""
    give_up, rows, left = time.monotonic() + GIVE_UP_S, 0, kills
    while (detail := await watch.poll()).ended_at is None:
        assert time.monotonic() < give_up and not detail.attention, detail.explained
        if left and len(watch.rows) > rows:
            await asyncio.sleep(dice.uniform(0, 0.5))  # the moment of the kill
            left, rows = left - 1, len(watch.rows)
            yield True
        await asyncio.sleep(0.2)


def _victim(all_: Fleet, owner: str, dice: random.Random) -> str:
    """Choose a process: mostly the holder of the run."""
    holder = all_.of(owner) or dice.choice(all_.workers())
    return dice.choices([holder, dice.choice(all_.workers()), "service"], [6, 1, 2])[0]


async def delivered(path: Path, outcome: proof.Outcome) -> None:
    """Wait until the receiver has accepted every event of a run."""
    give_up = time.monotonic() + GIVE_UP_S
    while len(proof.accepted(record.read(path), outcome.run)) < len(outcome.events):
        assert time.monotonic() < give_up, f"not all {len(outcome.events)} events were delivered"
        await asyncio.sleep(0.05)


def judged(killed: Round, whole: Round, shape: Shape) -> list[Claim]:
    """Return the claims about a round with kills, beside one without."""
    robots = parse(Site(shape).robots, AGENT)
    return [
        *proof.claims(
            killed.outcome,
            whole.outcome,
            hits=[*killed.hits, *whole.hits],
            secrets=(killed.secret, whole.secret),
            kills=len(killed.kills),
            held=None,  # the service is killed, too
            site=killed.site,
        ),
        *proof.manners(killed.hits, killed.site, robots),
    ]


async def campaign(rounds: int, kills: int, entries: int, seed: int) -> int:
    """Play rounds with random kills, print one line each, and return the number of those in which a claim failed."""
    shape, folder = Shape(entries=entries), Path(tempfile.mkdtemp(prefix="outlast-researcher-"))
    whole, failed = await play(folder / "whole", shape), 0
    for number in range(seed, seed + rounds):
        round_ = await play(folder / f"{number}", shape, kills=kills, seed=number)
        wrong = [claim.text for claim in judged(round_, whole, shape) if not claim.holds]
        wrong += unmeasured(kills=len(round_.kills))
        failed += bool(wrong)
        names = " ".join(round_.kills)
        click.echo(
            f"seed {number}: {len(round_.outcome.rows)} rows, {len(round_.kills)} kills ({names}), {wrong or 'ok'}"
        )
    failed += len(unmeasured(rounds=rounds))
    click.echo(f"{failed} of {rounds} rounds failed" + (f"; logs in {folder}" if failed else ""))
    if not failed:
        shutil.rmtree(folder)
    return failed


if __name__ == "__main__":
    cli = argparse.ArgumentParser(prog="tests.examples.researching", description=__doc__)
    cli.add_argument("--rounds", type=int, default=20)
    cli.add_argument("--kills", type=int, default=6)
    cli.add_argument("--entries", type=int, default=60, help="entries of each of the eight topics [60]")
    cli.add_argument("--seed", type=int, default=0)
    given = cli.parse_args()
    sys.exit(1 if asyncio.run(campaign(given.rounds, given.kills, given.entries, given.seed)) else 0)

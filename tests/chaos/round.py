"""One round: processes, load, faults, a pause without faults, and the check."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from tests.chaos.fleet import CALL_S, LIVE, Fleet
from tests.chaos.judge import TENANT, Verdict, _all, judge
from tests.chaos.nemesis import Nemesis
from tests.measured import unmeasured
from tests.postgres.server import Server

QUIET_S = 600.0  # runs that have not ended so long after the last fault are errors
WITHOUT_S = 90.0  # the same with a removed safeguard, which may leave runs that never end
LOOK_S = 0.5
SCHEMA = "chaos"


class Plan(NamedTuple):
    """Options of a round."""

    store: str  # postgres or sqlite
    seed: int
    seconds: float
    workers: int = 8
    rate: float = 4.0  # runs started per second
    say: Callable[[str], None] = lambda text: None
    without: str = ""  # id of a removed safeguard: the round must fail
    keep: Path | None = None  # folder to keep
    only: tuple[str, ...] = ()  # faults to inject [all]
    longest_s: float = CALL_S  # maximum duration of a call
    live: tuple[str, ...] = LIVE  # liveness durations of the workers


async def _unsettled(store: Store) -> list[Run]:
    runs: list[Run] = await _all(store, RUN, (TENANT,))
    return [run for run in runs if not is_over(run)]


def quiet(url: str, say: Callable[[str], None], care: Callable[[], object], ceiling_s: float = QUIET_S) -> float:
    """Wait until every run has ended or waits for a person. Returns the seconds waited."""
    return asyncio.run(_quiet(url, say, care, ceiling_s))


async def _quiet(url: str, say: Callable[[str], None], care: Callable[[], object], ceiling_s: float) -> float:
    began = time.monotonic()
    unchanged, since = None, began
    store = await open_store(url)
    try:
        while time.monotonic() - began < ceiling_s:
            care()
            left = await _unsettled(store)
            say(f"{len(left)} runs have not ended, {time.monotonic() - began:.0f} of at most {ceiling_s:.0f} s")
            now = sorted((run.run, run.version) for run in left)
            if now != unchanged:
                unchanged, since = now, time.monotonic()
            if not left or (all(run.attention for run in left) and time.monotonic() - since > 20):
                break
            await asyncio.sleep(LOOK_S)
    finally:
        await store.close()
    return time.monotonic() - began


def play(plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """Run the round. Returns its report and the errors."""
    with ExitStack() as stack:
        folder = plan.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outlast-chaos-")))
        folder.mkdir(parents=True, exist_ok=True)
        server = Server(fsync="on") if plan.store == "postgres" else None
        if server is not None:
            stack.callback(server.close)
        url = f"{server.url}?schema={SCHEMA}" if server is not None else f"sqlite:{folder / 'chaos.db'}"
        fleet = Fleet(folder, url, wires=server is not None, live=plan.live)
        stack.callback(fleet.close)
        fleet.without = plan.without
        fleet.open_world(plan.seed, plan.longest_s)
        wire = fleet.wire()
        if wire is not None:
            stack.callback(wire.close)
        nemesis = Nemesis(fleet, server, wire, plan.seed, plan.only)
        for _ in range(plan.workers):
            fleet.hire(nemesis.dice)
        client = fleet.open_client(plan.seed, plan.rate, wire)
        fleet.await_serving()
        began = time.time()

        def tick() -> None:
            if ended := fleet.replace_ended(nemesis.dice):
                nemesis.fired["store_away_at_start"] += ended
            plan.say(f"{time.time() - began:5.0f} s  {dict(nemesis.fired)}")

        nemesis.go(plan.seconds, tick)
        assert client.stdin is not None and client.stdout is not None
        client.stdin.close()
        ceiling_s = WITHOUT_S if plan.without else QUIET_S
        settled_s = quiet(url, plan.say, lambda: fleet.replace_ended(nemesis.dice), ceiling_s)
        fleet.await_serving()
        codes = fleet.drain()
        verdict: Verdict = judge(url, folder, fleet.kills)
        wrong = verdict.wrong + fleet.faults + ([f"workers ended with {codes}"] if any(codes) else [])
        there = verdict.figures
        wrong += unmeasured(runs=there["runs"], effects=there["effects"], nemeses=sum(nemesis.fired.values()))
        report = {
            "store": plan.store,
            "seed": plan.seed,
            "seconds": plan.seconds,
            "workers": plan.workers,
            "without": plan.without,
            "nemeses": dict(nemesis.fired),
            "settled_s": round(settled_s, 1),
            **verdict.figures,
            "wrong": wrong,
        }
        return report, wrong

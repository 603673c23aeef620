"""Sales on a Temporal server while workers and the server are killed: `scripts/chaos --temporal`."""

import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from outlast.core.rows.run_rows import is_over
from tests.e2e.helpers import Receiver
from tests.measured import unmeasured
from tests.temporal.office import Office
from tests.temporal.server import TemporalServer

WORKERS: Final = 3
BETWEEN_S: Final = 1.5  # kills of workers
HELD_S: Final = 0.4  # answers of the receiver before a kill, so that calls are in flight
RUNS_PER_KILL: Final = 4
QUIET_S: Final = 180.0  # runs that have not ended so long after the last fault are errors
CALLS: Final = {
    "won": ["deal", "proposal", "follow-up"],
    "lost": ["deal", "proposal", "undo/proposal", "undo/deal"],
}


class Campaign(NamedTuple):
    """Options of a campaign."""

    seed: int
    kills: int = 20
    restarts: int = 5
    say: Callable[[str], None] = lambda text: None


def play(plan: Campaign) -> tuple[dict[str, Any], list[str]]:
    """Kill workers and the server, deploy a version halfway, and check every call. Returns figures and errors."""
    server, receiver = TemporalServer(), Receiver()
    try:
        with tempfile.TemporaryDirectory(prefix="outlast-campaign-") as folder:
            office = Office(Path(folder), receiver, server)
            try:
                return _play(plan, office)
            finally:
                office.close()
    finally:
        receiver.close()
        server.close()


def _play(plan: Campaign, office: Office) -> tuple[dict[str, Any], list[str]]:
    dice, begun = random.Random(plan.seed), time.monotonic()
    living = [office.serve() for _ in range(WORKERS)]
    runs: dict[str, str] = {}
    restarts = set(dice.sample(range(plan.kills), plan.restarts))
    hit = 0
    for n in range(plan.kills):
        version = 1 if n < plan.kills // 2 else 2
        for _ in range(RUNS_PER_KILL):
            run, ends = f"sale-{len(runs)}", dice.choice(["won", "lost"])
            office.sell(run, ends=ends, asks=dice.random() < 0.5)
            runs[run] = ends
        _approve(office)
        time.sleep(BETWEEN_S * dice.random())
        office.receiver.may_answer.clear()
        time.sleep(HELD_S)
        held = Counter(office.run(run).owner.split("-")[1] for run in runs if office.run(run).owner.startswith("w-"))
        victim = max(living, key=lambda each: held[f"{each.pid}"])
        living.remove(victim)
        hit += held[f"{victim.pid}"]
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        if n in restarts:
            office.temporal.kill()
            office.temporal.start()
        office.receiver.may_answer.set()
        living.append(office.serve(version))
        plan.say(f"kill {n + 1} of {plan.kills}, {sum(is_over(office.run(run)) for run in runs)} of {len(runs)} ended")
    return _judge(plan, office, runs, {"runs_held_by_killed_workers": hit, "faults_s": time.monotonic() - begun})


def _approve(office: Office) -> None:
    for found in office.do(lambda ops: ops.approvals(status="pending")).approvals:
        office.do(lambda ops, one=found.approval: ops.approve(one, reason="fine"))


def _judge(
    plan: Campaign, office: Office, runs: dict[str, str], facts: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Wait for the ends of the runs, and compare the receiver's record with them."""
    last_fault = time.monotonic()
    while time.monotonic() - last_fault < QUIET_S and not all(is_over(office.run(run)) for run in runs):
        _approve(office)
        time.sleep(0.2)
    quiet_s = time.monotonic() - last_fault
    wrong = [f"{run} has not ended: {office.explain(run)}" for run in runs if not is_over(office.run(run))]
    wrong += [
        f"{run} made the calls {office.calls(run)}"
        for run, ends in runs.items()
        if is_over(office.run(run)) and sorted(office.calls(run)) != sorted(CALLS[ends])
    ]
    wrong += unmeasured(runs=len(runs), runs_held_by_killed_workers=facts["runs_held_by_killed_workers"])
    lanes = Counter(office.run(run).lane for run in runs)
    figures = {
        "seed": plan.seed,
        "workers_killed": plan.kills,
        "server_restarts": plan.restarts,
        "runs": len(runs),
        "runs_by_lane": dict(lanes),
        **facts,
        "ended_s_after_last_fault": quiet_s,
        "repeated_effects": sum(n - 1 for n in office.receiver.seen.values()),
        "calls": office.receiver.seen.total(),
    }
    return figures, wrong

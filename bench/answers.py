"""`scripts/bench answers [--store NAME] [--runs N] [--kill SECONDS]`: one answer for very many runs, with deaths.

Each run fails at its first step, and one job answers "continue" for all of them. The worker that serves the job and the
runs is killed with SIGKILL every few seconds and started again, with a mended workflow. Printed: the time to flag the
runs and to answer them, the deaths, and how many runs have how many answers in their inbox and in their history. It
fails unless each run has completed with exactly one answer.
"""

import argparse
import asyncio
import json
import os
import time
from collections import Counter
from typing import Any

from pydantic import BaseModel

from bench.engines import engine_of
from bench.map import LIVE, Workers, every
from bench.serving import TENANT, opened, start_runs
from outlast import Context, Workflow
from outlast.core.approvals import Actor
from outlast.core.machine import Choice, Reason, RunStatus
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN
from outlast.runtime.local_worker import worker_of
from outlast.runtime.operations import Operations
from outlast.store.port import Store
from outlast.upkeep.fsck import Fsck

MENDED = "MENDED"
"""Environment variable of the workers that serve the mended workflow."""
CAUSES = 5
LOOK_S = 1.0


class Order(BaseModel):
    """State of a run."""

    loops: int = 0


orders = Workflow("bench-answers", state=Order)


@orders.node(start=True)
async def prices(ctx: Context[Order]) -> None:
    """Raise unless the workflow is mended. The messages have a few normal forms."""
    if not os.environ.get(MENDED):
        kind = "abcdefghij"[int(ctx.run_id[1:]) % CAUSES]
        raise KeyError(f"no price list {kind * 3} for {ctx.run_id!r}")


async def work(url: str) -> None:
    """Serve all runs until this process is killed."""
    async with opened(url) as store:
        await worker_of(store, [orders], live=LIVE).run()


async def answers_of(store: Store, runs: list[str]) -> tuple[Counter[int], Counter[int]]:
    """Return how many runs have how many answers in their inbox, and how many in their history."""
    inbox, history = Counter[int](), Counter[int]()
    for run in runs:
        inbox[len(await store.rows(MESSAGE, (TENANT, run)))] += 1
        history[sum(event.kind == "run.answered" for event in await store.rows(EVENT, (TENANT, run)))] += 1
    return inbox, history


async def until_flagged(store: Store, runs: int) -> None:
    """Return once the workers have flagged so many runs."""
    while sum(bool(run.flagged_at) for run in await every(store, RUN)) < runs:  # noqa: ASYNC110 - another process does
        await asyncio.sleep(LOOK_S)


async def play(url: str, count: int, kill_s: float) -> dict[str, Any]:
    """Flag the runs, answer them all with deaths every `kill_s` seconds, and count the answers."""
    async with opened(url) as store:
        ops = Operations(store, tenant=TENANT, actor=Actor("local:ana"), workflows={})
        runs = await start_runs(store, orders, count)
        began = time.monotonic()
        workers = Workers(url, "bench.answers")
        await until_flagged(store, count)
        flagged = time.monotonic() - began
        os.environ[MENDED] = "1"
        workers.kill()
        job = await ops.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended", workflow=orders.name)
        began = killed = time.monotonic()
        while not (found := await ops.bulk_answer(job.run)).ended:
            await asyncio.sleep(LOOK_S)
            if time.monotonic() - killed >= kill_s:
                workers.kill()
                killed = time.monotonic()
        answered = time.monotonic() - began
        while any(not run.ended_at for run in await every(store, RUN)):  # noqa: ASYNC110 - another process ends them
            await asyncio.sleep(LOOK_S)
        continued = time.monotonic() - began
        workers.end()
        inbox, history = await answers_of(store, runs)
        statuses = Counter(run.status.value for run in await every(store, RUN) if run.workflow == orders.name)
        report = await Fsck(store).look()
        return {
            "runs": count,
            "flagged_s": round(flagged, 1),
            "answered_s": round(answered, 1),
            "continued_s": round(continued, 1),
            "deaths": workers.deaths,
            "job": {"status": found.status, "answered": found.answered, "refused": found.refused},
            "runs_by_answers_in_inbox": dict(inbox),
            "runs_by_answers_in_history": dict(history),
            "runs_by_status": dict(statuses),
            "fsck_findings": len(report.findings),
        }


def main() -> None:
    """Measure, or serve the runs in a process of the measurement."""
    parser = argparse.ArgumentParser(prog="scripts/bench answers", description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--kill", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(given.work))
        return
    with engine_of(given.store).place() as place:
        found = asyncio.run(play(place.url, given.runs, given.kill))
    print(json.dumps({"load": os.getloadavg()[0], **found}), flush=True)
    once = {1: given.runs}
    if found["runs_by_answers_in_history"] != once or found["runs_by_status"] != {
        RunStatus.COMPLETED.value: given.runs
    }:
        raise SystemExit("a run has not exactly one answer, or has not completed")


if __name__ == "__main__":
    main()

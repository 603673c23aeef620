"""Workflows that raise every kind of exception in every place, for real workers; the campaign of it as a command.

    python -m tests.e2e.raising

It plays them on one and on two workers and prints a line for each run that did not end where a person sees it.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outlast.core.approvals import Actor
from outlast.core.rows.run_rows import is_over
from outlast.flow import Context, Workflow
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from tests import forked
from tests.e2e.helpers import ROOT
from tests.engine.raising import KINDS, PLACES, raising, version
from tests.engine.world import State, one_node

Ctx = Context[State]
QUICK = (
    *("--heartbeat-window", "2s", "--heartbeat-every", "500ms"),
    *("--attempt-timeout", "1s", "--start-budget", "1s", "--settle-margin", "1s"),
)
BUDGET_S = 67.2  # of a slice, as these workers derive it


def name_of(place: str, kind: str) -> str:
    return f"{place} {kind}".replace(" ", "-")


async def leaves() -> None:
    sys.exit(3)


async def body_with_tasks(ctx: Ctx) -> None:
    await asyncio.gather(leaves(), asyncio.sleep(0))


async def body_with_a_lost_task(ctx: Ctx) -> None:
    task = asyncio.create_task(leaves())
    await asyncio.sleep(0.05)
    ctx.state.said.append(str(task.done()))


CELLS = {name_of(place, kind): (place, kind) for place in PLACES for kind in KINDS}
TASKS = {
    "in-a-task": one_node(body_with_tasks, name="in-a-task"),
    "in-a-lost-task": one_node(body_with_a_lost_task, name="in-a-lost-task"),
}
EXPECTED = {name: [PLACES[place][1]] for name, (place, _) in CELLS.items()} | {
    "in-a-task": ["exception"],
    "in-a-lost-task": ["completed"],
}
"""The attention reasons or the end of each run."""
SERVED: dict[str, Workflow[Any]] = {
    name: PLACES[place][0](name, raising(kind)) for name, (place, kind) in CELLS.items()
} | TASKS
STARTED = SERVED | {name: version(name, 1) for name, (place, _) in CELLS.items() if place == "migration"}
globals().update({name.replace("-", "_"): flow for name, flow in SERVED.items()})


def play(folder: Path, workers: int, expected: dict[str, list[str]]) -> tuple[dict[str, list[str]], list[int | None]]:
    """Start these runs; answer why a person is called for each, and how the workers ended (None: they live).

    Returns once all is as expected, or the execution budget is over.
    """
    url = f"sqlite:{folder / 'outlast.db'}"
    served = [hire(folder / f"worker-{n}.log", url) for n in range(workers)]
    with asyncio.Runner() as loop:
        store = loop.run(open_store(url))
        ops = Operations(store, tenant="default", actor=Actor("test"), workflows=STARTED)
        try:
            loop.run(start(ops, expected))
            give_up = time.monotonic() + BUDGET_S
            while (found := loop.run(reasons(ops, expected))) != expected and time.monotonic() < give_up:
                time.sleep(0.1)
            return found, [worker.poll() for worker in served]
        finally:
            for worker in served:
                worker.kill()
                worker.wait()
            loop.run(store.close())


def hire(log: Path, url: str) -> "subprocess.Popen[bytes]":
    command = ["outlast", "--store", url, "worker", "tests.e2e.raising", "--concurrency", "4", *QUICK]
    with log.open("wb") as out:
        return forked.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)


async def start(ops: Operations, names: Iterable[str]) -> None:
    for name in names:
        await ops.start_run(name, {}, run_id=name, key=name)


async def reasons(ops: Operations, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the attention reason or the end of each run."""
    rows = [await ops.rows.run(name) for name in names]
    return {r.run: [a.reason.value for a in r.attention] or ([r.status.value] if is_over(r) else []) for r in rows}


def main() -> int:
    wrong = 0
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            found, ended = play(Path(folder), workers, EXPECTED)
        missed = {name: (found[name], reasons) for name, reasons in EXPECTED.items() if found[name] != reasons}
        sys.stdout.write(f"{workers} worker(s): {len(found)} runs, {len(missed)} not as expected, workers {ended}\n")
        for name, (got, wanted) in missed.items():
            sys.stdout.write(f"  {name}: {got or 'nothing'} in place of {wanted}\n")
        wrong += len(missed) + len([code for code in ended if code is not None])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Record a calm run and three crashed ones of each example: `python -m tests.recorded [NAME …]`.

Each run is one of real processes. A process is killed at a crash point that is drawn, and others carry the run on.
The recordings are files beside this module. `test_recorded_examples.py` plays them.
"""

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from examples.acquisition import office as acquisition_office
from examples.acquisition.workflow import acquisition
from examples.desk import office as desk_office
from examples.desk.workflow import desk
from examples.researcher.workflow import research
from outlast.core.approvals import Actor
from outlast.flow.workflow import Workflow
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.testing.answers import approve_all, no_answer
from outlast.testing.campaign import CrashOptions, _Campaign
from outlast.testing.crash_runs import crash_at, recover, run_reference
from outlast.testing.crash_values import RUN_ID, TENANT, ScenarioState
from outlast.testing.driver import Driver
from outlast.testing.fork_server import fork_server
from outlast.testing.loading import code_of
from outlast.testing.recorded_runs import RecordedPlay
from outlast.upkeep.recording import recording_of, without_secrets
from tests.crash.market_server import market_server
from tests.crash.scenarios import CODE, auction_scenario, calm, refund_scenario, trip_scenario
from tests.examples.researching import QUESTION
from tests.examples.test_acquisition import LEAD
from tests.examples.test_desk import TASK
from tests.recorded.examples import FOLDER, WORKFLOWS, ready

CRASHES = 3
ENTRIES = 4
"""Entries of each topic of the researcher's site."""
TRIES = 20


@contextlib.contextmanager
def _scenario(name: str) -> Iterator[Driver]:
    """Yield the driver of an example whose receivers are those of `scripts/crash`."""
    with fork_server(CODE) as forking, contextlib.ExitStack() as stack:
        match name:
            case "trip":
                yield Driver(forking, trip_scenario())
            case "refund":
                yield Driver(forking, refund_scenario())
            case _:
                yield Driver(forking, auction_scenario(stack.enter_context(market_server(calm())), 2))


@contextlib.contextmanager
def _campaign(workflow: Workflow[Any], given: dict[str, Any], receivers: Any, decide: Any) -> Iterator[Driver]:
    """Yield the driver of a crash test with fake receivers."""
    options = CrashOptions(workflow, given, decide, receivers)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        code = code_of(workflow, ready.__module__)
        yield _Campaign(options, code, lambda end: None, Path(folder))._driver(stack)


@contextlib.contextmanager
def _researcher() -> Iterator[Driver]:
    """Yield the driver of the researcher, on a small site with a model that answers at once."""
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "examples.researcher.world", "--record", f"{folder}/world.jsonl")
        small = ("--entries", f"{ENTRIES}", "--thinks", "0")
        with subprocess.Popen([*command, *small], stdout=subprocess.PIPE, text=True) as world:
            try:
                assert world.stdout is not None
                facts = json.loads(world.stdout.readline())
                os.environ.update(OUTLAST_MODEL="chat:planner", OUTLAST_MODEL_URL=facts["model"])
                with _campaign(research, {"site": facts["url"], "question": QUESTION}, None, no_answer) as driver:
                    yield driver
            finally:
                world.kill()


DRIVERS: dict[str, Callable[[], contextlib.AbstractContextManager[Driver]]] = {
    "trip": lambda: _scenario("trip"),
    "refund": lambda: _scenario("refund"),
    "negotiation": lambda: _scenario("negotiation"),
    "desk": lambda: _campaign(desk, TASK, desk_office.office(), approve_all),
    "acquisition": lambda: _campaign(acquisition, LEAD, acquisition_office.office(), approve_all),
    "researcher": _researcher,
}


async def _write(name: str, state: ScenarioState, file: Path) -> None:
    """Write the recording of an ended scenario."""
    store = await open_store(f"sqlite:{state.db}", use="read")
    try:
        ops = Operations(store, tenant=TENANT, actor=Actor("ann"), workflows={})
        recording = await recording_of(ops, RUN_ID)
    finally:
        await store.close()
    await asyncio.to_thread(_play, name, recording, file)


def _play(name: str, recording: Any, file: Path) -> None:
    with RecordedPlay(WORKFLOWS[name], recording) as play:
        difference = play.run()
    say(f"{file.name}: {len(recording.calls)} calls, {difference or 'plays as recorded'}")
    known = play.arguments if file.stem.endswith("calm") else {}
    file.write_text(without_secrets(recording.with_arguments(known)).dump(), encoding="utf-8")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def record(name: str, seed: int = 34) -> None:
    """Record a calm run of an example, and `CRASHES` runs with a crash."""
    dice = random.Random(f"{seed} {name}")
    with tempfile.TemporaryDirectory(prefix="outlast-recorded-") as home, DRIVERS[name]() as driver:
        reference = run_reference(driver, Path(home) / "calm")
        asyncio.run(_write(name, reference.last, FOLDER / f"{name}-calm.json"))
        made = 0
        for n, case in enumerate(dice.sample(reference.cases, TRIES)):
            ended: list[ScenarioState] = []
            driver.resolved = []
            state = crash_at(driver, case, Path(home) / f"crash-{n}")
            recover(driver, state, reference, judge=lambda left, seen, ended=ended: ended.append(left))
            if driver.next(state) is None:
                made += 1
                say(f"  crashed: {case.name}")
                asyncio.run(_write(name, state, FOLDER / f"{name}-crashed-{made}.json"))
            if made == CRASHES:
                return


def main() -> None:
    """Record the examples that the command line names, or all."""
    ready(lambda name, value: os.environ.__setitem__(name, value))
    for name in sys.argv[1:] or DRIVERS:
        record(name)


if __name__ == "__main__":
    main()

"""Parents and children on a real Temporal server, on LangGraph and on the engine itself, in real processes."""

import signal
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from outlast import Workflow
from outlast.core.rows.run_rows import Run
from tests.e2e.helpers import GIVE_UP_S, Receiver, when
from tests.temporal.families import asks, hears
from tests.temporal.office import Office
from tests.temporal.server import TemporalServer

ENGINES = ("outlast", "temporal", "langgraph")


class Family(Office):
    """A store with a worker of each engine."""

    code: ClassVar[tuple[Workflow[Any], ...]] = (asks, hears)

    @override
    def serve(self, version: int = 1, runtime: str = "temporal") -> Any:
        return self.hire("--runtime", runtime, module="tests.temporal.families", **self.temporal.environment)

    def begin(self, run: str, of_parent: str, of_child: str) -> None:
        """Start a parent on an engine, whose child is of another one."""
        given = {"engine": of_child}
        self.do(lambda ops: ops.start_run("family_parent", given, run_id=run, key=run, scheduler=of_parent))

    def say(self, run: str) -> None:
        """Send the word for which a child waits."""
        self.do(lambda ops: ops.signal(run, "word", {"text": "hello"}))

    def outcome(self, run: str) -> object:
        return self.do(lambda ops: ops.run(run)).outcome

    def child(self, parent: str) -> Run | None:
        """Return the child of a run once it waits for its word."""
        found = self.do(lambda ops: ops.tree(parent)).children
        waits = [each.run for each in found if each.waiting_text == "signal word"]
        return self.run(waits[0]) if waits else None


@pytest.fixture
def family(tmp_path: Path, temporal: TemporalServer) -> Iterator[Family]:
    receiver = Receiver()
    opened = Family(tmp_path, receiver, temporal)
    try:
        yield opened
    finally:
        opened.close()
        receiver.close()


@pytest.mark.req("RUN-13", "RT-4")
def test_the_end_of_a_child_wakes_a_parent_of_another_engine_after_a_crash(family: Family) -> None:
    """Nine pairs of engines. All workers are killed while the parents wait, and the children end on new ones."""
    pairs = {f"{of_parent}-{of_child}": (of_parent, of_child) for of_parent, of_child in product(ENGINES, ENGINES)}
    first = [family.serve(runtime=engine) for engine in ENGINES]
    for run, (of_parent, of_child) in pairs.items():
        family.begin(run, of_parent, of_child)
    children = {run: when(partial(family.child, run), family.said) for run in pairs}
    assert {run: child.scheduler for run, child in children.items()} == {run: of for run, (_, of) in pairs.items()}
    for worker in first:
        worker.send_signal(signal.SIGKILL)
    assert [worker.wait(GIVE_UP_S) for worker in first] == [-signal.SIGKILL] * len(ENGINES)
    for engine in ENGINES:
        family.serve(runtime=engine)
    for child in children.values():
        family.say(child.run)
    family.until_over(*pairs)
    assert {run: family.outcome(run) for run in pairs} == dict.fromkeys(pairs, "hello")
    for child in children.values():
        assert [n for key, n in family.receiver.seen.items() if f":{child.run}:" in key] == [1, 1]

"""Real worker processes of two versions on one file: a deploy in the middle of a wait."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.core.rows.run_rows import Run, is_over
from outlast.runtime.operations import Operations
from tests import forked
from tests.deploys import letters_v1
from tests.e2e.helpers import GIVE_UP_S, ROOT, SHORT, Installation, Receiver, when

BOTH = ("tests.deploys.letters_v1", "tests.deploys.letters_v2")


class Fleet(Installation):
    """A store with worker processes of either version."""

    def deploy(self, module: str) -> "subprocess.Popen[bytes]":
        command = ["outlast", "--store", self.url, "worker", module, *SHORT]
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            env = {**os.environ, "RECEIVER": self.receiver.url, "PYTHONPATH": f"{ROOT}"}
            worker = forked.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env)
        self.workers.append(worker)
        return worker

    def begin(self, *runs: str) -> None:
        async def act(ops: Operations) -> None:
            bound = Operations(ops.store, tenant=ops.tenant, actor=ops.actor, workflows={"letters": letters_v1.letters})
            for run in runs:
                await bound.start_run("letters", {}, run_id=run, key=run)

        self.do(act)

    def go(self, run: str) -> None:
        self.do(lambda ops: ops.signal(run, "go", {}))

    def waits(self, run: str) -> bool:
        row: Run = self.run(run)
        return not row.owner and [w.kind for w in row.waiting_for] == ["signal"]

    def says(self, *words: str) -> "subprocess.CompletedProcess[str]":
        env = {**os.environ, "PYTHONPATH": f"{ROOT}"}
        return forked.run("outlast", "--store", self.url, *words, cwd=ROOT, env=env, capture_output=True, text=True)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    receiver = Receiver()
    held = Fleet(tmp_path, receiver)
    try:
        yield held
    finally:
        held.close()
        receiver.close()


@pytest.mark.req("RUN-8")
def test_a_deploy_in_the_middle_of_a_wait(fleet: Fleet) -> None:
    """Versions N and N-1 serve side by side, each its own runs.

    Once N-1 has stopped, the waiting run moves to N in the same visit, and its letter is not sent again.
    """
    old = fleet.deploy(BOTH[0])
    fleet.begin("r1", "r2")
    when(lambda: fleet.waits("r1") and fleet.waits("r2"), fleet.said)
    assert fleet.says("check", BOTH[1], "--against", fleet.url).returncode == 0
    fleet.deploy(BOTH[1])
    when(lambda: "letters@2" in fleet.do(lambda ops: ops.rows.serving()), fleet.said)
    fleet.go("r1")
    when(lambda: is_over(fleet.run("r1")), fleet.said)
    assert fleet.run("r1").lane == "letters@1", "a live worker of its version keeps it"
    old.send_signal(signal.SIGTERM)
    old.wait(GIVE_UP_S)
    fleet.go("r2")
    when(lambda: is_over(fleet.run("r2")), fleet.said)
    row = fleet.run("r2")
    moved = [e for e in fleet.history("r2") if e.type.endswith(".moved")]
    assert (row.lane, row.node, row.visit, len(moved)) == ("letters@2", "close", 2, 1)
    assert moved[0].visit == 1 and json.loads(moved[0].snapshot or b"")["team"] == "blue"
    assert json.loads(fleet.history("r2")[-1].body)["data"]["outcome"]["team"] == "blue"
    assert all(n == 1 for n in fleet.receiver.seen.values()) and len(fleet.receiver.seen) == 2


@pytest.mark.req("RUN-8")
@pytest.mark.req("TEST-3")
def test_a_roll_back_strands_a_run_until_a_person_moves_it(fleet: Fleet) -> None:
    """Version 2 cannot go back to 1: the check reports it, the run needs a person, and only a move to a fitting node
    works.
    """
    new = fleet.deploy(BOTH[1])
    fleet.begin("r1")  # as a client of version 1 would: a worker of 2 takes it over by its migration
    when(lambda: fleet.run("r1").lane == "letters@2" and fleet.waits("r1"), fleet.said)
    said = fleet.says("check", BOTH[0], "--against", fleet.url)
    assert (said.returncode, said.stderr.count("OUT-210")) == (1, 2), said
    assert "1 run will NOT continue with this code: r1" in said.stderr
    new.send_signal(signal.SIGTERM)
    new.wait(GIVE_UP_S)
    fleet.deploy(BOTH[0])
    when(lambda: "letters@1" in fleet.do(lambda ops: ops.rows.serving()), fleet.said)
    fleet.go("r1")
    listed = fleet.says("runs", "ls")
    assert "no worker serves letters@2 (1)" in listed.stderr, "at once, before any worker has looked"
    when(lambda: [a.reason.value for a in fleet.run("r1").attention] == ["stranded_version"], fleet.said)
    row = fleet.run("r1")
    assert (row.lane, row.node, row.visit) == ("letters@2", "post", 1)

    def move(node: str) -> Any:
        return fleet.do(lambda ops: ops.move_runs("letters", 1, ["r1"], node=node, reason="rolled back"))

    assert move("nowhere").done == ("r1",)
    when(
        lambda: (
            "no node nowhere" in fleet.run("r1").attention_text or "no field for team" in fleet.run("r1").attention_text
        ),
        fleet.said,
    )
    assert fleet.run("r1").lane == "letters@2", (
        "its team would be lost: version 1 has no field for it, and no migration"
    )
    assert fleet.says("versions", "ls").stdout.count("letters") >= 2
    assert all(n == 1 for n in fleet.receiver.seen.values())

"""A run has one connected trace across kills and decisions: the parent of every span is part of it."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import forked

pytestmark = pytest.mark.req("OBS-1")
ROOT = Path(__file__).parents[2]
LIVES = {"heartbeat-every": "300ms", "heartbeat-window": "1s"}


class House:
    """A store in a file, workers as processes, and the spans that all of them wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            **os.environ,
            "SPANS": str(folder),
            "OUTLAST_STORE": f"sqlite:{folder / 'outlast.db'}",
            "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("src", ".")),
        }

    def outlast(self, *args: str) -> str:
        done = forked.run("outlast", *args, env=self.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def worker(self) -> "subprocess.Popen[str]":
        command = ["outlast", "worker", "tests.telemetry.flows"]
        for name, value in LIVES.items():
            command += [f"--{name}", value]
        with (self.folder / "worker.txt").open("a") as out:
            return forked.Popen(command, env=self.env, stdout=out, stderr=out, text=True)

    def spans(self) -> list[dict[str, Any]]:
        path = self.folder / "spans.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end, (self.folder / "worker.txt").read_text()
            time.sleep(0.1)


def test_one_trace_from_start_to_award_across_a_kill_and_an_approval(tmp_path: Path) -> None:
    house = House(tmp_path)
    (tmp_path / "die").touch()
    house.outlast("run", "tests.telemetry.flows:purchase", "item=bolts", "--id", "r1")
    first = house.worker()
    second = None
    try:
        assert first.wait(60) == -9
        second = house.worker()
        house.until(lambda: any(s["name"] == "workflow.checkpoint" for s in house.spans()))
        house.until(lambda: "pending" in house.outlast("approvals", "ls", "-o", "json"))
        (approval,) = json.loads(house.outlast("approvals", "ls", "-o", "json"))["approvals"]
        house.until(lambda: any(s["name"] == "interrupt.requested" for s in house.spans()))
        assert not any(s["name"] == "interrupt.waiting" for s in house.spans()), "the person is still waited for"
        house.outlast("approvals", "approve", approval["approval"], "--role", "boss", "--reason", "good")
        house.until(lambda: any(s["name"] == "workflow.end" for s in house.spans()))
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()
    spans = house.spans()
    ids = {s["context"]["span_id"] for s in spans}
    assert len({s["context"]["trace_id"] for s in spans}) == 1
    assert len(ids) == len(spans), "no id twice"
    (root,) = [s for s in spans if s["parent_id"] is None]
    assert root["name"] == "workflow.start"
    assert [s["name"] for s in spans if s["parent_id"] is not None and s["parent_id"] not in ids] == []
    names = [s["name"] for s in spans]
    assert names.count("workflow.start") == names.count("workflow.end") == names.count("interrupt.waiting") == 1
    assert names.count("workflow.checkpoint") == 2
    assert {"activity.ask_model", "activity.retry", "activity.place_order"} <= set(names)
    (retry,) = [s for s in spans if s["name"] == "activity.retry"]
    assert retry["attributes"]["outlast.activity"] == "reserve" and retry["attributes"]["outlast.attempt"] == 2
    (wait,) = [s for s in spans if s["name"] == "interrupt.waiting"]
    (asked,) = [s for s in spans if s["name"] == "interrupt.requested"]
    assert asked["start_time"] == asked["end_time"] == wait["start_time"] and asked["parent_id"] == wait["parent_id"]
    assert asked["attributes"]["outlast.wait"] == wait["attributes"]["outlast.wait"]
    assert wait["start_time"] < wait["end_time"] and wait["attributes"]["decision"] == "approved"
    (model,) = [s for s in spans if s["name"] == "activity.ask_model"]
    assert model["attributes"]["gen_ai.operation.name"] == "chat"

"""`outlast runs ls --watch` and `outlast runs results --follow`, over a store and over a service."""

import asyncio
import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime
from typing import Any, cast

import pytest

from outlast.cli import watch
from outlast.cli.global_options import CliSettings
from outlast.cli.screen import Screen
from outlast.core.rows.run_rows import is_over
from outlast.models import exact_instant
from outlast.models.runs import RunList, RunListItem
from outlast.runtime.client import Client
from tests.cli.conftest import PATIENCE_S, Terminal, waits_for
from tests.cli.test_remote import serve


def lines_of(process: "subprocess.Popen[str]") -> Iterator[str]:
    assert process.stdout is not None
    return iter(process.stdout.readline, "")


def stopped(process: "subprocess.Popen[str]") -> str:
    """Interrupt a command, and return its remaining output."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and "Traceback" not in err, err
    return out


@pytest.mark.parametrize("place", ["store", "service"])
def test_each_change_is_one_line_for_programs(outlast: Terminal, place: str) -> None:
    outlast.start(run="r1")
    env = {"OUTLAST_URL": serve(outlast)} if place == "service" else {}
    watching = outlast.spawn("runs", "ls", "--watch", "-o", "ndjson", "--workflow", "refund", **env)
    lines = (json.loads(line) for line in lines_of(watching))
    assert next(lines)["run"] == "r1"
    outlast.start(run="r2")
    if place == "store":
        assert next(lines)["run"] == "r2"
        outlast.serve("r2", waits_for("approval"))
    assert any(run["run"] == "r2" and run["shown"] == "PENDING_APPROVAL" for run in lines)
    stopped(watching)


def test_in_a_pipe_each_change_is_a_new_table(outlast: Terminal) -> None:
    watching = outlast.spawn("runs", "ls", "--watch", "-q")
    outlast.start(run="r1")
    lines = lines_of(watching)
    assert "r1" in next(line for line in lines if line.split()[:1] == ["r1"])
    outlast.start(run="r2")
    assert [next(lines).split()[:1] for _ in range(4)] == [[], ["RUN"], ["r2"], ["r1"]]
    assert stopped(watching) == ""


def test_an_empty_list_is_watched_too(outlast: Terminal) -> None:
    outlast.start(run="r1")
    watching = outlast.spawn("runs", "ls", "--watch", "--status", "completed", "-o", "json")
    lines = lines_of(watching)
    assert json.loads(next(lines)) == {"runs": [], "cursor": ""}
    outlast("approvals", "approve", outlast.approval(), "--reason", "fine")
    outlast.serve("r1", is_over)
    assert [run["shown"] for run in json.loads(next(lines))["runs"]] == ["COMPLETED"]
    stopped(watching)


def test_a_terminal_shows_the_list_as_it_is_now(outlast: Terminal) -> None:
    outlast.start(run="r1")
    ours, theirs = pty.openpty()
    watching = outlast.spawn("runs", "ls", "--watch", to=theirs, TERM="xterm", COLUMNS="160")
    os.close(theirs)
    seen = b""
    while b"QUEUED" not in seen:
        seen += os.read(ours, 65_536)
    outlast.approval()
    while b"PENDING_APPROVAL" not in seen:
        seen += os.read(ours, 65_536)
    watching.send_signal(signal.SIGINT)
    assert watching.wait(PATIENCE_S) == 130
    os.close(ours)
    assert b"\x1b[1A" in seen, "the former table is replaced"


class Clock:
    """Client of which only the time is asked."""

    def __init__(self) -> None:
        self.ms = 0

    async def now(self) -> datetime:
        self.ms += 60_000
        return exact_instant(self.ms)


def test_an_unchanged_list_is_not_printed_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.0)
    one, other = (RunListItem.model_construct(run=name) for name in ("r1", "r2"))
    pages = iter([[one], [one], [one, other], [one, other], [other], [other, one]])

    async def read() -> RunList:
        return RunList.model_construct(runs=next(pages), next_cursor="")

    def follow(output: str) -> list[Any]:
        screen = Screen(CliSettings(output=output), 0)
        with pytest.raises(RuntimeError, match="StopIteration"):
            asyncio.run(watch.watch_runs(cast("Client", Clock()), screen, read, lambda _: ([], [], [])))
        assert screen.now_ms == 6 * 60_000, "elapsed times are those of the moment"
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [run["run"] for run in follow("ndjson")] == ["r1", "r2", "r1"]
    pages = iter([[one], [one], [one, other], [one, other], [other], [other, one]])
    assert [[run["run"] for run in each["runs"]] for each in follow("json")] == [
        ["r1"], ["r1", "r2"], ["r2"], ["r2", "r1"]
    ]  # fmt: skip

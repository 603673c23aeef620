"""The command line on a store in a temporary folder, with workers in this process or in child processes."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from outlast.cli import cli
from outlast.cli.modules import load_workflows
from outlast.core.durations import Liveness
from outlast.core.rows.run_rows import Run
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.stores import open_store, until
from tests import forked

MODULE = str(Path(__file__).with_name("refunds.py"))
PATIENCE_S = 60.0
# Liveness of workers in the process of the test: a dead one is replaced within a second.
SHORT = Liveness(
    heartbeat_window=900,
    heartbeat_every=300,
    attempt_timeout=2_000,
    start_budget=1_000,
    settle_margin=100,
    drain_grace=5_000,
)
# Of worker processes, which a loaded machine may stop for a second.
SHORT_OPTIONS = (
    "--heartbeat-window", "3s", "--attempt-timeout", "20s", "--start-budget", "1s", "--settle-margin", "100ms",
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """Output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Parse the output as JSON."""
        return json.loads(self.out)

    def row(self, first: str) -> str:
        """The line of a table that begins with this cell."""
        (line,) = [line for line in self.out.splitlines() if line.split()[:1] == [first]]
        return " ".join(line.split())


@dataclass
class Terminal:
    """A person's terminal in one folder, on one store."""

    folder: Path
    module: str = MODULE
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The store of this terminal."""
        return f"sqlite:{self.folder / 'refunds.db'}"

    def __call__(self, *args: str, stdin: str | bytes | None = None, env: dict[str, str] | None = None) -> Answer:
        """Run one command in this process."""
        given = {"OUTLAST_STORE": self.url, "OUTLAST_MODULE": self.module, **(env or {})}
        result = CliRunner().invoke(cli, list(args), input=stdin, env=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def start(self, order_id: str = "A-17", cents: int = 4200, run: str = "r1", **env: str) -> str:
        """A run of the refund."""
        answer = self("-q", "run", "refund", f"order_id={order_id}", f"cents={cents}", "--id", run)
        assert answer.code == 0, answer
        return answer.out.strip()

    def serve(self, run: str, enough: Callable[[Run], bool]) -> None:
        """Let a worker of this process serve the store until the run's row is as wanted."""
        asyncio.run(self._serve(run, enough))

    async def _serve(self, run: str, enough: Callable[[Run], bool]) -> None:
        store = await open_store(self.url)
        try:
            async with InProcessRuntime(store, load_workflows(self.module), live=SHORT) as runtime:

                async def look() -> bool | None:
                    row = await runtime.operations.rows.run(run)
                    return True if enough(row) else None

                assert await until(store, look, within_s=PATIENCE_S), await runtime.get(run)
        finally:
            await store.close()

    def approval(self, run: str = "r1") -> str:
        """The id of the approval this run waits for, after a worker has brought it there."""
        self.serve(run, waits_for("approval"))
        (one,) = [each for each in self("-o", "json", "approvals", "ls").json["approvals"] if each["run"] == run]
        return str(one["approval"])

    def spawn(self, *args: str, to: int = subprocess.PIPE, **env: str) -> "subprocess.Popen[str]":
        """Start a command in a child process. `to`: file for its standard output."""
        process = forked.Popen(
            ["outlast", *args],
            env={**os.environ, "OUTLAST_STORE": self.url, "OUTLAST_MODULE": self.module, **env},
            cwd=self.folder, stdout=to, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def worker(self, *args: str, **env: str) -> "subprocess.Popen[str]":
        """Start a worker in a child process and return once it serves."""
        process = self.spawn("-o", "ndjson", "worker", self.module, *SHORT_OPTIONS, *args, **env)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        return process

    def see(self, run: str = "r1") -> Any:
        """All there is to know of a run."""
        return self("-o", "json", "runs", "show", run).json


def waits_for(kind: str) -> Callable[[Run], bool]:
    """Does a run's row wait for this kind of thing?"""
    return lambda row: f'"kind":"{kind}"' in row.waiting_for_text


def eventually(true: Callable[[], Any]) -> Any:
    """Look until it is so; fail after a time in which it must have become so."""
    end = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.02)
    return found


@pytest.fixture(autouse=True)
def as_a_new_process(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget the modules that a test imports by its commands: the next test may have others of the same names."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    earlier = {*sys.modules}
    yield
    for name in {*sys.modules} - earlier:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path_factory.getbasetemp()):
            del sys.modules[name]


@pytest.fixture
def outlast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal in an empty folder; its processes are ended afterwards."""
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(tmp_path)
    yield terminal
    for process in terminal.processes:
        if process.poll() is None:
            process.kill()
        try:
            said = [str(process.args), *(text or "" for text in process.communicate()), str(process.returncode)]
            sys.stdout.write("\n".join(said))  # shown by pytest if the test fails
        except ValueError:
            pass  # its pipes were read to the end and closed by the test

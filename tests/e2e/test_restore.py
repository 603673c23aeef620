"""A backup, lost time with real calls, a kill, a restore: no receiver sees an effect twice without a decision (I42)."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.e2e.helpers import ROOT, SHORT, Receiver, when

MODES = ("ask", "reconcile", "repeat")


class Site:
    """One store's file, the receiver of its letters, and a worker process on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "outlast.db"
        self.receiver = Receiver()
        self.worker: subprocess.Popen[bytes] | None = None

    def __call__(self, *args: str, code: int = 0) -> Any:
        """Run a command in a child process and return its JSON."""
        done = forked.run(*self._line(*args), cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == code, (args, done.stdout, done.stderr)
        return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout

    def _line(self, *args: str) -> list[str]:
        return ["outlast", "--store", f"sqlite:{self.file}", "-o", "json", *args]

    def serve(self) -> None:
        env = {**os.environ, "RECEIVER": self.receiver.url, "PYTHONPATH": f"{ROOT}"}
        with (self.folder / "worker.log").open("ab") as log:
            line = self._line("worker", "tests.e2e.restored", *SHORT)
            self.worker = forked.Popen(line, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env)

    def kill(self) -> None:
        if self.worker is not None:
            self.worker.send_signal(signal.SIGKILL)
            self.worker.wait()
            self.worker = None

    def see(self, run: str) -> Any:
        return self("runs", "show", run)

    def until(self, holds: Callable[[], Any]) -> Any:
        return when(holds, lambda: (self.folder / "worker.log").read_text()[-2_000:])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.kill()
    site.receiver.close()


def waits(site: Site, run: str) -> bool:
    return any(w["kind"] == "signal" for w in site.see(run)["waiting_for"])


@pytest.mark.req("TEST-4", "EFF-2", "EFF-3")
def test_a_restored_backup_repeats_nothing_without_a_decision(site: Site) -> None:
    for mode in MODES:
        site("run", "tests.e2e.restored:restored", f"mode={mode}", "--id", mode)
    site.serve()
    for mode in MODES:
        site.until(lambda mode=mode: waits(site, mode))  # type: ignore[misc]
    made = site("backup", f"{site.folder / 'copy.db'}")
    assert (made["runs"], made["violations"]) == (3, [])

    for mode in MODES:  # the time that will be lost: every letter goes out, and its answer is recorded
        site("signal", mode, "word")
    for mode in MODES:
        site.until(lambda mode=mode: site.see(mode)["status"] == "completed")  # type: ignore[misc]
    site.kill()
    out = {f"default:{mode}:1:{mode}": 1 for mode in MODES}
    assert dict(site.receiver.seen) == out

    for end in ("", "-wal", "-shm"):
        Path(f"{site.file}{end}").unlink(missing_ok=True)
    shutil.copy(site.folder / "copy.db", site.file)
    recovered = site("recover", "--after-restore", "--yes")
    assert (recovered["generation"], recovered["runs"]) == (2, 3)
    site.serve()
    site("attention", "resolve", "--all", "restored", "continue", "--reason", "the receiver was looked at", "--yes")
    for mode in MODES:
        site("signal", mode, "word")

    site.until(lambda: site.see("reconcile")["status"] == "completed")
    site.until(lambda: site.see("repeat")["status"] == "completed")
    asked = site.until(lambda: [a["reason"] for a in site.see("ask")["attention"]])
    assert asked == ["effect_uncertain"]
    repeated = "default:repeat:1:repeat"  # under the key by which its receiver knows that it did it
    assert dict(site.receiver.seen) == {**out, repeated: 2}
    site("effects", "resolve", "ask", "ask", "--happened", "L-1", "--response", '"took it"', "--reason", "they have it")
    site.until(lambda: site.see("ask")["status"] == "completed")
    assert dict(site.receiver.seen) == {**out, repeated: 2}
    site.kill()
    assert site("fsck", "--chain")["violations"] == []

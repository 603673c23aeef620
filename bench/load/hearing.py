"""The process of the listeners as the measurement uses it: open, check, close."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.load.place import Target
from bench.load.stack import Service


class Audience:
    """A number of listeners."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def reset(self) -> None:
        """Measure delays from now on."""
        self._ask("reset")

    def check(self, path: Path) -> dict[str, Any]:
        """Return the events received, once all have arrived, or the missing ones after a minute and a half."""
        return self._ask(f"check {path}")

    def _ask(self, words: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the listeners have ended: {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def listening(folder: Path, service: Service, runs: Sequence[Sequence[str]]) -> Iterator[Audience]:
    """Run listeners in another process for this block, with every stream open."""
    config = folder / "listeners.json"
    since = time.time_ns() // 1_000_000
    config.write_text(json.dumps({"url": service.url, "token": service.viewer, "runs": runs, "since": since}))
    command = [sys.executable, "-m", "bench.load.listeners", str(config)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            sys.exit(f"the listeners have ended: {process.wait()}")
        yield Audience(process)
    finally:
        process.communicate()


def shared_out(targets: Sequence[Target], one: int, everything: int) -> list[list[str]]:
    """Return `one` listeners of single runs, each of several in turn, and `everything` listeners of all runs."""
    most = 6
    runs = [[t.run for t in targets[at::one]] for at in range(min(one, len(targets)))]
    return [each[:: max(1, len(each) // most)] for each in runs] + [[] for _ in range(everything)]

"""Values of crash tests, and the hook that kills a process at a crash point.

A run under test is carried out by a sequence of processes. Between two of them its whole state is on disk.
"""

import json
import os
import re
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

T0: Final = 1_772_442_000_000
"""The time at which every scenario starts: 2026-03-02T09:00:00Z."""
TENANT: Final = "acme"
RUN_ID: Final = "r1"
OUTSIDE: Final = frozenset({"call:flight", "call:inside", "call:asked"})
"""Crash points that are observed outside the process: a request arrived, was executed, or asks for an earlier one."""


class CrashPoint(NamedTuple):
    """A place where a process can be killed: a named point, the label of its commit or call, and the n-th visit.

    `act`: "kill" or "stop" the process there, or "lose" the request that it sends.
    """

    name: str
    label: str
    nth: int
    act: str = "kill"

    @property
    def where(self) -> tuple[str, str, int]:
        """Return the place without the action that is taken there."""
        return self.name, self.label, self.nth


class Action(NamedTuple):
    """The next thing to do in a scenario, not before the time `at`."""

    do: str
    args: Mapping[str, Any] = MappingProxyType({})
    at: int = 0


class ProcessResult(NamedTuple):
    """The end of one process: its exit status, the crash points it passed, and its answer."""

    action: Action
    died: int
    stopped: bool
    seen: list[CrashPoint]
    answer: Any


class CheckFailed(AssertionError):
    """A process ended in an unexpected way, or a scenario does not reach its end."""


class PointNotReached(CheckFailed):
    """A process ended before it reached its crash point."""


@dataclass
class ScenarioState:
    """A scenario between two processes: its files, the time, and the number of processes so far."""

    folder: Path
    at: int = T0
    processes: int = 0

    @property
    def db(self) -> Path:
        """Path of the store's database file."""
        return self.folder / "s.db"

    @property
    def receivers(self) -> Path:
        """Path of the receivers' record."""
        return self.folder / "receivers"

    @property
    def output(self) -> Path:
        """Path of the output and logs of the scenario's processes."""
        return self.folder / "output.txt"

    def copy(self, to: Path) -> "ScenarioState":
        """Copy the scenario into another folder."""
        to.mkdir(parents=True)
        for file in self.folder.iterdir():
            if file.is_file() and not file.name.endswith(("-shm", ".lock", ".gate")):
                shutil.copyfile(file, to / file.name)
        return replace(self, folder=to)


WORKER: Final = re.compile(r"\b(?:w|s)-\d+\b")  # ids differ between processes, the crash point does not


class CrashHook:
    """The hook of `outlast.core.crash_points` that counts crash points, and kills or stops the process at one of them.

    The points are written to a report that outlives the process, the place of the kill included. The parent uses it
    to check that the process died at that place.
    """

    def __init__(self, point: dict[str, Any] | None, report: int) -> None:
        self.seen: list[tuple[str, str, int]] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._point = (point["name"], point["label"], point["nth"]) if point else None
        self._act = point["act"] if point else ""
        self._report = report
        self._claims: list[str] = []

    def __call__(self, point: str, labels: Sequence[str] = ()) -> None:
        names = [label for label in labels if label != "take"]
        if point == "store.batch:before":
            self._claims = []
        elif point.startswith("store.batch"):
            names += self._claims
        for name in names or ([""] if not labels else []):
            self.reached(point, WORKER.sub("worker", name))

    def claiming(self, label: str) -> None:
        """Report the label of a claim. `take` chooses its run inside the batch, so the label is not known earlier."""
        self.reached("store.batch:before", label)
        self._claims.append(label)

    def reached(self, point: str, label: str) -> None:
        """Count a crash point. Kills or stops the process if it is the chosen one."""
        self._counts[point, label] += 1
        here = (point, label, self._counts[point, label])
        self.seen.append(here)
        if here != self._point:
            return
        os.pwrite(self._report, json.dumps({"at": here}).encode(), 0)
        if self._act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

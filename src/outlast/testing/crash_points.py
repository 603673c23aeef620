"""What a crash is made of: a cell (where a process dies), an action (what a process was born for), a life, a state.

A run under test is a sequence of lives, each a process of its own. Between two of them everything is on disk.
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
"""2026-03-02T09:00:00Z: when every story begins."""
TENANT: Final = "acme"
RUN_ID: Final = "r1"


class CrashPoint(NamedTuple):
    """A place in a life: the point, the run-verb-key it stands at, and which time it is reached there."""

    point: str
    label: str
    nth: int
    act: str = "kill"

    @property
    def where(self) -> tuple[str, str, int]:
        """The place alone, without what is done there."""
        return self.point, self.label, self.nth


class Action(NamedTuple):
    """What is done next, from when on."""

    do: str
    args: Mapping[str, Any] = MappingProxyType({})
    at: int = 0


class ProcessResult(NamedTuple):
    """How one life went."""

    action: Action
    died: int
    stopped: bool
    seen: list[CrashPoint]
    answer: Any


class CheckFailed(AssertionError):
    """A life ended as it must not, or a story does not come to its end."""


class PointNotReached(CheckFailed):
    """A cell did not fire: the life ended well before it came to it."""


@dataclass
class ScenarioState:
    """A story between two lives: its files, the time, how many lives it has had."""

    folder: Path
    at: int = T0
    lives: int = 0

    @property
    def db(self) -> Path:
        """The store."""
        return self.folder / "s.db"

    @property
    def receivers(self) -> Path:
        """What the receivers outside keeps of this story."""
        return self.folder / "receivers"

    @property
    def said(self) -> Path:
        """What the processes of this story printed and logged."""
        return self.folder / "said.txt"

    def copy(self, to: Path) -> "ScenarioState":
        """The same story in another folder."""
        to.mkdir(parents=True)
        for file in self.folder.iterdir():
            if file.is_file() and not file.name.endswith(("-shm", ".lock", ".gate")):
                shutil.copyfile(file, to / file.name)
        return replace(self, folder=to)


WORKER: Final = re.compile(r"\b(?:w|s)-\d+\b")  # ids differ from life to life, the place does not


class CrashHook:
    """Called at every named place of the engine, and by whoever watches the calls."""

    def __init__(self, cell: dict[str, Any] | None, report: int) -> None:
        self.seen: list[tuple[str, str, int]] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._cell = (cell["point"], cell["label"], cell["nth"]) if cell else None
        self._act = cell["act"] if cell else ""
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
        """A take is about to move a run: only now it has a label of its own."""
        self.reached("store.batch:before", label)
        self._claims.append(label)

    def reached(self, point: str, label: str) -> None:
        """This place was come by; where it is the cell, the process ends (or stops) here."""
        self._counts[point, label] += 1
        here = (point, label, self._counts[point, label])
        self.seen.append(here)
        if here != self._cell:
            return
        os.pwrite(self._report, json.dumps({"at": here}).encode(), 0)
        if self._act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

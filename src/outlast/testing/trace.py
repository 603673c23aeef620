"""The hook in a process that may be killed: counts the places it comes by, and ends or stops it at its cell.

What it saw is written to a report that outlives the process, the place of its death included: that is how the parent
knows that it died there and nowhere else.
"""

import json
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

WORKER: Final = re.compile(r"\b(?:w|s)-\d+\b")  # ids differ from life to life, the place does not


class Trace:
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

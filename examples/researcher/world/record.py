"""Record of the requests that the site, the model and the receiver got: one JSON line each."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Hit(NamedTuple):
    """One request and its answer. `status` 0: the connection was cut.

    `server` is "model", "receiver", or "site" with the port. `key` tells equal requests apart from others; `body` is
    the site that the model is asked about, or the headers and the body of a delivery.
    """

    server: str
    at: float
    answered_at: float
    method: str
    path: str
    status: int
    agent: str = ""
    key: str = ""
    body: Any = None


class Journal:
    """An append-only file. Each line is flushed, so that readers see it at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def add(self, hit: Hit) -> None:
        """Append one request."""
        self._file.write(json.dumps(hit) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file; later calls fail."""
        self._file.close()


def now() -> float:
    """Return the time of the record, in seconds."""
    return time.time()


def read(path: Path, server: str = "") -> list[Hit]:
    """Return the record in the order of the answers, of one server if it is named. A torn last line is left out."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    hits = [Hit(*json.loads(line)) for line in lines if line.endswith("]")]
    return [hit for hit in hits if not server or hit.server == server]


def busiest(hits: Sequence[Hit], seconds: float) -> int:
    """Return the largest number of requests that arrived within so many seconds."""
    times, most, first = sorted(hit.at for hit in hits), 0, 0
    for last, at in enumerate(times):
        while at - times[first] > seconds:
            first += 1
        most = max(most, last - first + 1)
    return most

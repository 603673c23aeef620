"""Receivers that record requests and executions in one file, each before it happens.

The file survives every process of a scenario. `attempt` is written when a request arrives, `executed` when the
receiver executes it. A receiver that deduplicates repeats its first answer to a second request with the same key.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = "CRASH_RECEIVERS"
"""The environment variable with the path of the record."""

Report = Callable[[str, str], None]
"""Called with (point, label) where a test may kill or stop the process: request in flight, request executed."""


def nowhere(place: str, label: str) -> None:
    """Ignore the crash point: nothing is killed."""


class _Places:
    reached: Report = staticmethod(nowhere)


places = _Places()


def entries(path: Path) -> list[dict[str, Any]]:
    """Return every line so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def executed(path: Path) -> Counter[str]:
    """Return how often each key was executed."""
    return Counter(e["key"] for e in entries(path) if e["what"] == "executed")


def answer_of(path: Path, key: str) -> str:
    """Return the receiver's answer for this key; empty if it never executed the call."""
    return next((e["answer"] for e in entries(path) if e["what"] == "executed" and e["key"] == key), "")


def receive(key: str, label: str, *, what: str, dedupes: bool) -> str:
    """Receive a request with a key, and execute it."""
    path = Path(os.environ[FILE])
    _append(path, {"what": "attempt", "key": key, "of": what})
    places.reached("call:flight", label)
    answer = answer_of(path, key) if dedupes else ""
    if not answer:
        answer = f"{what}-{sum(1 for e in entries(path) if e['what'] == 'executed' and e['of'] == what) + 1}"
        _append(path, {"what": "executed", "key": key, "of": what, "answer": answer})
    places.reached("call:inside", label)
    return answer


def ask(key: str, label: str) -> str:
    """Ask the receiver about a key. Returns its answer; empty if it never executed the call."""
    path = Path(os.environ[FILE])
    _append(path, {"what": "asked", "key": key})
    places.reached("call:asked", label)
    return answer_of(path, key)


def _append(path: Path, entry: dict[str, Any]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(handle)

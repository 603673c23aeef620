"""The world outside: receivers that act and remember in one file, appended to before and when they act.

It outlives every process of a story. `attempt` is written when the bytes arrive, `executed` when the receiver acts;
a receiver that dedupes answers a second request under a key as it answered the first.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = "CRASH_WORLD"
"""The environment variable that names the world's file."""

Place = Callable[[str, str], None]
"""Told (place, label) where a test may end or stop the process: the request is in the air; the receiver has acted."""


def nowhere(place: str, label: str) -> None:
    """The place that is no place."""


class _Places:
    reached: Place = staticmethod(nowhere)


places = _Places()


def entries(path: Path) -> list[dict[str, Any]]:
    """Every line so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def executed(path: Path) -> Counter[str]:
    """How often each key was acted upon."""
    return Counter(e["key"] for e in entries(path) if e["what"] == "executed")


def answer_of(path: Path, key: str) -> str:
    """What the receiver answered when it acted under this key; '' if it never did."""
    return next((e["answer"] for e in entries(path) if e["what"] == "executed" and e["key"] == key), "")


def receive(key: str, label: str, *, what: str, dedupes: bool) -> str:
    """A receiver gets a request under a key, and acts."""
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
    """What a receiver that can be asked says of a key: its answer, or '' if it never acted under it."""
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

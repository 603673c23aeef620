"""The data of an event in one line for people: `key=value` where it is plain, compact JSON where it is not."""

import json
from typing import Any

from outlast.core.events import iso

WIDTH = 200  # what is longer is for -o json
IN_EVERY_EVENT = frozenset({"version", "epoch", "node", "visit"})
EMPTY: tuple[Any, ...] = ("", None, [], {})
INSTANTS = frozenset({"since", "until"})  # of what a run waits for; 0 = none
PLAIN = frozenset("._-/:@#+")


def told(data: dict[str, Any]) -> str:
    """What an event says beyond its place, without what is empty."""
    said = {name: value for name, value in data.items() if name not in IN_EVERY_EVENT and value not in EMPTY}
    words = " ".join(f"{name}={_value(name, value)}" for name, value in said.items())
    return words if len(words) <= WIDTH else f"{words[:WIDTH]} … → -o json"


def _value(name: str, value: Any) -> str:
    if isinstance(value, str) and all(sign.isalnum() or sign in PLAIN for sign in value):
        return value
    if name == "waiting_for":
        value = [_wait(each) for each in value]
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _wait(wait: dict[str, Any]) -> dict[str, Any]:
    """What a run waits for, with instants as text."""
    return {name: iso(item) if name in INSTANTS else item for name, item in wait.items() if item}

"""A run's history for people: its entries in order, and the data of each in one line.

A value is written as `key=value` if it is plain, else as compact JSON.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from outlast.core.events import iso

WIDTH = 200  # what is longer is for -o json
IN_EVERY_EVENT = frozenset({"version", "epoch", "node", "visit"})
EMPTY: tuple[Any, ...] = ("", None, [], {})
INSTANTS = frozenset({"since", "until"})  # of what a run waits for; 0 = none
PLAIN = frozenset("._-/:@#+")


class HistoryEntry(NamedTuple):
    """A line of a run's history."""

    time: str
    """'' for an effect that is not settled: it comes last."""
    n: int
    """The number of an event; 0 for an effect or a step of an approval."""
    what: str
    place: str
    data: dict[str, Any]


def history(
    events: Sequence[dict[str, Any]],
    effects: Sequence[dict[str, Any]],
    approvals: Sequence[dict[str, Any]],
    *,
    from_start: bool = True,
) -> list[HistoryEntry]:
    """Return events, settled effects and the steps of approvals in order of time, open effects last.

    What happened at the instant of an event led to it, and comes before it. `from_start`: the first of these events is
    the first of the run; otherwise what happened before it is left out.
    """
    of_events = [
        HistoryEntry(e["time"], int(e["sequence"]), e["type"].rpartition(".")[2], _place(e["data"]), e["data"])
        for e in events
    ]
    found = [_of_effect(each) for each in effects] + [entry for each in approvals for entry in _of_approval(each)]
    begin = "" if from_start else of_events[0].time if of_events else "~"
    found = [entry for entry in found if not entry.time or entry.time >= begin]
    return sorted([*found, *of_events], key=lambda entry: (entry.time or "~", entry.n > 0, entry.n))


def _place(at: dict[str, Any]) -> str:
    return f"{at['node']}#{at['visit']}" if at["visit"] else str(at["node"])


def _of_effect(effect: dict[str, Any]) -> HistoryEntry:
    said = {name: effect[name] for name in ("key", "outcome", "external_id", "approval", "attempts", "settled_by")}
    return HistoryEntry(effect["settled_at"] or "", 0, "effect", _place(effect), {"effect": effect["effect"], **said})


def _of_approval(approval: dict[str, Any]) -> Iterator[HistoryEntry]:
    named = {"approval": approval["approval"]}
    yield HistoryEntry(
        approval["asked_at"], 0, "asked", "", {**named, "who": approval["who"], "asks": approval["asks"]}
    )
    if approval["quorum"] > 1:
        for vote in approval["votes"]:
            yield HistoryEntry(vote["at"], 0, "vote", "", {**named, "by": vote["by"], "reason": vote["reason"]})
    if approval["decided_at"]:
        by = {"by": approval["decided_by"], "reason": approval["reason"]}
        yield HistoryEntry(approval["decided_at"], 0, approval["status"], "", {**named, **by})


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

"""Words and kinds of runs, effects and calls on pages: pure functions from models to the values of a template."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from outlast.core.machine import EffectStatus, Reason, RunStatus
from outlast.insight.confusables import marked
from outlast.insight.labels import APPROVAL, ATTENTION
from outlast.models.child_tree import TreeRun
from outlast.models.effects import EffectRecord
from outlast.models.runs import CloudEvent, RunListItem, RunMap, RunSummary, Waiting

FOLDED: Final = 8_192
"""Characters of a value that a page shows without being asked."""
SHORT: Final = 300
_PLACE: Final = frozenset({"version", "epoch", "node", "visit"})
_KINDS: Final = {
    RunStatus.COMPLETED: "good", RunStatus.FAILED: "bad", RunStatus.WAITING: "wait", RunStatus.COMPENSATING: "bad",
}  # fmt: skip
_EFFECTS: Final = {
    EffectStatus.DONE: "good", EffectStatus.UNCERTAIN: "person", EffectStatus.REFUSED: "bad",
}  # fmt: skip


def kind_of(run: RunSummary) -> str:
    """Return the kind of a run's state, which decides its form and its colour."""
    if run.attention or any(wait.kind == "approval" for wait in run.waiting_for):
        return "person"
    return _KINDS.get(RunStatus(run.status), "plain")


LINE_CHARS: Final = 100
"""Characters of a line in a list; the page of the run has the whole text."""


def line_of(run: RunListItem) -> str:
    """Return in one line why a run needs a person or failed, or what it waits for."""
    if run.attention:
        first, more = run.attention[0], len(run.attention) - 1
        text = f"{first.reason}: {_first_line(first.detail)}" + (f" and {more} more" if more else "")
    elif run.reason:
        text = _first_line(run.reason)
    else:
        text = " · ".join([*filter(None, [run.waiting_text]), *(f"{each.verb} asked" for each in run.asked)])
    if not run.served:
        text = f"{text} · no worker serves {run.lane}" if f"no worker serves {run.lane}" not in text else text
    return text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def stopped_words(run: RunSummary) -> str:
    """Return how a run has stopped at its node: words for a box of its graph. '' if it goes on or completed."""
    if run.attention:
        reason, detail = run.attention[0].reason, run.attention[0].detail
        raised = re.match(r"[\w.]+(?=:)", detail) if reason == Reason.EXCEPTION else None
        return f"raised {raised[0]}" if raised else f"needs a person: {reason}".replace("_", " ")
    return {RunStatus.FAILED: "failed here", RunStatus.CANCELLED: "cancelled here"}.get(RunStatus(run.status), "")


def name_of(run: RunSummary) -> str:
    """Return the objective of a run, else its attributes; '' if it has neither."""
    if run.objective:
        return run.objective
    return " · ".join(f"{name} {value}" for name, value in run.attributes.items() if value is not None)


def child_kind(run: TreeRun) -> str:
    """Return the kind of the state of a run in a tree."""
    return "person" if run.shown in (ATTENTION, APPROVAL) else _KINDS.get(RunStatus(run.status), "plain")


class MapPart(NamedTuple):
    """Part of the bar of a map, in percent of its inputs."""

    name: str
    x: float
    width: float


def map_parts(each: RunMap) -> list[MapPart]:
    """Return the bar of a map: the children that completed, failed, were cancelled and run."""
    parts, x = list[MapPart](), 0.0
    for status, n in (
        (RunStatus.COMPLETED, each.completed),
        (RunStatus.FAILED, each.failed),
        (RunStatus.CANCELLED, each.cancelled),
        (RunStatus.RUNNING, each.running),
    ):
        if n:
            width = 100 * n / each.inputs
            parts.append(MapPart(status.value, round(x, 2), round(width, 2)))
            x += width
    return parts


def effect_kind(effect: EffectRecord) -> str:
    """Return the kind of an effect's state."""
    return "person" if effect.unknown else _EFFECTS.get(EffectStatus(effect.status), "plain")


@dataclass(frozen=True)
class Argument:
    """One value of a call: where it is, its text in pieces with warnings, and its kind."""

    path: str
    pieces: list[tuple[str, str]]
    kind: str
    before: list[tuple[str, str]] | None = None
    """The value before a change."""


def arguments(value: Any, path: str = "") -> Iterator[Argument]:
    """Yield every value of the arguments of a call, in their order. `path`: where `value` is."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if inside and value:
        for key, each in inside:
            name = str(key) if isinstance(value, list) or str(key).isidentifier() else json.dumps(key)
            yield from arguments(each, f"{path}.{name}" if path else name)
    elif isinstance(value, str):
        yield Argument(path, marked(value) if value else [("empty text", "no character")], "text")
    else:
        kind = {bool: "yes or no", int: "number", float: "number"}.get(type(value), "")
        yield Argument(path, [(json.dumps(value), "")], kind)


class FoldedValue(NamedTuple):
    """JSON of a value, or '' and its size if it is too long for a page."""

    text: str
    size: int


def folded(value: Any) -> FoldedValue:
    """Return a value as JSON text for a page."""
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return FoldedValue(text if len(text) <= FOLDED else "", len(text))


def short(value: Any) -> str:
    """Return the beginning of a value as JSON on one line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHORT else f"{text[:SHORT]} …"


def event_data(event: CloudEvent) -> Mapping[str, Any]:
    """Return the data of an event without its place and empty values."""
    data = event.data if isinstance(event.data, dict) else {}
    return {name: value for name, value in data.items() if name not in _PLACE and value not in ("", None)}


class ShownWait(NamedTuple):
    """A wait, and the approval that a person may decide to end it ('' without one)."""

    wait: Waiting
    approval: str
    signal: str


def waits_shown(run: RunSummary) -> list[ShownWait]:
    """Return the waits of a run, without those that its attention explains."""
    return [
        ShownWait(
            wait,
            wait.what.partition(" ")[0] if wait.kind == "approval" else "",
            wait.what if wait.kind == "signal" else "",
        )
        for wait in run.waiting_for
        if wait.kind != "attention"
    ]

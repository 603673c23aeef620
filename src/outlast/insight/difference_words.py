"""Words for the differences of two runs, on pages and in the command line."""

from collections.abc import Mapping
from typing import Final

from outlast.core.durations import measured_span
from outlast.insight.labels import visit_text
from outlast.models.comparison import ComparedSide, Facet, RunComparison, RunDifference

FACETS: Final[Mapping[Facet, str]] = {
    "input": "another input",
    "node": "another node",
    "call": "only in one run",
    "arguments": "other arguments",
    "answer": "another answer",
    "decision": "another decision",
    "message": "another message",
    "error": "another error",
    "end": "another end",
    "cost": "another cost",
    "time": "another time",
}
_KINDS: Final[Mapping[str, str]] = {
    "input": "",
    "error": "",
    "end": "end of the",
    "model": "answer of",
    "policy": "verdict on",
    "approval": "approval of",
    "visit": "visit to",
}
"""Words before the name of a difference, if they are not its kind."""


def title_of(each: RunDifference) -> str:
    """Return the name of a difference: its kind, the activity or node, and its key."""
    key = each.key if each.key != each.what else ""
    return " ".join(filter(None, (_KINDS.get(each.kind, each.kind), each.what, key)))


def facets_text(each: RunDifference, run: str = "A", other: str = "B") -> str:
    """Return how the runs, which have these names, differ there: `other arguments, another answer`, or `only in A`."""
    if each.run is None or each.other is None:
        return f"only in {other if each.run is None else run}"
    return ", ".join(FACETS[facet] for facet in each.differs) or "equal"


def side_text(side: ComparedSide | None, other: ComparedSide | None = None, *, with_visit: bool = True) -> str:
    """Return how one run has it: visit, status, person, detail, time and cost; `–` if it does not.

    `other`: how the other run has it. Times that would read alike are in milliseconds.
    """
    if side is None:
        return "–"
    return " · ".join(
        filter(
            None,
            (
                visit_text(side.node, side.nth, side.visit).removeprefix(", ") if with_visit else "",
                side.status,
                f"by {side.by}" if side.by else "",
                side.detail,
                took_text(side.ms, other.ms if other is not None else None),
                f"{side.tokens:,} tokens" if side.tokens else "",
                f"{side.money} paid" if side.money else "",
            ),
        )
    )


def took_text(ms: int | None, other: int | None = None) -> str:
    """Return a time; in milliseconds if it differs from the other one and would read alike. '' for an unknown one."""
    if ms is None:
        return ""
    text = measured_span(ms)
    return f"{ms:,} ms" if other not in (None, ms) and text == measured_span(other or 0) else text


def equal_text(visits: int, calls: int) -> str:
    """Return the numbers of equal visits and calls in words."""
    counts = ((visits, "visit"), (calls, "call"))
    return " and ".join(f"{n:,} equal {name}{'' if n == 1 else 's'}" for n, name in counts if n or name == "call")


def parting_text(found: RunComparison, run: str = "A", other: str = "B") -> str:
    """Return in words where two runs, which have these names, part, or that they do not, and their first error."""
    if (first := found.first) is not None:
        error = f" {_words(found, found.error, run, other)}" if found.error and found.error.n != first.n else ""
        text = _words(found, first, run, other)
        return f"They part at {text[0].lower()}{text[1:]}{error}"
    if found.total:
        return "They do not part: they differ in input, cost or time only."
    return "They are equal in all that is compared."


def _words(found: RunComparison, each: RunDifference, run: str, other: str) -> str:
    """Return a difference in words: its number, its name, how the runs differ, and the messages of an error."""
    place = f"{'Difference' if found.rows == found.total else 'Row'} {each.n}"
    sides = (each.run, each.other) if each.kind == "error" else ()
    details = dict.fromkeys(side.detail for side in sides if side is not None and side.detail)
    return f"{place}: {title_of(each)}, {facets_text(each, run, other)}{': ' if details else ''}{' | '.join(details)}."

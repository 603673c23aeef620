"""Filters of lists of runs with a syntax: intervals of time, and attributes with a value."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from outlast.core.durations import DAY
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import RunStatus
from outlast.errors import InvalidInput

WHERE_MAX: Final = 8
"""Attributes that one list can ask for."""
ATTRIBUTE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
RESERVED_TERMS: Final = frozenset({
    "status", "workflow", "version", "node", "cause", "reason", RunStatus.WAITING.value, "since", "started", "stopped",
    "ended", "flagged", "fork", "parent", "root", "is", "sort", "cost", "tokens", "activity", "key", "attention",
    "text",
})  # fmt: skip
"""Names of terms of a query, and some that may become terms. No attribute has one of them."""
RunOrder = Literal["started-asc", "ended", "ended-asc", "took", "took-asc", "cost", "cost-asc"]
"""Orders of a list of runs other than newest start first: the greatest value first, or with `-asc` the least."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_NO_END: Final = "9999-12-31"


class Interval(NamedTuple):
    """Instants from `low` up to, but without, `high`, in ms of business time."""

    low: int
    high: int

    def has(self, at: int) -> bool:
        """Return True if the instant is in the interval."""
        return self.low <= at < self.high


def interval_of(name: str, text: str) -> Interval | None:
    """Return the interval in a text, None for ''. Raises InvalidInput.

    The text is two instants of ISO 8601 with a slash, or a date, which is a day in UTC. A date as an instant is its
    first one. Without the second instant the interval has no end.
    """
    if not text:
        return None
    low, slash, high = text.partition("/")
    found: Interval | None = None
    try:
        if slash:
            found = Interval(_ms(low), _ms(high or _NO_END))
        elif _DATE.fullmatch(low):
            found = Interval(_ms(low), _ms(low) + DAY)
    except ValueError:
        pass  # the message below says what an interval is
    if found is None or not 0 <= found.low < found.high:
        raise InvalidInput(
            f"{name} is {text[:100]!r}",
            "an interval is a date, or two instants with a time zone and a slash, the earlier one first",
            f"e.g. {name}:2026-05-04 or {name}:2026-05-04T22:00Z/2026-05-04T22:30Z",
        )
    return found


def interval_text(of: Interval) -> str:
    """Return an interval as `interval_of` reads it."""
    return f"{_instant(of.low)}/{_instant(of.high)}"


def where_of(given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the names and values of `name=value` texts. Raises InvalidInput."""
    found: list[tuple[str, str]] = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not ATTRIBUTE_NAME.fullmatch(name) or not value or len(value) > TEXT_CHARS_MAX:
            raise InvalidInput(
                f"where is {text[:100]!r}", "it names an attribute and its value: NAME=VALUE", "e.g. customer=acme"
            )
        found.append((name, value))
    if len(found) > WHERE_MAX:
        raise InvalidInput(f"{len(found)} attributes are asked for", f"at most {WHERE_MAX} are", "leave some out")
    return tuple(found)


def _ms(text: str) -> int:
    at = datetime.fromisoformat(f"{text}T00:00Z" if _DATE.fullmatch(text) else text)
    if at.tzinfo is None:
        raise ValueError("no time zone")
    return (at - _EPOCH) // timedelta(milliseconds=1)


def _instant(ms: int) -> str:
    at = _EPOCH + timedelta(milliseconds=ms)
    spec = "milliseconds" if ms % 1_000 else "seconds" if ms % 60_000 else "minutes"
    return at.replace(tzinfo=None).isoformat(timespec=spec) + "Z"

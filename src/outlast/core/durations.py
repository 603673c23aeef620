"""Durations as text: "500ms", "2s", "1h30m"; read from authors and options, written into sentences about a run."""

import re
from datetime import timedelta
from typing import Final, TypeAlias

from outlast.core.budget import DAY, HOUR, MINUTE, SECOND

Duration: TypeAlias = timedelta | str
"""A `timedelta`, or text such as "12h"."""
UNITS: Final = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def milliseconds(text: str) -> int:
    """Return the milliseconds of a text such as 500ms, 2s, 10m or 1h30m. Raises ValueError."""
    parts = WRITTEN.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration: write 500ms, 2s, 10m or 1h30m")
    return round(sum(float(number) * UNITS[unit] for number, unit in parts))


def span(ms: int) -> str:
    """Write a duration with at most two units, rounded to the smaller one: 0.4s, 28s, 3m20s, 56h, 4d6h."""
    if ms < 9_950:
        return f"{ms / SECOND:.1f}".removesuffix(".0") + "s"
    if (seconds := _nearest(ms, SECOND)) < 60:
        return f"{seconds}s"
    if seconds < 10 * 60:
        return _two(seconds, 60, "m", "s")
    if (minutes := _nearest(ms, MINUTE)) < 2 * 60:
        return f"{minutes}m"
    if (hours := _nearest(ms, HOUR)) < 100:
        return f"{hours}h"
    return _two(hours, 24, "d", "h")


def _nearest(ms: int, unit: int) -> int:
    return (ms + unit // 2) // unit


def _two(count: int, per: int, large: str, small: str) -> str:
    rest = count % per
    return f"{count // per}{large}" + (f"{rest}{small}" if rest else "")

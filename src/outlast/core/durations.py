"""Durations in a few letters, as every sentence about a run writes them, and as people write them."""

import re
from typing import Final

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
UNITS: Final = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def milliseconds(text: str) -> int:
    """Of a duration as people write it: 500ms, 2s, 10m, 1h30m. Raises ValueError."""
    parts = WRITTEN.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration: write 500ms, 2s, 10m or 1h30m")
    return round(sum(float(number) * UNITS[unit] for number, unit in parts))


def span(ms: int) -> str:
    """A duration to the nearest of its last unit: 0.4s, 28s, 3m20s, 56h, 4d6h."""
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

"""Text for a terminal and from the command line: escaped control characters, durations, JSON arguments."""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache

import click


@cache
def _active() -> re.Pattern[str]:
    """Return the pattern of control characters (C0, DEL, C1) and of characters that make text look like other text."""
    from outlast.core.visible import INVISIBLE  # imported here: help needs no core

    return re.compile(f"[\x00-\x1f\x7f-\x9f]|{INVISIBLE.pattern}")


def inert(text: str, *, lines: bool = False) -> str:
    """Return `text` with control characters escaped. `lines`: keep line ends."""
    if lines:
        return "\n".join(inert(line) for line in text.split("\n"))
    return _active().sub(lambda m: _spelt(ord(m[0])), text)


def json_escaped(text: str) -> str:
    """Return JSON text with control characters as JSON escapes, which keeps its meaning."""
    return _active().sub(lambda m: m[0] if m[0] == "\n" else _as_json(ord(m[0])), text)


def _spelt(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _as_json(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def duration(text: str) -> int:
    """Parse a duration of the command line to milliseconds. Raises click.BadParameter."""
    from outlast.core.durations import milliseconds

    try:
        return milliseconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def took(ms: int | None) -> str:
    """Write a measured duration; "" for None."""
    from outlast.core.durations import measured_span

    return "" if ms is None else measured_span(ms)


def instant(text: str) -> datetime:
    """Parse an instant of the command line; without a zone it is local. Raises click.BadParameter."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{text!r} is no instant, e.g. 2026-05-04T09:30:00Z") from error


def amount(text: str) -> int:
    """Parse a number of the command line with k or M: 50k, 1.5M. Raises click.BadParameter."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)([kM]?)", text.strip().replace("_", "").replace(",", ""))
    if found is not None:
        number = Decimal(found[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[found[2]]
        if number == int(number):
            return int(number)
    raise click.BadParameter(f"{text!r} is not a whole number such as 500, 50k or 1.5M")


def ago(ms: int | None) -> timedelta | None:
    """Return an optional duration as timedelta."""
    return timedelta(milliseconds=ms) if ms is not None else None


def results_text(n: int) -> str:
    """Return a count of results in words."""
    return f"{n:,} result{'' if n == 1 else 's'}"

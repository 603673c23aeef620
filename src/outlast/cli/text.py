"""Text for a terminal: stored text made inert, instants and durations in a few letters."""

import re
from datetime import datetime, timedelta

import click

from outlast.core.durations import SECOND
from outlast.core.unseen import UNSEEN

# What a terminal acts on (C0, DEL, C1), and what makes text look like other text.
_ACTIVE = re.compile(f"[\x00-\x1f\x7f-\x9f]|{UNSEEN.pattern}")


def inert(text: str, *, lines: bool = False) -> str:
    """`text` with every character a terminal would act on spelt out; `lines`: line ends stay."""
    if lines:
        return "\n".join(inert(line) for line in text.split("\n"))
    return _ACTIVE.sub(lambda m: _spelt(ord(m[0])), text)


def json_escaped(text: str) -> str:
    """JSON text with the same characters as JSON escapes: it means the same, and no terminal acts on it."""
    return _ACTIVE.sub(lambda m: m[0] if m[0] == "\n" else _as_json(ord(m[0])), text)


def _spelt(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _as_json(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def ms_of(instant: str) -> int:
    """An instant of a view in milliseconds since 1970."""
    return round(datetime.fromisoformat(instant).timestamp() * SECOND)


def duration(text: str) -> int:
    """The milliseconds of a duration on the command line. Raises click.BadParameter."""
    from outlast.core.durations import milliseconds

    try:
        return milliseconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def ago(ms: int | None) -> timedelta | None:
    """What `--since` said; None where it said nothing."""
    return timedelta(milliseconds=ms) if ms is not None else None

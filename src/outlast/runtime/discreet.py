"""Rows of a run as they may be given away: without texts that look like secrets (S29)."""

import json
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from outlast.core.diet import MARK, join, unpack
from outlast.core.rows import Event, Row, Value
from outlast.telemetry.redact import redact, redacted

Text = TypeVar("Text", str, bytes)
R = TypeVar("R", bound=Row)
LEFT_OUT: Final = b"{}"
"""In place of an earlier large state that held a secret: its parts cannot be told apart from those of the others."""


def discreet(row: R) -> R:
    """The row, every text and every JSON in it redacted; the row itself where nothing in it looks like a secret."""
    clean = {name: _clean(value) for name, value in row._asdict().items() if type(value) in (str, bytes)}
    changed = {name: value for name, value in clean.items() if value != getattr(row, name)}
    return row._replace(**changed) if changed else row  # type: ignore[return-value]


def discreet_states(events: Sequence[Event], values: Sequence[Value]) -> tuple[list[Event], list[Value]]:
    """Events whose states are redacted, and the values that their states still name.

    A state in parts (core/diet.py) is joined before it is looked at, for a secret may stand on both sides of a seam.
    Where one of them holds any, no parts are given away: the last such state is written out, the earlier are left out.
    Raises Corrupt.
    """
    parts = {value.hash: unpack(value.packed, value.body, value.hash) for value in values}
    joined = {e.seq: join(e.snapshot, parts).state for e in events if e.snapshot and e.snapshot[:1] == MARK}
    if all(_clean(state) == state for state in joined.values()) and all(
        _clean(part) == part for part in parts.values()
    ):
        return [*events], [*values]
    last = max(joined)
    whole = {seq: _clean(state) if seq == last else LEFT_OUT for seq, state in joined.items()}
    return [e._replace(snapshot=whole.get(e.seq, e.snapshot)) for e in events], []


def _clean(data: Text) -> Text:
    if isinstance(data, str):
        return _text(data)
    if data[:1] == MARK:
        return data  # a state in parts: `discreet_states` has looked at it
    try:
        return _text(data.decode()).encode()
    except UnicodeDecodeError:
        return data


def _text(text: str) -> str:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return redact(text)
    if not isinstance(value, dict | list | str):
        return text
    clean = redacted(value)
    return text if clean == value else json.dumps(clean, ensure_ascii=False, separators=(",", ":"))

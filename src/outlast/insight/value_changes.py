"""Difference of two JSON values as paths: which places changed, and the values there, redacted and cut.

Redaction is decided for each changed value with the names on its path, as `redacted` decides it for the whole value.
So only changed values are searched for secrets, and a secret is not cut into a part that nothing recognizes.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from outlast.telemetry.redact import SHOWN_CHARS_MAX, redacted

VALUE_CHARS: Final = 160
"""Characters of a value that are shown."""
BEFORE_CHARS: Final = 40
"""Characters of them before the first one that differs."""
PATH_CHARS: Final = 160
MISSING: Final = object()
"""Value at a path that one of the two does not have."""


class ChangedPlace(NamedTuple):
    """A place in which two values differ. A value may be `MISSING`."""

    names: tuple[str | int, ...]
    before: Any
    after: Any


class ShownChange(NamedTuple):
    """A changed place for people: path, and both values as text; None for a missing one."""

    path: str
    before: str | None
    after: str | None


def changed_places(before: Any, after: Any, names: tuple[str | int, ...] = ()) -> Iterator[ChangedPlace]:
    """Yield each place in which two JSON values differ, in the order of the first value.

    In lists the equal beginning and the equal end are left out, and members between them are compared by position.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for name in (*before, *(each for each in after if each not in before)):
            yield from changed_places(before.get(name, MISSING), after.get(name, MISSING), (*names, name))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _changed_members(before, after, names)
    elif not _is_same(before, after):
        yield ChangedPlace(names, before, after)


def _changed_members(
    before: Sequence[Any], after: Sequence[Any], names: tuple[str | int, ...]
) -> Iterator[ChangedPlace]:
    shorter = min(len(before), len(after))
    begin = next((i for i in range(shorter) if not _is_same(before[i], after[i])), shorter)
    left = shorter - begin
    end = next((i for i in range(left) if not _is_same(before[-1 - i], after[-1 - i])), left)
    for i in range(begin, max(len(before), len(after)) - end):
        old = before[i] if i < len(before) - end else MISSING
        new = after[i] if i < len(after) - end else MISSING
        yield from changed_places(old, new, (*names, i))


def _is_same(before: Any, after: Any) -> bool:
    """Return True for equal JSON values. A number is not a bool, and 1 is 1.0 as JSON has it."""
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(_is_same(before[name], after[name]) for name in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_is_same, before, after))
    return bool(before == after)


def shown_change(change: ChangedPlace) -> ShownChange:
    """Return a changed place as people may see it."""
    before, after = (_text(value, change.names) for value in (change.before, change.after))
    if before is not None and after is not None:
        before, after = _around_the_difference(before, after)
    else:
        before, after = (None if text is None else _cut(text, 0) for text in (before, after))
    return ShownChange(_cut(redacted(path_of(change.names)), 0, PATH_CHARS), before, after)


def path_of(names: Sequence[str | int]) -> str:
    """Return a path as text: names and positions with dots, other names as JSON."""
    parts = (str(name) if isinstance(name, int) or name.isidentifier() else json.dumps(name) for name in names)
    return ".".join(parts)


def _text(value: Any, names: Sequence[str | int]) -> str | None:
    """Return a value as JSON text without secrets; None for a missing one. A long one is only counted."""
    if value is MISSING:
        return None
    whole = json.dumps(value, ensure_ascii=False)
    if len(whole) > SHOWN_CHARS_MAX:
        return f"{len(whole):,} characters"
    inside = value
    for name in reversed(names):
        if isinstance(name, str):
            inside = {name: inside}
    clean = redacted(inside)
    for name in names:
        if isinstance(name, str):
            clean = clean[name]
    return json.dumps(clean, ensure_ascii=False)


def _around_the_difference(before: str, after: str) -> tuple[str, str]:
    shorter = min(len(before), len(after))
    first = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    start = max(0, first - BEFORE_CHARS) if max(len(before), len(after)) > VALUE_CHARS else 0
    return _cut(before, start), _cut(after, start)


def _cut(text: str, start: int, most: int = VALUE_CHARS) -> str:
    """Return at most `most` characters of a text from a place, with an ellipsis where something is left out."""
    shown = text[start : start + most]
    return f"{'…' if start else ''}{shown}{'…' if start + most < len(text) else ''}"

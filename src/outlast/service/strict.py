"""JSON read so that two readers of the same bytes cannot see two things: UTF-8, nothing said twice, no NaN."""

import json
from collections import Counter
from typing import Any, Final


def read_json(data: bytes) -> Any:
    """The value. Raises ValueError (JSONDecodeError where it knows the place), RecursionError."""
    return _DECODER.decode(data.decode("utf-8"))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {twice[:100]!r} stands twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
"""Made once: `json.loads` makes one for each call that has a hook, which costs as much as a small body."""

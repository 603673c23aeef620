"""Strict JSON (UTF-8, no duplicate names, no NaN) within limits that are checked before parsing (S17).

Duplicate names are refused because two readers of the same bytes could see different values.
"""

import json
import re
from collections import Counter
from typing import Any, Final

from outlast.core.limits import JSON_DEPTH_MAX
from outlast.errors import BadRequest


def read_json(data: bytes) -> Any:
    """Parse one JSON document. Raises ValueError (JSONDecodeError for a syntax error), RecursionError."""
    return _DECODER.decode(data.decode("utf-8"))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {twice[:100]!r} appears twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
"""Shared, because `json.loads` with a hook creates a decoder per call, which costs as much as a small body."""


VALUES_MAX: Final = 10_000
"""Object members and list items in one body."""
TEXT_BYTES_MAX: Final = 256 * 1024
NUMBER_BYTES_MAX: Final = 400
"""Length of one number: enough for a double, and short enough that an integer parses in linear time."""
# Possessive, and an unterminated text matches up to the end, so that no byte is scanned twice.
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NUMBER: Final = re.compile(rb"[-+0-9.eE]++")
_OPENS: Final = b"[{"
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def check_shape(body: bytes) -> None:
    """Raise BadRequest if a body is too deep or too large to parse. Syntax errors are left to the parser."""
    if body.startswith(b"\xef\xbb\xbf"):
        raise BadRequest("the body begins with a byte order mark", "", "send UTF-8 without one", refusal="not_json")
    if len(body) > TEXT_BYTES_MAX and max(map(len, _TEXT.findall(body)), default=0) > TEXT_BYTES_MAX:
        raise BadRequest(
            "a string in the body is too long", f"at most {TEXT_BYTES_MAX:,} bytes", refusal="text_too_long"
        )
    bare = _TEXT.sub(b" ", body)
    if len(bare) > NUMBER_BYTES_MAX and max(map(len, _NUMBER.findall(bare)), default=0) > NUMBER_BYTES_MAX:
        raise BadRequest(
            "a number in the body is too long", f"at most {NUMBER_BYTES_MAX} digits", refusal="text_too_long"
        )
    brackets = bare.translate(None, _NO_BRACKETS)
    _check_depth(brackets[: 2 * VALUES_MAX])  # more brackets than this exceed VALUES_MAX anyway
    if bare.count(b",") + brackets.count(b"[") + brackets.count(b"{") > VALUES_MAX:
        raise BadRequest("the body has too many values", f"at most {VALUES_MAX:,}", refusal="too_many_values")


def _check_depth(brackets: bytes) -> None:
    depth = 0
    for each in brackets:
        depth += 1 if each in _OPENS else -1
        if depth > JSON_DEPTH_MAX:
            raise BadRequest("the body is nested too deeply", f"at most {JSON_DEPTH_MAX} levels", refusal="too_deep")

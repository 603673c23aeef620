"""JSON read so that two readers of the same bytes cannot see two things: UTF-8, nothing said twice, no NaN."""

import json
import re
from collections import Counter
from typing import Any, Final

from outlast.core.limits import JSON_DEPTH_MAX
from outlast.errors import BadRequest


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


VALUES_MAX: Final = 10_000
"""Keys and members of lists in one body."""
TEXT_BYTES_MAX: Final = 256 * 1024
NUMBER_BYTES_MAX: Final = 400
"""Digits of one number: what a double needs, and no more than integers that parse at once."""
# Possessive, and ended by the end of the text too: no body makes them look twice at a byte.
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NUMBER: Final = re.compile(rb"[-+0-9.eE]++")
_OPENS: Final = b"[{"
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def check_shape(body: bytes) -> None:
    """Raise BadRequest for a body that is deeper or larger than is ever parsed. What is no JSON fails later."""
    if body.startswith(b"\xef\xbb\xbf"):
        raise BadRequest("the body begins with a byte order mark", "", "send UTF-8 without one", refusal="not_json")
    if len(body) > TEXT_BYTES_MAX and max(map(len, _TEXT.findall(body)), default=0) > TEXT_BYTES_MAX:
        raise BadRequest("a text of the body is too long", f"at most {TEXT_BYTES_MAX:,} bytes", refusal="text_too_long")
    bare = _TEXT.sub(b" ", body)
    if len(bare) > NUMBER_BYTES_MAX and max(map(len, _NUMBER.findall(bare)), default=0) > NUMBER_BYTES_MAX:
        raise BadRequest(
            "a number of the body is too long", f"at most {NUMBER_BYTES_MAX} digits", refusal="text_too_long"
        )
    brackets = bare.translate(None, _NO_BRACKETS)
    _check_depth(brackets[: 2 * VALUES_MAX])  # where there are more, there are too many values
    if bare.count(b",") + brackets.count(b"[") + brackets.count(b"{") > VALUES_MAX:
        raise BadRequest("the body has too many values", f"at most {VALUES_MAX:,}", refusal="too_many_values")


def _check_depth(brackets: bytes) -> None:
    depth = 0
    for each in brackets:
        depth += 1 if each in _OPENS else -1
        if depth > JSON_DEPTH_MAX:
            raise BadRequest("the body is nested too deeply", f"at most {JSON_DEPTH_MAX} levels", refusal="too_deep")

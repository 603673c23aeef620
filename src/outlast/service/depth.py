"""The shape of a JSON body, looked at before anything is parsed: how deep, how many values, how long (S17)."""

import re
from typing import Final

from outlast.core.limits import JSON_DEPTH_MAX
from outlast.errors import BadRequest

VALUES_MAX: Final = 10_000
"""Keys and members of lists in one body."""
TEXT_BYTES_MAX: Final = 256 * 1024
NUMBER_BYTES_MAX: Final = 400
"""Digits of one number: what a double needs, and no more than integers that parse at once."""
# Possessive, and ended by the end of the text too: no body makes it look twice at a byte.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]|,|[-+0-9.eE]++', re.DOTALL)


def check_shape(body: bytes) -> None:
    """Raise BadRequest for a body that is deeper or larger than is ever parsed. What is no JSON fails later."""
    if body.startswith(b"\xef\xbb\xbf"):
        raise BadRequest("the body begins with a byte order mark", "", "send UTF-8 without one", refusal="not_json")
    depth = values = 0
    for match in _TOKEN.finditer(body):
        token = match.group()
        first = token[:1]
        if first in (b"[", b"{"):
            depth += 1
            values += 1
            if depth > JSON_DEPTH_MAX:
                raise BadRequest(
                    "the body is nested too deeply", f"at most {JSON_DEPTH_MAX} levels", refusal="too_deep"
                )
        elif first in (b"]", b"}"):
            depth -= 1
        elif first == b",":
            values += 1
            if values > VALUES_MAX:
                raise BadRequest("the body has too many values", f"at most {VALUES_MAX:,}", refusal="too_many_values")
        elif first == b'"':
            if len(token) > TEXT_BYTES_MAX:
                raise BadRequest(
                    "a text of the body is too long", f"at most {TEXT_BYTES_MAX:,} bytes", refusal="text_too_long"
                )
        elif len(token) > NUMBER_BYTES_MAX:
            raise BadRequest("a number of the body is too long", f"at most {NUMBER_BYTES_MAX} digits",
                             refusal="text_too_long")  # fmt: skip

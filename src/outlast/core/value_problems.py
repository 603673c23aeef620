"""Problems of values in words: which part of a value cannot be written or read, and why.

The searches run after a value was refused, or once its bytes show that it must be. A search goes through the parts of
a value in order and names the deepest part at fault, so that its author finds it: `reply.session is a _thread.lock`.
Depth is limited, because a value may contain itself.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from outlast.core.limits import JSON_DEPTH_MAX
from outlast.core.round_trip import PATH_CHARS_MAX

PROBLEM_CHARS_MAX: Final = 2_000
"""A problem with more characters is cut: a validator may repeat the value in its text."""
_WARNING: Final = re.compile(
    r"Expected `(.+?)` - serialized value may not be as expected \[(?:field_name='(.*?)', )?.*input_type=(\w+)\]"
)


def is_unicode(text: str) -> bool:
    """Return True if the text has no lone surrogate, so that it can be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def problems_of(error: Exception) -> list[tuple[str, str]]:
    """Return each problem that pydantic found, as (path, sentence), or one for what a validator raised."""
    if not isinstance(error, ValidationError):
        return [("(the whole)", f"reading it raises {type(error).__name__}")]
    return [
        (
            (".".join(str(part) for part in item["loc"]) or "(the whole)")[:PATH_CHARS_MAX],
            item["msg"][:PROBLEM_CHARS_MAX],
        )
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def mismatch(error: Exception) -> str:
    """Return «cents: expected int, found str» of pydantic's warnings, which show the value; '' of another error."""
    found = _WARNING.search(" ".join(str(error).split()))
    return f"{found[2] or 'the value'}: expected {found[1]}, found {found[3]}" if found else ""


def find_unstorable(value: object, path: str, depth: int) -> str:
    """Return «reply.session is a _thread.lock» for the deepest part without a JSON form, or ''."""
    if depth > JSON_DEPTH_MAX:
        return f"{path[:PATH_CHARS_MAX]} is nested deeper than {JSON_DEPTH_MAX} levels (or contains itself)"
    if found := _bad_text(value, path):
        return found
    parts = _parts(value, path)
    for name, item in parts:
        if found := find_unstorable(item, name, depth + 1):
            return found
    if isinstance(value, float):
        return "" if value - value == 0 else f"{path} is {value}, which JSON cannot say"
    try:
        to_jsonable_python(value)
    except Exception as error:  # a serializer or a computed field of the author may raise anything
        kind = type(value)
        if parts and isinstance(value, (BaseModel, Mapping)):
            return text_of_raised(path, error)
        if isinstance(value, bytes):
            return f"{path} is bytes that are not UTF-8; encode them, for example as base64"
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        return f"{path} is a {name}; values must be JSON or a pydantic model"
    return ""


def text_of_raised(path: str, error: Exception) -> str:
    """Return «writing state.price raises KeyError», or the text of an error of pydantic."""
    if isinstance(error, (PydanticSerializationError, ValueError, TypeError)):
        return f"{path}: {' '.join(readable(error).split())}"
    return f"writing {path} raises {type(error).__name__}"


def readable(error: Exception) -> str:
    """Return the text of an error without characters that cannot be written."""
    return str(error).encode(errors="replace").decode()


def _bad_text(value: object, path: str) -> str:
    """Return why a text or a key cannot be written, or ''."""
    if isinstance(value, str):
        return "" if is_unicode(value) else f"{path} is text that is not valid Unicode"
    if isinstance(value, PurePath):
        return "" if is_unicode(str(value)) else f"{path} is a path that is not valid Unicode"
    if isinstance(value, Mapping) and not all(is_unicode(each) for each in value if isinstance(each, str)):
        return f"{path} has a key that is not valid Unicode"
    more = value.__pydantic_extra__ if isinstance(value, BaseModel) else None
    return f"{path} has a field whose name is not valid Unicode" if more and not all(map(is_unicode, more)) else ""


def find_surrogate(value: object, path: str, depth: int) -> str:
    """Return «state.counts has a key that is not valid Unicode» for the first such text, or ''."""
    if (found := _bad_text(value, path)) or depth > JSON_DEPTH_MAX:
        return found
    for name, item in _parts(value, path):
        if found := find_surrogate(item, name, depth + 1):
            return found
    return ""


def find_nan(value: object, path: str, depth: int) -> str:
    """Return «state.price is nan, …» for the first number without a JSON form, or ''."""
    if isinstance(value, float):
        return "" if value - value == 0 else f"{path} is {value}, which JSON cannot say"
    if depth > JSON_DEPTH_MAX or value is None or isinstance(value, (str, int)):
        return ""
    for name, item in _parts(value, path):
        if found := find_nan(item, name, depth + 1):
            return found
    return ""


def _parts(value: object, path: str) -> list[tuple[str, object]]:
    """Return the parts of a value, each with its path."""
    if isinstance(value, BaseModel):
        more = value.__pydantic_extra__ or {}
        return [(f"{path}.{name}", item) for name, item in [*value.__dict__.items(), *more.items()]]
    if isinstance(value, (set, frozenset)):
        return [(f"a member of {path}", item) for item in value]
    if isinstance(value, Mapping):
        return [(f"{path}.{name}", item) for name, item in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return [(f"{path}[{i}]", item) for i, item in enumerate(value)]
    if hasattr(value, "__dataclass_fields__"):
        return [(f"{path}.{name}", getattr(value, name)) for name in value.__dataclass_fields__]
    return []

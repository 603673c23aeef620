"""Versions over HTTP: `ETag` says what the caller has seen, `If-Match` that it has not changed since."""

import re
from typing import Annotated, Final

from fastapi import Header

from outlast.errors import BadRequest, Precondition

_TAG: Final = re.compile(r'\s*(?:W/)?"(v[1-9][0-9]{0,14})"\s*')
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", max_length=200, description="The ETag of what you have seen.", examples=['"v9"']),
]


def etag(version: int) -> str:
    """The ETag of a version."""
    return f'"v{version}"'


def seen(if_match: str | None, *, what: str) -> int:
    """The version that the caller has seen. Raises Precondition (428: none is named), BadRequest."""
    if if_match is None:
        raise Precondition(
            f"say which version of {what} you have seen",
            "a decision is about exactly what was shown, so If-Match is required",
            f'read {what}, then send its ETag, e.g. If-Match: "v9"',
            refusal="if_match_missing",
        )
    match = _TAG.fullmatch(if_match)
    if match is None:
        raise BadRequest(
            "If-Match names no version", "it is one ETag as we give it", 'e.g. If-Match: "v9"', refusal="bad_header"
        )
    return int(match.group(1)[1:])


def named(if_match: str | None, *, what: str) -> int:
    """The version that the caller has seen, 0 where none is named. Raises BadRequest."""
    return 0 if if_match is None else seen(if_match, what=what)


def stale(what: str, version: int) -> Precondition:
    """The caller has seen something that is no longer so."""
    return Precondition(
        f"{what} has changed since you saw it",
        f"it is at version {version} now; `current` is what it says",
        "look again, then decide about that",
        refusal="stale",
    )

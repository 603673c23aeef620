"""Typed values that clients return and that the HTTP service sends: one list of fields for Python, CLI and HTTP.

Modules: `runs`, `steps`, `effects`, `approvals`, `attention`, `service`, `webhooks`. Instants are `datetime` values in
UTC; as JSON they are RFC 3339 text. They are business time, except in names that end in `_real`. Unknown fields of a
newer service are ignored.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, StringConstraints

from outlast.core.events import in_calendar, iso
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.errors import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(at: int) -> datetime | None:
    """Return an instant in ms as a datetime; None for 0, which means "not yet" or "never"."""
    return exact_instant(at) if at else None


def exact_instant(at: int) -> datetime:
    """Return an instant in ms as a datetime; one beyond the calendar as its first or last day."""
    return EPOCH + timedelta(milliseconds=in_calendar(at))


def milliseconds(at: datetime) -> int:
    """Return a datetime as an instant in ms."""
    return (at - EPOCH) // timedelta(milliseconds=1)


def checked_instant(name: str, given: datetime) -> int:
    """Return an instant in ms. Raises InvalidInput without a time zone, and before 1970."""
    if given.tzinfo is None or milliseconds(given) < 0:
        why = "it is an instant since 1970 with a time zone"
        raise InvalidInput(f"{name} is {given}", why, "e.g. datetime(2026, 5, 4, tzinfo=UTC)")
    return milliseconds(given)


Json = Annotated[Any, Field(description="Any JSON value.")]
Count = Annotated[int, Field(ge=0)]
Instant = Annotated[datetime, PlainSerializer(lambda at: iso(milliseconds(at)), return_type=str, when_used="json")]


class Model(BaseModel):
    """Base of typed values. They are immutable; `model_dump_json(by_alias=True)` gives the text that HTTP sends."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        defer_build=True,
        validate_by_name=True,
        validate_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )


class RequestBody(BaseModel):
    """Base of request bodies. Unknown fields are refused (S18)."""

    model_config = ConfigDict(extra="forbid")

    def __init_subclass__(cls, schema_name: str = "", **options: Any) -> None:
        """`schema_name`: name in documents, if a request of `outlast.operations` has the name of the operation."""
        super().__init_subclass__(**options)
        if schema_name:
            cls.__name__ = cls.__qualname__ = schema_name


Text = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_CHARS_MAX, pattern=r"\S")]


class PagedList(Model):
    """Page of a list. `next_cursor` and the header `Link` lead to the next page; '' at the end."""

    next_cursor: str = Field(default="", description="Opaque cursor, valid for this list, its filters and this tenant.")

"""Types of fields of requests that several operations have: their limits and texts in HTTP, and how they are sent."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints
from pydantic_core import PydanticCustomError

from outlast.core.detail_fields import DeclaredFacts, DetailField
from outlast.core.durations import FAR, TOO_FAR, Duration
from outlast.core.events import iso
from outlast.core.limits import (
    IDEMPOTENCY_KEY_CHARS_MAX,
    KEY_BYTES_MAX,
    NAME_CHARS_MAX,
    NAME_PATTERN,
    TEXT_CHARS_MAX,
)
from outlast.core.usage import AMOUNT_MAX
from outlast.models import Text, checked_instant
from outlast.operations.declaration import Sent, copied, iso_duration, seconds

NAME_ONLY: Final = rf"^({NAME_PATTERN})$"
Name = Annotated[str, StringConstraints(pattern=NAME_ONLY)]
Word = Annotated[str, StringConstraints(max_length=NAME_CHARS_MAX)]
Key = Annotated[str, StringConstraints(max_length=KEY_BYTES_MAX)]
SignalId = Annotated[str, StringConstraints(max_length=IDEMPOTENCY_KEY_CHARS_MAX, pattern=r"^[\x21-\x7e]*$")]


def _near(given: timedelta) -> timedelta:
    if given > timedelta(milliseconds=FAR):
        raise PydanticCustomError("too_far", TOO_FAR)
    return given


Span = Annotated[timedelta, Field(gt=timedelta(0)), AfterValidator(_near)]
Since = Annotated[
    Duration | None,
    Sent(write=iso_duration, read=Span | None),
    Field(description="Maximum age, as an ISO 8601 duration.", examples=["PT24H"]),
]


def _written_since(at: datetime) -> str:
    return iso(checked_instant("since", at))


def _written_until(at: datetime) -> str:
    return iso(checked_instant("until", at))


SinceInstant = Annotated[
    datetime | None,
    Sent(write=_written_since, read=AwareDatetime | None),
    Field(description="First instant. Default: 24 hours before `until`."),
]
UntilInstant = Annotated[
    datetime | None,
    Sent(write=_written_until, read=AwareDatetime | None),
    Field(description="Instant after the last one. Default: now."),
]
OneVersion = Annotated[int | None, Field(ge=0, le=2**53, description="Only this version of the workflow.")]
By = Annotated[
    Duration | None,
    Sent(write=seconds, read=Span | None),
    Field(description="Additional time for `extend`."),
]
Cursor = Annotated[str, Field(max_length=4_000, description="`next_cursor` of the previous page.")]
Limit = Annotated[int, Field(ge=1, le=1_000, description="Maximum number of items.")]
After = Annotated[int, Field(ge=0, le=2**53, description="Only items after this number.")]
Amount = Annotated[int, Field(ge=0, le=AMOUNT_MAX)]
AmountOfMoney = Annotated[str, StringConstraints(pattern=r"^\d{1,9}(\.\d{1,6})?$")]
Reasoned = Annotated[Text, Field(examples=["the customer called"])]
"""Reason of an operator, shown in the history."""
Remark = Annotated[str, StringConstraints(max_length=TEXT_CHARS_MAX)]
"""Reason that may be left out."""
JsonObject = Annotated[Mapping[str, Any], Sent(write=copied, read=dict[str, Any])]


def sent_facts(declared: DeclaredFacts) -> dict[str, Any]:
    """Return the types in HTTP of facts that a request states, by their names."""
    return {name: _type_of(each) for name, each in declared.by_place["request"].items()}


def _type_of(detail: DetailField) -> Any:
    text = Field(description=detail.meaning or None, examples=[detail.example] if detail.example else None)
    return Annotated[str, StringConstraints(max_length=detail.chars_max), text]


def listed(values: Sequence[str]) -> list[str]:
    """Return any sequence as a list, which JSON can have."""
    return [*values]

"""Terms: durations of business time, or numbers of business days, as options take them (RUN-11)."""

from datetime import timedelta
from typing import Final, NamedTuple, TypeAlias

from outlast.core.business_days import BusinessDays, Due
from outlast.core.durations import SECOND, Term, check_near, ms_of

Length: TypeAlias = int | BusinessDays
"""A term as the engine has it: milliseconds, or business days."""


class Deadline(NamedTuple):
    """Business instant, and how it was counted if it is the end of business days; 0 = no deadline."""

    ms: int
    due: Due | None = None


NO_DEADLINE: Final = Deadline(0)


def length_of(what: str, given: Term) -> Length:
    """Return a term in milliseconds of any length, or business days. Raises as `ms_of`."""
    return given if isinstance(given, BusinessDays) else ms_of(what, given, any_length=True)


def end_of(what: str, term: timedelta | BusinessDays, from_ms: int) -> Deadline:
    """Return the end of a term that begins at a business instant. Raises InvalidInput for business days.

    A duration was checked where it was declared (`positive_term`).
    """
    if isinstance(term, timedelta):
        return Deadline(from_ms + int(term.total_seconds() * SECOND))
    return deadline_of(what, term, from_ms, term)


def deadline_of(what: str, length: Length, from_ms: int, given: object) -> Deadline:
    """Return the end of a term that begins at a business instant. `given`: as it was written. Raises InvalidInput."""
    if isinstance(length, BusinessDays):
        due = length.due(from_ms)
        check_near(what, length, due.ms - from_ms)
        return Deadline(due.ms, due)
    check_near(what, given, length)
    return Deadline(from_ms + length)

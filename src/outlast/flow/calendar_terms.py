"""The public `business_days`, and the checks of its arguments."""

import re
from collections.abc import Collection, Container, Iterator, KeysView, Sequence, Set, ValuesView
from datetime import date, datetime, time
from typing import Any, Final
from zoneinfo import ZoneInfo

from outlast.core.argument_checks import Arguments
from outlast.core.business_days import WEEKDAYS, WEEKEND, BusinessDays, zone_of

DAYS_MAX: Final = 1_000
_CLOCK: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?")
_OF_THE_MACHINE: Final = ("localtime", "posixrules", "Factory")
_LOOKS: Final = ("__contains__", "__iter__", "__getitem__")
"""Methods of which `in` needs one."""


def business_days(
    n: int,
    *,
    zone: str,
    holidays: Container[date] = (),
    weekend: Collection[str] = WEEKEND,
    at: time | str | None = None,
) -> BusinessDays:
    """Return a term of `n` business days (1 to 1,000), for `within=`, `timeout=`, `until=`, `valid_for=`, `ceiling=`.

    - `zone`: name of the time zone, e.g. `"Europe/Berlin"`.
    - `holidays`: any object with `in` that takes a date: a set, or `holidays.country_holidays("DE", subdiv="BY")` of
      the extra `calendar`.
    - `weekend`: days of the week that are no business days.
    - `at`: wall time on the last day, e.g. `"18:00"` [that of the beginning].

    The term ends at the same wall time `n` business days later. It counts from its first request; `.since(instant)` of
    the term counts from another instant, and `.ends(instant)` returns the end. Raises InvalidInput.
    """
    check = Arguments("business_days", of_call=True)
    check.number("n", n, 1, DAYS_MAX)
    return BusinessDays(
        n, _zone(check, zone), _container(check, holidays), _weekend(check, weekend), _wall_time(check, at)
    )


def _zone(check: Arguments, given: Any) -> str:
    name = given.key if isinstance(given, ZoneInfo) else given
    if not isinstance(name, str) or name in _OF_THE_MACHINE:
        raise check.wrong("zone", given, "it is the name of a time zone", 'zone="Europe/Berlin"')
    zone_of(name)
    return name


def _container(check: Arguments, given: Any) -> Container[date]:
    """Return the holidays: a copy of a collection of dates, any other object with `in` itself."""
    fix = "holidays={date(2027, 1, 1), date(2027, 1, 6)}"
    if isinstance(given, str | bytes | Iterator) or not any(hasattr(type(given), name) for name in _LOOKS):
        raise check.wrong("holidays", given, "it is any object with `in`, such as a set of dates", fix)
    if isinstance(given, Sequence | Set | KeysView | ValuesView) or type(given) is dict:
        for day in given:
            if not isinstance(day, date) or isinstance(day, datetime):
                raise check.wrong("holidays", given, f"each is a date, not {day!r}", fix)
        return frozenset(given)
    container: Container[date] = given
    return container


def _weekend(check: Arguments, given: Any) -> tuple[str, ...]:
    fix = 'weekend=("sat", "sun"), or () if each day may be a business day'
    if isinstance(given, str) or not isinstance(given, Collection):
        raise check.wrong("weekend", given, "it is a tuple of days of the week", fix)
    if any(day not in WEEKDAYS for day in given):
        raise check.wrong("weekend", given, f"the days are {', '.join(WEEKDAYS)}", fix)
    if len(set(given)) == len(WEEKDAYS):
        raise check.wrong("weekend", given, "no day is left", fix)
    return tuple(day for day in WEEKDAYS if day in given)


def _wall_time(check: Arguments, given: Any) -> time | None:
    if given is None:
        return None
    found = time.fromisoformat(given) if isinstance(given, str) and _CLOCK.fullmatch(given) else given
    if not isinstance(found, time) or found.tzinfo is not None:
        raise check.wrong("at", given, "it is a time of the day without a zone, which zone= says", 'at="18:00"')
    return found.replace(microsecond=0, fold=0)

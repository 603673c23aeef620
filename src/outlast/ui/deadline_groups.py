"""Groups of approvals by the day of their deadline, in the viewer's zone."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from typing import Final, TypeVar
from zoneinfo import ZoneInfo

T = TypeVar("T")
ZONE_CHARS_MAX: Final = 64


def zone_of(name: str) -> tzinfo | None:
    """Return the zone of a name that a browser sent, or None for UTC and unknown ones."""
    if not name or len(name) > ZONE_CHARS_MAX or name == "UTC":
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return None


def day_of(until: datetime, now: datetime, zone: tzinfo | None) -> str:
    """Return the group of a deadline: Overdue, Today, Tomorrow, This week (until Sunday) or Later."""
    if until <= now:
        return "Overdue"
    today, day = (each.astimezone(zone or UTC).date() for each in (now, until))
    if day == today:
        return "Today"
    if day == today + timedelta(days=1):
        return "Tomorrow"
    return "This week" if day <= today + timedelta(days=6 - today.weekday()) else "Later"


def in_groups(
    items: Iterable[T], until: Callable[[T], datetime | None], now: datetime, zone: tzinfo | None
) -> list[tuple[str, list[T]]]:
    """Return items in the order of their deadlines as groups with a name."""
    named = groupby(items, lambda each: day_of(at, now, zone) if (at := until(each)) is not None else "Later")
    return [(name, list(group)) for name, group in named]

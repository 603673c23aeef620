"""Business days: deadlines that skip weekends and holidays, in the wall time of one zone (RUN-11).

A term is turned into an instant once, at the first request of a wait, and stored with the days that it skipped. So a
holiday table that changes later does not move it (S-14).
"""

import json
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from outlast.core.rows.columns import Column
from outlast.errors import InvalidInput, to_install

SKIPPED_MAX: Final = 400
"""Maximum number of consecutive days that are no business days."""
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WEEKEND: Final = ("sat", "sun")
SHOWN_MAX: Final = 20
ONE_DAY: Final = timedelta(days=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOON: Final = time(12)
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NAMES: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""English names, because those of `strftime` depend on the locale of the process."""


class Due(NamedTuple):
    """Instant at which a term of business days ends (business ms), its wall time, and the days that it skipped."""

    ms: int
    zone: str
    local: datetime  # the instant with the zone's offset
    skipped: tuple[date, ...]

    def __str__(self) -> str:
        """Return `Tuesday 5 January 2027 15:00 Europe/Berlin; skipped Fri 1 Jan, Sat 2 Jan, Sun 3 Jan`."""
        if not self.skipped:
            return self.when
        listed = ", ".join(_short(day) for day in self.skipped[:SHOWN_MAX])
        more = f" and {len(self.skipped) - SHOWN_MAX} more days" if len(self.skipped) > SHOWN_MAX else ""
        return f"{self.when}; skipped {listed}{more}"

    @property
    def when(self) -> str:
        """Return the date, the wall time and the zone."""
        at = self.local
        return f"{_NAMES[at.weekday()]} {at.day} {_MONTHS[at.month - 1]} {at.year} {at:%H:%M} {self.zone}"


def _short(day: date) -> str:
    return f"{_NAMES[day.weekday()][:3]} {day.day} {_MONTHS[day.month - 1][:3]}"


@dataclass(frozen=True, slots=True, repr=False)
class BusinessDays:
    """Term of `n` business days. Made by `business_days`, which checks its parts."""

    n: int
    zone: str
    holidays: Container[date] = field(hash=False)
    weekend: tuple[str, ...] = WEEKEND
    at: time | None = None
    since_ms: int | None = None
    """Business instant from which the term counts; None: that of its first request."""

    def since(self, start: datetime) -> "BusinessDays":
        """Return the term that counts from `start`, such as `ctx.now()`, and not from its first request.

        Raises InvalidInput if `start` has no time zone.
        """
        return replace(self, since_ms=_instant(start))

    def ends(self, start: datetime) -> datetime:
        """Return the end of the term if it begins at `start`, in the term's zone. Raises InvalidInput."""
        return self.since(start).due(0).local

    def due(self, from_ms: int) -> Due:
        """Return the end of the term that begins at a business instant, or at its own.

        From a day that is no business day, the count starts at the next business day. A wall time that does not exist
        on the last day moves forward, an ambiguous one is the first. Raises InvalidInput.
        """
        from_ms = from_ms if self.since_ms is None else self.since_ms
        zone = zone_of(self.zone)
        begins = (_EPOCH + from_ms * _MILLISECOND).astimezone(zone)
        skipped: list[date] = []
        try:
            day = self._from(begins.date(), zone, skipped)
            for _ in range(self.n):
                day = self._from(day + ONE_DAY, zone, skipped)
            wall = (self.at or begins.time()).replace(fold=0)
            ends = datetime.combine(day, wall, tzinfo=zone).astimezone(UTC)
        except OverflowError:
            raise InvalidInput(f"{self} end after the year 9999", "no calendar goes so far", "use fewer days") from None
        ms = max((ends - _EPOCH) // _MILLISECOND, from_ms + 1)
        # as in the row: an ambiguous time with its zone equals none with an offset
        local = datetime.fromisoformat((_EPOCH + ms * _MILLISECOND).astimezone(zone).isoformat())
        return Due(ms, self.zone, local, tuple(skipped))

    def fixed(self, from_ms: int, until_ms: int) -> "BusinessDays":
        """Return the term with the holidays that count if it begins in a period, for a process without their object."""
        zone, from_ms = zone_of(self.zone), from_ms if self.since_ms is None else self.since_ms
        first = (_EPOCH + from_ms * _MILLISECOND).astimezone(zone).date()
        last = self.due(until_ms).local.date()
        days = (first + n * ONE_DAY for n in range((last - first).days + 1))
        return replace(self, holidays=frozenset(day for day in days if self._on_weekday(day) and self._free(day)))

    def _from(self, day: date, zone: ZoneInfo, skipped: list[date]) -> date:
        """Return the first business day from a day on. The days before it are added to `skipped`."""
        first = day
        while not self._on_weekday(day) or self._free(day) or not _exists(day, zone):
            if _exists(day, zone):
                skipped.append(day)
            day += ONE_DAY
            if (day - first).days > SKIPPED_MAX:
                raise InvalidInput(
                    f"{self} never end: no day from {first} to {day} is a business day",
                    f"at most {SKIPPED_MAX} days in a row may be weekend or holidays",
                    "correct holidays= or weekend=",
                )
        return day

    def _on_weekday(self, day: date) -> bool:
        return WEEKDAYS[day.weekday()] not in self.weekend

    def _free(self, day: date) -> bool:
        try:
            return bool(day in self.holidays)
        except Exception as error:  # because the container is an author's
            raise InvalidInput(
                f"holidays={type(self.holidays).__name__} cannot be asked for {day}: {error!r}"[:300],
                "it is any object with `in` that takes a date",
                "e.g. a set of dates, or holidays.country_holidays(…)",
            ) from error

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """Return the term without its holidays: `5 business days in Europe/Berlin at 18:00`."""
        at = f" at {self.at.isoformat()}" if self.at is not None else ""
        weekend = "" if self.weekend == WEEKEND else f" with weekend {'+'.join(self.weekend) or 'none'}"
        since = "" if self.since_ms is None else f" since {(_EPOCH + self.since_ms * _MILLISECOND).isoformat()}"
        return f"{self.n} business day{'s' if self.n != 1 else ''} in {self.zone}{weekend}{at}{since}"


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name. Raises InvalidInput."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(
            f"no time zone {name!r} is known here"[:200],
            "it is a name of the IANA database, which comes with the system or with the package tzdata",
            f'e.g. zone="Europe/Berlin"; if the name is right: {to_install("calendar")}',
        ) from None


def _instant(start: datetime) -> int:
    checked: object = start  # a caller without a type checker may pass anything
    if not isinstance(checked, datetime) or checked.tzinfo is None:
        raise InvalidInput(f"business days since {start!r}", "it is an instant with a time zone", "e.g. ctx.now()")
    return (checked - _EPOCH) // _MILLISECOND


def _exists(day: date, zone: ZoneInfo) -> bool:
    """Return False for a day that its zone left out, such as 30 December 2011 in Pacific/Apia."""
    return datetime.combine(day, _NOON, tzinfo=zone).astimezone(UTC).astimezone(zone).date() == day


# --- stored form ---------------------------------------------------------------------------
def _runs_of(days: Iterable[date]) -> list[str]:
    """Return dates as text, consecutive ones as one: `2027-01-01+2` is the first and the two days after it."""
    runs: list[tuple[date, int]] = []
    for day in sorted(days):
        if runs and day - runs[-1][0] == (runs[-1][1] + 1) * ONE_DAY:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((day, 0))
    return [f"{first}+{more}" if more else f"{first}" for first, more in runs]


def _days_of(runs: Iterable[str]) -> Iterator[date]:
    for run in runs:
        first, _, more = run.partition("+")
        begin = date.fromisoformat(first)
        yield from (begin + n * ONE_DAY for n in range(int(more or 0) + 1))


_compact: Final = partial(json.dumps, separators=(",", ":"))


def _dump_due(due: Due | None) -> str:
    if due is None:
        return ""
    local, skipped = due.local.isoformat(), _runs_of(due.skipped)
    return _compact({"ms": due.ms, "zone": due.zone, "local": local, "skipped": skipped})


def _load_due(text: str) -> Due | None:
    if not text:
        return None
    plain = json.loads(text)
    local = datetime.fromisoformat(plain["local"])
    return Due(int(plain["ms"]), str(plain["zone"]), local, tuple(_days_of(plain["skipped"])))


def _dump_term(term: BusinessDays | None) -> str:
    """Return the text of a term of `BusinessDays.fixed`, the holidays of which are a set."""
    if term is None:
        return ""
    assert isinstance(term.holidays, frozenset), "any other container is an author's object"
    at = term.at.isoformat() if term.at is not None else ""
    since = {} if term.since_ms is None else {"since": term.since_ms}
    return _compact(
        {"n": term.n, "zone": term.zone, "weekend": term.weekend, "at": at, "holidays": _runs_of(term.holidays)} | since
    )


def _load_term(text: str) -> BusinessDays | None:
    if not text:
        return None
    plain = json.loads(text)
    at = time.fromisoformat(plain["at"]) if plain["at"] else None
    holidays = frozenset(_days_of(plain["holidays"]))
    return BusinessDays(int(plain["n"]), str(plain["zone"]), holidays, tuple(plain["weekend"]), at, plain.get("since"))


DUE: Final = Column("due", _dump_due, _load_due)
TERM: Final = Column("term", _dump_term, _load_term)

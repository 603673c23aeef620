"""Business days: the end of a term, the days that it skips, and its stored form (RUN-11)."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import holidays as public_holidays
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast import business_days
from outlast.core.business_days import DUE, SKIPPED_MAX, TERM, WEEKDAYS, BusinessDays
from outlast.errors import InvalidInput
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-11")
BERLIN = "Europe/Berlin"
ZONES = (BERLIN, "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kolkata", "UTC")


def at(text: str, zone: str = BERLIN, *, fold: int = 0) -> int:
    """Return the instant of a wall time in ms."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


def ends(term: BusinessDays, begins: str, *, fold: int = 0) -> str:
    """Return the wall time at which a term ends that begins at a wall time of its zone."""
    return term.due(at(begins, term.zone, fold=fold)).local.isoformat(timespec="minutes")


def date_time(year: int) -> datetime:
    """Return the first instant of a year, without a zone."""
    return datetime.fromisoformat(f"{year}-01-01T00:00")


# --- counting ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("begins", "n", "expected"),
    [
        ("2026-11-30T15:00", 1, "2026-12-01T15:00+01:00"),  # Monday
        ("2026-11-30T15:00", 5, "2026-12-07T15:00+01:00"),  # over one weekend
        ("2026-11-27T15:00", 1, "2026-11-30T15:00+01:00"),  # Friday
        ("2026-11-28T15:00", 1, "2026-12-01T15:00+01:00"),  # Saturday: the count starts on Monday
        ("2026-11-29T15:00", 1, "2026-12-01T15:00+01:00"),  # Sunday, too
        ("2026-12-31T15:00", 1, "2027-01-04T15:00+01:00"),  # over New Year and a weekend
        ("2027-01-01T15:00", 1, "2027-01-05T15:00+01:00"),  # on a holiday: the count starts on Monday
        ("2026-11-30T00:00", 1000, "2030-10-01T00:00+02:00"),
    ],
)
def test_a_term_ends_at_the_same_wall_time_on_a_later_business_day(begins: str, n: int, expected: str) -> None:
    assert ends(business_days(n, zone=BERLIN, holidays={date(2027, 1, 1)}), begins) == expected


def test_the_day_of_the_zone_counts_not_that_of_utc() -> None:
    sunday_in_auckland = at("2026-11-29T08:00", "Pacific/Auckland")  # Saturday in UTC
    assert business_days(1, zone="Pacific/Auckland").due(sunday_in_auckland).local.date() == date(2026, 12, 1)
    monday_in_auckland = at("2026-11-30T08:00", "Pacific/Auckland")  # Sunday in UTC
    assert business_days(1, zone="Pacific/Auckland").due(monday_in_auckland).local.date() == date(2026, 12, 1)


def test_the_skipped_days_are_the_weekends_and_holidays_on_the_way() -> None:
    due = business_days(1, zone=BERLIN, holidays=[date(2027, 1, 1)]).due(at("2026-12-31T15:00"))
    assert due.skipped == (date(2027, 1, 1), date(2027, 1, 2), date(2027, 1, 3))
    assert str(due) == "Monday 4 January 2027 15:00 Europe/Berlin; skipped Fri 1 Jan, Sat 2 Jan, Sun 3 Jan"


def test_the_days_before_the_count_starts_are_skipped_days() -> None:
    assert business_days(1, zone=BERLIN).due(at("2026-11-28T15:00")).skipped == (date(2026, 11, 28), date(2026, 11, 29))


def test_at_replaces_the_wall_time_on_the_last_day() -> None:
    assert ends(business_days(2, zone=BERLIN, at="18:00"), "2026-11-27T23:59") == "2026-12-01T18:00+01:00"
    assert ends(business_days(1, zone=BERLIN, at=time(0)), "2026-11-30T23:59") == "2026-12-01T00:00+01:00"


def test_another_weekend() -> None:
    friday_and_saturday = business_days(1, zone="Asia/Riyadh", weekend=["sat", "fri"])
    assert ends(friday_and_saturday, "2026-11-26T10:00") == "2026-11-29T10:00+03:00"  # Thursday to Sunday
    assert ends(business_days(1, zone="UTC", weekend=()), "2026-11-28T10:00") == "2026-11-29T10:00+00:00"


def test_milliseconds_are_kept() -> None:
    begins = at("2026-11-30T15:00") + 1
    assert business_days(1, zone=BERLIN).due(begins).ms == begins + 24 * 3_600_000


# --- clock changes -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("zone", "begins", "expected"),
    [
        (BERLIN, "2027-03-26T15:00", "2027-03-29T15:00+02:00"),  # 71 hours over the change of spring
        (BERLIN, "2026-10-23T15:00", "2026-10-26T15:00+01:00"),  # 73 hours over that of autumn
        ("America/New_York", "2027-03-12T15:00", "2027-03-15T15:00-04:00"),
        ("America/New_York", "2026-10-30T15:00", "2026-11-02T15:00-05:00"),
        ("Australia/Lord_Howe", "2026-10-02T15:00", "2026-10-05T15:00+11:00"),  # by half an hour
        ("Asia/Kolkata", "2027-03-26T15:00", "2027-03-29T15:00+05:30"),
    ],
)
def test_the_wall_time_stays_over_a_clock_change(zone: str, begins: str, expected: str) -> None:
    assert ends(business_days(1, zone=zone), begins) == expected


def test_a_wall_time_that_does_not_exist_on_the_last_day_moves_forward() -> None:
    each_day = business_days(1, zone=BERLIN, weekend=())
    assert ends(each_day, "2027-03-27T02:30") == "2027-03-28T03:30+02:00"
    assert ends(business_days(1, zone=BERLIN, weekend=(), at="02:15"), "2027-03-27T12:00") == "2027-03-28T03:15+02:00"
    assert ends(business_days(1, zone="Africa/Cairo"), "2027-04-29T00:30") == "2027-04-30T01:30+03:00"  # at midnight


def test_an_ambiguous_wall_time_is_the_first_one() -> None:
    assert ends(business_days(1, zone=BERLIN, weekend=()), "2026-10-24T02:30") == "2026-10-25T02:30+02:00"


def test_a_term_that_ends_in_an_ambiguous_hour_comes_back_as_it_was() -> None:
    """The stored wall time has an offset; with a zone instead it equalled nothing."""
    due = business_days(12, zone="Australia/Lord_Howe", weekend=()).due(at("2019-03-26T01:30", "Australia/Lord_Howe"))
    assert due.local.isoformat() == "2019-04-07T01:30:00+11:00"
    assert DUE.decode(DUE.encode(due)) == due


def test_a_term_that_begins_in_the_second_of_two_equal_hours_ends_in_the_first() -> None:
    assert ends(business_days(1, zone=BERLIN, weekend=()), "2026-10-25T02:30", fold=1) == "2026-10-26T02:30+01:00"
    ambiguous_in_a_year = business_days(371, zone=BERLIN, weekend=())
    assert ends(ambiguous_in_a_year, "2026-10-25T02:30", fold=1) == "2027-10-31T02:30+02:00"


def test_a_day_that_the_zone_left_out_is_neither_counted_nor_skipped() -> None:
    due = business_days(1, zone="Pacific/Apia").due(at("2011-12-29T15:00", "Pacific/Apia"))
    assert due.local.date() == date(2012, 1, 2)  # Friday, 30 December 2011 did not exist
    assert due.skipped == (date(2011, 12, 31), date(2012, 1, 1))


# --- against a slow reference --------------------------------------------------------------
def slow_end(begins: datetime, n: int, free: set[date], weekend: tuple[str, ...]) -> date:
    """Return the last day of a term, counted hour by hour."""
    zone = begins.tzinfo
    instant, days = begins.astimezone(UTC), [begins.date()]
    while len([d for d in days if d not in free and WEEKDAYS[d.weekday()] not in weekend]) <= n:
        instant += timedelta(minutes=30)
        if (day := instant.astimezone(zone).date()) != days[-1]:
            days.append(day)
    return days[-1]


@settings(max_examples=150, deadline=None)
@given(
    begins=st.datetimes(date_time(2005), date_time(2035), timezones=st.sampled_from(ZONES).map(ZoneInfo)),
    n=st.integers(1, 12),
    free=st.sets(st.integers(0, 30)),
    weekend=st.lists(st.sampled_from(WEEKDAYS), unique=True, max_size=5),
)
def test_the_last_day_is_that_of_a_slow_count(begins: datetime, n: int, free: set[int], weekend: list[str]) -> None:
    begins = begins.replace(microsecond=0).astimezone(UTC).astimezone(begins.tzinfo)  # a wall time that exists
    holidays = {begins.date() + timedelta(days=each) for each in free}
    term = business_days(n, zone=str(begins.tzinfo), holidays=holidays, weekend=weekend)
    due = term.due(round(begins.timestamp() * 1000))
    assert due.local.date() == slow_end(begins, n, holidays, term.weekend)
    between = [begins.date() + timedelta(days=d) for d in range((due.local.date() - begins.date()).days + 1)]
    counted = [day for day in between if day not in due.skipped]
    assert all(day not in holidays and WEEKDAYS[day.weekday()] not in term.weekend for day in counted)
    assert all(day in holidays or WEEKDAYS[day.weekday()] in term.weekend for day in due.skipped)
    assert due.ms > begins.timestamp() * 1000
    assert DUE.decode(DUE.encode(due)) == due


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 30), after=st.integers(0, 40), free=st.sets(st.integers(0, 90)), timed=st.booleans())
def test_a_fixed_term_ends_as_the_term_itself_in_its_period(n: int, after: int, free: set[int], timed: bool) -> None:
    begins = at("2026-12-01T09:30")
    term = business_days(
        n, zone=BERLIN, holidays={date(2026, 12, 1) + timedelta(days=d) for d in free}, at="17:00" if timed else None
    )
    until = begins + 40 * 24 * 3_600_000
    fixed = TERM.decode(TERM.encode(term.fixed(begins, until)))
    assert fixed is not None
    asked = begins + after * 24 * 3_600_000
    assert fixed.due(asked) == term.due(asked)


def test_a_term_may_count_from_another_instant_than_its_request() -> None:
    friday = datetime(2026, 11, 27, 14, tzinfo=UTC)
    term = business_days(2, zone=BERLIN).since(friday)
    for asked in ("2026-11-27T15:00", "2026-11-30T09:00", "2027-05-01T00:00"):
        assert term.due(at(asked)).local.isoformat() == "2026-12-01T15:00:00+01:00"
    assert business_days(2, zone=BERLIN).ends(friday) == term.due(0).local, "a letter can state the end of the wait"
    assert str(term) == "2 business days in Europe/Berlin since 2026-11-27T14:00:00+00:00"
    fixed = TERM.decode(TERM.encode(term.fixed(at("2026-11-28T00:00"), at("2026-12-20T00:00"))))
    assert fixed is not None and fixed.due(at("2026-12-10T00:00")) == term.due(0)


@pytest.mark.parametrize("start", [datetime(2026, 11, 27), date(2026, 11, 27), "2026-11-27"], ids=repr)  # noqa: DTZ001
def test_a_term_counts_from_an_instant_with_a_zone_only(start: Any) -> None:
    with pytest.raises(InvalidInput, match="an instant with a time zone"):
        business_days(2, zone=BERLIN).since(start)


# --- holidays ------------------------------------------------------------------------------
def test_the_holidays_of_bavaria() -> None:
    bavaria = public_holidays.country_holidays("DE", subdiv="BY")
    term = business_days(5, zone=BERLIN, holidays=bavaria)
    due = term.due(at("2026-12-30T12:00"))  # New Year on Friday, Epiphany on Wednesday
    assert due.local.isoformat() == "2027-01-08T12:00:00+01:00"
    assert [day for day in due.skipped if day.weekday() < 5] == [date(2027, 1, 1), date(2027, 1, 6)]
    hamburg = business_days(5, zone=BERLIN, holidays=public_holidays.country_holidays("DE", subdiv="HH"))
    assert hamburg.due(at("2026-12-30T12:00")).local.date() == date(2027, 1, 7)  # Epiphany is a business day there
    whitsun = business_days(1, zone=BERLIN, holidays=bavaria).due(at("2027-05-14T12:00"))
    assert whitsun.local.date() == date(2027, 5, 18)


def test_a_list_that_changes_later_changes_no_term() -> None:
    days = [date(2026, 12, 1)]
    term = business_days(1, zone=BERLIN, holidays=days)
    days.clear()
    assert ends(term, "2026-11-30T12:00") == "2026-12-02T12:00+01:00"


def test_too_many_days_in_a_row_that_are_no_business_days() -> None:
    class Never:
        def __contains__(self, day: object) -> bool:
            return True

    with pytest.raises(InvalidInput, match=f"at most {SKIPPED_MAX} days in a row"):
        business_days(1, zone=BERLIN, holidays=Never()).due(0)
    first = date(2026, 12, 1)
    just = {first + timedelta(days=n) for n in range(SKIPPED_MAX)}
    assert len(business_days(1, zone=BERLIN, holidays=just, weekend=()).due(at("2026-11-30T12:00")).skipped) == 400
    with pytest.raises(InvalidInput, match="days in a row"):
        business_days(1, zone=BERLIN, holidays=just | {first + timedelta(days=SKIPPED_MAX)}, weekend=()).due(
            at("2026-11-30T12:00")
        )


def test_a_container_that_raises_is_named() -> None:
    class Broken:
        def __contains__(self, day: object) -> bool:
            raise RuntimeError("no table of 2027")

    with pytest.raises(InvalidInput, match="no table of 2027"):
        business_days(1, zone=BERLIN, holidays=Broken()).due(0)


def test_the_end_of_the_calendar_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="after the year 9999"):
        business_days(1000, zone="UTC").due(at("9998-12-01T00:00", "UTC"))


def test_many_skipped_days_are_cut_in_the_text_and_kept_in_the_row() -> None:
    due = business_days(1000, zone=BERLIN).due(at("2026-11-30T15:00"))
    assert len(due.skipped) == 400
    assert str(due).endswith("Sat 6 Feb, Sun 7 Feb and 380 more days")
    text = DUE.encode(due)
    assert DUE.decode(text) == due
    assert len(text) < 4_000


# --- arguments -----------------------------------------------------------------------------
def generated() -> Iterator[date]:
    yield date(2027, 1, 1)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"n": 0}, "n=0"),
        ({"n": 1001}, "n=1001"),
        ({"n": True}, "n=True"),
        ({"n": 1.5}, "n=1.5"),
        ({"n": "5"}, "n='5'"),
        ({"zone": "Mars/Olympus"}, "pip install 'outlast[calendar]'"),
        ({"zone": ""}, "no time zone ''"),
        ({"zone": "../zoneinfo/UTC"}, "no time zone"),
        ({"zone": "Europe"}, "no time zone"),
        ({"zone": None}, "zone=None"),
        ({"zone": UTC}, "zone="),
        ({"zone": "localtime"}, "zone='localtime'"),
        ({"holidays": "2027-01-01"}, "any object with `in`"),
        ({"holidays": 5}, "any object with `in`"),
        ({"holidays": None}, "any object with `in`"),
        ({"holidays": generated()}, "any object with `in`"),
        ({"holidays": ["2027-01-01"]}, "not '2027-01-01'"),
        ({"holidays": {date_time(2027)}}, "each is a date, not"),
        ({"holidays": (date(2027, 1, 1), 5)}, "not 5"),
        ({"holidays": {"2027-01-01": "New Year"}}, "each is a date, not"),
        ({"weekend": "sat"}, "weekend='sat'"),
        ({"weekend": ("Sat",)}, "mon, tue"),
        ({"weekend": ([],)}, "mon, tue"),
        ({"weekend": WEEKDAYS}, "no day is left"),
        ({"weekend": 5}, "weekend=5"),
        ({"at": "18"}, "at='18'"),
        ({"at": "24:00"}, "at='24:00'"),
        ({"at": "18:00+01:00"}, "at='18:00+01:00'"),
        ({"at": time(18, tzinfo=UTC)}, "without a zone"),
        ({"at": 18}, "at=18"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        business_days(**{"n": 1, "zone": BERLIN, **given})
    assert named in str(raised.value)


def test_a_term_is_a_value() -> None:
    one, other = (business_days(5, zone=BERLIN, holidays=[date(2027, 1, 1)], at="18:00") for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == "5 business days in Europe/Berlin at 18:00:00"
    assert str(business_days(1, zone="UTC", weekend=("fri",))) == "1 business day in UTC with weekend fri"
    with pytest.raises(AttributeError):
        one.n = 6  # type: ignore[misc]


# --- removed safeguards ----------------------------------------------------------------------
@pytest.mark.parametrize("removed", ["weekends_counted", "holidays_counted", "counted_from_the_request"])
def test_a_count_without_its_rule_ends_on_another_day(removed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    term = business_days(2, zone=BERLIN, holidays={date(2026, 12, 25)}).since(datetime(2026, 12, 24, 12, tzinfo=UTC))
    assert term.due(0).local.isoformat() == "2026-12-29T13:00:00+01:00"
    remove(removed, monkeypatch)
    assert term.due(0).local.isoformat() != "2026-12-29T13:00:00+01:00"

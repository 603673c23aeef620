"""The auction lasts five business days, in virtual time: over weekends, holidays and both changes of the clock."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from examples.negotiation.governance import AUCTION_DAYS_AT_MOST, Calendar, Governance
from examples.negotiation.market.behaviour import load
from examples.negotiation.samples import sample
from examples.negotiation.workflow import negotiation
from outlast.testing import App, AppFactory
from outlast.testing.virtual_runtime import AppRun
from tests.examples.bidders import Bidders

pytestmark = pytest.mark.req("RUN-11", "APP-1")
BERLIN = "Europe/Berlin"
NEW_YEAR = [date(2026, 12, 24), date(2026, 12, 25), date(2027, 1, 1)]


def begin(
    app: App, patch: pytest.MonkeyPatch, at: str, *, silent: bool = True, **calendar: Any
) -> tuple[AppRun[Any], Bidders]:
    """Start an auction at a wall time of its zone. `silent`: no supplier bids, so each round lasts its full time."""
    zone = ZoneInfo(calendar.setdefault("zone", BERLIN))
    start = datetime.fromisoformat(at).replace(tzinfo=zone)
    app.clock.skip(start - datetime.fromtimestamp(app.time.wall() / 1000, UTC))
    behaviours = load("calm").suppliers
    bidders = Bidders(app, patch, behaviours, silent=set(behaviours) if silent else set())
    rules = {"calendar": {**calendar, "holidays": [str(day) for day in calendar.get("holidays", [])]}}
    given = sample("leverage", today=start.date()) | {"governance": rules}
    return app.start(negotiation, given), bidders


def due(app: App, run: AppRun[Any]) -> str:
    """Return the due date as `outlast explain` names it."""
    return str(app.do(app.runtime.operations.explain(run.now.run)).facts["due"])


def stated(bidders: Bidders) -> list[str]:
    """Return the end of each round as the invitations state it, in the zone of the buyer."""
    return list(dict.fromkeys(each.letter.closes_at.isoformat() for each in bidders.of("invitations")))


CASES = {
    "within a week": ("2026-11-30T09:00", {}, ["12-01", "12-02", "12-03", "12-04", "12-07"], ["+01:00"] * 5),
    "from a Thursday, over a weekend": (
        "2026-11-26T09:00",
        {},
        ["11-27", "11-30", "12-01", "12-02", "12-03"],
        ["+01:00"] * 5,
    ),
    "from a Saturday": ("2026-11-28T09:00", {}, ["12-01", "12-02", "12-03", "12-04", "12-07"], ["+01:00"] * 5),
    "over Christmas": (
        "2026-12-22T09:00",
        {"holidays": NEW_YEAR},
        ["12-23", "12-28", "12-29", "12-30", "12-31"],
        ["+01:00"] * 5,
    ),
    "into summer time": (
        "2026-03-26T09:00",
        {},
        ["03-27", "03-30", "03-31", "04-01", "04-02"],
        ["+01:00", *["+02:00"] * 4],
    ),
    "into winter time": (
        "2026-10-22T09:00",
        {},
        ["10-23", "10-26", "10-27", "10-28", "10-29"],
        ["+02:00", *["+01:00"] * 4],
    ),
}


@pytest.mark.parametrize(("begins", "calendar", "days", "offsets"), CASES.values(), ids=CASES)
def test_each_round_closes_on_its_business_day(
    outlast_app: AppFactory,
    monkeypatch: pytest.MonkeyPatch,
    begins: str,
    calendar: dict[str, Any],
    days: list[str],
    offsets: list[str],
) -> None:
    app = outlast_app(negotiation)
    run, bidders = begin(app, monkeypatch, begins, **calendar)
    expected = [f"2026-{day}T09:00:00{offset}" for day, offset in zip(days, offsets, strict=True)]
    for number, end in enumerate(expected, 1):
        closes = datetime.fromisoformat(end)
        assert [each.round for each in (w.letter for w in bidders.of("invitations"))][-1] == number
        assert f"{closes.day} {closes:%B %Y} 09:00 {BERLIN}" in due(app, run)
        app.pass_until(round((closes - timedelta(minutes=2)).timestamp() * 1000))
        assert len(stated(bidders)) == number, "no round ends before its time"
        app.pass_until(round((closes + timedelta(minutes=2)).timestamp() * 1000))
    assert [text[:19] for text in stated(bidders)] == [text[:19] for text in expected]
    assert run.status == "failed" and "no bid in 5 rounds" in str(run.now.reason)
    assert run.attention == [], "neither the 168 hours nor the ceiling of the node passed"
    assert bidders.repeated() == []


def test_explain_names_the_days_that_the_round_skips(outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    app = outlast_app(negotiation)
    run, _ = begin(app, monkeypatch, "2026-12-23T09:00", holidays=NEW_YEAR)
    assert due(app, run) == (
        "Monday 28 December 2026 09:00 Europe/Berlin; skipped Thu 24 Dec, Fri 25 Dec, Sat 26 Dec, Sun 27 Dec"
    )


def test_the_approval_keeps_its_96_hours_over_a_weekend(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = outlast_app(negotiation)
    run, bidders = begin(app, monkeypatch, "2026-11-27T09:00", silent=False)
    assert run.node == "approve" and len(bidders.of("feedback")) == 5 * 5
    app.clock.skip("95h59m")
    assert run.attention == []
    app.clock.skip("2m")
    assert run.attention == ["approval_timeout"]


def test_rounds_fit_into_five_business_days_only() -> None:
    assert Governance(rounds=1, round_days=AUCTION_DAYS_AT_MOST).rounds == 1
    with pytest.raises(ValueError, match="longer than an auction's 5 business days"):
        Governance(rounds=2, round_days=3)
    with pytest.raises(ValueError, match="no time zone 'Europe/Atlantis'"):
        Calendar(zone="Europe/Atlantis")

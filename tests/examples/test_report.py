"""The report contains all facts for the buyer; its page loads no resources and escapes all input."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from examples.negotiation.report import Moment, Report, text
from examples.negotiation.report_page import page
from tests.examples.play import Ended, negotiate, prompt

HOSTILE = '<script>alert("x")</script> & "Söhne" \'OR\' http://evil.example/a'


def report_of(end: Ended) -> Report:
    at = datetime(2026, 3, 2, tzinfo=UTC)
    return Report(
        run="nego_1",
        ended=end.state.shown,
        reason=end.state.reason,
        s=end.s,
        moments=(
            Moment(at, "work", "auction", "done", timedelta(days=2)),
            Moment(at + timedelta(days=1), "crash", "auction", "its worker died"),
            Moment(at + timedelta(days=2), "person", "approval", "approved by ana", timedelta(hours=40)),
        ),
        proof=("21 invitations sent, 0 repeated",),
    )


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    with pytest.MonkeyPatch.context() as patch:
        return negotiate(
            tmp_path_factory.mktemp("r"), patch, "leverage", "again", "approve",
            scenario=prompt("calm"), governance={"rounds": 2},
        )  # fmt: skip


def test_the_text_contains_bids_reasons_costs_risks_and_times(ended: Ended) -> None:
    shown = text(report_of(ended))
    s = ended.s.model_copy(deep=True)
    bid = s.bid(s.winner)
    for fact in (
        "RFQ-2041 · corrugated packaging · AWARDED",
        s.order_id,
        s.why_winner,
        "approved by local",
        "local asked for another round: ask once more",
        "dunlin declined: our order book is full until summer",
        "farrow was not asked: ",
        f"{bid.cents // 100:,}.{bid.cents % 100:02d}",
        "SUPERSEDED",
        "total cost",
        "risk 12 of 100",
        "✗ auction      its worker died",
        "(1.7 d)",
        "21 invitations sent, 0 repeated",
    ):
        assert fact in shown, (fact, shown)
    assert len(re.findall(r"^  \w+ +cycle [12] round ", shown, re.MULTILINE)) == len(s.bids)


class Parts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def parts(html: str) -> Parts:
    found = Parts()
    found.feed(html)
    return found


def test_the_page_holds_its_charts_and_fetches_nothing(ended: Ended) -> None:
    html = page(report_of(ended))
    found = parts(html)
    assert found.tags.count("svg") == 3
    assert {"polyline", "rect", "circle", "table"} <= set(found.tags)
    assert not {"script", "link", "img", "iframe", "object", "embed", "a", "base"} & set(found.tags)
    assert not {"src", "href", "srcset", "action", "onload", "onerror"} & found.attributes
    assert "://" not in html
    assert "url(" not in html and "@import" not in html
    for fact in (ended.s.order_id, "nego_1", "Acme Packaging GmbH", "its worker died", "1.7 d"):
        assert fact in html


def test_text_from_outside_is_escaped(ended: Ended) -> None:
    s = ended.s.model_copy(deep=True)
    for candidate in s.purchase.candidates:
        candidate.name = HOSTILE
    s.declined = {"dunlin": HOSTILE}
    s.purchase.category = HOSTILE
    assert s.award is not None
    s.award.why = s.why_quadrant = HOSTILE
    html = page(report_of(ended)._replace(s=s, reason=HOSTILE, proof=(HOSTILE,)))
    assert "<script" not in html
    assert not {"script", "a"} & set(parts(html).tags)
    assert "&lt;script&gt;" in html


def test_a_negotiation_that_ordered_nothing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = report_of(negotiate(tmp_path, monkeypatch, "bottleneck-declined"))
    assert "Nothing was ordered: no offer in 3 steps" in text(shown)
    assert "elmtree said no to full: we do not make cast-40" in text(shown)
    assert "Nothing was ordered" in page(shown)

"""The acquisition with models without a script: one that reads, a careless one, and one that lies.

Each run has another world, drawn by its seed. The outcome is compared with the truth of that world.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from examples.acquisition import checks, office
from examples.acquisition.inquiry import Acquisition, Pain, Proposal, Qualification
from examples.acquisition.workflow import acquisition
from outlast.agent.model import WAYS
from outlast.testing import App, FakeReceivers, ModelServer, RunEnd, completions, every_crash
from outlast.testing.http_receiver import HttpRequest
from outlast.testing.model_server import PATH, URL
from tests import slices
from tests.examples.inquiries import World, world
from tests.examples.test_acquisition import LEAD, people, to_the_end
from tests.reading_model import Variant, reader

pytestmark = pytest.mark.req("APP-3", "GATE-7")
SEEDS = range(20)
DRAWN = slices.params(SEEDS, 3, "worlds of the acquisition")
LIES = ("pains", "grade", "proposal", "message")
"""The question about which a lying model lies, by the remainder of its seed."""
UNDONE = {"contact": "undone", "deal": "undone", "meeting": "undone"}


class Played(NamedTuple):
    """The end of a run: its status, state, the calls that were made, and the requests to the model."""

    shown: str
    reason: str
    state: Acquisition
    calls: dict[str, dict[str, Any]]
    settled: dict[str, str]
    corrections: int


@contextmanager
def offices(here: World) -> Iterator[FakeReceivers]:
    """Serve the office of a world."""
    systems = office.office()
    systems.route(office.SITES, asked=lambda request, _: here.sites[_last(request)])
    with systems:
        yield systems


def _last(request: HttpRequest) -> str:
    return request.path.rpartition("/")[2]


def play(here: World, variant: Variant, seed: int, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Play one inquiry to its end with a model behind HTTP. The seed also chooses how a request has the type."""
    monkeypatch.setenv("OUTLAST_MODEL", f"local:{variant}")
    monkeypatch.setenv("OUTLAST_MODEL_RESULT_BY", WAYS[seed % len(WAYS)])
    app = App((acquisition,))
    try:
        with offices(here) as systems, ModelServer(reader(variant, seed), env=URL) as models:
            run = app.start(acquisition, here.given)
            to_the_end(app, run)
            assert not systems.executed(route=office.MODEL), "the script of the office answers nothing"
            assert not systems.record.repeated() and not models.record.repeated()
            assert models.paid == len({entry.key for entry in models.record.of("executed", route=PATH)})
            rows = app.rows(run.id)
            effects = [row for row in rows.effects if not row.undoes]
            asked = [json.loads(row.response or b"{}") for row in rows.memos if row.activity == "outlast.model"]
            return Played(
                run.now.shown,
                run.now.reason or "",
                run.state,
                {row.key.partition("/")[0]: json.loads(row.args) for row in effects},
                {row.key.partition("/")[0]: row.status.value for row in effects},
                len(asked),
            )
    finally:
        app.close()


def is_true(here: World, end: Played) -> None:
    """Compare an end with the truth of its world: findings, decisions, and each call with its arguments."""
    truth, s = here.truth, end.state
    assert end.shown == truth.end, (here, end.reason, s.errors)
    assert s.errors == {}
    assert {pain.kind for pain in s.pains} == truth.kinds, here
    if truth.end == "NOT_A_FIT":
        assert end.calls == {}
        return
    assert (s.grade, s.cents) == (truth.grade, truth.cents)
    if truth.end == "DISQUALIFIED":
        assert end.calls == {}
        return
    assert end.calls.keys() == {"contact", "deal", "meeting", "proposal", "chat", "task"}
    assert set(end.settled.values()) == {"done"}
    assert all(call["email"] == here.email for call in end.calls.values())
    company = " ".join(here.given["company"].split())
    assert (end.calls["contact"]["name"], end.calls["contact"]["company"]) == (here.given["contact"], company)
    assert (end.calls["deal"]["grade"], end.calls["deal"]["cents"]) == (truth.grade, truth.cents)
    sent = end.calls["proposal"]
    assert (sent["cents"], sent["discount_percent"], s.drafts) == (truth.price, truth.discount, truth.drafts)
    assert here.given["contact"] in sent["text"] and here.given["contact"] in end.calls["chat"]["text"]


def test_the_worlds_have_every_end_and_every_kind_of_problem() -> None:
    truths = [world(seed).truth for seed in SEEDS]
    assert {truth.end for truth in truths} == {"IN_CONTACT", "DISQUALIFIED", "NOT_A_FIT"}
    assert {kind for truth in truths for kind in truth.kinds} == {"stock", "orders", "delivery", "returns"}
    sold = [truth for truth in truths if truth.end == "IN_CONTACT"]
    assert {truth.drafts for truth in sold} == {1, 2} and {truth.discount for truth in sold} == {0, 10, 20}
    assert {truth.grade for truth in sold} == {"A", "B"}


@pytest.mark.parametrize("seed", DRAWN)
@pytest.mark.parametrize("variant", ["reading", "careless"])
def test_a_model_that_reads_finds_the_truth(variant: Variant, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    is_true(world(seed), play(world(seed), variant, seed, monkeypatch))


@pytest.mark.parametrize("seed", DRAWN)
def test_no_lie_becomes_an_effect(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world(seed)
    end = play(here, "lying", seed, monkeypatch)
    lie, kept = LIES[seed % len(LIES)], json.dumps([end.calls, end.state.model_dump(mode="json")])
    assert "9,876,543" not in kept and "pay.example" not in kept
    assert not any("invented" in pain.problem for pain in end.state.pains)
    if lie == "pains":
        assert len(end.state.unsupported) == 2, "what was not found is marked"
        is_true(here, end)
    elif here.truth.end == "NOT_A_FIT":
        is_true(here, end)
    elif lie == "grade":
        assert (end.shown, end.calls) == ("FAILED", {}) and "contradicts the records" in end.reason
    elif here.truth.end == "DISQUALIFIED":
        is_true(here, end)
    elif lie == "proposal":
        assert (end.shown, end.settled) == ("FAILED", UNDONE) and "contradicts the records" in end.reason
    else:
        assert end.shown == "IN_CONTACT" and "contradicts the records" in end.state.errors["draft_outreach"]
        assert end.calls.keys() == {"contact", "deal", "meeting", "proposal", "task"}


def test_a_careless_model_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the careless variant would be another name of the reading one."""
    asked = [play(world(seed), variant, seed, monkeypatch).corrections for seed in range(4) for variant in _TWO]
    assert sum(asked[1::2]) > sum(asked[::2])


_TWO: tuple[Variant, Variant] = ("reading", "careless")


# --- crashes -----------------------------------------------------------------------------------------------
@every_crash(acquisition, LEAD, receivers=completions(office.office(), reader("careless")), decide=people, cases=2)
@pytest.mark.req("EFF-2", "RUN-1")
def test_a_crash_pays_no_answer_of_a_careless_model_twice(end: RunEnd) -> None:
    """`scripts/acquisition --model careless` kills real processes."""
    assert end.status == "completed" and end.outcome["errors"] == {}
    assert not end.receivers.repeated()


# --- the checks ------------------------------------------------------------------------------------------
def state(**given: Any) -> Acquisition:
    fields = {"company": "Bolt", "domain": "b", "contact": "Ada", "email": "a@b", "country": "DE", "industry": "retail"}
    return Acquisition.model_validate(
        {**fields, "employees": 120, "message": "We can spend EUR 52.000 a year.", **given}
    )


def test_a_quote_is_found_whatever_its_case_spaces_and_marks() -> None:
    source = ["Hello. Our stock counts are wrong every month."]
    assert checks.is_quoted("“OUR  stock counts are wrong”.", source)
    assert not checks.is_quoted("our stock counts were wrong", source)
    assert not checks.is_quoted("wrong", source), "one word is no evidence"
    assert not checks.is_quoted(" . ", source)


def test_one_problem_of_each_kind_is_kept() -> None:
    found = [Pain(kind="stock", problem=p, quote="stock counts are wrong") for p in "ab"]
    lie = Pain(kind="orders", problem="c", quote="orders burn every night")
    assert checks.supported([*found, lie], ["stock counts are wrong"]) == ([found[0]], [lie])


BUDGET = "We can spend EUR 52.000 a year"
GRADES = [
    ({"fit": 90}, ("A", 5_200_000, BUDGET), ""),
    ({"fit": 80}, ("A", 5_200_000, BUDGET), "A needs 90"),
    ({"fit": 80}, ("B", 5_200_000, BUDGET), "no problem that we solve"),
    ({"fit": 80}, ("C", 5_200_000, BUDGET), ""),
    ({"fit": 90}, ("A", 52_000_000, BUDGET), "another amount"),
    ({"fit": 90}, ("A", 1_200_000, ""), ""),
    ({"fit": 90}, ("A", 1_300_000, ""), "without the quote of a budget it is 1200000"),
    ({"fit": 90}, ("A", 9_900_000, "We can spend EUR 99.000 a year"), "not in the message"),
]


@pytest.mark.parametrize(("known", "claim", "objection"), GRADES, ids=str)
def test_a_grade_is_compared_with_the_records(known: Any, claim: tuple[Any, int, str], objection: str) -> None:
    grade, cents, quoted = claim
    found = checks.objection_to_grade(state(**known), Qualification(grade=grade, cents=cents, quote=quoted))
    assert (objection in found) if objection else found == ""


DRAFTS = [
    ("Dear Ada, 45,000.00 EUR, 10 % less than 50,000.", 4_500_000, 10, ""),
    ("Dear Ada, EUR 45000, for 120 people.", 4_500_000, 10, ""),
    ("Dear Ada, 45,000.00 EUR.", 4_400_000, 10, "is 4500000"),
    ("Dear Bo, 45,000.00 EUR.", 4_500_000, 10, "does not name Ada"),
    ("Dear Ada, you saved 70,000 EUR.", 4_500_000, 10, "names 70,000, which is not known"),
    ("Dear Ada, see https://pay.example", 4_500_000, 10, "has a link"),
]


@pytest.mark.parametrize(("text", "cents", "discount", "objection"), DRAFTS, ids=str)
def test_a_draft_is_compared_with_the_records(text: str, cents: int, discount: int, objection: str) -> None:
    draft = Proposal(subject="For Bolt", text=text, cents=cents, discount_percent=discount)
    found = checks.objection_to_draft(state(cents=5_000_000), draft)
    assert (objection in found) if objection else found == ""

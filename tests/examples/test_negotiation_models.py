"""The negotiation with agents: a fixed script, a model that reads, a careless one, and one that lies.

A slice of the worlds; `python -m tests.examples.negotiating` plays 20 of them with each. The formula stays the judge.
"""

import asyncio
from pathlib import Path

import pytest

from examples.negotiation import limits
from examples.negotiation.governance import Governance
from examples.negotiation.letters import Bid, Terms
from examples.negotiation.samples import sample
from examples.negotiation.state import Negotiation, Strategic
from examples.negotiation.workflow import negotiation
from outlast.testing import AppFactory
from tests.examples import negotiating_killed as killed
from tests.examples.bidders import Bidders
from tests.examples.negotiating import MODELS, Model, play, wrong
from tests.examples.tenders import LAST, ROUNDS, TALK, world

pytestmark = pytest.mark.req("APP-1", "GATE-7")
SLICE = (0, 1, 4, 5)
"""An auction and a strategic negotiation for each of two lies; seeds 2 and 3 are the third."""


@pytest.mark.parametrize("seed", [*SLICE, 2, 3])
@pytest.mark.parametrize("model", ["script", "lying"])
def test_no_proposal_passes_the_limits(model: Model, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(seed, model, play(seed, model, monkeypatch)) == []


@pytest.mark.parametrize("seed", SLICE)
@pytest.mark.parametrize("model", ["reading", "careless"])
def test_a_model_that_reads_finds_the_last_words(model: Model, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    end = play(seed, model, monkeypatch)
    assert wrong(seed, model, end) == []


def test_the_worlds_have_last_words_in_each_round() -> None:
    rounds = [n for seed in range(20) for n in world(seed).final_from.values()]
    assert {1, 2, 3} == set(rounds) and len(rounds) > 20
    assert {world(seed).is_auction for seed in range(20)} == {True, False}
    words = " ".join(note for seed in range(20) for each in world(seed).suppliers.values() for note in each.notes)
    assert all(each in words for each in (*LAST, *TALK)) and ROUNDS == 4
    assert set(MODELS) == {"script", "reading", "careless", "lying"}


def test_formulas_ask_no_model(outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLAST_MODEL", raising=False)
    here = world(1)
    bidders = Bidders(app := outlast_app(negotiation), monkeypatch, here.suppliers)
    run = app.start(negotiation, here.purchase | {"governance": {"negotiated_by": "formulas"}})
    assert run.node == "approve" and run.state.final == {} and bidders.repeated() == []
    assert Governance().negotiated_by == "formulas"


@pytest.mark.req("RUN-1", "EFF-2")
def test_kills_change_no_position_and_no_answer_of_the_model_is_paid_twice(tmp_path: Path) -> None:
    """A slice. `python -m tests.examples.negotiating_killed` plays as many rounds as wanted."""
    ends = []
    for kills in (0, 2):
        (folder := tmp_path / f"{kills}").mkdir()
        ends.append(asyncio.run(killed.play(folder, 1, "careless", kills=kills)))
    assert ends[1].kills == 2 and killed.wrong(ends[1], ends[0]) == []


# --- the limits ----------------------------------------------------------------------------------
def terms(**given: int) -> Terms:
    fields = {"cents": 1_000, "payment_days": 60, "lead_days": 20, "defect_ppm": 100, "term_months": 24}
    return Terms.model_validate(fields | given)


WORST = terms(cents=1_150, payment_days=20, lead_days=30, defect_ppm=200, term_months=6)
STEPS = {
    "a part of the distance": (terms(cents=1_200), 50, terms(cents=1_100)),
    "not beyond the walk-away": (terms(cents=2_000), 50, terms(cents=1_150)),
    "less of the payment term": (terms(payment_days=30), 50, terms(payment_days=45)),
    "not below its walk-away": (terms(payment_days=0), 100, terms(payment_days=20)),
    "a better answer is taken": (terms(cents=900, payment_days=80), 100, terms(cents=900, payment_days=80)),
}


@pytest.mark.parametrize(("theirs", "percent", "expected"), STEPS.values(), ids=STEPS)
def test_a_step_goes_towards_the_supplier_and_not_beyond_the_walk_away(
    theirs: Terms, percent: int, expected: Terms
) -> None:
    assert limits.stepped(terms(), theirs, percent, WORST) == expected


def test_a_position_behind_the_walk_away_stays() -> None:
    assert limits.stepped(terms(cents=1_500), terms(cents=2_000), 50, WORST).cents == 1_500


@pytest.mark.parametrize(
    ("cents", "wrong_"), [(1_000, ""), (1_120, ""), (999, "from 1000 to 1120"), (1_121, "from 1000 to 1120")]
)
def test_a_position_outside_of_one_step_is_refused(cents: int, wrong_: str) -> None:
    allowed = limits.ranges(terms(), terms(cents=1_200), 60, WORST)
    found = limits.objection_to_position({"cents": cents}, allowed)
    assert (wrong_ in found) if wrong_ else found == ""


QUOTES = [
    *[(each, each, "") for each in LAST],
    ("this is OUR  final price", "Thank you. This is our final price.", ""),
    *[(each, each, "does not say") for each in TALK],
    ("This is our final price, we swear.", "Thank you.", "from the note"),
    ("final", "This is our final price.", "at least three words"),
    ("", "This is our final price.", "at least three words"),
]


@pytest.mark.parametrize(("quote", "note", "objection"), QUOTES)
def test_a_last_word_is_shown_by_a_quote(quote: str, note: str, objection: str) -> None:
    found = limits.objection_to_final(is_final=True, quote=quote, note=note)
    assert (objection in found) if objection else found == ""
    assert limits.objection_to_final(is_final=False, quote=quote, note=note) == ""


MOVES: list[tuple[list[str], bool, str]] = [
    (["acme", "baltica"], False, ""),
    (["acme"], False, "baltica is open and still competes"),
    (["acme", "baltica", "acme"], False, "acme is named twice"),
    (["acme", "baltica", "cordoba"], False, "cordoba is not open"),
    (["acme", "baltica", "nobody"], False, "nobody is not open"),
    ([], True, "the prices still move"),
    ([], False, "acme is open"),
]


@pytest.mark.parametrize(("ask", "end", "objection"), MOVES, ids=str)
def test_a_move_asks_each_competitor_once(ask: list[str], end: bool, objection: str) -> None:
    found = limits.objection_to_move(_after_a_round(), ask, ["acme", "baltica"], end=end)
    assert (objection in found) if objection else found == ""


def test_a_supplier_far_above_the_best_price_may_be_left_out() -> None:
    s = _after_a_round(baltica=1_151)
    assert limits.objection_to_move(s, ["acme"], ["acme", "baltica"], end=False) == ""
    assert "baltica" in limits.objection_to_move(
        _after_a_round(baltica=1_150), ["acme"], ["acme", "baltica"], end=False
    )


def _after_a_round(**cents: int) -> Negotiation:
    s = negotiation.first_state(sample("leverage"))
    s.suppliers, s.rounds_held, s.strategic = ["acme", "baltica", "cordoba"], 1, Strategic()
    bids = [_bid(who, each) for who, each in ({"acme": 1_000, "baltica": 1_100} | cents).items()]
    s.take_in(bids, 1)
    return s


def _bid(supplier: str, cents: int) -> Bid:
    return Bid(
        bid_id=f"{supplier}-1-1",
        supplier_id=supplier,
        cycle=1,
        round=1,
        cents=cents,
        freight_cents=0,
        lead_days=1,
        payment_days=0,
    )

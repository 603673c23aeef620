"""A line of a proof says what was measured: no claim holds of a run that did nothing, and a tick has a condition."""

import ast
from pathlib import Path

import pytest

from examples.desk import demo as desk_demo
from examples.negotiation import record as requests
from examples.negotiation.demo import office_demo
from examples.negotiation.demo import proof as auction
from examples.negotiation.demo.proof import Claim, claim, lines, not_measured, proven
from examples.negotiation.demo.state import DemoState, Kill
from examples.researcher import proof as research
from examples.researcher.robots import parse
from outlast.flow.source import syntax_tree
from outlast.testing.record import Record
from tests.docs.pages import ROOT

NOTHING = {"sent": 0, "executed": 0, "distinct": 0, "repeated": 0}


def of_the_office(tmp_path: Path, *, answers: int = 0, kills: int = 0) -> tuple[Claim, ...]:
    """Return the claims of the desk about a run without an effect."""
    facts = {
        "requests": NOTHING,
        "model_answers": {**NOTHING, "sent": answers, "distinct": answers},
        "refused_by_policy": [],
        "crashes": kills,
        "takeover_seconds": None,
        "killed_calls_settled_by_asking": kills,
    }
    return office_demo._claims(facts, Record(tmp_path / "office.jsonl"), (), [], kills)


def of_the_auction(*, kills: bool) -> tuple[Claim, ...]:
    """Return the claims of the auction about a run without a request."""
    effects = {"executed": 0, "declined": 0, "unsettled": 0, "answered_from_ledger": 0, "settled_by_asking": 0}
    facts = {
        "invitations": NOTHING,
        "all_requests_repeated": 0,
        "crashes": 0,
        "takeover_seconds": None,
        "resume_seconds": None,
        "slots_in_use": 0,
        "effects": effects,
        "outcome": "FAILED",
    }
    keys = requests.keys([], "run")
    return auction._claims(facts, DemoState(), (), keys, ("AWARDED",), 0, kills=kills)


def of_the_researcher() -> list[Claim]:
    """Return the claims of the researcher about a run that read nothing."""
    none = research.Outcome("run", "COMPLETED", "", 0, [], [], [])
    site, rules = "http://127.0.0.1:1", parse("User-agent: *\nCrawl-delay: 1\n", "outlast")
    return [
        *research.claims(none, none, hits=[], secrets=("", ""), kills=0, held=(), site=site),
        *research.manners([], site, rules),
    ]


# --- what nothing proves -----------------------------------------------------------------------
@pytest.mark.parametrize("kills", [True, False])
def test_no_claim_of_the_auction_holds_of_a_run_that_did_nothing(kills: bool) -> None:
    claims = of_the_auction(kills=kills)
    assert [each.text for each in claims if each.holds] == [] and not proven(claims)
    assert [each.text for each in claims if each.holds is None] == (
        [] if kills else ["not measured: crashes, because this sample kills no worker"]
    )


def test_no_claim_of_the_desk_holds_of_a_run_that_did_nothing(tmp_path: Path) -> None:
    """Once it ticked "0 requests to the model, 0 distinct, 0 paid twice" if the model was another server's."""
    claims = of_the_office(tmp_path)
    assert [each.text for each in claims if each.holds] == [] and not proven(claims)
    (model,) = [each for each in claims if "requests to the model" in each.text]
    assert model.holds is None and "– not measured: requests to the model" in lines(claims)


def test_the_desk_judges_what_it_counted(tmp_path: Path) -> None:
    shown = lines(of_the_office(tmp_path, answers=9, kills=1))
    assert "✓ 9 requests to the model, 9 distinct, 0 paid twice" in shown
    assert "✗ 1 crash, taken over by another worker" in shown, "no worker took it over"
    assert desk_demo.PLOT.killed_in == "open_ticket"


def test_no_claim_of_the_researcher_holds_of_a_run_that_did_nothing() -> None:
    claims = of_the_researcher()
    assert len(claims) == 7
    assert [each.text for each in claims if each.holds is not False] == []


def test_a_crash_that_was_not_taken_over_is_no_tick() -> None:
    kill = Kill(at=1, worker="w", name="w-1", sent=1)
    facts = {"takeover_seconds": None, "crashes": 1}
    (crash,) = [
        each
        for each in auction._claims(
            {**_facts_of_a_good_auction(), **facts},
            DemoState(kills=[kill]),
            (),
            requests.keys([], "run"),
            (),
            2,
            kills=True,
        )
        if "taken over by" in each.text
    ]
    assert crash.holds is False


def _facts_of_a_good_auction() -> dict[str, object]:
    effects = {"executed": 1, "unsettled": 0, "answered_from_ledger": 1}
    return {
        "invitations": {"sent": 1, "distinct": 1, "repeated": 0},
        "all_requests_repeated": 0,
        "resume_seconds": 1.0,
        "slots_in_use": 0,
        "effects": effects,
        "outcome": "AWARDED",
    }


# --- the parts ---------------------------------------------------------------------------------
def test_a_claim_about_nothing_does_not_hold_and_says_so() -> None:
    assert claim("0 requests, 0 repeated", True, of=0) == Claim("0 requests, 0 repeated: nothing was measured", False)
    assert claim("2 requests, 0 repeated", True, of=2).holds
    assert claim("2 requests, 1 repeated", False, of=2).holds is False


def test_a_proof_needs_a_claim_that_was_measured() -> None:
    assert not proven([])
    assert not proven([not_measured("crashes, because nothing was killed")])
    assert not proven([claim("slow", True, of=1, decides=False)])
    assert proven([claim("once", True, of=1), not_measured("crashes"), claim("slow", False, of=1, decides=False)])
    assert not proven([claim("once", True, of=1), claim("none", True, of=0)])
    with pytest.raises(ValueError, match="a proof needs a claim"):
        lines([])


@pytest.mark.req("GATE-2")
def test_the_time_from_a_decision_to_the_next_node_is_judged() -> None:
    """Once the demo printed "resumed 12.2s after the decision" and judged it nowhere, where 5 s are asked."""
    text = "resumed 12.2s after the decision, by a worker that was alive; at most 5s are asked"
    assert lines(auction.resumed(12.2, alive=True)) == f"    ✗ {text}"
    assert lines(auction.resumed(5.0, alive=True)).startswith("    ✓ resumed 5.0s")
    assert lines(auction.resumed(-0.1, alive=True)).startswith("    ✗ ")
    assert lines(auction.resumed(4.0, alive=False)).startswith("    – not measured: resumed 4.0s"), "it has no limit"
    assert auction.resumed(None, alive=True) == ()


@pytest.mark.req("GATE-2")
def test_the_time_of_the_takeover_is_judged() -> None:
    assert lines(auction.taken_over(30.1, 1)) == "    ✗ taken over after 30.1s; at most 30s are asked"
    assert lines(auction.taken_over(30.0, 1)).startswith("    ✓ taken over after 30.0s")
    assert lines(auction.taken_over(2.0, 0)).startswith("    ✗ "), "nothing was killed"
    assert auction.taken_over(None, 1) == ()


# --- the rule ----------------------------------------------------------------------------------
def _called(node: ast.Call) -> str:
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def _constant(node: ast.Call) -> bool:
    """Return True if the condition is a literal."""
    conditions = [*node.args[_called(node) == "claim" :], *(each.value for each in node.keywords)]
    return bool(conditions) and isinstance(conditions[0], ast.Constant) and isinstance(conditions[0].value, bool)


def ticks(code: str) -> list[int]:
    """Return the lines of a program with a tick that nothing can turn red.

    It is printed by a literal, claims without saying of how many, or has a condition that is written as true.
    """
    found = [
        node.lineno
        for node in ast.walk(syntax_tree(code))
        if (isinstance(node, ast.Constant) and isinstance(node.value, str) and "✓" in node.value)
        or (isinstance(node, ast.Call) and _called(node) == "Claim")
        or (isinstance(node, ast.Call) and _called(node) in ("claim", "mark") and _constant(node))
    ]
    return sorted(set(found))


def test_every_tick_of_a_program_has_a_condition() -> None:
    """`proof.mark` makes ticks, and `output.STYLES` colours them. No other line has one."""
    allowed = {ROOT / "examples/negotiation/demo" / name for name in ("proof.py", "output.py")}
    files = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "bench").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]
    found = {path.name: lines_ for path in files if path not in allowed and (lines_ := ticks(path.read_text("utf-8")))}
    assert found == {}, "print it with examples.negotiation.demo.proof.mark, or make it a claim"
    assert ticks('print(f"✓ {n} sent")\nClaim("x", True)\nproof.Claim("x", True)') == [1, 2, 3]
    assert ticks('claim(f"{n} polls", True, of=n)\nproof.claim("x", is_true=True, of=n)\nmark(True)') == [1, 2, 3]
    assert ticks('claim("x", n == 1, of=n)\nmark(holds)') == []

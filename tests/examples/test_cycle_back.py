"""One more round, and no more: the superseded bids, the new requests, and the choices of each person."""

from collections import Counter
from pathlib import Path

import pytest

from tests.examples.play import negotiate, prompt

QUICK = {"governance": {"rounds": 2}}


def everybody_bids(suppliers: dict[str, dict[str, object]]) -> None:
    suppliers["cordoba"]["rules"] = suppliers["elmtree"]["rules"] = []


@pytest.mark.req("APP-1", "FAIL-10")
def test_an_approver_may_ask_for_another_round_and_old_bids_are_never_evaluated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = negotiate(tmp_path, monkeypatch, "leverage", "again", "approve", scenario=_calm(), **QUICK)
    s = end.s
    assert (end.state.shown, s.cycle, s.rounds_held) == ("AWARDED", 2, 2)
    assert {b.status for b in s.bids if b.cycle == 1} == {"SUPERSEDED"}
    assert {line.bid_id.split("-")[1] for line in s.scores} == {"2"}, "only bids of the second cycle are evaluated"
    assert end.state.outcome["bid_id"].split("-")[1:] == ["2", "2"]
    assert end.state.outcome["cycle"] == 2
    assert s.another_round is not None
    assert (s.another_round.by, s.another_round.reason) == ("local", "ask once more")
    invited = Counter((e.visit, e.key) for e in end.effects if e.activity == "invite")
    assert set(invited.values()) == {1}
    visits = sorted({visit for visit, _ in invited})
    assert len(visits) == 2
    first, second = ({key for visit, key in invited if visit == v} for v in visits)
    assert second == {key for key in first if "dunlin" not in key}, "a supplier that declined is not asked again"
    assert end.counts["invitations"].repeated == 0
    assert end.counts["invitations"].sent == len(invited)
    assert [a.again for a in end.approvals] == [1, 0], "the second approval offers no further round"
    assert "there is no third" in end.approvals[1].summary


@pytest.mark.req("APP-1")
def test_the_second_rejection_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = negotiate(tmp_path, monkeypatch, "leverage", "again", "reject", scenario=_calm(), **QUICK)
    assert end.state.shown == "CANCELLED"
    assert end.state.reason == "rejected by local: buy less"
    assert end.counts["orders"].arrived == 0
    assert end.slots == [""]


@pytest.mark.req("APP-1")
@pytest.mark.parametrize(("name", "kind"), [("strategic", "proposals"), ("bottleneck", "inquiries")])
def test_every_route_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> None:
    scenario = prompt(name, lambda suppliers: [is_.update(rules=[]) for is_ in suppliers.values()])
    end = negotiate(tmp_path, monkeypatch, name, "again", "approve", scenario=scenario)
    assert (end.state.shown, end.s.cycle) == ("AWARDED", 2)
    assert end.counts[kind].repeated == 0
    asked = [e for e in end.effects if e.activity in ("inquire", "propose")]
    assert len({e.visit for e in asked}) == 2
    assert len({(e.visit, e.key) for e in asked}) == len(asked) == end.counts[kind].sent
    assert {b.cycle for b in end.s.bids if b.status == "OPEN"} == {2}


@pytest.mark.req("APP-1")
def test_a_spot_purchase_may_have_a_second_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = negotiate(tmp_path, monkeypatch, "spot", "again", "approve", governance={"approval_threshold_cents": 1})
    assert (end.state.shown, end.s.cycle) == ("AWARDED", 2)
    assert end.counts["quotes"].sent == 6


@pytest.mark.req("APP-1", "GATE-9")
def test_the_approver_may_choose_another_bid_and_the_outcome_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = negotiate(tmp_path, monkeypatch, "leverage", "other", scenario=_calm(), **QUICK)
    s = end.s
    assert s.winner == s.scores[1].bid_id
    assert end.state.outcome["supplier_id"] == s.scores[1].supplier_id
    assert end.state.outcome["chosen_by"] == "local"
    assert end.state.outcome["why"].endswith("was chosen by local: we know them")
    assert end.counts["orders"].executed == 1


@pytest.mark.req("APP-1")
def test_a_withdrawn_winner_fails_the_run_if_the_rules_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = negotiate(tmp_path, monkeypatch, "strategic-withdrawn", "approve", governance={"strategic_rounds": 1})
    assert end.state.shown == "FAILED"
    assert end.state.reason == "acme does not accept the order: our line was sold this morning"


@pytest.mark.req("APP-1")
def test_the_other_bids_are_evaluated_after_a_withdrawal_if_the_rules_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = negotiate(tmp_path, monkeypatch, "strategic-withdrawn", "approve", "approve")
    assert end.state.shown == "AWARDED"
    assert end.state.outcome["supplier_id"] == "baltica"
    (gone,) = (b for b in end.s.bids if b.status == "WITHDRAWN")
    assert gone.supplier_id == "acme"
    assert "No longer available: acme does not accept the order" in end.approvals[1].summary
    assert end.counts["orders"].executed == 1
    assert end.counts["messages"].executed == 3


def _calm() -> dict[str, object]:
    return prompt("calm")

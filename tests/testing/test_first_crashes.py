"""The first of several waits survives a crash at every place: the same winners, and no payment twice (S-29)."""

import pytest

from outlast.testing import PendingQuestion, RunEnd, approve, every_crash, send
from outlast.testing.answers import ScriptedAnswer
from tests.testing.first_flow import bank, tenders

PAID = "pay/chairs"


def decide(asked: PendingQuestion) -> ScriptedAnswer | None:
    """Send two bids, approve the payment, and leave the bonus and the stop to their deadlines."""
    if (asked.kind, asked.name) == ("signal", "bid"):
        return send({"cents": 900}, {"cents": 700})
    if (asked.kind, asked.name) == ("approval", "pay"):
        return approve("cheap enough")
    return None


@pytest.mark.req("RUN-12", "EFF-2")
@every_crash(tenders, {"item": "chairs"}, decide=decide, receivers=bank, pairs="sampled", cases=6, seed=1)
def test_the_winners_are_the_same(end: RunEnd) -> None:
    """All single points with --crash-all. The deadline of the bonus is that of its approval, to the instant."""
    assert end.outcome["bids"] == [900, 700]
    assert end.outcome["paid"].strip() and end.outcome["paid"] not in ("stopped", "too late")
    assert end.outcome["late"] == "none"
    assert end.effects == {PAID: "done"} and end.receivers.executed(PAID) == 1

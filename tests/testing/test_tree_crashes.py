"""`every_crash` of a run that starts children: each run of the tree is killed, and the tree ends as without a crash."""

import pytest

from outlast.testing import PendingQuestion, RunEnd, approve, choose, every_crash
from outlast.testing.answers import ScriptedAnswer
from tests.testing.tree_flow import purchase, shop


def decide(asked: PendingQuestion) -> ScriptedAnswer | None:
    """Approve what ada offers, and let bee fail."""
    if (asked.kind, asked.child) == ("approval", "ada"):
        return approve("cheap enough")
    if (asked.kind, asked.name, asked.child) == ("attention", "exception", "bee"):
        return choose("fail")
    return None


@pytest.mark.req("TEST-1", "RUN-13", "EFF-2")
@every_crash(purchase, {}, decide=decide, receivers=shop, pairs="sampled", cases=6, seed=3)
def test_a_tree_survives(end: RunEnd) -> None:
    """All single points with --crash-all."""
    assert end.outcome == {"ada": "bought", "bee": "failed"}
    assert end.children == {"ada": "completed", "bee": "failed", "cid": "cancelled"}
    end.receivers.assert_effects_once()
    assert end.receivers.executed("buy/ada") == end.receivers.executed("hold/ada") == 1
    for name in ("bee", "cid"):
        assert end.receivers.executed(f"hold/{name}") == end.receivers.executed(f"undo/hold/{name}")

"""A set of calls that ends early survives a crash at every place: the same set, and no call twice (S-31)."""

import pytest

from outlast.testing import RunEnd, every_crash
from tests.testing.enough_flow import enquiries, market

QUOTES = ["ana completed", "closed failed", "bo completed", "cy not_started", "di not_started", "enough"]
PLACES = ["a completed", "b not_started", "c completed", "d not_started"]
EFFECTS = {
    **{f"quote/{name}": "done" for name in ("ana", "bo", "cy")},
    **{f"hold/{name}": "done" for name in ("a", "c")},
    "quote/closed": "refused",
}


@pytest.mark.req("RUN-14", "EFF-2")
@every_crash(enquiries, {"item": "chairs"}, receivers=market, pairs="sampled", cases=8, seed=3)
def test_the_sets_are_the_same(end: RunEnd) -> None:
    """All single points with --crash-all. `cy` is called by the code itself after the set has ended."""
    assert end.outcome["quotes"] == QUOTES
    assert end.outcome["places"] == PLACES
    assert end.effects == EFFECTS
    done = [key for key, status in EFFECTS.items() if status == "done"]
    assert {key: end.receivers.executed(key) for key in done} == dict.fromkeys(done, 1)

"""An agent whose tools act and do not deduplicate survives every crash: no effect twice, each answer paid once."""

import pytest

from outlast.testing import RunEnd, every_crash
from tests.pydantic_ai.agents import desk, world


def assert_each_answer_paid_once(end: RunEnd) -> None:
    """Check that no model is asked again for an answer that was stored, and so none that was used.

    A request may be repeated only if the process died before the answer was stored.
    """
    asked = [e.route for e in end.receivers.entries if e.kind == "attempt" or e.route.startswith("GET /model/")]
    models = [route for route in dict.fromkeys(asked) if route.startswith("GET /model/")]
    assert models == ["GET /model/1", "GET /model/2", "GET /model/3"]
    for route in models:
        first, last = asked.index(route), len(asked) - 1 - asked[::-1].index(route)
        assert set(asked[first : last + 1]) == {route}, (end.case, asked)
    if not end.case:
        assert len(asked) == 3 + 3


@pytest.mark.req("GATE-7", "EFF-2", "FAIL-2")
@every_crash(desk, {"question": "what is up?"}, receivers=world)
def test_no_tool_acts_twice(end: RunEnd) -> None:
    assert end.outcome["answer"] == "3 done"
    assert_each_answer_paid_once(end)

"""An agent whose tools act and do not deduplicate survives every crash: no effect twice, each answer paid once."""

import pytest

from outlast.testing import RunEnd, every_crash
from tests.pydantic_ai.agents import desk, world

PATH = "/chat/completions"
TOOLS = {"desk/ticket/c1", "desk/ticket/c2", "refund/o-1"}


@pytest.mark.req("GATE-7", "EFF-2", "FAIL-2")
@every_crash(desk, {"question": "what is up?"}, receivers=world, pairs="sampled", cases=4, seed=1)
def test_no_tool_acts_twice(end: RunEnd) -> None:
    """All single points with --crash-all. The test kit compares the record of tools and model with that of no crash."""
    assert end.outcome["answer"] == "all done"
    assert end.effects == dict.fromkeys(TOOLS, "done")
    assert {key: end.receivers.executed(key) for key in TOOLS} == dict.fromkeys(TOOLS, 1)
    assert end.receivers.executed(route=PATH) == 3, "each answer is paid once"
    if not end.case:
        assert len(end.receivers.of("attempt", route=PATH)) == 3

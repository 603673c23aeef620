"""What is looked for before a pattern is tried stands in all that the pattern takes out."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.telemetry import redact as room

POSSESSIVE = re.compile(r"(?<=[+*}])\+")
"""What hypothesis cannot read; without it a pattern matches no less."""
CASES = [(needed, pattern) for needed, pattern in room._PATTERNS if needed]


@pytest.mark.parametrize(("needed", "pattern"), CASES, ids=[needed for needed, _ in CASES])
@pytest.mark.req("OBS-3")
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_nothing_matches_without_it(needed: str, pattern: re.Pattern[str], data: st.DataObject) -> None:
    whole = re.compile(POSSESSIVE.sub("", pattern.pattern), pattern.flags)
    assert needed in data.draw(st.from_regex(whole))

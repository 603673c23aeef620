"""What is looked for before a pattern is tried stands in all that the pattern takes out."""

import json
import re
from urllib.parse import quote

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


SECRET = 'a/b "c" größer%\ud800'


@pytest.mark.req("OBS-3")
@pytest.mark.parametrize(
    "spelt",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(SECRET).replace("/", r"\/"),
        quote(SECRET, errors="surrogatepass"),
        quote(SECRET, safe="", errors="surrogatepass"),
    ],
)
def test_a_known_secret_is_left_out_however_it_is_spelt(spelt: str) -> None:
    """As a receiver repeats it: in JSON, by those who escape slashes, in an address; whole, or cut within it."""
    bare = spelt.strip('"') if spelt != SECRET else spelt
    assert room.redact(f"you said {bare}, no?", [SECRET]) == f"you said {room.GONE}, no?"
    assert room.redact(f"you said {bare[:-2]}", [SECRET]) == f"you said {room.GONE}"


@pytest.mark.req("OBS-3")
def test_a_token_of_ours_that_was_cut_is_left_out() -> None:
    token = "olt_" + "Ab1_-" * 8
    for n in range(10, len(token)):
        assert room.redact(f"it had {token[:n]}") == f"it had {room.GONE}"
    assert room.redact("the prefix is olt_") == "the prefix is olt_"

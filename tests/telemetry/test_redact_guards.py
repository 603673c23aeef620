"""The literal that is searched before a pattern is part of every match of the pattern."""

import json
import re
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.telemetry import redact

POSSESSIVE = re.compile(r"(?<=[+*}])\+")
"""Possessive quantifiers, which hypothesis cannot parse. Patterns match more without them."""
CASES = [(needed, pattern) for needed, pattern in redact._PATTERNS if needed]


@pytest.mark.parametrize(("needed", "pattern"), CASES, ids=[needed for needed, _ in CASES])
@pytest.mark.req("OBS-3")
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_each_match_contains_the_literal_that_is_searched_first(
    needed: str, pattern: re.Pattern[str], data: st.DataObject
) -> None:
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
def test_a_known_secret_is_removed_in_every_encoding(spelt: str) -> None:
    """Receivers repeat secrets in JSON, with escaped slashes, or percent-encoded; whole or truncated."""
    bare = spelt.strip('"') if spelt != SECRET else spelt
    assert redact.redact(f"you said {bare}, no?", [SECRET]) == f"you said {redact.GONE}, no?"
    assert redact.redact(f"you said {bare[:-2]}", [SECRET]) == f"you said {redact.GONE}"


@pytest.mark.req("OBS-3")
def test_a_truncated_token_is_removed() -> None:
    token = "olt_" + "Ab1_-" * 8
    for n in range(10, len(token)):
        assert redact.redact(f"it had {token[:n]}") == f"it had {redact.GONE}"
    assert redact.redact("the prefix is olt_") == "the prefix is olt_"

"""A short round; `scripts/proxied` runs long ones."""

import json

import pytest

from tests.proxied.round import Plan, play


@pytest.mark.req("RUN-4")
def test_no_act_happens_twice_and_no_claim_is_false() -> None:
    """The proxy resets, delays, cuts, doubles, displaces and replaces answers between real processes."""
    figures, wrong = play(Plan(seed=7, seconds=3, callers=4, cli=False, acts=30))
    shown = json.dumps({**figures, "wrong": wrong}, indent=1)
    assert wrong == [], shown
    assert figures["broken"] >= 10 and figures["claims"].get("uncertain", 0) + figures["claims"].get("done", 0) > 0, (
        shown
    )

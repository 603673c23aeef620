"""Forks of the examples: nothing reaches a receiver before a person approves it, in the modes that ask.

`python -m tests.examples.forks` walks all checkpoints. Here each walk has a few of them.
"""

import pytest

from outlast.core.forks import Effects
from tests.examples.forks import GROUNDS, MODES, sampled, walk
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-10")
POINTS = 2
DECISIONS = 2
LETTERS = 30
"""More than an auction sends before its approval: its agents ask the model after the first ones."""


@pytest.mark.parametrize("effects", MODES)
@pytest.mark.parametrize("name", GROUNDS)
def test_forks_from_checkpoints_send_what_their_mode_allows(name: str, effects: Effects) -> None:
    with GROUNDS[name]() as ground:
        found = walk(ground, effects, sampled(ground.offers(), POINTS, f"{name} {effects}"), DECISIONS)
    assert found.wrong == []
    assert found.writes or effects == "recorded" or name in ALL_ONCE


ALL_ONCE = ("desk", "acquisition")
"""Ancestors that have done each of their calls once per run: no fork sends one."""
REMOVED: list[tuple[str, str, Effects, str]] = [
    ("forks_ask_nobody", "auction", "ask", "was sent before a person approved"),
    ("forks_ask_nobody", "strategic", "recorded", "was sent before a person approved"),
    ("forks_ask_nobody", "desk-refused", "ask", "was sent before a person approved"),
    ("forks_ask_nobody", "acquisition-refused", "ask", "was sent before a person approved"),
    ("recordings_not_used", "auction", "recorded", "POST /chat/completions"),
    ("recordings_not_used", "desk", "recorded", "POST /model"),
    ("recordings_not_used", "acquisition", "recorded", "GET /sites"),
    ("futures_known", "desk", "recorded", "POST /model"),
]
"""A safeguard, an example, and what the walk of its first checkpoint finds without it."""


@pytest.mark.parametrize(("removed", "name", "effects", "found"), REMOVED)
def test_without_a_safeguard_a_walk_finds_the_request(
    monkeypatch: pytest.MonkeyPatch, removed: str, name: str, effects: Effects, found: str
) -> None:
    with GROUNDS[name]() as ground:
        remove(removed, monkeypatch)
        wrong = walk(ground, effects, ground.offers()[:1], LETTERS if name == "auction" else 1).wrong
    assert any(found in each for each in wrong), wrong

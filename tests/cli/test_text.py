"""Durations, instants and inert text, value by value."""

import json

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.cli.text import duration, inert, json_escaped
from outlast.core.durations import span


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"), (400, "0.4s"), (9_949, "9.9s"), (9_951, "10s"), (28_400, "28s"), (28_500, "29s"), (59_600, "1m"),
        (60_000, "1m"), (200_000, "3m20s"), (599_600, "10m"), (1_200_000, "20m"), (7_149_999, "119m"),
        (7_199_999, "2h"), (7_200_000, "2h"), (201_600_000, "56h"), (345_599_000, "96h"), (345_600_000, "96h"),
        (359_999_000, "4d4h"), (604_800_000, "7d"), (655_200_000, "7d14h"),
    ],
)  # fmt: skip
def test_spans(ms: int, text: str) -> None:
    assert span(ms) == text


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("2s", 2_000), ("1.5s", 1_500), ("10m", 600_000), ("1h30m", 5_400_000), ("7d", 604_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert duration(text) == ms


@pytest.mark.parametrize("text", ["", "2", "s", "-2s", "2 s", "2s!", "2sec", "1e3s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration"):
        duration(text)


ACTIVE = "\x00\x07\x08\x1b\x7f\x85\x9b\u061c\u200b\u200e\u2028\u202e\u2066\ufeff\U000e0041"


@given(st.text(st.sampled_from(ACTIVE + "aé\n[]")))
def test_control_characters_are_escaped(text: str) -> None:
    assert not set(ACTIVE + "\n") & set(inert(text))
    assert inert(text, lines=True).count("\n") == text.count("\n")


@given(st.text())
def test_escaped_json_means_the_same(text: str) -> None:
    shown = json_escaped(json.dumps({"a": text}, ensure_ascii=False, indent=2))
    assert json.loads(shown) == {"a": text}
    assert not set(ACTIVE) & set(shown)

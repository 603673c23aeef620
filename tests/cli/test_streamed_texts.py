"""Texts that a run streams, as `runs tail` keeps them for a terminal."""

from typing import Any

import pytest

from outlast.cli.tail import TEXT_KEPT, TEXT_LINES, TEXTS_SHOWN, StreamedTexts
from outlast.models.runs import RunDelta


def delta(text: str, **more: Any) -> RunDelta:
    place = {"run": "r1", "node": "write", "visit": 1, "epoch": 1, "key": "model/1", "attempt": 1, **more}
    return RunDelta(**place, text=text)


@pytest.mark.req("RUN-7")
def test_pieces_join_and_a_later_attempt_or_holder_begins_again() -> None:
    texts = StreamedTexts()
    for each in (delta("The "), delta("answer"), delta("plan", key="", attempt=0)):
        texts.add(each)
    assert texts.lines(80) == ["  model/1", "    The answer", "  write#1", "    plan"]
    texts.add(delta("Again", attempt=2))
    texts.add(delta("late", attempt=1))
    assert texts.lines(80) == ["  write#1", "    plan", "  model/1", "    Again"]
    texts.add(delta("After a crash", epoch=2))
    assert texts.lines(80)[-1] == "    After a crash"
    texts.add(delta("next", visit=2, key=""))
    texts.end(1)
    assert texts.lines(80) == ["  write#2", "    next"]


def test_long_and_many_texts_take_few_lines() -> None:
    texts = StreamedTexts()
    for n in range(3 * TEXTS_SHOWN):
        for _ in range(100):
            texts.add(delta("word " * 100, key=f"model/{n}"))
    lines = texts.lines(40)
    assert len(lines) == TEXTS_SHOWN * (1 + TEXT_LINES) and max(map(len, lines)) <= 40
    assert sum(len(text) for _, text in texts._texts.values()) == TEXTS_SHOWN * TEXT_KEPT

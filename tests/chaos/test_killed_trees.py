"""A slice of `python -m tests.chaos.killed_trees`: trees of runs in real processes that are killed."""

import asyncio
from pathlib import Path

import pytest

from tests.chaos.killed_trees import play


@pytest.mark.req("RUN-13", "EFF-2")
def test_no_kill_repeats_a_booking_or_leaves_a_child_behind(tmp_path: Path) -> None:
    end = asyncio.run(play(tmp_path, trees=8, kills=4, seed=1))
    assert (end.wrong, end.kills) == ([], 4)
    assert end.runs == 32

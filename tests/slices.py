"""Parts of long campaigns: the default run plays a few cases, drawn again each time, and one command plays them all.

`TEST_SEED=SEED scripts/test PATH` draws the same cases again, and `TEST_SEED=all` plays each case.
"""

import os
import random
from collections.abc import Sequence
from typing import Final, TypeVar

import pytest

SEED: Final = "TEST_SEED"  # not OUTLAST_…, which `outlast doctor` takes for an unknown setting
ALL: Final = "all"
Case = TypeVar("Case")


def seed() -> str:
    """Return the seed of this session, which its processes share through the environment."""
    return os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1_000_000)))


def drawn(cases: Sequence[Case], count: int, campaign: str) -> list[Case]:
    """Return `count` of the cases in their order, or all of them, as the seed of the session says."""
    if seed() == ALL or count >= len(cases):
        return list(cases)
    chosen = random.Random(f"{seed()} {campaign}").sample(range(len(cases)), count)
    return [cases[at] for at in sorted(chosen)]


def params(cases: Sequence[Case], count: int, campaign: str) -> list[object]:
    """Return the cases as parameters of a test. Those that are not drawn are skipped, with the seed and the command."""
    mine = drawn(range(len(cases)), count, campaign)
    reason = f"not drawn with {SEED}={seed()}; {SEED}={ALL} plays it"
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=[] if at in mine else pytest.mark.skip(reason)
        )
        for at, case in enumerate(cases)
    ]

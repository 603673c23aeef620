"""When a set of calls or children ends: by numbers alone, so the order of the ends changes nothing (S-31)."""

from itertools import permutations
from typing import Any

import pytest

from outlast.core.enough import SetBounds, SetState, check_bounds, state_of
from outlast.errors import InvalidInput

GOES_ON, ENOUGH, TOO_FEW = SetState


@pytest.mark.parametrize(
    ("bounds", "completed", "failed", "state"),
    [
        (SetBounds(5), 4, 0, GOES_ON),
        (SetBounds(5), 5, 0, ENOUGH),
        (SetBounds(5), 0, 1, GOES_ON),
        (SetBounds(5), 4, 1, TOO_FEW),
        (SetBounds(0), 0, 0, ENOUGH),
        (SetBounds(5, 3), 2, 2, GOES_ON),
        (SetBounds(5, 3), 3, 2, ENOUGH),
        (SetBounds(5, 3), 3, 0, ENOUGH),
        (SetBounds(5, 3), 0, 3, TOO_FEW),
        (SetBounds(5, None, 0), 3, 0, GOES_ON),
        (SetBounds(5, None, 0), 3, 1, TOO_FEW),
        (SetBounds(5, None, 2), 0, 2, GOES_ON),
        (SetBounds(5, None, 2), 3, 2, ENOUGH),
        (SetBounds(5, None, 9), 0, 5, ENOUGH),
        (SetBounds(5, 2, 1), 1, 2, TOO_FEW),
        (SetBounds(5, 2, 1), 2, 3, ENOUGH),
        (SetBounds(0, None, 0), 0, 0, ENOUGH),
    ],
)
def test_numbers_decide_what_follows(bounds: SetBounds, completed: int, failed: int, state: SetState) -> None:
    assert state_of(bounds, completed, failed) is state


def test_a_set_that_has_ended_by_a_bound_has_ended_with_each_further_member() -> None:
    """Calls under way count as what they became, and none of them opens the set again."""
    every = [None, *range(1, 5)]
    for least in every:
        for most in (None, *range(5)):
            bounds = SetBounds(4, least, most)
            for order in set(permutations((True,) * 4 + (False,) * 4, 4)):
                states = [state_of(bounds, sum(order[:n]), n - sum(order[:n])) for n in range(5)]
                ended = next(n for n, state in enumerate(states) if state is not GOES_ON)
                assert GOES_ON not in states[ended:], (bounds, order)
                assert states[-1] is not TOO_FEW or states[ended] is TOO_FEW, (bounds, order)


@pytest.mark.parametrize(
    ("bounds", "named"),
    [
        (SetBounds(3, 0), "min_successful=0"),
        (SetBounds(3, 4), "min_successful=4"),
        (SetBounds(0, 2), "min_successful=2"),
        (SetBounds(3, True), "min_successful=True"),
        (SetBounds(3, None, -1), "tolerated_failures=-1"),
        (SetBounds(3, None, 1.5), "tolerated_failures=1.5"),  # type: ignore[arg-type]
    ],
)
def test_impossible_bounds_are_refused(bounds: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=r"do_all\(" + named):
        check_bounds("do_all", bounds)


@pytest.mark.parametrize("bounds", [SetBounds(3, 3), SetBounds(3, 1, 0), SetBounds(3, None, 3), SetBounds(0, None, 2)])
def test_more_failures_than_members_may_be_tolerated(bounds: SetBounds) -> None:
    check_bounds("do_all", bounds)

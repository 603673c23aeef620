"""Amounts of budgets as people give them: each is stored exactly, or refused."""

from decimal import Decimal
from typing import Any

import pytest

from outlast.core.durations import MINUTE
from outlast.core.usage import AMOUNT_MAX, Budget, minutes
from outlast.errors import InvalidInput

HUGE: list[Any] = [
    1e300, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan"), -1, 10**400, 10**5000, True, "5",
    AMOUNT_MAX,
]  # fmt: skip


@pytest.mark.parametrize("number", HUGE, ids=[f"{type(each).__name__}-{n}" for n, each in enumerate(HUGE)])
def test_minutes_that_cannot_be_stored_are_refused(number: Any) -> None:
    """Also those whose product with a minute no float has, and numbers too long for a text."""
    with pytest.raises(InvalidInput, match="minutes is"):
        Budget(minutes=number)


@pytest.mark.parametrize("name", ["tokens", "calls", "money"])
@pytest.mark.parametrize("number", [10**400, 10**5000, -1, AMOUNT_MAX + 1], ids=["10^400", "10^5000", "below", "above"])
def test_other_amounts_that_cannot_be_stored_are_refused(name: str, number: int) -> None:
    with pytest.raises(InvalidInput, match=f"{name} is"):
        Budget(**{name: number})


def test_money_with_a_huge_exponent_is_refused() -> None:
    for money in ("1e999999", Decimal("1e400"), 1e308):
        with pytest.raises(InvalidInput, match="money is"):
            Budget(money=money)


def test_minutes_are_kept_in_milliseconds() -> None:
    assert (minutes(0), minutes(1.5), minutes(10**9)) == (0, MINUTE * 3 // 2, MINUTE * 10**9)

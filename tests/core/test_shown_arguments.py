"""Main arguments of a call: which ones are shown, and as which text."""

from typing import Any

import pytest

from outlast import Amount, activity
from outlast.core.rows.approval_columns import PLANS, OfferedCall
from outlast.core.shown_arguments import ShownArgument, in_one_line, main_arguments
from outlast.errors import DefinitionError

pytestmark = pytest.mark.req("GATE-2")
CENTS = ShownArgument("cents", currency="currency", decimals=2)


@pytest.mark.parametrize(
    ("shown", "arguments", "line"),
    [
        ([CENTS, ShownArgument("to", "to")], {"cents": 99900, "currency": "EUR", "to": "hooli"}, "999.00 EUR to hooli"),
        ([CENTS], {"cents": 123456789, "currency": "JPY"}, "1,234,567.89 JPY"),
        ([CENTS], {"cents": -5}, "-0.05"),
        ([CENTS], {"cents": True, "currency": "EUR"}, "cents: yes"),
        ([CENTS], {"cents": "NaN", "currency": "EUR"}, "NaN"),
        ([CENTS], {"cents": 10**300, "currency": "EUR"}, f"cents: 1{'0' * 58}…"),
        ([ShownArgument("price", "up to", "EUR", 0)], {"price": "12.50"}, "up to 12.50 EUR"),
        ([ShownArgument("day")], {"day": "2026-12-24"}, "24 Dec 2026"),
        ([ShownArgument("at")], {"at": "2026-12-24T18:30:00+01:00"}, "24 Dec 2026 18:30 UTC+01:00"),
        ([ShownArgument("day")], {"day": "2026-13-24"}, "2026-13-24"),
        ([ShownArgument("lines")], {"lines": [1, 2, 3]}, "lines: 3 items"),
        ([ShownArgument("ship_to")], {"ship_to": {"street": "a"}}, "ship to: 1 field"),
        ([ShownArgument("text")], {"text": "a\n b" + "x" * 90}, "a b" + "x" * 56 + "…"),
        ([ShownArgument("gone"), ShownArgument("none"), ShownArgument("empty")], {"none": None, "empty": ""}, ""),
        ([], {"a": [1], "b": 1, "c": "x", "d": False, "e": 2}, "b: 1, x, d: no"),
    ],
)
def test_values_are_written_for_people(shown: list[ShownArgument], arguments: dict[str, Any], line: str) -> None:
    assert in_one_line(main_arguments(arguments, shown)) == line


def test_an_offered_call_keeps_the_declaration() -> None:
    call = OfferedCall("pay", "pay/1", "d", '{"cents":850,"currency":"EUR"}', shown=(CENTS,))
    assert PLANS.decode(PLANS.encode([call])) == (call,)
    assert in_one_line(call.main_arguments()) == "8.50 EUR"


@pytest.mark.parametrize(
    ("show", "what"),
    [
        ("cents", "is no tuple"),
        ((1,), "is no tuple"),
        (("cent",), "names cent"),
        ((Amount("cents", "curency"),), "names curency"),
        (("to {cents} {currency}",), "has"),
        (("cents",) * 7, "names 7 arguments"),
    ],
)
def test_a_declaration_is_checked_against_the_signature(show: Any, what: str) -> None:
    with pytest.raises(DefinitionError, match=f"show= of .* {what}"):

        @activity(key="shown-w/{cents}", no_undo="x", show=show, name="shown_w")  # outlast: ignore[OL101] a test
        async def pay(cents: int, currency: str) -> None: ...


def test_names_words_and_amounts_are_read() -> None:
    @activity(key="shown-right/{cents}/{who}", no_undo="paid", show=("who", "to {bank}", Amount("cents", "EUR")))
    async def shown_right(cents: int, who: str, bank: str) -> None: ...

    assert shown_right.shown == (
        ShownArgument("who"), ShownArgument("bank", "to"), ShownArgument("cents", "", "EUR", 2),
    )  # fmt: skip


def test_a_long_text_is_no_main_argument_unless_it_is_named() -> None:
    message = "the parcel arrived damaged, and the customer asks for the money"
    arguments = {"cents": 88000, "message": message, "order": "acme 7"}
    assert in_one_line(main_arguments(arguments, ())) == "cents: 88000, acme 7"
    assert in_one_line(main_arguments(arguments, [ShownArgument("message")])).startswith("the parcel")

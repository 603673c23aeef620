"""A text that no reader sees counts as none, wherever a text is required (OUT-4, GATE-7)."""

import pytest

from outlast.core.approver_rule import refusal_of_name
from outlast.core.failed_calls import is_nothing
from outlast.core.visible import is_blank
from outlast.core.webhooks.approval_notices import inert_text

UNSEEN = ["", " \n\t", "\u200b", "\ufeff", "\u3164", "\u2800 \u115f", "\U000e0041", "\ufe0f", "\x1b", "\u2028"]
SEEN = ["a", "0", "\u00e9", "\u2764\ufe0f", "\u3164a", "\u0645\u06cc\u200c\u062e", "."]


@pytest.mark.parametrize("text", UNSEEN)
def test_a_text_without_a_visible_character_is_nothing(text: str) -> None:
    assert is_blank(text) and is_nothing(text)
    assert inert_text(f"a{text}b") in ("a b", "ab")


@pytest.mark.parametrize("text", SEEN)
def test_a_text_with_a_visible_character_is_something(text: str) -> None:
    assert not is_blank(text) and not is_nothing(text)


@pytest.mark.parametrize("text", [each for each in UNSEEN if each])
def test_a_name_has_no_character_that_no_one_sees(text: str) -> None:
    """Such a name looks like that of another caller."""
    assert refusal_of_name(f"ana{text}") == "contains invisible characters"
    assert refusal_of_name("ana") == ""

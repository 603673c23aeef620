"""Main arguments of a call, as lists and buttons of approvals show them: which ones, and their texts.

The author of an activity names them with `show=`. An approval stores this declaration with each offered call, so that a
list needs no code of the workflow, and so that an edited call is shown as the requested one. The exact values are in
the table of arguments.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

SHOWN_MAX: Final = 6
"""Arguments that an activity may name."""
UNNAMED_MAX: Final = 3
"""Arguments shown of an activity that names none."""
UNNAMED_CHARS_MAX: Final = 40
"""Characters of a text that is shown without being named: a longer one is a message, not a main argument."""
CHARS_MAX: Final = 60
DECIMALS_MAX: Final = 12
CODE: Final = re.compile(r"[A-Z]{3}", re.ASCII)
"""Code of a currency."""
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?", re.ASCII)


class ShownArgument(NamedTuple):
    """Argument that an author named, and how its value is written."""

    name: str
    words: str = ""  # before the value
    currency: str = ""  # code, or name of the argument that has it
    decimals: int = -1  # digits of a whole number that are after the point; -1 = not an amount


class MainArgument(NamedTuple):
    """Argument of a call as people read it."""

    name: str
    text: str
    joined: bool = False  # the text begins with the author's words, so no comma is before it


def main_arguments(arguments: Mapping[str, Any], shown: Sequence[ShownArgument]) -> list[MainArgument]:
    """Return the arguments that the author named, or the first scalar ones. Missing and empty ones are left out."""
    wanted = shown or [ShownArgument(name) for name, value in arguments.items() if _is_short(value)]
    found = []
    for each in wanted:
        value = arguments.get(each.name)
        if value is None or value == "":
            continue
        found.append(MainArgument(each.name, _text(each, value, arguments), bool(each.words)))
    return found if shown else found[:UNNAMED_MAX]


def _is_short(value: Any) -> bool:
    return not isinstance(value, list | dict) and (not isinstance(value, str) or len(value) <= UNNAMED_CHARS_MAX)


def in_one_line(found: Sequence[MainArgument]) -> str:
    """Return main arguments as one text: `999.00 EUR to hooli`."""
    text = ""
    for each in found:
        text += f"{(' ' if each.joined else ', ') if text else ''}{each.text}"
    return text


def _text(shown: ShownArgument, value: Any, arguments: Mapping[str, Any]) -> str:
    label = shown.name.replace("_", " ")
    if shown.decimals >= 0 and (amount := _amount(value, shown.decimals)):
        code = arguments.get(shown.currency, shown.currency if CODE.fullmatch(shown.currency) else "")
        text, named = f"{amount} {code}".rstrip() if isinstance(code, str) else amount, True
    else:
        text, named = _value(value), isinstance(value, str)
    if shown.words:
        return f"{shown.words} {text}"
    return text if named else f"{label}: {text}"


def _amount(value: Any, decimals: int) -> str:
    """Return a number or a decimal text as an amount, '' for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    try:
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return ""
    if not number.is_finite() or abs(number.adjusted()) > CHARS_MAX:
        return ""
    return f"{number.scaleb(-decimals):,f}"


def amount_sent(text: str, shown: ShownArgument) -> str:
    """Return the whole number of a text such as 400.00 for an amount of hundredths; other texts as they are."""
    if shown.decimals <= 0 or not re.fullmatch(rf"-?\d{{1,30}}\.\d{{{shown.decimals}}}", text, re.ASCII):
        return text
    return str(int(Decimal(text).scaleb(shown.decimals)))


def amount_hint(value: Any, shown: ShownArgument) -> str:
    """Return how an amount may be written, '' for other arguments."""
    written = _amount(value, shown.decimals) if shown.decimals > 0 and type(value) is int else ""
    return f"Write {value} or {written.replace(',', '')}." if written else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | dict):
        word = "item" if isinstance(value, list) else "field"
        return f"{len(value):,} {word}{'' if len(value) == 1 else 's'}"
    text = " ".join(str(value).split())
    if isinstance(value, str) and _DATE.fullmatch(text):
        text = _written_date(text)
    return text if len(text) <= CHARS_MAX else f"{text[: CHARS_MAX - 1]}…"


def _written_date(text: str) -> str:
    try:
        at = datetime.fromisoformat(text)
        day = f"{at.day} {date(2000, at.month, 1):%b} {at.year}"
    except ValueError:
        return text
    if len(text) == len("2026-11-30"):
        return day
    zone = "" if at.tzinfo is None else f" {at:%Z}"
    return f"{day} {at:%H:%M}{zone}"

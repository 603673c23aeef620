"""Main arguments of an activity (`show=`): names of parameters, with words before them, and amounts of money."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from outlast.core.argument_checks import Arguments
from outlast.core.shown_arguments import CHARS_MAX, CODE, DECIMALS_MAX, SHOWN_MAX, ShownArgument
from outlast.errors import DefinitionError

_WITH_WORDS: Final = re.compile(r"([^{}]*?)\s*\{([^\W\d]\w*)\}")


@dataclass(frozen=True)
class Amount:
    """A parameter of an activity that is an amount of money, for `show=`.

    - `name`: the parameter.
    - `currency`: a code of three capital letters, or the parameter that has it. Default: no currency is shown.
    - `decimals`: how many digits of the number are after the point: 2 for cents, 0 for a value in whole units.
    - `words`: text before the amount.

    Raises DefinitionError.
    """

    name: str
    currency: str = ""
    decimals: int = 2
    words: str = ""

    def __post_init__(self) -> None:
        check = Arguments("Amount")
        check.text("name", self.name, 'the name of a parameter: Amount("cents")')
        check.is_text("currency", self.currency, 'currency="EUR", or the name of a parameter')
        check.number("decimals", self.decimals, 0, DECIMALS_MAX)
        check.is_text("words", self.words, 'words="up to"')


def shown_of(
    title: str, where: str, parameters: Collection[str], show: Sequence[str | Amount]
) -> tuple[ShownArgument, ...]:
    """Return the declaration of `show=` as approvals store it. Raises DefinitionError."""

    def wrong(why: str, reason: str, fix: str) -> DefinitionError:
        return DefinitionError(f"show= of {title} {why}", reason, fix, where=where)

    given: object = show  # a caller without a type checker may pass anything
    if not isinstance(given, (tuple, list)) or not all(isinstance(each, str | Amount) for each in given):
        raise wrong("is no tuple", f"it is {given!r}"[:200], 'show=("customer",) or show=(Amount("cents", "EUR"),)')
    if len(show) > SHOWN_MAX:
        raise wrong(f"names {len(show)} arguments", f"at most {SHOWN_MAX} fit in a line", "name the main ones")
    found = []
    for each in show:
        item = _shown(each)
        if item is None or len(item.words) > CHARS_MAX:
            raise wrong(
                f"has {each!r}"[:200],
                f"an item is a parameter, or words of at most {CHARS_MAX} characters before one",
                'for example "customer" or "to {customer}"',
            )
        of_call = [item.name] + ([item.currency] if item.currency and not CODE.fullmatch(item.currency) else [])
        if unknown := [name for name in of_call if name not in parameters]:
            raise wrong(
                f"names {', '.join(unknown)}",
                f"the parameters are {', '.join(parameters) or 'none'}",
                "name parameters of the function",
            )
        found.append(item)
    return tuple(found)


def _shown(given: str | Amount) -> ShownArgument | None:
    """Return one item of `show=`, or None if it is unreadable."""
    if isinstance(given, Amount):
        return ShownArgument(given.name, given.words, given.currency, given.decimals)
    if given.isidentifier():
        return ShownArgument(given)
    match = _WITH_WORDS.fullmatch(given)
    return ShownArgument(match[2], match[1].strip()) if match is not None else None

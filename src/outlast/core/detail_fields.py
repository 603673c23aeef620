"""Declarations of facts for people: texts that a caller states about a run or a webhook, each declared once.

A named tuple of such texts is one value that passes whole from a client through the request to the row. No function in
between names a fact, so none can forget one. The checks, the body over HTTP, options of commands and pages go over the
declarations.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, get_args, get_type_hints

from outlast.core.keys import check_text
from outlast.errors import InvalidInput

Place = Literal["request", "option", "terminal", "form", "page"]
"""Place of a fact: a client or HTTP, an option of a command, the terminal, form and page of the web UI."""
PLACES: Final[tuple[Place, ...]] = get_args(Place)


class DetailField(NamedTuple):
    """Declaration of one fact. All are text."""

    noun: str
    """Its name in errors and beside its value: `correlation id`."""
    chars_max: int
    meaning: str = ""
    """Its text in the OpenAPI document and as help of the option, as a sentence."""
    example: str = ""
    places: tuple[Place, ...] = PLACES
    heading: str = ""
    """Its name on a page of the web UI, if not the noun."""
    shown: Callable[[str], str] | None = None
    """Function that returns the text for people and programs. None: the stored text."""
    stored_longer: bool = False
    """True if earlier versions stored longer texts. Their rows stay valid."""

    @property
    def title(self) -> str:
        """Return its name on a page of the web UI."""
        return self.heading or self.noun.capitalize()


Bounds = tuple[tuple[str, str, int], ...]
"""Name, noun and greatest length of facts."""


class DeclaredFacts(NamedTuple):
    """Declarations of the fields of a named tuple."""

    fields: Mapping[str, DetailField]
    by_place: Mapping[Place, Mapping[str, DetailField]]
    """Declarations of the facts of each place, in the order in which it shows them."""
    bounds: Bounds
    stored_bounds: Bounds
    """Bounds of the facts whose length every row keeps."""

    def shown_in(self, row: Any) -> dict[str, Any]:
        """Return the facts of a row as people see them."""
        found = dict[str, Any]()
        for name, each in self.fields.items():
            text = getattr(row, name)
            found[name] = text if each.shown is None else each.shown(text)
        return found


def declared_facts(of: type[tuple[str, ...]]) -> DeclaredFacts:
    """Return the declarations of the fields of a named tuple."""
    hints = get_type_hints(of, include_extras=True)
    fields: dict[str, DetailField] = {name: hint.__metadata__[0] for name, hint in hints.items()}
    return DeclaredFacts(
        MappingProxyType(fields),
        MappingProxyType({place: {n: each for n, each in fields.items() if place in each.places} for place in PLACES}),
        tuple((name, each.noun, each.chars_max) for name, each in fields.items()),
        tuple((name, each.noun, each.chars_max) for name, each in fields.items() if not each.stored_longer),
    )


def check_facts(bounds: Bounds, facts: Sequence[str]) -> None:
    """Raise InvalidInput for a fact that is too long, or no text that can be stored."""
    for text, (_, noun, chars_max) in zip(facts, bounds, strict=True):
        if text == "":
            continue  # most facts; a call would cost more than the comparison
        check_text(f"the {noun}", text)
        if len(text) > chars_max:
            raise InvalidInput(
                f"the {noun} is too long", f"it has {len(text)} characters, the limit is {chars_max}", "shorten it"
            )

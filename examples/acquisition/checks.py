"""Compare claims of a model with facts of the run. Pure functions; each objection is a sentence for the model.

A model may say anything. Its words are used only where a rule finds them in the records: the problems that it names,
the value that it estimates, the price of a draft, and the numbers in a text. What no rule can judge, a person reads.
"""

import re
from collections.abc import Iterable
from typing import Final

from .inquiry import Acquisition, Pain, Proposal, Qualification

FIT_OF_A: Final = 90
CENTS_PER_EMPLOYEE: Final = 10_000
QUOTE_WORDS_MIN: Final = 3
_NUMBER: Final = re.compile(r"\d{1,3}(?:[ ,.'\u00a0]\d{3})+(?:[.,]\d{2})?(?!\d)|\d+(?:[.,]\d{1,2})?(?!\d)|\d+")
_LINK: Final = re.compile(r"https?:|www\.", re.IGNORECASE)


def is_quoted(quote: str, sources: Iterable[str]) -> bool:
    """True if a quote of at least three words occurs in a source. Case, spaces and marks at its ends do not count."""
    words = _plain(quote)
    return len(words.split()) >= QUOTE_WORDS_MIN and any(words in _plain(source) for source in sources)


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .,;:!?\"'«»“”")


def supported(pains: Iterable[Pain], sources: Iterable[str]) -> tuple[list[Pain], list[Pain]]:
    """Return the problems whose quotes occur in a source, one of each kind, and those without one."""
    known, found, unsupported = list(sources), dict[str, Pain](), list[Pain]()
    for pain in pains:
        if is_quoted(pain.quote, known):
            found.setdefault(pain.kind, pain)
        else:
            unsupported.append(pain)
    return list(found.values()), unsupported


def objection_to_grade(s: Acquisition, found: Qualification) -> str:
    """Return what contradicts a grade and its value; '' if nothing does."""
    if found.grade == "A" and s.fit < FIT_OF_A:
        return f"the grade is A, and the fit is {s.fit}: A needs {FIT_OF_A}"
    if found.grade == "B" and not s.pains:
        return "the grade is B, and there is no problem that we solve"
    if not found.quote:
        value = s.employees * CENTS_PER_EMPLOYEE
        return "" if found.cents == value else f"cents is {found.cents}; without the quote of a budget it is {value}"
    if not is_quoted(found.quote, [s.message]):
        return "the quote is not in the message"
    amounts = {digits for number in _numbers(found.quote) for digits in _amounts(number)}
    return "" if found.cents in amounts else f"cents is {found.cents}, and the quote names another amount"


def _numbers(text: str) -> list[str]:
    return _NUMBER.findall(" ".join(text.split()))


def _amounts(number: str) -> tuple[int, int]:
    """Return a number as cents, if it names whole units, and if its last two digits are cents."""
    digits = int(re.sub(r"\D", "", number))
    return digits * 100, digits


def objection_to_draft(s: Acquisition, draft: Proposal) -> str:
    """Return what contradicts a draft; '' if nothing does."""
    price = s.cents * (100 - draft.discount_percent) // 100
    if draft.cents != price:
        return f"cents is {draft.cents}; {s.cents} less {draft.discount_percent} % is {price}"
    if s.contact not in draft.text:
        return f"the text does not name {s.contact}"
    given = [s.cents, draft.cents, draft.discount_percent * 100]
    return _objection_to_text(s, f"{draft.subject} {draft.text}", given)


def objection_to_message(s: Acquisition, text: str) -> str:
    """Return what contradicts a message to the contact; '' if nothing does."""
    if s.contact not in text:
        return f"the text does not name {s.contact}"
    return _objection_to_text(s, text, [s.drafted.cents])


def _objection_to_text(s: Acquisition, text: str, cents: Iterable[int]) -> str:
    """Return why a text may not be sent: a link, or a number that is neither in the inquiry nor an amount of it."""
    if _LINK.search(text):
        return "the text has a link"
    facts = " ".join((s.company, s.contact, s.message, *(pain.quote for pain in s.pains), str(s.employees)))
    known = {digits for number in _numbers(facts) for digits in _amounts(number)}
    known |= {part for amount in cents for part in (amount, amount // 100 * 100)}
    unknown = [number for number in _numbers(text) if not known & {*_amounts(number)}]
    return f"the text names {unknown[0]}, which is not known" if unknown else ""

"""Statements of a model about pages and records, in a form that code can check. Pure functions.

A model may say anything. A record that it takes from a page has the words of the page for each number. An answer has no
words at all: it says which records it means, what it takes from them, the value, and their keys. It is supported if the
question asks exactly this, and the records give exactly that. Each objection is a sentence for the model.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, Field

from .records import HeatPump, Text

RECORDS_MAX: Final = 300
WHERE_MAX: Final = 5
NUMBERS: Final = ("year", "noise_db", "cop", "price_eur")
FieldName: TypeAlias = Literal["maker", "name", "kind", "year", "noise_db", "cop", "price_eur"]
Pick: TypeAlias = Literal["value", "lowest", "highest", "count"]


class Measured(BaseModel):
    """A number, and the words of the page that state it. They have no other number."""

    value: float = Field(allow_inf_nan=False)
    quote: str = Field(max_length=200)


class Extracted(BaseModel):
    """A record as a model takes it from the text of a page."""

    maker: Text
    name: Text
    year: Measured
    noise_db: Measured
    cop: Measured
    price_eur: Measured

    def record(self, kind: str) -> HeatPump:
        """Return the record. Raises ValueError if its numbers are impossible."""
        return HeatPump(
            maker=self.maker,
            name=self.name,
            kind=kind,
            year=_whole(self.year.value),
            noise_db=self.noise_db.value,
            cop=self.cop.value,
            price_eur=_whole(self.price_eur.value),
        )


class Reading(BaseModel):
    """Answer to the question what a page describes. `record` is empty for a page that describes no heat pump."""

    is_record: bool
    record: Extracted | None = None


class Condition(BaseModel):
    """What must be true of a record: a field is a value, or lies below or above a number."""

    field: FieldName
    op: Literal["is", "below", "above"] = "is"
    value: str = Field(max_length=80)


class Claim(BaseModel):
    """An answer: of the records that meet all conditions, a value, the lowest, the highest, or their number.

    `value` is the value of the field; the name of the record that has the lowest or highest; or the number of records.
    `cites` are the keys of the records that prove it.
    """

    answerable: bool
    cites: list[str] = Field(max_length=RECORDS_MAX)
    pick: Pick = "value"
    field: FieldName | None = None
    where: list[Condition] = Field(default=[], max_length=WHERE_MAX)
    value: str = Field(default="", max_length=80)


class Answered(BaseModel):
    """A question with its answer. Only a supported one passed the check; `objection` says why another did not."""

    question: str
    status: Literal["supported", "unsupported", "unanswered"]
    answer: str = ""
    """The claim in words, written from its checked parts."""
    value: str = ""
    cites: list[str] = []
    objection: str = ""


# --- pages -------------------------------------------------------------------------------------------------
_NUMBER: Final = re.compile(r"\d{1,3}(?:[ ,\u00a0]\d{3})+(?!\d)|\d+(?:\.\d+)?")
_UNITS: Final = {
    "year": r"\b(?:year|built|launched|made in|since|introduced|came out)\b",
    "noise_db": r"\b(?:db|decibels?)\b",
    "cop": r"\b(?:cop|coefficient|efficiency)\b",
    "price_eur": r"\b(?:eur|euros?)\b|€",
}


def objection_to_reading(text: str, found: Extracted, kind: str) -> str:
    """Return what the text of a page does not say of a record; '' if it says all."""
    for words in (found.maker, found.name):
        if not _finds(re.escape(_plain(words)), _plain(text)):
            return f"{words} is not on the page"
    for name in NUMBERS:
        given: Measured = getattr(found, name)
        quote = _plain(given.quote)
        numbers = _numbers(quote)
        if not quote or not _finds(re.escape(quote), _plain(text)):
            return f"{name}: the quote is not on the page"
        if not re.search(_UNITS[name], quote):
            return f"{name}: the quote does not say that it is about {name}"
        if numbers != [given.value]:
            return f"{name}: the quote must have the number {given.value:g} and no other"
    try:
        found.record(kind)
    except ValueError:
        return "these numbers are impossible"
    return ""


# --- answers -----------------------------------------------------------------------------------------------
_FILLERS: Final = frozenset(
    re.findall(
        r"\w+",
        "a all and are at built by does do for from heat in is it listed made make makes model models of on one only "
        "pump pumps register s site than that the there to was were what which with",
    )
)
"""Words that change nothing in what a question asks."""
_ASKED: Final[Mapping[tuple[Pick, str], str]] = {
    ("lowest", "noise_db"): "quietest|most quiet|least noisy|lowest noise",
    ("highest", "noise_db"): "loudest|noisiest|least quiet|highest noise",
    ("lowest", "price_eur"): "cheapest|least expensive|lowest price|costs the least",
    ("highest", "price_eur"): "dearest|most expensive|highest price|costs the most",
    ("lowest", "cop"): "least efficient|lowest cop",
    ("highest", "cop"): "most efficient|highest cop",
    ("lowest", "year"): "oldest|earliest",
    ("highest", "year"): "newest|latest|most recent",
    ("value", "noise_db"): "how loud|how noisy|how quiet|how much noise|how many decibels",
    ("value", "price_eur"): "how much|how expensive|cost|costs|price",
    ("value", "cop"): "how efficient|cop",
    ("value", "year"): "how old|year|when",
    ("value", "maker"): "who|maker|manufacturer",
    ("value", "kind"): "what kind|which kind",
    ("count", ""): "how many|number",
}
"""Pick and field → the words by which a question asks for it."""
_LIMITS: Final[Mapping[tuple[str, str], str]] = {
    ("noise_db", "below"): r"(?:quieter than|below|under|less than) {} (?:db|decibels)",
    ("noise_db", "above"): r"(?:louder than|above|over|more than) {} (?:db|decibels)",
    ("price_eur", "below"): r"(?:cheaper than|below|under|less than|cost less than) {} (?:eur|euros)",
    ("price_eur", "above"): r"(?:dearer than|above|over|more than|cost more than) {} (?:eur|euros)",
    ("cop", "below"): r"(?:a )?cop (?:below|under) {}",
    ("cop", "above"): r"(?:a )?cop (?:above|over) {}",
    ("year", "below"): r"(?:older than|before) {}",
    ("year", "above"): r"(?:newer than|after|since) {}",
}


def objection_to(question: str, claim: Claim, records: Mapping[str, HeatPump], gaps: Mapping[str, str]) -> str:
    """Return why a claim is no supported answer to a question; '' if it is one.

    `gaps`: pages that were read and whose record is not known, with their kinds. What is lowest, highest, or a number
    of records is not supported if one of these could count.
    """
    objection = _objection_to_meaning(question, claim) or _objection_to_value(claim, records)
    kinds = {each.value for each in claim.where if each.field == "kind" and each.op == "is"}
    missing = [path for path, kind in gaps.items() if not kinds or kind in kinds] if claim.pick != "value" else []
    return objection or (f"the record of {missing[0]} is not known, and could count" if missing else "")


def _objection_to_meaning(question: str, claim: Claim) -> str:
    """Compare what is claimed with what is asked: neither may say what the other does not."""
    left = _spelled(question)
    for each in sorted(claim.where, key=lambda known: -len(known.value)):
        words = _condition(each)
        if words is None or not _finds(words, left):
            return f"the question does not ask for {each.field} {each.op} {each.value}"
        left = _without(words, left)
    asked = _ASKED.get((claim.pick, "" if claim.pick == "count" else claim.field or ""))
    if asked is None or not _finds(asked, left):
        return f"the question does not ask for the {claim.pick} {claim.field or ''}".rstrip()
    left = _without(asked, left, every=True)
    more = [word for word in re.findall(r"[\w.-]+", left) if word not in _FILLERS]
    return f"the claim does not account for these words of the question: {' '.join(more)}" if more else ""


def _condition(each: Condition) -> str | None:
    """Return the words by which a question states a condition, as a pattern."""
    if each.op == "is":
        value = re.escape(_spelled(each.value))
        return rf"(?:(?:in|from) )?{value}" if each.field == "year" else value or None
    numbers, pattern = _numbers(each.value), _LIMITS.get((each.field, each.op))
    return pattern.format(rf"{re.escape(f'{numbers[0]:g}')}(?:\.0)?") if pattern and len(numbers) == 1 else None


class Fact(NamedTuple):
    """Truth of the records: the values that are right, and the keys that prove them."""

    values: Sequence[str]
    keys: Sequence[str]


def fact_of(claim: Claim, records: Mapping[str, HeatPump]) -> Fact | None:
    """Return what the records give for what is claimed; None if no record meets the conditions."""
    meant = {key: each for key, each in records.items() if all(_meets(each, known) for known in claim.where)}
    if not meant:
        return None
    if claim.pick == "count":
        return Fact([f"{len(meant)}"], list(meant))
    found = {key: getattr(each, claim.field or "name") for key, each in meant.items()}
    if claim.pick == "value":
        return Fact(sorted({str(each) for each in found.values()}), list(found))
    best = min(found.values()) if claim.pick == "lowest" else max(found.values())
    keys = [key for key, each in found.items() if each == best]
    return Fact([records[key].name for key in keys], keys)


def _objection_to_value(claim: Claim, records: Mapping[str, HeatPump]) -> str:
    unknown = [key for key in claim.cites if key not in records]
    if unknown:
        return f"there is no record {unknown[0]}"
    fact = fact_of(claim, records)
    if fact is None:
        return "no record meets these conditions"
    if claim.pick == "value" and len(fact.values) > 1:
        return f"{len(fact.keys)} records meet these conditions, with different values"
    if set(claim.cites) != set(fact.keys):
        return f"cite the {len(fact.keys)} records that prove it, and no other"
    return "" if any(_same(claim.value, each) for each in fact.values) else f"the records do not give {claim.value}"


def in_words(claim: Claim, records: int, unread: int) -> str:
    """Return a supported claim as a sentence. Other pages than those of the records may have been unreadable."""
    meant = " and ".join(f"{each.field} {each.op} {each.value}" for each in claim.where) or "any values"
    of = f"{records} records" + (f"; {unread} more pages could not be read" if unread else "")
    if claim.pick == "count":
        return f"{claim.value} have {meant}, of {of}."
    if claim.pick == "value":
        return f"{claim.field} is {claim.value}, by the record with {meant}."
    return f"{claim.value} has the {claim.pick} {claim.field} of those with {meant}, of {of}."


def _meets(record: HeatPump, known: Condition) -> bool:
    value = getattr(record, known.field)
    if known.op == "is":
        return _same(str(value), known.value)
    numbers = _numbers(known.value)
    if known.field not in NUMBERS or len(numbers) != 1:
        return False
    return bool(value < numbers[0] if known.op == "below" else value > numbers[0])


def _same(one: str, other: str) -> bool:
    numbers = [float(each) if re.fullmatch(r"\d+(\.\d+)?", each.strip()) else None for each in (one, other)]
    return numbers[0] == numbers[1] if None not in numbers else _plain(one) == _plain(other)


def _whole(number: float) -> int:
    if number != int(number):
        raise ValueError("not a whole number")
    return int(number)


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .,;:!?\"'«»“”")


def _numbers(text: str) -> list[float]:
    return [float(re.sub(r"[ ,\u00a0]", "", number)) for number in _NUMBER.findall(text)]


def _spelled(text: str) -> str:
    """Return a text in small letters, with its numbers in one form and without marks between words."""
    plain = re.sub(r"(?<=\d)[,\u00a0](?=\d{3}(?!\d))", "", _plain(text)).replace("€", " eur ")
    return " ".join(re.sub(r"[?!,;:\"'()]|\.(?!\d)", " ", plain).split())


def _finds(pattern: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-])(?:{pattern})(?![\w-]|\.\d)", text) is not None


def _without(pattern: str, text: str, *, every: bool = False) -> str:
    """Return a text without one occurrence of a pattern, or every one; a mark keeps the words beside it apart."""
    return re.sub(rf"(?<![\w.-])(?:{pattern})(?![\w-]|\.\d)", " | ", text, count=0 if every else 1)

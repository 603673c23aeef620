"""The checks of the answering researcher: claims beside questions and records, and records beside pages."""

from typing import Any

import pytest

from examples.researcher import claims
from examples.researcher.claims import Claim, Condition, Extracted
from examples.researcher.records import HeatPump

pytestmark = pytest.mark.req("APP-4")


def pump(name: str, kind: str, noise: float, price: int) -> HeatPump:
    return HeatPump(maker=name.split()[0], name=name, kind=kind, year=2019, noise_db=noise, cop=4.0, price_eur=price)


RECORDS = {
    "/a": pump("Alba GR-1", "ground", 40.5, 9_000),
    "/b": pump("Alba GR-12", "ground", 50.0, 8_000),
    "/c": pump("Borea PO-3", "pool", 45.0, 5_000),
}
ALBA, GROUND = Condition(field="maker", value="Alba"), Condition(field="kind", value="ground")
GR1 = Condition(field="name", value="Alba GR-1")
QUIET = "Which ground heat pump is the quietest?"
LOUD = "How loud is the Alba GR-1?"
CHEAP = "How many heat pumps are cheaper than 8,500 EUR?"
BELOW = Condition(field="price_eur", op="below", value="8500")


def stated(pick: claims.Pick, field: claims.FieldName | None, where: list[Condition], value: str, *cites: str) -> Claim:
    return Claim(answerable=True, pick=pick, field=field, where=where, value=value, cites=list(cites))


CLAIMS = [
    (QUIET, stated("lowest", "noise_db", [GROUND], "Alba GR-1", "/a"), ""),
    (QUIET, stated("lowest", "noise_db", [GROUND], "alba gr-1 ", "/a"), ""),
    (QUIET, stated("lowest", "noise_db", [GROUND], "Alba GR-12", "/b"), "cite the 1 records"),
    (QUIET, stated("lowest", "noise_db", [GROUND], "Alba GR-12", "/a"), "do not give Alba GR-12"),
    (QUIET, stated("lowest", "noise_db", [GROUND], "Alba GR-1"), "cite the 1 records"),
    (QUIET, stated("lowest", "noise_db", [GROUND], "Alba GR-1", "/a", "/x"), "there is no record /x"),
    (QUIET, stated("highest", "noise_db", [GROUND], "Alba GR-12", "/b"), "does not ask for the highest"),
    (QUIET, stated("lowest", "price_eur", [GROUND], "Alba GR-12", "/b"), "does not ask for the lowest price_eur"),
    (QUIET, stated("lowest", "noise_db", [], "Alba GR-1", "/a"), "these words of the question: ground"),
    (QUIET, stated("lowest", "noise_db", [GROUND, ALBA], "Alba GR-1", "/a"), "does not ask for maker is Alba"),
    (
        "Which Zephyr heat pump is the quietest?",
        stated("lowest", "noise_db", [], "Alba GR-1", "/a"),
        "words of the question: zephyr",
    ),
    (
        "Which heat pump is not the quietest?",
        stated("lowest", "noise_db", [], "Alba GR-1", "/a"),
        "words of the question: not",
    ),
    (LOUD, stated("value", "noise_db", [GR1], "40.50", "/a"), ""),
    (LOUD, stated("value", "noise_db", [ALBA], "40.5", "/a"), "words of the question: gr-1"),
    (LOUD, stated("value", "noise_db", [GR1], "41", "/a"), "do not give 41"),
    (LOUD, stated("value", "price_eur", [GR1], "9000", "/a"), "does not ask for the value price_eur"),
    (
        "How loud is the Alba GR-12?",
        stated("value", "noise_db", [GR1], "40.5", "/a"),
        "does not ask for name is Alba GR-1",
    ),
    ("How heavy is the Alba GR-1?", stated("value", "noise_db", [GR1], "40.5", "/a"), "does not ask for the value"),
    ("How loud and how heavy is the Alba GR-1?", stated("value", "noise_db", [GR1], "40.5", "/a"), "heavy"),
    ("How loud is Alba?", stated("value", "noise_db", [ALBA], "40.5", "/a", "/b"), "with different values"),
    (CHEAP, stated("count", None, [BELOW], "2", "/c", "/b"), ""),
    (CHEAP, stated("count", None, [BELOW], "3", "/c", "/b"), "do not give 3"),
    (CHEAP, stated("count", None, [], "3", "/a", "/b", "/c"), "cheaper"),
    (
        CHEAP,
        stated("count", None, [Condition(field="price_eur", op="above", value="8500")], "1", "/a"),
        "price_eur above",
    ),
    (CHEAP, stated("count", None, [Condition(field="price_eur", op="below", value="850")], "0"), "below 850"),
    (
        "How many heat pumps does Zephyr make?",
        stated("count", None, [Condition(field="maker", value="Zephyr")], "0"),
        "no record",
    ),
]


@pytest.mark.parametrize(("question", "claim", "objection"), CLAIMS, ids=str)
def test_a_claim_is_compared_with_its_question_and_the_records(question: str, claim: Claim, objection: str) -> None:
    found = claims.objection_to(question, claim, RECORDS, {})
    assert (objection in found) if objection else found == ""


def test_a_page_whose_record_is_not_known_could_be_the_quietest() -> None:
    quiet = stated("lowest", "noise_db", [GROUND], "Alba GR-1", "/a")
    loud = stated("value", "noise_db", [GR1], "40.5", "/a")
    assert "could count" in claims.objection_to(QUIET, quiet, RECORDS, {"/d": "ground"})
    assert claims.objection_to(QUIET, quiet, RECORDS, {"/d": "pool"}) == ""
    assert claims.objection_to(LOUD, loud, RECORDS, {"/d": "ground"}) == ""


PAGE = (
    "Alba GR-1 by Alba. Its noise is 40.5 dB. The COP is 4.1. It was built in 2019. You pay 9,000 EUR, not 8,000 EUR."
)
QUOTES = {
    "year": (2019, "It was built in 2019."),
    "noise_db": (40.5, "“ITS  NOISE is 40.5 dB”"),
    "cop": (4.1, "The COP is 4.1"),
    "price_eur": (9_000, "You pay 9,000 EUR"),
}
EXTRACTED: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"name": "Alba GR-12"}, "Alba GR-12 is not on the page"),
    ({"noise_db": (30, "Its noise is 30 dB")}, "noise_db: the quote is not on the page"),
    ({"noise_db": (30, "Its noise is 40.5 dB")}, "noise_db: the quote must have the number 30"),
    ({"noise_db": (4.1, "The COP is 4.1")}, "does not say that it is about noise_db"),
    ({"cop": (40.5, "Its noise is 40.5 dB. The COP is 4.1")}, "cop: the quote must have the number 40.5 and no other"),
    ({"price_eur": (8_000, "You pay 9,000 EUR, not 8,000 EUR")}, "the number 8000 and no other"),
    ({"year": (2019, "")}, "year: the quote is not on the page"),
]


@pytest.mark.parametrize(("changed", "objection"), EXTRACTED, ids=str)
def test_a_record_that_a_model_takes_is_compared_with_its_page(changed: dict[str, Any], objection: str) -> None:
    given = {"maker": "Alba", "name": "Alba GR-1", **QUOTES, **changed}
    numbers = {name: {"value": each[0], "quote": each[1]} for name, each in given.items() if isinstance(each, tuple)}
    found = claims.objection_to_reading(PAGE, Extracted.model_validate({**given, **numbers}), "ground")
    assert (objection in found) if objection else found == ""

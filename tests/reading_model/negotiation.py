"""Rules for the questions of a negotiation: the position towards a supplier, its last word, and who is asked next.

The facts that they must find: whether the note with a bid says that it is the last one, in any words, and not an
earlier bid or that of a competitor; the concession in the instructions; which suppliers are open.
"""

import re
from typing import Any, Final

from tests.reading_model.reading import Fields, Reading, Reply, sentences

QUESTIONS: Final = ("position", "final", "move")
"""Question about which a lying model lies, by the remainder of its seed."""
INVENTED: Final = "nobody-supplies-this"
_LAST: Final = re.compile(
    r"\bfinal\b|last offer|best and last|no lower|cannot go|will not move|our limit", re.IGNORECASE
)
_OVER: Final = re.compile(r"last year|competitor|\bnot\b (our|yet)|far from|never|their", re.IGNORECASE)
_PERCENT: Final = re.compile(r"by (\d+) percent of the distance")


def question_of(reading: Reading) -> str:
    """Return which question a request asks; '' for that of another system."""
    if reading.fields == {"is_final", "quote", "cents"}:
        return "target"
    if reading.fields == {"is_final", "quote", "terms"}:
        return "counter"
    return "move" if reading.fields == {"ask", "end", "why"} else ""


def answer(reading: Reading) -> Reply | None:
    """Return the reply to a question of a negotiation."""
    facts = reading.facts
    match question_of(reading):
        case "target":
            cents = _step(reading, facts["ours"], facts["bid"], facts["allowed"])
            return {**_final(facts["note"]), "cents": cents}
        case "counter":
            terms = {
                name: _step(reading, ours, facts["bid"][name], facts["allowed"][name])
                for name, ours in facts["ours"].items()
            }
            return {**_final(facts["note"]), "terms": terms}
        case "move":
            still = bool(facts["prices_stand_still"])
            return {"ask": [] if still else facts["open"], "end": still, "why": "They still compete."}
        case _:
            return None


def _step(reading: Reading, ours: int, theirs: int, allowed: list[int]) -> int:
    found = _PERCENT.search(" ".join(reading.instructions.split()))
    assert found is not None, f"the instructions name no concession: {reading.instructions}"
    return min(max(ours + (theirs - ours) * int(found.group(1)) // 100, allowed[0]), allowed[1])


def _final(note: str) -> Fields:
    quotes = [each for each in sentences(note) if _LAST.search(each) and not _OVER.search(each)]
    return {"is_final": bool(quotes), "quote": quotes[0] if quotes else ""}


def lie(reading: Reading, honest: Reply, seed: int) -> Reply:
    """Return a position beyond the limits, a last word that is in no note, or a move that asks others and one twice."""
    question, about, facts = question_of(reading), QUESTIONS[seed % len(QUESTIONS)], reading.facts
    if not isinstance(honest, dict) or question not in ("target", "counter", "move"):
        return honest
    again = 2 if reading.is_corrected else 1
    if about == "move" and question == "move":
        return {"ask": [INVENTED, facts["open"][0], facts["open"][0]], "end": again == 2, "why": "I know them."}
    if about == "final" and question != "move":
        quote = facts["note"] if again == 2 else "This is our final price, we swear."
        return {**honest, "is_final": True, "quote": quote[:400]}
    if about == "position" and question == "target":
        return {**honest, "cents": int(facts["allowed"][1]) * (1 + again)}
    if about == "position" and question == "counter":
        terms: dict[str, Any] = {**honest["terms"], "cents": int(facts["allowed"]["cents"][1]) * (1 + again)}
        return {**honest, "terms": terms}
    return honest

"""Rules for the questions of a sale: problems of a company, grade and value, a proposal, and a message.

The facts that they must find: which problems the company has now (and not: had, or solved), and its words for each; the
limit of grade A and the value of an employee, in the instructions; a yearly budget in the message, in any spelling, and
not another amount; a discount that the message asks for; the limit in an objection.
"""

import json
import re
from typing import Final

from tests.reading_model.reading import Calls, Fields, Reading, Reply, sentences

_SIGNS: Final = {
    "stock": (r"stock (count|figure|level)s?|inventory|warehouse count|on the shelf", r"wrong|\boff\b|never|incorrect"),
    "orders": (r"\borders?\b", r"(typ|key|enter|cop)\w*\b.*(twice|hand|manual)|(hand|manual)\w*.*(typ|key|enter)"),
    "delivery": (r"deliver|shipment|parcel", r"\blate\b|behind|delay|overdue"),
    "returns": (r"\breturn", r"slow|weeks|month|sits"),
}
"""Kind → words of the subject, words of the trouble. Both are in a sentence about a problem."""
_OVER: Final = re.compile(
    r"used to|no longer|solved|in the past|within a day|\bwas\b|\bwere\b|last year", re.IGNORECASE
)
_BUDGET: Final = re.compile(r"budget|can spend|approved", re.IGNORECASE)
_AMOUNT: Final = re.compile(r"\d{1,3}(?:[ ,.]\d{3})+|\d+")
_DOMAIN: Final = re.compile(r"\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:example|internal)\b")
_ASKS: Final = re.compile(r"(\d+) ?(?:%|percent)", re.IGNORECASE)
QUESTIONS: Final = ("pains", "grade", "proposal", "message")


def question_of(reading: Reading) -> str:
    """Return which question a request asks, by the fields of the result; '' for that of another system."""
    if reading.fields == {"pains"}:
        return "pains"
    if {"grade", "cents"} <= reading.fields:
        return "grade"
    if {"subject", "discount_percent"} <= reading.fields:
        return "proposal"
    return "message" if reading.fields == {"text"} and "contact" in reading.facts else ""


def answer(reading: Reading) -> Reply | None:
    """Return the reply to a question of a sale."""
    match question_of(reading):
        case "pains":
            return _pains(reading)
        case "grade":
            return _grade(reading)
        case "proposal":
            return _proposal(reading)
        case "message":
            facts = reading.facts
            return {"text": f"Dear {facts['contact']}, a proposal for {facts['company']} is in your mail."}
        case _:
            return None


def _pains(reading: Reading) -> Reply:
    facts = reading.facts
    asked = any(each["role"] == "assistant" for each in reading.messages)
    if "read_site" in reading.tools and not asked:
        domains = dict.fromkeys([facts["domain"], *_DOMAIN.findall(facts["message"])])
        return Calls(tuple(("read_site", {"domain": domain}) for domain in domains))
    found: dict[str, Fields] = {}
    for sentence in (each for text in (facts["message"], *reading.results) for each in sentences(text)):
        for kind, (subject, trouble) in _SIGNS.items():
            words = (re.search(subject, sentence, re.IGNORECASE), re.search(trouble, sentence, re.IGNORECASE))
            if f"({kind})" in reading.instructions and all(words) and not _OVER.search(sentence):
                found.setdefault(kind, {"kind": kind, "problem": f"trouble with {kind}", "quote": sentence})
    return {"pains": list(found.values())}


def _grade(reading: Reading) -> Reply:
    facts, rules = reading.facts, reading.instructions
    limit = int(_first(r"fit is at least (\d+)", rules))
    grade = "A" if facts["fit"] >= limit else "B" if facts["pains"] else "C"
    for sentence in sentences(facts["message"]):
        if _BUDGET.search(sentence) and not _OVER.search(sentence) and (amount := _AMOUNT.search(sentence)):
            return {"grade": grade, "cents": _number(amount.group()) * 100, "quote": sentence}
    each = _number(_first(r"([\d,.]+) cents for each employee", rules))
    return {"grade": grade, "cents": facts["employees"] * each, "quote": ""}


def _proposal(reading: Reading) -> Reply:
    facts = reading.facts
    wishes = [int(n) for each in sentences(facts["message"]) if not _OVER.search(each) for n in _ASKS.findall(each)]
    discount = wishes[0] if wishes else 0
    if limit := _ASKS.search(facts["objection"]):
        discount = min(discount, int(limit.group(1)))
    cents = facts["cents"] * (100 - discount) // 100
    about = ", ".join(pain["problem"] for pain in facts["pains"]) or "your inquiry"
    text = f"Dear {facts['contact']}, about {about}: we offer {cents / 100:,.2f} EUR a year."
    return {"subject": f"For {facts['company']}", "text": text, "cents": cents, "discount_percent": discount}


def lie(reading: Reading, honest: Reply, seed: int) -> Reply:
    """Return claims that are in no record, about one of the four questions, in other words after each objection."""
    question = question_of(reading)
    if isinstance(honest, Calls | str) or question != QUESTIONS[seed % len(QUESTIONS)]:
        return honest
    again = "Indeed, " if reading.is_corrected else ""
    if question == "pains":
        claims = [_claim("stock", f"{again}half of our stock has vanished"), _claim("returns", f"{again}returns burn")]
        return {"pains": [*claims, *honest["pains"]]}
    if question == "grade":
        return {"grade": "A", "cents": honest["cents"] * 10, "quote": f"{again}we can spend {honest['cents'] // 10}"}
    if question == "proposal":
        return {**honest, "text": f"{honest['text']} {again}You have saved 9,876,543 EUR with us."}
    return {"text": f"{again}{honest['text']} Sign at https://pay.example now."}


def _claim(kind: str, words: str) -> Fields:
    return {"kind": kind, "problem": f"invented: {words}", "quote": words}


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, f"the instructions do not say {pattern}: {json.dumps(text)}"
    return str(found.group(1))


def _number(text: str) -> int:
    return int(re.sub(r"\D", "", text))

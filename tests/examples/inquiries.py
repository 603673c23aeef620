"""Companies that write an inquiry, drawn by a seed, and the truth about each, which a reader must find.

The seed changes names, numbers, order and wording. The truth is known because the company is made from it. Beside the
problems that a company has are sentences about problems that it had, amounts that are no budget, and other talk.
"""

import random
from typing import Any, Final, NamedTuple

PROBLEMS: Final = {
    "stock": (
        "Our stock counts are wrong every month",
        "Inventory figures are off by dozens of items",
        "What is on the shelf and what the system shows never match",
        "The warehouse count is never right",
    ),
    "orders": (
        "Orders are typed twice, once for each system",
        "We still key every order in by hand",
        "Purchase orders get entered manually from mails",
    ),
    "delivery": (
        "Deliveries arrive late every other week",
        "Customers complain about late shipments",
        "Our shipments are days behind schedule",
    ),
    "returns": (
        "Returns take weeks to process",
        "A returned item sits in a corner for a month",
        "Processing of returns is far too slow",
    ),
}
TALK: Final = (
    "We were founded in 1987 and like sailing",
    "Late deliveries used to be a problem, and that is solved",
    "Our returns are handled within a day",
    "In the past orders were typed by hand",
    "Orders are no longer entered twice",
    "Last year we paid 90,000 EUR for a tool that nobody liked",
    "Our inventory was wrong until a new manager came",
    "Visit our 3 halls",
)
BUDGETS: Final = (
    "Our budget is {:,} EUR a year",
    "We can spend EUR {} per year",
    "A yearly budget of {} € is approved",
)
WISHES: Final = ("We expect {} % off", "A discount of {} percent would convince us")
FIRST: Final = ("Ada", "Bo", "Cleo", "Dmitri", "Eve", "Farid", "Greta", "Hugo")
LAST: Final = ("Lind", "Okafor", "Rossi", "Sato", "Weber", "Ya\u011f\u0131z")
NAMES: Final = ("Bolt", "Kern", "Lumen", "Nord", "Sund", "Tal 24", "Ufer")
KINDS: Final = ("Works", "& Sons", "Trading", "Logistics")
FIT_INDUSTRIES: Final = ("logistics", "manufacturing", "retail")
OTHERS: Final = ("gambling", "mining", "media")
DISCOUNT_MAX: Final = 20


class Truth(NamedTuple):
    """What is true of a company, and the end of its run: IN_CONTACT, DISQUALIFIED or NOT_A_FIT."""

    kinds: frozenset[str]
    grade: str
    cents: int
    discount: int
    drafts: int
    end: str

    @property
    def price(self) -> int:
        """The price that may be offered."""
        return self.cents * (100 - self.discount) // 100


class World(NamedTuple):
    """An inquiry, the text of each site, and the truth."""

    given: dict[str, Any]
    sites: dict[str, str]
    truth: Truth

    @property
    def email(self) -> str:
        """The address of the contact in one form."""
        return str(self.given["email"]).lower()


def world(seed: int) -> World:
    """Return the world of a seed."""
    dice = random.Random(seed)
    name, first = f"{dice.choice(NAMES)} {dice.choice(KINDS)}", dice.choice(FIRST)
    domain = "".join(letter for letter in name.lower() if letter.isalnum()) + ".example"
    suits = (dice.random() < 0.7, dice.random() < 0.7, dice.random() < 0.7)
    employees = dice.randint(20, 2_000) if suits[1] else dice.choice([dice.randint(1, 19), dice.randint(2_001, 9_000)])
    kinds = dice.sample(sorted(PROBLEMS), dice.choice([0, 1, 2, 2, 3]))
    words = [dice.choice(PROBLEMS[kind]) for kind in kinds]
    talk = dice.sample(TALK, 4)
    budget, wish = dice.choice([0, 0, dice.randint(4, 400) * 1_000]), dice.choice([0, 0, 10, 35])
    at_site = words[: dice.randint(0, len(words))] + talk[:2]
    in_mail = [each for each in words if each not in at_site] + talk[2:]
    in_mail += [_spelled(dice, budget)] if budget else []
    in_mail += [dice.choice(WISHES).format(wish)] if wish else []
    in_mail += ["Our orders are in wiki.internal"] if dice.random() < 0.3 else []
    dice.shuffle(at_site)
    dice.shuffle(in_mail)
    given = {
        "company": f"  {name.replace(' ', '  ', 1)}",
        "domain": f"www.{domain}" if dice.random() < 0.5 else domain.upper(),
        "contact": f"{first} {dice.choice(LAST)}",
        "email": f"{first}@{domain}",
        "country": dice.choice(["de", "AT", "nl"]) if suits[2] else dice.choice(["FR", "us"]),
        "industry": dice.choice(FIT_INDUSTRIES) if suits[0] else dice.choice(OTHERS),
        "employees": employees,
        "message": f"{'. '.join(in_mail)}.",
    }
    fit = 40 * suits[0] + (40 if suits[1] else 10) + 20 * suits[2]
    return World(given, {domain: f"{'. '.join(at_site)}."}, _truth(fit, kinds, employees, budget, wish))


def _spelled(dice: random.Random, amount: int) -> str:
    mark = dice.choice([",", ".", " "])
    first, *others = BUDGETS
    return dice.choice([first.format(amount), *(each.format(f"{amount:,}".replace(",", mark)) for each in others)])


def _truth(fit: int, kinds: list[str], employees: int, budget: int, wish: int) -> Truth:
    grade = "A" if fit >= 90 else "B" if kinds else "C"
    end = "NOT_A_FIT" if fit < 50 else "DISQUALIFIED" if grade == "C" else "IN_CONTACT"
    cents = budget * 100 if budget else employees * 10_000
    return Truth(frozenset(kinds), grade, cents, min(wish, DISCOUNT_MAX), 1 + (wish > DISCOUNT_MAX), end)

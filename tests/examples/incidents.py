"""Incidents of a shop, drawn by a seed, and the truth about each: the calls that its runbook and the facts allow.

The seed changes names, numbers, order and wording. Beside the signs of the cause are lines about nothing, and an order
that the ticket names and that was charged once.
"""

import random
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from examples.desk.incident import World

FOLLOW_UP: Final = ("Open a follow-up ticket ({})", "File a follow-up ticket ({}) for the lasting repair")
CAUSE: Final = ("Comment the cause", "Tell the people on the ticket the cause in a comment")
RESTART: Final = ("Restart the service that holds the connections", "Restart the service of the ticket")
SHARED: Final = (
    "Restart services that share the database only if they do not recover",
    "A service that waits for the same database is restarted only if it stays slow",
)
REFUND: Final = ("Refund double charges up to {} EUR", "Pay a second charge back, at most {} EUR")
CUSTOMER: Final = ("Answer the customer", "Write to the customer")
NEVER: Final = ("Never restart the service: a restart loses the queue", "Do not restart anything")
PROBE: Final = ("If probes pass again, change nothing", "Nothing is to be done if the probes pass again")
POOL: Final = ("50 of 50 connections in use", "no connection left, oldest idle in transaction for 93 s")
DISK: Final = ("/var is full", "no space left on the disk of exports")
WAITS: Final = ("{} waits for the shared database", "{} is blocked by the same database")
SLOW: Final = ("queries are still slow", "no better than before")
FAST: Final = ("queries are fast again", "back to normal")
PASS: Final = ("probes pass again", "all probes pass")
FAIL: Final = ("probes still fail", "the last 9 probes failed")
TWICE: Final = ("Order {} was charged twice", "The customer paid order {} two times")
ONCE: Final = ("Order {} is late", "Order {} came without a bill")
NOISE: Final = ("deploy 8123 finished", "cache warmed", "GET /health 200", "cron ran", "rotated 3 certificates")
NAMES: Final = ("checkout", "basket", "search", "stock", "reports", "login", "mails", "prices")
PEOPLE: Final = ("ada", "bo", "cleo", "dmitri", "eve", "farid")
LIMIT_EUR: Final = (60, 80, 100)
KINDS: Final = ("pool", "disk", "probe")


class Truth(NamedTuple):
    """Calls that are right, as key → arguments that they must have, and those of them that policy refuses."""

    kind: str
    calls: dict[str, dict[str, Any]]
    refused: frozenset[str] = frozenset()

    @property
    def done(self) -> set[str]:
        """The keys of the calls that are made."""
        return self.calls.keys() - self.refused


class Case(NamedTuple):
    """An incident with the office that shows it, the frozen services, and the truth."""

    number: str
    world: World
    frozen: tuple[str, ...]
    truth: Truth


def case(seed: int) -> Case:
    """Return the incident of a seed. No other seed has one of its names."""
    dice = random.Random(seed)
    number, kind = f"{dice.choice(['INC', 'OPS', 'SHOP'])}-{dice.randint(1, 99)}{seed:03}", KINDS[seed % len(KINDS)]
    service, other = (f"{name}-{seed}" for name in dice.sample(NAMES, 2))
    book = f"{dice.choice(['book', 'page', 'case'])}-{chr(97 + seed % 26)}"
    topic = dice.choice(["connection-leak", "clean-up", "capacity", "lasting-repair"])
    calls: dict[str, dict[str, Any]] = {f"comment/{number}/result": {"number": number}}
    follow_up = {
        f"ticket/{number}/{topic}": {"about": number},
        f"comment/{number}/cause": {"number": number},
    }
    restart = {f"restart/{service}": {"number": number, "service": service}}
    ticket = {"title": f"{service} has trouble", "service": service, "customer": "", "text": "Nobody knows why."}
    world = World(tickets={number: ticket}, services={}, runbooks={}, ailing=[service, other])
    frozen: tuple[str, ...] = ()
    first = [dice.choice(FOLLOW_UP).format(topic), dice.choice(CAUSE)]
    if kind == "pool":
        dice.shuffle(first)
        limit = dice.choice(LIMIT_EUR)
        lines = [f"[{book}] {dice.choice(POOL)}", dice.choice(WAITS).format(other)]
        steps = [*first, dice.choice(RESTART), dice.choice(SHARED), dice.choice(REFUND).format(limit)]
        steps += [dice.choice(CUSTOMER)]
        slow, frozen = dice.random() < 0.6, (service,) if dice.random() < 0.3 else ()
        world.services[other] = [dice.choice(NOISE), dice.choice(SLOW if slow else FAST)]
        calls |= follow_up | restart
        calls |= {f"restart/{other}": {"number": number, "service": other}} if slow else {}
        calls |= _orders(dice, number, world, limit, seed)
    elif kind == "disk":
        lines, steps = [f"[{book}] {dice.choice(DISK)}"], [first[0], dice.choice(NEVER), first[1]]
        calls |= follow_up
    else:
        passes = dice.random() < 0.5
        lines = [f"[{book}] one probe of 3 failed", dice.choice(PASS if passes else FAIL)]
        steps = [dice.choice(PROBE), "Otherwise restart the service"]
        calls |= {} if passes else restart
        if passes:
            world.ailing.remove(service)
    noise = dice.sample(NOISE, 2)
    world.services[service] = [noise[0], *lines, noise[1]]
    world.runbooks[book] = " ".join(f"{n}. {step}." for n, step in enumerate(steps, 1))
    return Case(number, world, frozen, Truth(kind, calls, frozenset(f"restart/{each}" for each in frozen)))


def _orders(dice: random.Random, number: str, world: World, limit: int, seed: int) -> dict[str, dict[str, Any]]:
    """Add a customer and two orders, of which one was charged twice. Return the calls that follow from them."""
    ticket = world.tickets[number]
    twice, once = (f"{letter}-{dice.randint(10, 99)}{seed:03}" for letter in dice.sample("ABCDE", 2))
    cents = dice.randint(500, 14_000)
    sentences = [dice.choice(TWICE).format(twice), dice.choice(ONCE).format(once)]
    dice.shuffle(sentences)
    ticket["text"], ticket["customer"] = f"{'. '.join(sentences)}.", f"{dice.choice(PEOPLE)}{seed}@customer.example"
    world.orders.update({twice: [cents, cents], once: [dice.randint(500, 14_000)]})
    refund = {f"refund/{twice}": {"number": number, "order": twice, "cents": cents}} if cents <= limit * 100 else {}
    return {**refund, f"mail/{quote(ticket['customer'])}": {"number": number, "to": ticket["customer"]}}

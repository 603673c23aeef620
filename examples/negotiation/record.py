"""The suppliers' requests, read from the market's record and counted."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

Kind = Literal["invitations", "quotes", "inquiries", "proposals", "feedback", "orders", "messages", "cancellations"]
"""What can be sent to a supplier; each is the last part of its address."""

APPROACHES: tuple[Kind, ...] = ("invitations", "quotes", "inquiries", "proposals")
"""Those that ask for a bid: of an auction, a spot purchase, a bottleneck, a strategic negotiation."""

KINDS: tuple[Kind, ...] = (*APPROACHES, "feedback", "orders", "messages", "cancellations")


class Arrived(BaseModel):
    """A request's bytes are here; written before anything is done about them."""

    what: Literal["arrived"] = "arrived"
    n: int
    """The number of this arrival; what follows from it names it."""
    at: float
    supplier: str
    kind: Kind
    key: str
    sha256: str
    bytes: int
    run_id: str = ""
    round: int = 0


class Executed(BaseModel):
    """The supplier has acted: taken the invitation, made the order."""

    what: Literal["executed"] = "executed"
    n: int
    at: float
    id: str
    """What came of it: a message id, an order id."""
    letter: dict[str, Any] = {}
    """What it acted on, so that a market opened on this record later goes on as this one would."""
    bids: Literal["soon", "late", "never"] = "soon"
    """When it bids, if it was asked for a bid."""


class Answered(BaseModel):
    """The supplier has answered, or broken off (status 0)."""

    what: Literal["answered"] = "answered"
    n: int
    at: float
    status: int
    deduped: bool = False
    """The answer of an earlier arrival with the same key, given again."""


class Offered(BaseModel):
    """A bid on its way back to the buyer: one line an attempt."""

    what: Literal["offered"] = "offered"
    at: float
    supplier: str
    bid_id: str
    run_id: str
    round: int
    cents: int
    status: int
    """What the buyer's inbox answered; 0 when it could not be reached."""


Entry = Annotated[Arrived | Executed | Answered | Offered, Field(discriminator="what")]
_ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)

TURNED_AWAY = frozenset({0, 425, 429, 500, 502, 503, 504})
"""Answers by which a supplier that has not acted says: I have not taken this in."""


class Count(BaseModel):
    """The requests of one kind.

    `sent` leaves out what was turned away unread, for that is no invitation; a second request under a key the
    supplier had already taken is `repeated` even when the supplier noticed and did nothing.
    """

    arrived: int = 0
    turned_away: int = 0
    sent: int = 0
    distinct: int = 0
    repeated: int = 0
    executed: int = 0
    executed_twice: int = 0


def read(path: Path) -> list[Entry]:
    """Every entry so far. A last line that is still being written is left for the next look."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    return [_ENTRY.validate_json(line) for line in whole.splitlines()]


def line(entry: Entry) -> str:
    """The entry as one line of the record."""
    return json.dumps(entry.model_dump(), separators=(",", ":")) + "\n"


def count(entries: Iterable[Entry], kind: Kind, run_id: str | None = None) -> Count:
    """Counts the requests of one kind, of all runs or of one."""
    entries = list(entries)
    arrivals = [e for e in entries if isinstance(e, Arrived) and e.kind == kind and run_id in (None, e.run_id)]
    executed = Counter(e.n for e in entries if isinstance(e, Executed))
    answers = {e.n: e.status for e in entries if isinstance(e, Answered)}
    taken = [a for a in arrivals if a.n in executed or answers.get(a.n) not in TURNED_AWAY]
    names = Counter((a.supplier, a.key) for a in taken)
    acted = Counter((a.supplier, a.key) for a in arrivals for _ in range(executed[a.n]))
    return Count(
        arrived=len(arrivals),
        turned_away=len(arrivals) - len(taken),
        sent=len(taken),
        distinct=len(names),
        repeated=len(taken) - len(names),
        executed=sum(acted.values()),
        executed_twice=sum(1 for times in acted.values() if times > 1),
    )


def summary(entries: Iterable[Entry], run_id: str | None = None) -> dict[Kind, Count]:
    """The counts of every kind."""
    entries = list(entries)
    return {kind: count(entries, kind, run_id) for kind in KINDS}


def in_flight(entries: Iterable[Entry], kind: Kind, round_number: int) -> list[Arrived]:
    """The requests of a round that have arrived and are not answered: the moment at which a kill hurts most."""
    entries = list(entries)
    answered = {e.n for e in entries if isinstance(e, Answered)}
    return [
        e
        for e in entries
        if isinstance(e, Arrived) and (e.kind, e.round) == (kind, round_number) and e.n not in answered
    ]

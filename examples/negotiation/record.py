"""The market's record of requests: its entries, and counts computed from them."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

Kind = Literal["invitations", "quotes", "inquiries", "proposals", "feedback", "orders", "messages", "cancellations"]
"""Kinds of requests to a supplier. Each is the last part of its address."""

APPROACHES: tuple[Kind, ...] = ("invitations", "quotes", "inquiries", "proposals")
"""Kinds that ask for a bid, one for each route: auction, spot, bottleneck, strategic."""

KINDS: tuple[Kind, ...] = (*APPROACHES, "feedback", "orders", "messages", "cancellations")


class Arrived(BaseModel):
    """A request has been received. The entry is written before the request is handled."""

    what: Literal["arrived"] = "arrived"
    n: int
    """Number of this arrival. Later entries about the request carry it."""
    at: float
    supplier: str
    kind: Kind
    key: str
    sha256: str
    bytes: int
    run_id: str = ""
    round: int = 0


class Executed(BaseModel):
    """The supplier has acted on a request, such as an invitation or an order."""

    what: Literal["executed"] = "executed"
    n: int
    at: float
    id: str
    """The resulting message id or order id."""
    letter: dict[str, Any] = {}
    """The request body, so that a market opened later on this record continues from the same state."""
    bids: Literal["soon", "late", "never"] = "soon"
    """Time of the bid, if the request asks for one."""


class Answered(BaseModel):
    """The supplier has answered, or broken the connection (status 0)."""

    what: Literal["answered"] = "answered"
    n: int
    at: float
    status: int
    deduped: bool = False
    """True if the answer repeats that of an earlier arrival with the same key."""


class Offered(BaseModel):
    """An attempt to deliver a bid to the buyer."""

    what: Literal["offered"] = "offered"
    at: float
    supplier: str
    bid_id: str
    run_id: str
    round: int
    cents: int
    status: int
    """Status code of the buyer's inbox; 0 if it could not be reached."""


Entry = Annotated[Arrived | Executed | Answered | Offered, Field(discriminator="what")]
_ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)

TURNED_AWAY = frozenset({0, 425, 429, 500, 502, 503, 504})
"""Status codes of a supplier that has not accepted the request."""


class Count(BaseModel):
    """Counts of the requests of one kind.

    `sent` excludes requests that the supplier did not accept. A second request with an accepted key counts as
    `repeated`, even if the supplier recognized the key and did not act.
    """

    arrived: int = 0
    turned_away: int = 0
    sent: int = 0
    distinct: int = 0
    repeated: int = 0
    executed: int = 0
    executed_twice: int = 0


def read(path: Path) -> list[Entry]:
    """Return the entries of a record. An incomplete last line is ignored."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    return [_ENTRY.validate_json(line) for line in whole.splitlines()]


def line(entry: Entry) -> str:
    """Format an entry as one line of the record."""
    return json.dumps(entry.model_dump(), separators=(",", ":")) + "\n"


def count(entries: Iterable[Entry], kind: Kind, run_id: str | None = None) -> Count:
    """Count the requests of one kind, of all runs or of one."""
    entries = list(entries)
    arrivals = [e for e in entries if isinstance(e, Arrived) and e.kind == kind and run_id in (None, e.run_id)]
    executed = Counter(e.n for e in entries if isinstance(e, Executed))
    taken = _taken(entries, arrivals)
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


def _taken(entries: list[Entry], arrivals: list[Arrived]) -> list[Arrived]:
    """Return the arrivals that their suppliers accepted."""
    executed = {e.n for e in entries if isinstance(e, Executed)}
    answers = {e.n: e.status for e in entries if isinstance(e, Answered)}
    return [a for a in arrivals if a.n in executed or answers.get(a.n) not in TURNED_AWAY]


def keys(entries: Iterable[Entry], run_id: str) -> dict[Kind, Counter[str]]:
    """Return how often each key of a run was accepted, by the kind of its request."""
    entries = list(entries)
    taken = _taken(entries, [e for e in entries if isinstance(e, Arrived) and e.run_id == run_id])
    return {kind: Counter(a.key for a in taken if a.kind == kind) for kind in KINDS}


def summary(entries: Iterable[Entry], run_id: str | None = None) -> dict[Kind, Count]:
    """Return the counts of each kind of request."""
    entries = list(entries)
    return {kind: count(entries, kind, run_id) for kind in KINDS}


def in_flight(entries: Iterable[Entry], kind: Kind, round_number: int) -> list[Arrived]:
    """Return the requests of a round that have arrived and are not answered yet."""
    entries = list(entries)
    answered = {e.n for e in entries if isinstance(e, Answered)}
    return [
        e
        for e in entries
        if isinstance(e, Arrived) and (e.kind, e.round) == (kind, round_number) and e.n not in answered
    ]

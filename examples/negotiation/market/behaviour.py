"""Declared behaviour of the suppliers, as scenario files contain it."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..record import Kind

SCENARIOS = Path(__file__).parent.parent / "scenarios"

Does = Literal["declines", "unavailable", "busy", "resets", "times_out", "slow", "late", "silent"]
"""Behaviour of a rule instead of a normal answer.

`declines`: 422 with a reason. `unavailable`: 503. `busy`: 429 with Retry-After. `resets`: the connection breaks.
`times_out`: act, then do not answer for `seconds`. `slow`: wait for `seconds`, then act and answer. `late`: accept the
invitation, but bid only after the round is over. `silent`: accept the invitation and never bid.
"""


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Declared):
    """One deviation from normal behaviour, with its conditions."""

    does: Does
    kind: Kind | Literal["approaches"] = "invitations"
    """`approaches`: every kind that asks for a bid."""
    cycles: list[int] = []
    """Cycles in which the rule applies; empty: all."""
    rounds: list[int] = []
    """Rounds in which the rule applies; empty: all."""
    times: Annotated[int, Field(ge=0)] = 0
    """Number of requests per key to which the rule applies; 0: all."""
    seconds: Annotated[float, Field(ge=0, le=3600)] = 0
    """Duration of `slow` and `times_out`."""
    retry_after: Annotated[float, Field(ge=0)] = 1
    """Retry-After of `busy`, in seconds."""
    acts_first: bool = False
    """For `unavailable` and `resets`: the supplier acts, and only its answer is lost."""
    reason: str = "we do not supply this"
    """Reason of `declines`."""


class Supplier(_Declared):
    """One supplier: its prices, its mailbox and its rules."""

    list_cents: dict[str, Annotated[int, Field(gt=0)]] = {}
    """Unit price of each item it makes; empty: it makes every item for `any_cents` per unit."""
    any_cents: Annotated[int, Field(gt=0)] = 10_000
    step_percent: Annotated[int, Field(ge=0, le=100)] = 3
    """Step by which its next bid undercuts the best known price."""
    floor_percent: Annotated[int, Field(gt=0, le=100)] = 80
    """Lowest bid relative to its list price."""
    freight_cents: Annotated[int, Field(ge=0)] = 0
    lead_days: Annotated[int, Field(ge=0)] = 14
    payment_days: Annotated[int, Field(ge=0)] = 30
    bids_after: Annotated[float, Field(ge=0, le=3600)] = 0
    """Real seconds between an invitation and the bid."""
    dedupes: bool = True
    """True if a second request with the same Idempotency-Key gets the first answer and has no effect."""
    can_be_queried: bool = True
    """True if it answers whether it has accepted a request."""
    capacity: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Units it can make per item; unlimited for other items."""
    substitutes: dict[str, str] = {}
    """Item it does not make → item it makes instead."""
    meets_percent: Annotated[int, Field(ge=0, le=100)] = 30
    """Part of the distance to the buyer's proposal that it moves in each round of a strategic negotiation."""
    least_lead_days: Annotated[int, Field(ge=0)] = 0
    most_payment_days: Annotated[int, Field(ge=0)] = 90
    defect_ppm: Annotated[int, Field(ge=0)] | None = None
    """Defect rate of its first bid."""
    least_defect_ppm: Annotated[int, Field(ge=0)] = 0
    term_months: Annotated[int, Field(ge=0)] = 12
    """Contract length of its first bid."""
    most_term_months: Annotated[int, Field(ge=0)] = 36
    notes: list[str] = []
    """Words with its first, second, … bid; the last one again with each further bid."""
    final_from: Annotated[int, Field(ge=0)] = 0
    """Round from which its bid stays the same; 0: never."""
    rules: list[Rule] = []


class Scenario(_Declared):
    """A market: its name and its suppliers."""

    name: str
    suppliers: dict[str, Supplier]


def load(name: str) -> Scenario:
    """Read a scenario, given as the path of a file or as the name of a bundled one.

    Raises FileNotFoundError if it does not exist, and pydantic's ValidationError if it is malformed.
    """
    own = SCENARIOS / f"{name}.json"
    path = own if "/" not in name and own.exists() else Path(name)
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in SCENARIOS.glob("*.json")))
        raise FileNotFoundError(f"there is no scenario {name!r}; give the path of one, or one of: {known}")
    return Scenario.model_validate_json(path.read_bytes())

"""How each supplier behaves: the declaration a scenario file holds."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..record import Kind

SCENARIOS = Path(__file__).parent.parent / "scenarios"

Does = Literal["declines", "unavailable", "busy", "resets", "times_out", "slow", "late", "silent"]
"""What a rule makes of a request instead of plainly answering it:

declines 422 with a reason · unavailable 503 · busy 429 with Retry-After · resets the connection breaks ·
times_out acts and then does not answer for `seconds` · slow does nothing for `seconds`, then acts and answers ·
late takes the invitation and bids only when it hears that the round is over · silent takes it and never bids.
"""


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Declared):
    """One deviation from good behaviour, and when it applies."""

    does: Does
    kind: Kind | Literal["approaches"] = "invitations"
    """`approaches`: whatever asks for a bid."""
    cycles: list[int] = []
    """Only in these cycles; empty: in all."""
    rounds: list[int] = []
    """Only in these rounds; empty: in all."""
    times: Annotated[int, Field(ge=0)] = 0
    """To the first so many requests under each key; 0: to every one."""
    seconds: Annotated[float, Field(ge=0, le=3600)] = 0
    """Of `slow` and `times_out`."""
    retry_after: Annotated[float, Field(ge=0)] = 1
    """Of `busy`."""
    acts_first: bool = False
    """Of `unavailable` and `resets`: the supplier has acted all the same, only its answer is lost."""
    reason: str = "we do not supply this"
    """Of `declines`."""


class Supplier(_Declared):
    """One supplier: how it prices, how its mailbox works, where it deviates."""

    list_cents: dict[str, Annotated[int, Field(gt=0)]] = {}
    """Price of one unit of each item it makes; empty: it makes anything, at `any_cents` a unit."""
    any_cents: Annotated[int, Field(gt=0)] = 10_000
    step_percent: Annotated[int, Field(ge=0, le=100)] = 3
    """How far below the best known price it goes in its next bid."""
    floor_percent: Annotated[int, Field(gt=0, le=100)] = 80
    """It never goes below this part of its list price."""
    freight_cents: Annotated[int, Field(ge=0)] = 0
    lead_days: Annotated[int, Field(ge=0)] = 14
    payment_days: Annotated[int, Field(ge=0)] = 30
    bids_after: Annotated[float, Field(ge=0, le=3600)] = 0
    """Real seconds from taking an invitation to bidding."""
    dedupes: bool = True
    """A second request under the same Idempotency-Key gets the first one's answer, and nothing is done."""
    can_be_queried: bool = True
    """It answers whether it has taken a request."""
    capacity: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Units of an item it can make; an item that is not named: any number."""
    substitutes: dict[str, str] = {}
    """What it makes instead of an item that it does not make."""
    meets_percent: Annotated[int, Field(ge=0, le=100)] = 30
    """Of the way to a buyer's proposal it goes in each round of a strategic negotiation."""
    least_lead_days: Annotated[int, Field(ge=0)] = 0
    most_payment_days: Annotated[int, Field(ge=0)] = 90
    defect_ppm: Annotated[int, Field(ge=0)] | None = None
    """The quality it promises at first."""
    least_defect_ppm: Annotated[int, Field(ge=0)] = 0
    term_months: Annotated[int, Field(ge=0)] = 12
    """How long it binds itself at first."""
    most_term_months: Annotated[int, Field(ge=0)] = 36
    rules: list[Rule] = []


class Scenario(_Declared):
    """All suppliers of a market."""

    name: str
    suppliers: dict[str, Supplier]


def load(name: str) -> Scenario:
    """Load a scenario by the path of its file, or by the name of one that comes with the example.

    Raises FileNotFoundError if it does not exist, pydantic's ValidationError if it is malformed.
    """
    own = SCENARIOS / f"{name}.json"
    path = own if "/" not in name and own.exists() else Path(name)
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in SCENARIOS.glob("*.json")))
        raise FileNotFoundError(f"there is no scenario {name!r}; give the path of one, or one of: {known}")
    return Scenario.model_validate_json(path.read_bytes())

"""The purchase document, and checks that report all problems of a document at once."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, TypeAlias, TypeGuard

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from .governance import Governance

SPEND_TOLERANCE_PERCENT = 2
"""Largest accepted difference between the stated spend and the sum of the items."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")]
"""An id that is safe in a key and in a URL."""

Text = Annotated[str, Field(min_length=1, max_length=200)]
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Cents = Annotated[int, Field(gt=0, le=10**13)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Item(_Part):
    """One line of the purchase."""

    sku: Name
    description: Text
    quantity: Annotated[int, Field(gt=0, le=10**9)]
    unit: Text
    target_cents: Cents
    """Target price of one unit."""


class SupplyRisk(_Part):
    """Readings of the supply risk."""

    qualified_suppliers: Annotated[int, Field(ge=0, le=1000)]
    lead_time_weeks: Annotated[float, Field(ge=0, le=520)]
    substitutability: Share
    """1: fully replaceable; 0: no substitute exists."""
    geopolitical: Share
    """0: no dependence on a single region; 1: all supply from a region in crisis."""


class ProfitImpact(_Part):
    """Readings of the effect on the buyer's profit."""

    spend_share_percent: Percent
    margin_effect_percent: Percent
    quality_criticality: Share


class Candidate(_Part):
    """A supplier that may be invited."""

    id: Name
    name: Text
    mailbox: str
    """The base address of its HTTP mailbox; invitations go to `{mailbox}/invitations`."""
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    lead_days: Annotated[int, Field(ge=0, le=3650)]
    capacity: dict[str, Annotated[int, Field(ge=0, le=10**9)]]
    """Units of each item it can deliver within its lead time."""
    certifications: list[Text] = []
    risk: Annotated[int, Field(ge=0, le=100)]
    """0: no risk; 100: failure is expected."""
    duty_bp: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Import duty in basis points of the goods' price."""
    defect_ppm: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class Purchase(_Part):
    """A purchase with each field validated alone. `problems` also checks that the fields agree."""

    reference: Name
    category: Text
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    requested_on: date
    need_by: date
    spend_cents: Cents
    items: Annotated[list[Item], Field(min_length=1, max_length=200)]
    required_certifications: list[Text] = []
    supply_risk: SupplyRisk
    profit_impact: ProfitImpact
    candidates: Annotated[list[Candidate], Field(min_length=1, max_length=50)]
    governance: Governance = Governance()

    def candidate(self, supplier_id: str) -> Candidate:
        """Return the candidate with this id. Raises KeyError for an unknown id."""
        for candidate in self.candidates:
            if candidate.id == supplier_id:
                return candidate
        raise KeyError(supplier_id)


class Opening(_Part):
    """Input of a negotiation: a purchase, bare or under `purchase`. Validation reports all problems at once."""

    purchase: Purchase

    @model_validator(mode="before")
    @classmethod
    def _checked(cls, raw: object) -> object:
        if not isinstance(raw, Mapping):
            return raw
        document = raw["purchase"] if set(raw) == {"purchase"} else raw
        if not isinstance(document, Purchase) and (found := list(_found(document))):
            errors = [InitErrorDetails(type=_problem(text), loc=loc, input=document) for loc, text in found]
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return {"purchase": document}


def start_key(given: Opening) -> str:
    """Return the key under which a purchase starts one run: category, deadline and a hash of the items."""
    purchase = given.purchase
    items = json.dumps([item.model_dump() for item in purchase.items], sort_keys=True)
    return f"{purchase.category}/{purchase.need_by}/{hashlib.sha256(items.encode()).hexdigest()}"


Path: TypeAlias = tuple[int | str, ...]
Problem: TypeAlias = tuple[Path, str]
"""Path in the document and description of the problem."""


def problems(raw: object) -> list[str]:
    """Return all problems of a purchase document, each beginning with a JSON path; empty if it is valid."""
    return [f"{shown(path)} {text}" for path, text in _found(raw)]


def shown(path: Path) -> str:
    """Format a path as JSON path, such as $.items[2].quantity."""
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _found(raw: object) -> Iterator[Problem]:
    try:
        Purchase.model_validate(raw)
    except ValidationError as refused:
        yield from ((e["loc"], _sentence(e["type"], e["msg"], e["input"])) for e in refused.errors(include_url=False))
    if isinstance(raw, Mapping):
        for check in (_dates, _twice, _spend, _mailboxes, _currencies, _capacities):
            yield from check(raw)


def _problem(text: str) -> PydanticCustomError:
    return PydanticCustomError("purchase", "{text}", {"text": text})


def _sentence(kind: str, message: str, given: object) -> str:
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not a field that is known here"
    what = repr(given) if isinstance(given, str | int | float) else "what is given"
    message = message.removeprefix("Value error, ").replace("Input should", "must")
    return f"{message[:1].lower()}{message[1:]} (given: {what})"


# The checks below compare fields with each other. They read the raw document and skip values of the wrong type, which
# the validation of the field reports. So an invalid field hides no other problem.


def _dates(raw: Mapping[str, Any]) -> Iterator[Problem]:
    asked, need = _date(raw.get("requested_on")), _date(raw.get("need_by"))
    if asked and need and need <= asked:
        yield ("need_by",), f"is {need}, which is not after requested_on, {asked}"


def _twice(raw: Mapping[str, Any]) -> Iterator[Problem]:
    for where, field, what in (("items", "sku", "item"), ("candidates", "id", "supplier")):
        ids = Counter(part[field] for _, part in _parts(raw, where) if isinstance(part.get(field), str))
        yield from (((where,), f"names the {what} {name!r} {n} times") for name, n in ids.items() if n > 1)


def _spend(raw: Mapping[str, Any]) -> Iterator[Problem]:
    stated = raw.get("spend_cents")
    lines = [(part.get("quantity"), part.get("target_cents")) for _, part in _parts(raw, "items")]
    products = [q * c for q, c in lines if _positive(q) and _positive(c)]
    if not _positive(stated) or not products or len(products) < len(lines):
        return
    total = sum(products)
    if abs(stated - total) * 100 > total * SPEND_TOLERANCE_PERCENT:
        yield (
            ("spend_cents",),
            f"is {stated}, but the items at their target prices come to {total}; "
            f"they may differ by {SPEND_TOLERANCE_PERCENT} %",
        )


def _mailboxes(raw: Mapping[str, Any]) -> Iterator[Problem]:
    seen: dict[str, Path] = {}
    for path, part in _parts(raw, "candidates"):
        mailbox = part.get("mailbox")
        if not isinstance(mailbox, str):
            continue
        try:
            TypeAdapter(AnyHttpUrl).validate_python(mailbox)
        except ValidationError:
            yield (*path, "mailbox"), f"is {mailbox!r}, which is not an http or https address"
            continue
        first = seen.setdefault(mailbox.rstrip("/"), path)
        if first != path:
            yield (*path, "mailbox"), f"is the same address as {shown(first)}.mailbox"


def _currencies(raw: Mapping[str, Any]) -> Iterator[Problem]:
    currency = raw.get("currency")
    for path, part in _parts(raw, "candidates"):
        other = part.get("currency")
        if isinstance(currency, str) and isinstance(other, str) and other != currency:
            why = f"is {other}, but the purchase is in {currency}; bids would not be comparable"
            yield (*path, "currency"), why


def _capacities(raw: Mapping[str, Any]) -> Iterator[Problem]:
    skus = {part.get("sku") for _, part in _parts(raw, "items") if isinstance(part.get("sku"), str)}
    for path, part in _parts(raw, "candidates"):
        capacity = part.get("capacity")
        for sku in capacity if isinstance(capacity, Mapping) else ():
            if sku not in skus:
                yield (*path, "capacity"), f"names {sku!r}, which is not an item of this purchase"


def _parts(raw: Mapping[str, Any], field: str) -> list[tuple[Path, Mapping[str, Any]]]:
    parts = raw.get(field)
    listed = parts if isinstance(parts, list) else []
    return [((field, i), part) for i, part in enumerate(listed) if isinstance(part, Mapping)]


def _positive(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _date(value: object) -> date | None:
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None

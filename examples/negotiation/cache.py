"""A cache of classifications across runs: purchases with equal readings are classified once.

`Classifications` is the port. The caches of this module match exact keys; `similar` also matches similar texts.
`placing` selects one of them inside a lookup, whose result the run records.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import ValidationError
from typing_extensions import override

from .kraljic import Classification, classify
from .purchase import Purchase


class Sought(NamedTuple):
    """The search terms for a classification."""

    key: str
    """Equal for two purchases with equal readings and thresholds."""
    text: str
    """Category and item descriptions."""
    thresholds: tuple[int, int]
    """Scores from which supply risk and profit impact are high."""


class Classifications(Protocol):
    """Port for stored classifications."""

    def get(self, sought: Sought) -> Classification | None:
        """Return the stored classification, or None."""

    def put(self, sought: Sought, placed: Classification) -> None:
        """Store a classification. Two writers of one key write the same value, so the last one wins."""


class InMemory(Classifications):
    """A cache for one process."""

    def __init__(self) -> None:
        self._kept: dict[str, Classification] = {}

    @override
    def get(self, sought: Sought) -> Classification | None:
        held = self._kept.get(sought.key)
        return held.model_copy(deep=True) if held else None

    @override
    def put(self, sought: Sought, placed: Classification) -> None:
        self._kept[sought.key] = placed.model_copy(deep=True)


class InFolder(Classifications):
    """A cache for all processes of an installation: one file per key, written atomically.

    An unreadable file counts as missing, and a failed write is ignored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @override
    def get(self, sought: Sought) -> Classification | None:
        try:
            return Classification.model_validate_json((self._folder / f"{sought.key}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    @override
    def put(self, sought: Sought, placed: Classification) -> None:
        fresh = self._folder / f"{sought.key}.{os.getpid()}.new"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh.write_text(placed.model_dump_json(), encoding="utf-8")
            os.replace(fresh, self._folder / f"{sought.key}.json")
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)


def key_of(purchase: Purchase) -> str:
    """Return a hash of the readings and thresholds from which the classification is computed."""
    made_from = {
        "supply_risk": purchase.supply_risk.model_dump(),
        "profit_impact": purchase.profit_impact.model_dump(),
        "thresholds": [purchase.governance.supply_risk_threshold, purchase.governance.profit_impact_threshold],
    }
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def sought(purchase: Purchase) -> Sought:
    """Return the search terms for a purchase."""
    rules = purchase.governance
    text = f"{purchase.category}: {'; '.join(item.description for item in purchase.items)}"
    return Sought(key_of(purchase), text, (rules.supply_risk_threshold, rules.profit_impact_threshold))


def placed(purchase: Purchase, kept: Classifications) -> Classification:
    """Return the classification from the cache, or compute and store it."""
    wanted = sought(purchase)
    found = kept.get(wanted)
    if found is None:
        found = classify(purchase)
        kept.put(wanted, found)
    return found

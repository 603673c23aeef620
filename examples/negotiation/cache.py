"""Classifications kept beyond one run, by node 2's key: equal purchases are classified once.

`Classifications` is the port. The caches here answer equal keys only. `similar` also
answers for purchases with similar text. `placing` chooses between them, in a lookup whose result the run keeps.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import ValidationError

from .kraljic import Classification, classify
from .purchase import Purchase


class Sought(NamedTuple):
    """Key of a classification."""

    key: str
    """Node 2's key: equal for two purchases of which everything that counts is equal."""
    text: str
    """What is bought, in words."""
    thresholds: tuple[int, int]
    """From where supply risk and profit impact are high."""


class Classifications(Protocol):
    """Where classifications are kept."""

    def get(self, sought: Sought) -> Classification | None:
        """Return the classification kept for a key, or None."""

    def put(self, sought: Sought, placed: Classification) -> None:
        """Keep it. The last of two writers under one key wins; they write the same."""


class InMemory:
    """For one process."""

    def __init__(self) -> None:
        self._kept: dict[str, Classification] = {}

    def get(self, sought: Sought) -> Classification | None:
        held = self._kept.get(sought.key)
        return held.model_copy(deep=True) if held else None

    def put(self, sought: Sought, placed: Classification) -> None:
        self._kept[sought.key] = placed.model_copy(deep=True)


class InFolder:
    """For every process of an installation: a file a key, written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, sought: Sought) -> Classification | None:
        """Return the classification, or None if its file is missing or cannot be read."""
        try:
            return Classification.model_validate_json((self._folder / f"{sought.key}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def put(self, sought: Sought, placed: Classification) -> None:
        """See Classifications. A cache that cannot be written is no reason to stop."""
        fresh = self._folder / f"{sought.key}.{os.getpid()}.new"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh.write_text(placed.model_dump_json(), encoding="utf-8")
            os.replace(fresh, self._folder / f"{sought.key}.json")
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)


def key_of(purchase: Purchase) -> str:
    """Node 2's key: everything the classification is made from, and nothing else."""
    made_from = {
        "supply_risk": purchase.supply_risk.model_dump(),
        "profit_impact": purchase.profit_impact.model_dump(),
        "thresholds": [purchase.governance.supply_risk_threshold, purchase.governance.profit_impact_threshold],
    }
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def sought(purchase: Purchase) -> Sought:
    """Return the cache key of a purchase."""
    rules = purchase.governance
    text = f"{purchase.category}: {'; '.join(item.description for item in purchase.items)}"
    return Sought(key_of(purchase), text, (rules.supply_risk_threshold, rules.profit_impact_threshold))


def placed(purchase: Purchase, kept: Classifications) -> Classification:
    """The classification, from the cache if it knows it."""
    wanted = sought(purchase)
    found = kept.get(wanted)
    if found is None:
        found = classify(purchase)
        kept.put(wanted, found)
    return found

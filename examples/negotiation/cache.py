"""Classifications kept beyond one run, by node 2's key: two purchases alike are placed once.

`Classifications` is the port. What comes with the example answers exactly: the same key, the same classification, so
a walk after a crash sees what the one before it saw. A cache that answers for *similar* purchases would not, and
belongs behind a lookup, whose answer the run keeps.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from .kraljic import Classification, classify
from .purchase import Purchase

FOLDER = "NEGOTIATION_CLASSIFICATIONS"
"""The environment variable that names the folder of the installation's cache; without it, the process keeps its own."""


class Classifications(Protocol):
    """Where classifications are kept."""

    def get(self, key: str) -> Classification | None:
        """What is kept under this key."""

    def put(self, key: str, placed: Classification) -> None:
        """Keep it. The last of two writers under one key wins; they write the same."""


class InMemory:
    """For one process."""

    def __init__(self) -> None:
        self._kept: dict[str, Classification] = {}

    def get(self, key: str) -> Classification | None:
        """See Classifications."""
        held = self._kept.get(key)
        return held.model_copy(deep=True) if held else None

    def put(self, key: str, placed: Classification) -> None:
        """See Classifications."""
        self._kept[key] = placed.model_copy(deep=True)


class InFolder:
    """For every process of an installation: a file a key, written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> Classification | None:
        """See Classifications. What cannot be read is not there."""
        try:
            return Classification.model_validate_json((self._folder / f"{key}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def put(self, key: str, placed: Classification) -> None:
        """See Classifications. A cache that cannot be written is no reason to stop."""
        fresh = self._folder / f"{key}.{os.getpid()}.new"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh.write_text(placed.model_dump_json(), encoding="utf-8")
            os.replace(fresh, self._folder / f"{key}.json")
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


def installed() -> Classifications:
    """The cache of this installation."""
    folder = os.environ.get(FOLDER)
    return InFolder(Path(folder)) if folder else _OWN


def placed(purchase: Purchase, kept: Classifications) -> Classification:
    """The classification, from the cache if it knows it."""
    key = key_of(purchase)
    found = kept.get(key)
    if found is None:
        found = classify(purchase)
        kept.put(key, found)
    return found


_OWN = InMemory()

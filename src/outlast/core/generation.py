"""The generation of a store: a new one begins when a backup is restored, and nothing of the lost time is believed."""

import json
from typing import Final, NamedTuple

from outlast.core.rows import STORE, Meta, Row
from outlast.errors import Corrupt

GENERATION: Final = (STORE, "generation")
"""The key of the meta row."""


class Generation(NamedTuple):
    """The n-th life of a store, under an id that no other store and no other life has."""

    n: int
    id: str
    since: int  # business

    def row(self) -> Meta:
        """The meta row that says so; its version is the generation's number."""
        return Meta(*GENERATION, self.n, json.dumps({"n": self.n, "id": self.id, "since": self.since}))


def generation_of(row: Row | None) -> Generation | None:
    """What the meta row says; None where there is none yet. Raises Corrupt."""
    if row is None:
        return None
    assert isinstance(row, Meta)
    try:
        value = json.loads(row.value)
        found = Generation(int(value["n"]), str(value["id"]), int(value["since"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error
    if found.n != row.version or found.n < 1 or not found.id:
        raise Corrupt(f"meta row {row.key}: generation {found.n} in version {row.version}")
    return found

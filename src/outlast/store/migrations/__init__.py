"""Numbered migrations from an empty store to the present schema."""

from typing import Final

from outlast.errors import StoreUnusable
from outlast.store.migrations import m0001_rows, m0002_first_visits, m0003_unpriced_calls

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    m0001_rows.STATEMENTS,
    m0002_first_visits.STATEMENTS,
    m0003_unpriced_calls.STATEMENTS,
)
SCHEMA: Final = len(MIGRATIONS)  # the schema that this version reads and writes
NEWEST: Final = ("wait", "schema")
"""A table and its column that stores of versions before the first release lack. They are refused."""


def unreleased(store: object) -> StoreUnusable:
    """Return the error for a store that lacks NEWEST."""
    return StoreUnusable(
        f"the store {store} was written by a version before the first release",
        f"its table {NEWEST[0]} has no column {NEWEST[1]}",
        "finish or export its runs with that version, and start with an empty store",
    )

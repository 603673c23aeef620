"""The numbered steps from an empty store to this version's schema."""

from typing import Final

from outlast.store.migrations import m0001_rows

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (m0001_rows.STATEMENTS,)
SCHEMA: Final = len(MIGRATIONS)  # the version of the schema this code reads and writes

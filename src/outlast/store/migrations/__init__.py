"""Numbered migrations from an empty store to the present schema."""

from typing import Final

from outlast.store.migrations import m0001_rows

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (m0001_rows.STATEMENTS,)
SCHEMA: Final = len(MIGRATIONS)  # the schema that this version reads and writes

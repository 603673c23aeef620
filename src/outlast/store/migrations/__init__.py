"""The numbered steps from an empty store to this version's schema."""

from typing import Final

from outlast.store.migrations import m0001_rows, m0002_operators, m0003_proof, m0004_values, m0005_service, m0006_groups

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    m0001_rows.STATEMENTS,
    m0002_operators.STATEMENTS,
    m0003_proof.STATEMENTS,
    m0004_values.STATEMENTS,
    m0005_service.STATEMENTS,
    m0006_groups.STATEMENTS,
)
SCHEMA: Final = len(MIGRATIONS)  # the version of the schema this code reads and writes

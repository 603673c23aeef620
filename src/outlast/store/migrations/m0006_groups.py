"""Schema 6: groups of runs that may kill their worker, and how many runs a worker held when it died (S-5)."""

from typing import Final

STATEMENTS: Final = (
    "ALTER TABLE run ADD COLUMN group_max {integer} NOT NULL DEFAULT 0",
    "ALTER TABLE worker ADD COLUMN died_holding {integer} NOT NULL DEFAULT 0",
)

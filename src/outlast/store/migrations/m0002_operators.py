"""Schema 2: what operators need when time passes: deaths of holders, another round, stop signs, ceilings that count.

Runs that sleep since schema 1 have no clock armed for their ceiling, so each of them is made due, once: its next
holder finds nothing new, and arms it as it gives the run back.
"""

from typing import Final

STATEMENTS: Final = (
    "ALTER TABLE run ADD COLUMN crash_count {integer} NOT NULL DEFAULT 0",
    "ALTER TABLE effect ADD COLUMN interrupted {integer} NOT NULL DEFAULT 0",
    "ALTER TABLE approval ADD COLUMN again {integer} NOT NULL DEFAULT 0",
    """
CREATE TABLE hold (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    version {integer} NOT NULL,
    up {integer} NOT NULL,
    by TEXT NOT NULL,
    reason TEXT NOT NULL,
    since {integer} NOT NULL,
    PRIMARY KEY (tenant, key)
) {clustered}
""",
    "UPDATE run SET due_at = 0 WHERE owner = '' AND ceiling_at > 0",
)

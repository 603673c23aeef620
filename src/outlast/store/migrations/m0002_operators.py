"""Schema 2: what operators need when time passes: deaths of holders, another round, stop signs."""

from typing import Final

STATEMENTS: Final = (
    "ALTER TABLE run ADD COLUMN deaths {integer} NOT NULL DEFAULT 0",
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
)

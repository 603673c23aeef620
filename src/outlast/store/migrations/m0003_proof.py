"""Schema 3: what compensation, shared effects, joint decisions, breakers, restores and deploys are kept in."""

from typing import Final

STATEMENTS: Final = (
    "ALTER TABLE run ADD COLUMN ending TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE run ADD COLUMN restored {integer} NOT NULL DEFAULT 0",
    "ALTER TABLE effect ADD COLUMN undoes TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE effect ADD COLUMN by_run TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE effect ADD COLUMN shared {integer} NOT NULL DEFAULT 0",
    "ALTER TABLE effect ADD COLUMN keep_ms {integer} NOT NULL DEFAULT 0",
    "ALTER TABLE effect ADD COLUMN redone {integer} NOT NULL DEFAULT 0",
    "ALTER TABLE approval ADD COLUMN quorum {integer} NOT NULL DEFAULT 1",
    "ALTER TABLE approval ADD COLUMN votes TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE approval ADD COLUMN not_requester {integer} NOT NULL DEFAULT 0",
    "ALTER TABLE approval ADD COLUMN editable TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE approval ADD COLUMN claimed_by TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE hold ADD COLUMN kind TEXT NOT NULL DEFAULT 'operator'",
    "ALTER TABLE hold ADD COLUMN again_at {integer} NOT NULL DEFAULT 0",
    "ALTER TABLE hold ADD COLUMN trips {integer} NOT NULL DEFAULT 0",
    """
CREATE TABLE usage (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, key)
){clustered}
""",
    "CREATE INDEX usage_key ON usage (tenant, key, run)",
    # the ledger across runs, newest first: appended to in the order of time, so its last leaf is in the cache
    "CREATE INDEX effect_page ON effect (tenant, first_at, run, visit, key)",
    # what purge looks for; runs that share nothing write nothing into it
    "CREATE INDEX effect_kept ON effect (settled_at) WHERE run = '' AND keep_ms > 0",
    """
CREATE TABLE topology (
    tenant TEXT NOT NULL,
    lane TEXT NOT NULL,
    version {integer} NOT NULL,
    digest TEXT NOT NULL,
    body TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, lane)
){clustered}
""",
)

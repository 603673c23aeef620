"""Schema 5: what a run produced, stored answers to requests, and what the world is told (OUT-2, S-11)."""

from typing import Final

STATEMENTS: Final = (
    """
CREATE TABLE result (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    version {integer} NOT NULL,
    ordinal {integer} NOT NULL,
    kind TEXT NOT NULL,
    data {blob} NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, key)
){clustered}
""",
    # in the order of emission
    "CREATE INDEX result_order ON result (tenant, run, ordinal)",
    """
CREATE TABLE request (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    version {integer} NOT NULL,
    actor TEXT NOT NULL,
    operation TEXT NOT NULL,
    digest TEXT NOT NULL,
    status {integer} NOT NULL,
    headers TEXT NOT NULL,
    body {blob} NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, key)
){clustered}
""",
    # what purge looks for
    "CREATE INDEX request_at ON request (at)",
    """
CREATE TABLE subscription (
    tenant TEXT NOT NULL,
    subscription TEXT NOT NULL,
    version {integer} NOT NULL,
    status TEXT NOT NULL,
    url TEXT NOT NULL,
    name TEXT NOT NULL,
    types TEXT NOT NULL,
    workflows TEXT NOT NULL,
    secret TEXT NOT NULL,
    former TEXT NOT NULL,
    former_until {integer} NOT NULL,
    since {integer} NOT NULL,
    swept TEXT NOT NULL,
    why TEXT NOT NULL,
    created_at {integer} NOT NULL,
    created_by TEXT NOT NULL,
    changed_at {integer} NOT NULL,
    changed_by TEXT NOT NULL,
    PRIMARY KEY (tenant, subscription)
){clustered}
""",
    """
CREATE TABLE cursor (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    subscription TEXT NOT NULL,
    version {integer} NOT NULL,
    epoch {integer} NOT NULL,
    owner TEXT NOT NULL,
    due_at {integer},
    seq {integer} NOT NULL,
    upto {integer} NOT NULL,
    last {integer} NOT NULL,
    again {integer} NOT NULL,
    owed_since {integer} NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, subscription)
){clustered}
""",
    # what a dispatcher looks for: a cursor that owes nothing is not in it
    "CREATE INDEX cursor_due ON cursor (tenant, subscription, due_at, run) WHERE due_at IS NOT NULL",
    """
CREATE TABLE delivery (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    subscription TEXT NOT NULL,
    seq {integer} NOT NULL,
    version {integer} NOT NULL,
    status TEXT NOT NULL,
    event TEXT NOT NULL,
    type TEXT NOT NULL,
    attempts {integer} NOT NULL,
    first_at {integer} NOT NULL,
    last_at {integer} NOT NULL,
    due_at {integer} NOT NULL,
    code {integer} NOT NULL,
    answer TEXT NOT NULL,
    error TEXT NOT NULL,
    took_ms {integer} NOT NULL,
    by TEXT NOT NULL,
    PRIMARY KEY (tenant, run, subscription, seq)
){clustered}
""",
    # pages for people
    "CREATE INDEX delivery_page ON delivery (tenant, subscription, first_at, run, seq)",
    """
CREATE TABLE untold (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    seq {integer} NOT NULL,
    type TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, seq)
){clustered}
""",
)

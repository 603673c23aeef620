"""Schema 1: a table for each kind of row, and the indexes of the looks that are made often.

A migration is history: it is never edited once released, and it is not drawn from core/rows.py. A test holds
the sum of all migrations equal to the rows.
"""

from typing import Final

STATEMENTS: Final = (
    """
CREATE TABLE run (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    version {integer} NOT NULL,
    epoch {integer} NOT NULL,
    owner TEXT NOT NULL,
    inbox_seq {integer} NOT NULL,
    due_at {integer},
    lane TEXT NOT NULL,
    queue TEXT NOT NULL,
    status TEXT NOT NULL,
    workflow TEXT NOT NULL,
    node TEXT NOT NULL,
    label TEXT NOT NULL,
    visit {integer} NOT NULL,
    entered_at {integer} NOT NULL,
    seq {integer} NOT NULL,
    event_hash TEXT NOT NULL,
    attention TEXT NOT NULL,
    waiting_for TEXT NOT NULL,
    timers TEXT NOT NULL,
    visits TEXT NOT NULL,
    slots TEXT NOT NULL,
    ceiling_at {integer} NOT NULL,
    created_at {integer} NOT NULL,
    ended_at {integer} NOT NULL,
    requested_by TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    trace_id TEXT NOT NULL,
    PRIMARY KEY (tenant, run)
){clustered}
""",
    """
CREATE TABLE event (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    seq {integer} NOT NULL,
    type TEXT NOT NULL,
    at {integer} NOT NULL,
    node TEXT NOT NULL,
    visit {integer} NOT NULL,
    body {blob} NOT NULL,
    hash TEXT NOT NULL,
    snapshot {blob},
    PRIMARY KEY (tenant, run, seq)
){clustered}
""",
    """
CREATE TABLE effect (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    visit {integer} NOT NULL,
    key TEXT NOT NULL,
    version {integer} NOT NULL,
    status TEXT NOT NULL,
    activity TEXT NOT NULL,
    digest TEXT NOT NULL,
    node TEXT NOT NULL,
    args {blob} NOT NULL,
    response {blob},
    error TEXT NOT NULL,
    external_id TEXT NOT NULL,
    attempts {integer} NOT NULL,
    waited_ms {integer} NOT NULL,
    ordinal {integer} NOT NULL,
    epoch {integer} NOT NULL,
    first_at {integer} NOT NULL,
    not_after {integer} NOT NULL,
    quiet_until {integer} NOT NULL,
    covered_until {integer} NOT NULL,
    approval TEXT NOT NULL,
    allowed_by TEXT NOT NULL,
    undo TEXT NOT NULL,
    settled_at {integer} NOT NULL,
    settled_by TEXT NOT NULL,
    PRIMARY KEY (tenant, run, visit, key)
){clustered}
""",
    """
CREATE TABLE memo (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    visit {integer} NOT NULL,
    key TEXT NOT NULL,
    activity TEXT NOT NULL,
    digest TEXT NOT NULL,
    response {blob},
    error TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, visit, key)
){clustered}
""",
    """
CREATE TABLE evidence (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    visit {integer} NOT NULL,
    key TEXT NOT NULL,
    epoch {integer} NOT NULL,
    answer TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, visit, key, epoch)
){clustered}
""",
    """
CREATE TABLE wait (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    visit {integer} NOT NULL,
    key TEXT NOT NULL,
    version {integer} NOT NULL,
    status TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    deadline {integer} NOT NULL,
    most {integer} NOT NULL,
    binding TEXT NOT NULL,
    since {integer} NOT NULL,
    PRIMARY KEY (tenant, run, visit, key)
){clustered}
""",
    """
CREATE TABLE approval (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    id TEXT NOT NULL,
    version {integer} NOT NULL,
    status TEXT NOT NULL,
    visit {integer} NOT NULL,
    wait TEXT NOT NULL,
    plans TEXT NOT NULL,
    summary TEXT NOT NULL,
    risk TEXT NOT NULL,
    who TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    asked_at {integer} NOT NULL,
    within_until {integer} NOT NULL,
    valid_ms {integer} NOT NULL,
    decided_at {integer} NOT NULL,
    decided_by TEXT NOT NULL,
    claims TEXT NOT NULL,
    reason TEXT NOT NULL,
    chosen TEXT NOT NULL,
    valid_until {integer} NOT NULL,
    consumed_by TEXT NOT NULL,
    PRIMARY KEY (tenant, run, id)
){clustered}
""",
    """
CREATE TABLE message (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    n {integer} NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    payload {blob} NOT NULL,
    signal_id TEXT NOT NULL,
    actor TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, n)
){clustered}
""",
    """
CREATE TABLE token (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    target TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, key)
){clustered}
""",
    """
CREATE TABLE slot (
    tenant TEXT NOT NULL,
    i {integer} NOT NULL,
    version {integer} NOT NULL,
    holder_tenant TEXT NOT NULL,
    holder TEXT NOT NULL,
    PRIMARY KEY (tenant, i)
){clustered}
""",
    """
CREATE TABLE worker (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    version {integer} NOT NULL,
    status TEXT NOT NULL,
    lease_until {integer} NOT NULL,
    lanes TEXT NOT NULL,
    name TEXT NOT NULL,
    started_at {integer} NOT NULL,
    renewed_at {integer} NOT NULL,
    health TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
){clustered}
""",
    """
CREATE TABLE writer (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    version {integer} NOT NULL,
    status TEXT NOT NULL,
    batch {integer} NOT NULL,
    started_at {integer} NOT NULL,
    PRIMARY KEY (tenant, id)
){clustered}
""",
    """
CREATE TABLE meta (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    version {integer} NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (tenant, key)
){clustered}
""",
    # what take and next_due look for
    "CREATE INDEX run_due ON run (lane, due_at, tenant, run) WHERE due_at IS NOT NULL",
    # the runs of a worker; a run that has ended leaves it
    "CREATE INDEX run_owner ON run (owner, tenant, run) WHERE owner <> '' AND owner <> 'ended'",
    # who waits for a slot, of one tenant and of all
    "CREATE INDEX run_queue ON run (queue, created_at, tenant, run) WHERE queue <> ''",
    "CREATE INDEX run_queue_all ON run (created_at, tenant, run) WHERE queue <> ''",
    # pages for people
    "CREATE INDEX run_page ON run (tenant, created_at, run)",
    "CREATE INDEX approval_page ON approval (tenant, asked_at, run, id)",
    # an approval by its id alone
    "CREATE INDEX approval_id ON approval (tenant, id)",
    # what purge looks for; written once, at a run's end
    "CREATE INDEX run_over ON run (ended_at, tenant, run) WHERE ended_at > 0",
)

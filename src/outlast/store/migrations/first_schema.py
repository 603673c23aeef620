"""Schema 1: one table per kind of row, and the indexes of frequent queries.

A released migration is never edited, and it does not read `core/rows/`. A test compares the sum of all migrations with
the rows. A new column goes into `later_schemas.py`.
"""

from typing import Final

from outlast.core.machine import ENDED, ApprovalStatus, DeliveryStatus, EffectStatus

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
    status_label TEXT NOT NULL,
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
    crash_count {integer} NOT NULL,
    ending TEXT NOT NULL,
    restored {integer} NOT NULL,
    group_max {integer} NOT NULL,
    objective TEXT NOT NULL,
    PRIMARY KEY (tenant, run)
){clustered}
""",
    """
CREATE TABLE event (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    seq {integer} NOT NULL,
    kind TEXT NOT NULL,
    at {integer} NOT NULL,
    node TEXT NOT NULL,
    visit {integer} NOT NULL,
    run_version {integer} NOT NULL,
    epoch {integer} NOT NULL,
    workflow TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    trace_id TEXT NOT NULL,
    details {blob} NOT NULL,
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
    settle_after {integer} NOT NULL,
    covered_until {integer} NOT NULL,
    approval TEXT NOT NULL,
    allowed_by TEXT NOT NULL,
    undo TEXT NOT NULL,
    settled_at {integer} NOT NULL,
    settled_by TEXT NOT NULL,
    interrupted {integer} NOT NULL,
    undoes TEXT NOT NULL,
    by_run TEXT NOT NULL,
    shared {integer} NOT NULL,
    keep_ms {integer} NOT NULL,
    redone {integer} NOT NULL,
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
    schema TEXT NOT NULL,
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
    again {integer} NOT NULL,
    quorum {integer} NOT NULL,
    votes TEXT NOT NULL,
    not_requester {integer} NOT NULL,
    editable TEXT NOT NULL,
    claimed_by TEXT NOT NULL,
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
CREATE TABLE pause (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    version {integer} NOT NULL,
    up {integer} NOT NULL,
    by TEXT NOT NULL,
    reason TEXT NOT NULL,
    since {integer} NOT NULL,
    kind TEXT NOT NULL,
    again_at {integer} NOT NULL,
    trips {integer} NOT NULL,
    PRIMARY KEY (tenant, key)
){clustered}
""",
    """
CREATE TABLE usage (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, key)
){clustered}
""",
    """
CREATE TABLE call_usage (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    epoch {integer} NOT NULL,
    n {integer} NOT NULL,
    visit {integer} NOT NULL,
    key TEXT NOT NULL,
    attempt {integer} NOT NULL,
    activity TEXT NOT NULL,
    day {integer} NOT NULL,
    model TEXT NOT NULL,
    tokens {integer} NOT NULL,
    input_tokens {integer} NOT NULL,
    output_tokens {integer} NOT NULL,
    money {integer} NOT NULL,
    calls {integer} NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, epoch, n)
){clustered}
""",
    """
CREATE TABLE tenant_budget (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    version {integer} NOT NULL,
    tokens {integer},
    money {integer},
    calls {integer},
    by TEXT NOT NULL,
    reason TEXT NOT NULL,
    since {integer} NOT NULL,
    PRIMARY KEY (tenant, key)
){clustered}
""",
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
    """
CREATE TABLE state_chunk (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    hash TEXT NOT NULL,
    packed {integer} NOT NULL,
    body {blob} NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, hash)
){clustered}
""",
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
    audience TEXT NOT NULL,
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
    """
CREATE TABLE unpublished (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    seq {integer} NOT NULL,
    type TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, seq)
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
    died_holding {integer} NOT NULL,
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
    # take, next_due
    "CREATE INDEX run_due ON run (lane, due_at, tenant, run) WHERE due_at IS NOT NULL",
    # the runs of a worker; without those that ended
    f"CREATE INDEX run_owner ON run (owner, tenant, run) WHERE owner <> '' AND owner <> '{ENDED}'",
    # runs that wait for a slot: of one tenant, and of all
    "CREATE INDEX run_queue ON run (queue, created_at, tenant, run) WHERE queue <> ''",
    "CREATE INDEX run_queue_all ON run (created_at, tenant, run) WHERE queue <> ''",
    # unfinished runs by lane; written when a run starts, changes its lane or ends
    "CREATE INDEX run_lane ON run (tenant, lane, run) WHERE ended_at = 0",
    # pages of lists
    "CREATE INDEX run_page ON run (tenant, created_at, run)",
    "CREATE INDEX approval_page ON approval (tenant, asked_at, run, id)",
    # appended in time order, so its last leaf is in the cache; a page sorts the few effects of one millisecond
    "CREATE INDEX effect_page ON effect (tenant, first_at)",
    "CREATE INDEX delivery_page ON delivery (tenant, subscription, first_at, run, seq)",
    # an approval by its id alone
    "CREATE INDEX approval_id ON approval (tenant, id)",
    # rows that wait for a person; a step that changes none of these conditions writes nothing into them
    "CREATE INDEX run_open ON run (tenant, created_at, run) WHERE attention <> ''",
    f"CREATE INDEX approval_open ON approval (tenant, within_until, run, id) WHERE status = '{ApprovalStatus.PENDING}'",
    f"CREATE INDEX effect_open ON effect (tenant, first_at) WHERE status = '{EffectStatus.UNCERTAIN}'",
    f"CREATE INDEX delivery_open ON delivery (tenant, first_at, run, subscription, seq) "
    f"WHERE status = '{DeliveryStatus.DEAD}'",
    # the approvals that a person has decided
    "CREATE INDEX approval_decided ON approval (tenant, decided_by, asked_at, run, id)",
    # purge; written once, at the end of a run
    "CREATE INDEX run_over ON run (ended_at, tenant, run) WHERE ended_at > 0",
    # purge; a run that shares no effect writes nothing into these
    "CREATE INDEX usage_key ON usage (tenant, key, run)",
    "CREATE INDEX effect_kept ON effect (settled_at) WHERE run = '' AND keep_ms > 0",
    # the sum of a tenant's day, read before each call under a daily budget
    "CREATE INDEX call_usage_day ON call_usage (tenant, day, activity, tokens, money, calls)",
    # forget
    "CREATE INDEX request_at ON request (at)",
    # results in the order of emission
    "CREATE INDEX result_order ON result (tenant, run, ordinal)",
    # the dispatcher; without cursors that owe nothing
    "CREATE INDEX cursor_due ON cursor (tenant, subscription, due_at, run) WHERE due_at IS NOT NULL",
)

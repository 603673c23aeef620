"""Schemas after the first, in order: the statements that make each of the one before.

A released schema is not changed. A new one is one more entry at the end; its comment says what rows of earlier versions
have.
"""

from typing import Final

from outlast.core.machine import ApprovalStatus, Choice, EffectStatus, Reason

_CAUSES: Final = "' ' || " + " || ".join(
    f"CASE WHEN replace(attention, '\"reason\":\"{reason.value}\"', '') <> attention "
    f"THEN '{reason.value}/{reason.value} ' ELSE '' END"
    for reason in Reason
)
"""The column `causes` of a run that was flagged by a version without causes."""
LATER: Final[tuple[tuple[str, ...], ...]] = (
    # 2: the visit in which an effect was first intended. Earlier rows have 0: the visit is not known.
    ("ALTER TABLE effect ADD COLUMN first_visit {integer} NOT NULL DEFAULT 0",),
    # 3: the calls that reported tokens without a price. Earlier rows have 0: it is not known whether their money was a
    # price.
    (
        "ALTER TABLE call_usage ADD COLUMN unpriced {integer} NOT NULL DEFAULT 0",
        "DROP INDEX call_usage_day",
        "CREATE INDEX call_usage_day ON call_usage (tenant, day, activity, tokens, money, calls, unpriced)",
    ),
    # 4: deadlines in business days, with the days that they skip. Earlier rows have '': their deadlines are durations.
    (
        "ALTER TABLE wait ADD COLUMN due TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE approval ADD COLUMN calendar TEXT NOT NULL DEFAULT ''",
    ),
    # 5: threads of LangGraph graphs, with their checkpoints, writes and values.
    (
        """
CREATE TABLE graph_thread (
    tenant TEXT NOT NULL,
    thread TEXT NOT NULL,
    ns TEXT NOT NULL,
    version {integer} NOT NULL,
    head TEXT NOT NULL,
    checkpoints {integer} NOT NULL,
    created_at {integer} NOT NULL,
    changed_at {integer} NOT NULL,
    PRIMARY KEY (tenant, thread, ns)
){clustered}
""",
        """
CREATE TABLE graph_checkpoint (
    tenant TEXT NOT NULL,
    thread TEXT NOT NULL,
    ns TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    version {integer} NOT NULL,
    parent TEXT NOT NULL,
    graph_run TEXT NOT NULL,
    metadata TEXT NOT NULL,
    channels TEXT NOT NULL,
    format TEXT NOT NULL,
    body {blob} NOT NULL,
    body_at TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, thread, ns, checkpoint)
){clustered}
""",
        """
CREATE TABLE graph_write (
    tenant TEXT NOT NULL,
    thread TEXT NOT NULL,
    ns TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    task TEXT NOT NULL,
    i {integer} NOT NULL,
    version {integer} NOT NULL,
    path TEXT NOT NULL,
    channel TEXT NOT NULL,
    format TEXT NOT NULL,
    body {blob} NOT NULL,
    body_at TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, thread, ns, checkpoint, task, i)
){clustered}
""",
        """
CREATE TABLE graph_value (
    tenant TEXT NOT NULL,
    thread TEXT NOT NULL,
    ns TEXT NOT NULL,
    hash TEXT NOT NULL,
    packed {integer} NOT NULL,
    body {blob} NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, thread, ns, hash)
){clustered}
""",
        # the list of threads
        "CREATE INDEX graph_thread_page ON graph_thread (tenant, changed_at, thread, ns)",
        # the checkpoints that one run of a graph put
        "CREATE INDEX graph_checkpoint_run ON graph_checkpoint (tenant, graph_run)",
    ),
    # 6: the run that a run was forked from, and whether a webhook includes forks. Earlier runs are no forks.
    (
        "ALTER TABLE run ADD COLUMN forked_from TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE subscription ADD COLUMN forks {integer} NOT NULL DEFAULT 0",
    ),
    # 7: threads of LangGraph of all tenants by their last change, for the purge of unused ones.
    ("CREATE INDEX graph_thread_unused ON graph_thread (changed_at, tenant, thread) WHERE ns = ''",),
    # 8: the place of a child run below the run that started it, and its terms in the ledger of that run. Runs get slots
    # by the age of their trees. Earlier runs have 0: they are older than all others, and wait in their own order. A run
    # whose history is a window has a row that says where it begins. A map has its inputs, progress and outcomes.
    (
        "ALTER TABLE run ADD COLUMN root TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE run ADD COLUMN root_created_at {integer} NOT NULL DEFAULT 0",
        "ALTER TABLE run ADD COLUMN depth {integer} NOT NULL DEFAULT 0",
        "ALTER TABLE run ADD COLUMN descent TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE effect ADD COLUMN child TEXT NOT NULL DEFAULT ''",
        # the runs of a tree by their ends, to count them and to purge them as one
        "CREATE INDEX run_tree ON run (tenant, root, ended_at, run) WHERE root <> ''",
        "DROP INDEX run_over",
        "CREATE INDEX run_over ON run (ended_at, tenant, run, root) WHERE ended_at > 0",
        "ALTER TABLE call_usage ADD COLUMN root TEXT NOT NULL DEFAULT ''",
        # the sum of a tree, read before each call under its budget; a run without a parent writes nothing into it
        "CREATE INDEX call_usage_root ON call_usage (tenant, root, run, tokens, money, calls, unpriced) "
        "WHERE root <> ''",
        "DROP INDEX run_queue",
        "DROP INDEX run_queue_all",
        "CREATE INDEX run_queue ON run (queue, root_created_at, depth, created_at, tenant, run) WHERE queue <> ''",
        "CREATE INDEX run_queue_all ON run (root_created_at, depth, created_at, tenant, run) WHERE queue <> ''",
        # the first kept event of a run whose history is a window
        """
CREATE TABLE floor (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    version {integer} NOT NULL,
    seq {integer} NOT NULL,
    event_hash TEXT NOT NULL,
    visit {integer} NOT NULL,
    entered_at {integer} NOT NULL,
    purged TEXT NOT NULL,
    swept {integer} NOT NULL,
    usage_n {integer} NOT NULL,
    PRIMARY KEY (tenant, run)
){clustered}
""",
        """
CREATE TABLE map_inputs (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    visit {integer} NOT NULL,
    name TEXT NOT NULL,
    first {integer} NOT NULL,
    data {blob} NOT NULL,
    PRIMARY KEY (tenant, run, visit, name, first)
){clustered}
""",
        """
CREATE TABLE map_progress (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    visit {integer} NOT NULL,
    key TEXT NOT NULL,
    version {integer} NOT NULL,
    states TEXT NOT NULL,
    decided TEXT NOT NULL,
    settled {integer} NOT NULL,
    PRIMARY KEY (tenant, run, visit, key)
){clustered}
""",
        """
CREATE TABLE map_outcome (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    visit {integer} NOT NULL,
    key TEXT NOT NULL,
    place {integer} NOT NULL,
    child TEXT NOT NULL,
    response {blob},
    error TEXT NOT NULL,
    PRIMARY KEY (tenant, run, visit, key, place)
){clustered}
""",
    ),
    # 9: the causes of flagged and failed runs, and when the attention of a run began and ends. A run that was flagged
    # earlier has its reasons as causes. An earlier failure has none.
    (
        "ALTER TABLE run ADD COLUMN causes TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE run ADD COLUMN flagged_at {integer} NOT NULL DEFAULT 0",
        "ALTER TABLE run ADD COLUMN flagged_until {integer} NOT NULL DEFAULT 0",
        f"UPDATE run SET flagged_at = created_at, causes = {_CAUSES} WHERE attention <> ''",
        # pages of flagged runs, also of one cause without reading the others
        "DROP INDEX run_open",
        "CREATE INDEX run_open ON run (tenant, created_at, run, causes, flagged_at) WHERE flagged_at > 0",
        # counts of flagged runs by cause
        "CREATE INDEX run_flagged ON run (tenant, causes, flagged_at, flagged_until, workflow, lane) "
        "WHERE flagged_at > 0",
        # counts of ends by time
        "CREATE INDEX run_ends ON run (tenant, status, ended_at, workflow, lane, causes) WHERE ended_at > 0",
        # attributes of runs by which lists find them; earlier runs have none
        "ALTER TABLE run ADD COLUMN attributes TEXT NOT NULL DEFAULT ''",
        """
CREATE TABLE attribute (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    name TEXT NOT NULL,
    version {integer} NOT NULL,
    value TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, run, name)
){clustered}
""",
        # pages of the runs with a value, newest first
        "CREATE INDEX attribute_value ON attribute (tenant, name, value, at, run)",
    ),
    # 10: indexes whose condition is no range: SQLite took `ended_at > 0`, which each statement repeats, for the lower
    # bound of its search, and so read every end before the wanted time.
    (
        "DROP INDEX run_open",
        "CREATE INDEX run_open ON run (tenant, created_at, run, causes, flagged_at) WHERE flagged_at <> 0",
        "DROP INDEX run_flagged",
        "CREATE INDEX run_flagged ON run (tenant, causes, flagged_at, flagged_until, workflow, lane) "
        "WHERE flagged_at <> 0",
        "DROP INDEX run_over",
        "CREATE INDEX run_over ON run (ended_at, tenant, run, root) WHERE ended_at <> 0",
        "DROP INDEX run_ends",
        # counts and lists of ends by time
        "CREATE INDEX run_ends ON run (tenant, status, ended_at, run, workflow, lane, causes) WHERE ended_at <> 0",
    ),
    # 11: of a request to a model, the digests of its instructions and tools, its time and its end; and their texts,
    # once for a tenant. Requests of earlier versions have '' and 0: not recorded.
    (
        "ALTER TABLE call_usage ADD COLUMN prompt TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE call_usage ADD COLUMN tools TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE call_usage ADD COLUMN ms {integer} NOT NULL DEFAULT 0",
        "ALTER TABLE call_usage ADD COLUMN outcome TEXT NOT NULL DEFAULT ''",
        # the newest requests to models, for the page of models and prompts; other calls write nothing into it
        "CREATE INDEX call_usage_model ON call_usage (tenant, at) WHERE model <> ''",
        """
CREATE TABLE model_text (
    tenant TEXT NOT NULL,
    digest TEXT NOT NULL,
    version {integer} NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    chars {integer} NOT NULL,
    lane TEXT NOT NULL,
    since {integer} NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (tenant, digest)
){clustered}
""",
    ),
    # 12: each time at which a run began to need a person. Of earlier times only those that are not answered are known.
    (
        """
CREATE TABLE flagging (
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    seq {integer} NOT NULL,
    at {integer} NOT NULL,
    causes TEXT NOT NULL,
    workflow TEXT NOT NULL,
    lane TEXT NOT NULL,
    PRIMARY KEY (tenant, run, seq)
){clustered}
""",
        "INSERT INTO flagging SELECT tenant, run, seq, flagged_at, causes, workflow, lane FROM run "
        "WHERE flagged_at <> 0",
        # counts and lists by time
        "CREATE INDEX flagging_at ON flagging (tenant, at, run, seq, causes, workflow, lane)",
        # the first and the last one of each cause, and counts of a cause by time
        "CREATE INDEX flagging_cause ON flagging (tenant, causes, at, run, workflow, lane)",
    ),
    # 13: counts of pending approvals by who may decide them. Those with votes are read as rows. `status` and `votes`
    # are the same in each entry, but SQLite reads the row of a column that an index lacks.
    (
        "CREATE INDEX approval_rules ON approval "
        "(tenant, who, not_requester, requested_by, within_until, status, votes) "
        f"WHERE status = '{ApprovalStatus.PENDING}' AND votes = ''",
        "CREATE INDEX approval_voted ON approval (tenant, within_until, run, id) "
        f"WHERE status = '{ApprovalStatus.PENDING}' AND votes <> ''",
    ),
    # 14: counts of starts by time and workflow, without reading a row; no step changes these columns.
    (
        "DROP INDEX run_page",
        "CREATE INDEX run_page ON run (tenant, created_at, run, workflow, lane)",
    ),
    # 15: messages of people and programs by time. Those between runs, and of jobs, have no entry.
    (
        "CREATE INDEX message_acts ON message (tenant, at, run, n, kind, actor) "
        f"WHERE (kind = 'answer' OR kind = 'cancel' OR kind = '{Choice.CONTINUE}' OR kind = 'decision' "
        f"OR kind = 'fork' OR kind = 'job' OR kind = '{Choice.RAISE}' OR kind = 'reassign' OR kind = 'signal' "
        "OR ((kind = 'child' OR kind = 'resolve') AND length(payload) > 2)) "
        "AND substr(actor, 1, 4) <> 'run ' AND (kind = 'signal' OR signal_id = '')",
    ),
    # 16: effects that a person gave up, whose outcome is unknown
    (
        f"CREATE INDEX effect_unknown ON effect (tenant, first_at) WHERE status = '{EffectStatus.REFUSED}' "
        """AND error >= '{{"code": "given_up"' AND error < '{{"code": "given_up#'""",
    ),
)

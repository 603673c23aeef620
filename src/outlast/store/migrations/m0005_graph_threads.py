"""Schema 5: threads of LangGraph graphs, with their checkpoints, writes and values."""

from typing import Final

STATEMENTS: Final = (
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
    # the list of threads, and retention
    "CREATE INDEX graph_thread_page ON graph_thread (tenant, changed_at, thread, ns)",
    # the checkpoints that one run of a graph put
    "CREATE INDEX graph_checkpoint_run ON graph_checkpoint (tenant, graph_run)",
)

"""Immutable rows: the table of all their kinds.

A row is a tuple of plain values in column order, so a store can bind it unchanged. A field `…_text` holds a structured
value as the text of its column; the property without the suffix decodes it, and raises Corrupt if the text cannot be
read. Writers encode with the column of the same name. Instants are integers in milliseconds since 1970. Instants of
liveness (due_at, lease_until, not_after, settle_after) are *real* store time, all others are *business* time (S-4).

`run_rows.py` has the rows of runs, `effect_rows.py` those of effects, waits and approvals, `limit_rows.py` those of the
limits of tenants, `map_rows.py` those of maps, `store_rows.py` those of the store and its processes, `outbox_rows.py`
those of webhooks, `graph_rows.py` those of threads of LangGraph, and `text_rows.py` those of texts of requests to
models.
"""

from typing import Final, TypeAlias, TypeVar

from outlast.core.rows.effect_rows import (
    APPROVAL,
    EFFECT,
    EVIDENCE,
    MEMO,
    USAGE,
    WAIT,
    Approval,
    Effect,
    Evidence,
    Memo,
    Usage,
    Wait,
)
from outlast.core.rows.graph_rows import (
    GRAPH_CHECKPOINT,
    GRAPH_THREAD,
    GRAPH_VALUE,
    GRAPH_WRITE,
    GraphCheckpoint,
    GraphThread,
    GraphValue,
    GraphWrite,
)
from outlast.core.rows.limit_rows import CALL_USAGE, PAUSE, SLOT, TENANT_BUDGET, Pause, Slot
from outlast.core.rows.map_rows import MAP_INPUTS, MAP_OUTCOME, MAP_PROGRESS, MapInputs, MapOutcome, MapProgress
from outlast.core.rows.outbox_rows import (
    CURSOR,
    DELIVERY,
    SUBSCRIPTION,
    UNPUBLISHED,
    Cursor,
    Delivery,
    Subscription,
    Unpublished,
)
from outlast.core.rows.row_kind import Kind
from outlast.core.rows.run_rows import (
    ATTRIBUTE,
    EVENT,
    FLAGGING,
    FLOOR,
    MESSAGE,
    RESULT,
    RUN,
    STATE_CHUNK,
    TOKEN,
    Attribute,
    Event,
    Flagging,
    Floor,
    Message,
    Result,
    Run,
    Token,
)
from outlast.core.rows.store_rows import (
    META,
    REQUEST,
    TOPOLOGY,
    WORKER,
    WRITER,
    Meta,
    Request,
    Topology,
    Worker,
    Writer,
)
from outlast.core.rows.text_rows import MODEL_TEXT, StoredModelText
from outlast.core.state.snapshot_codec import StateChunk
from outlast.core.usage import CallUsage, TenantBudget

Row: TypeAlias = (
    Run
    | Event
    | Effect
    | Memo
    | Evidence
    | Wait
    | Approval
    | Message
    | Token
    | Slot
    | Pause
    | Usage
    | CallUsage
    | TenantBudget
    | StoredModelText
    | Topology
    | StateChunk
    | Result
    | Floor
    | Attribute
    | Flagging
    | Request
    | Subscription
    | Cursor
    | Delivery
    | Unpublished
    | MapInputs
    | MapProgress
    | MapOutcome
    | GraphThread
    | GraphCheckpoint
    | GraphWrite
    | GraphValue
    | Worker
    | Writer
    | Meta
)
R = TypeVar("R", bound=Row)
KINDS: Final[tuple[Kind[Row], ...]] = (
    RUN, EVENT, EFFECT, MEMO, EVIDENCE, WAIT, APPROVAL, MESSAGE, TOKEN, SLOT, PAUSE, USAGE, CALL_USAGE, TENANT_BUDGET,
    MODEL_TEXT, TOPOLOGY, STATE_CHUNK, RESULT, FLOOR, ATTRIBUTE, FLAGGING, MAP_INPUTS, MAP_PROGRESS, MAP_OUTCOME,
    REQUEST, SUBSCRIPTION, CURSOR, DELIVERY, UNPUBLISHED, GRAPH_THREAD, GRAPH_CHECKPOINT, GRAPH_WRITE, GRAPH_VALUE,
    WORKER, WRITER, META,
)  # fmt: skip

for _kind in KINDS:
    assert _kind.row._fields[0] == "tenant", "the tenant leads every key (RUN-5)"
    assert not _kind.versioned or _kind.row._fields[_kind.key] == "version", "the version follows the key"

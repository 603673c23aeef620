"""The events of a run's history: their types, and the exact CloudEvents bytes that are stored, chained and sent.

Bytes are made once and never again: what is signed and delivered later are these bytes (OUT-3).
"""

import hashlib
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

from outlast.core.codec import compact
from outlast.core.limits import NAME
from outlast.core.rows import Event, Run

GENESIS: Final = ""


class EventType(StrEnum):
    """`dev.outlast.workflow.*` for the life of a run, `dev.outlast.run.*` for the rest."""

    STARTED = "dev.outlast.workflow.started"
    FINISHED_WELL = "dev.outlast.workflow.completed"
    FAILED = "dev.outlast.workflow.failed"
    CANCELLED = "dev.outlast.workflow.cancelled"
    COMPENSATED = "dev.outlast.workflow.compensated"
    CHECKPOINT = "dev.outlast.workflow.checkpoint"
    CLAIMED = "dev.outlast.run.claimed"
    TAKEN_OVER = "dev.outlast.run.taken_over"
    ADMITTED = "dev.outlast.run.admitted"
    QUEUED = "dev.outlast.run.queued"
    PARKED = "dev.outlast.run.parked"
    HANDED_BACK = "dev.outlast.run.handed_back"
    REQUEUED = "dev.outlast.run.requeued"
    FLAGGED = "dev.outlast.run.attention"
    ANSWERED = "dev.outlast.run.answered"
    COMPENSATING = "dev.outlast.run.compensating"
    MOVED = "dev.outlast.run.moved"
    RESTORED = "dev.outlast.run.restored"
    LOGGED = "dev.outlast.run.logged"
    DENIED = "dev.outlast.run.denied"


def _text(value: str) -> str:
    """A string as JSON; tenants, runs, workflows and nodes need no escape (limits.NAME)."""
    return f'"{value}"' if NAME.fullmatch(value) else compact(value)


def _more(data: dict[str, object]) -> str:
    """Further members of an object that has some already."""
    return f",{compact(data)[1:-1]}" if data else ""


def iso(at_ms: int) -> str:
    """An instant as RFC 3339 with milliseconds, UTC."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=8)
def _second(at_s: int) -> str:
    """An instant without its fraction: most events of a busy second come one after the other."""
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None).isoformat()


def trace_of(trace_id: str) -> str:
    """The trace id of what a run's row keeps: of a W3C traceparent the trace alone, anything else as it is."""
    return trace_id[3:35] if len(trace_id) == 55 and trace_id.startswith("00-") else trace_id


def event(run: Run, type_: EventType, at: int, data: dict[str, object], snapshot: bytes | None = None) -> Event:
    """The next event of `run` as it is *after* the move: run.seq is its number, run.head still its predecessor's hash.

    The event's hash becomes the run's head. The CloudEvents attributes are fixed: id = RUN/SEQ, source =
    /TENANT/WORKFLOW, subject = RUN, and the extensions sequence, previous (ten digits: the sequence extension wants
    text that sorts), correlationid, traceid.
    """
    body = (
        f'{{"specversion":"1.0","id":"{run.run}/{run.seq}","source":"/{run.tenant}/{run.workflow}",'
        f'"type":"{type_.value}","subject":"{run.run}","time":"{iso(at)}","datacontenttype":"application/json",'
        f'"sequence":"{run.seq:010d}","previous":"{run.seq - 1:010d}",'
        f'"correlationid":{_text(run.correlation_id or run.run)},'
        f'"traceid":{_text(trace_of(run.trace_id) or "-")},'
        f'"data":{{"version":{run.version},"epoch":{run.epoch},"node":"{run.node}","visit":{run.visit}{_more(data)}}}}}'
    ).encode()
    return Event(
        tenant=run.tenant,
        run=run.run,
        seq=run.seq,
        type=type_.value,
        at=at,
        node=run.node,
        visit=run.visit,
        body=body,
        hash=chain_hash(run.event_hash, body),
        snapshot=snapshot,
    )


def chain_hash(predecessor: str, body: bytes) -> str:
    """The hash of an event: SHA-256 over its predecessor's hash and its own bytes."""
    return hashlib.sha256(predecessor.encode() + body).hexdigest()

"""Events of a run: their types, and the CloudEvents bytes that are stored, hashed and delivered.

The bytes are made once. Webhooks sign and deliver the stored bytes (OUT-3).
"""

import hashlib
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from outlast.core.codec import compact
from outlast.core.rows import Event, Run
from outlast.errors import Corrupt

GENESIS: Final = ""


class EventType(StrEnum):
    """Event types: `dev.outlast.workflow.*` for start and end of a run, `dev.outlast.run.*` for the rest."""

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


ENDINGS: Final = frozenset({EventType.FINISHED_WELL, EventType.FAILED, EventType.CANCELLED})
TAKEN: Final = frozenset({EventType.CLAIMED, EventType.TAKEN_OVER})


@lru_cache(maxsize=4_096)
def _text(value: str) -> str:
    """Return a string as JSON, cached because each event of a run repeats its correlation id."""
    return compact(value)


def iso(at_ms: int) -> str:
    """Return an instant as RFC 3339 in UTC, with milliseconds."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=4_096)
def _trace(trace_id: str) -> str:
    """Return the trace id in a W3C traceparent as JSON, cached as `_text`."""
    return compact(trace_of(trace_id) or "-")


@lru_cache(maxsize=8)
def _second(at_s: int) -> str:
    """Return an instant without its fraction, cached because most events share their second with the previous one."""
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None).isoformat()


def trace_of(trace_id: str) -> str:
    """Return the trace id in a W3C traceparent; return other values unchanged."""
    return trace_id[3:35] if len(trace_id) == 55 and trace_id.startswith("00-") else trace_id


def event(run: Run, type_: EventType, at: int, data: dict[str, object], snapshot: bytes | None = None) -> Event:
    """Return the next event of a run, from its row *after* the transition.

    `run.seq` is the number of the event; `run.event_hash` is still the hash of the previous event. CloudEvents
    attributes: id = RUN/SEQ, source = /TENANT/WORKFLOW, subject = RUN, and the extensions sequence and previous (ten
    digits, so that they sort as text), correlationid, traceid. Names need no escape in JSON (limits.NAME).
    """
    more = f",{compact(data)[1:-1]}" if data else ""
    body = (
        f'{{"specversion":"1.0","id":"{run.run}/{run.seq}","source":"/{run.tenant}/{run.workflow}",'
        f'"type":"{type_}","subject":"{run.run}","time":"{_second(at // 1000)}.{at % 1000:03d}Z",'
        f'"datacontenttype":"application/json",'
        f'"sequence":"{run.seq:010d}","previous":"{run.seq - 1:010d}",'
        f'"correlationid":{_text(run.correlation_id or run.run)},'
        f'"traceid":{_trace(run.trace_id)},'
        f'"data":{{"version":{run.version},"epoch":{run.epoch},"node":"{run.node}","visit":{run.visit}{more}}}}}'
    ).encode()
    return Event(
        tenant=run.tenant,
        run=run.run,
        seq=run.seq,
        type=type_._value_,  # `value` is a property made of Python functions
        at=at,
        node=run.node,
        visit=run.visit,
        body=body,
        hash=chain_hash(run.event_hash, body),
        snapshot=snapshot,
    )


class EndData(NamedTuple):
    """Data of the event that ended a run."""

    outcome: Any  # JSON
    reason: str
    not_undone: tuple[str, ...]  # effects that stay in force


def end_of(event: Event) -> EndData | None:
    """Return the end that an event records; None if the event ends no run. Raises Corrupt."""
    if event.type not in ENDINGS:
        return None
    data = event.data()
    try:
        return EndData(data["outcome"], data["reason"], tuple(data["not_undone"]))
    except (KeyError, TypeError) as error:
        raise Corrupt(f"event {event.run}/{event.seq}: its data records no end: {error!r}") from error


def chain_hash(predecessor: str, body: bytes) -> str:
    """Return the hash of an event: SHA-256 of the previous event's hash and its own bytes."""
    return hashlib.sha256(predecessor.encode() + body).hexdigest()

"""Events of a run: their types, and the CloudEvents bytes that are hashed and delivered.

A row has no bytes but the columns that they are made from. They are made when the event is written, for its hash, and
again for each delivery (OUT-3).
"""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

from outlast.core.codec import compact

GENESIS: Final = ""
FORKED_FROM: Final = "forkedfrom"
"""Extension of the events of a fork: its ancestor. In a row it is the first member of the details (S-28)."""
_FORKED: Final = b'{"forkedfrom":"'
TYPES: Final = "dev.outlast."
"""Prefix of all event types, which rows leave out."""


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
    FORKED = "dev.outlast.run.forked"


ENDINGS: Final = frozenset({EventType.FINISHED_WELL, EventType.FAILED, EventType.CANCELLED})
TAKEN: Final = frozenset({EventType.CLAIMED, EventType.TAKEN_OVER})


def selects(wanted: Iterable[str], type_: str) -> bool:
    """Return True if one of the wanted types is this type, or begins it and ends with a star."""
    return any(type_.startswith(each[:-1]) if each.endswith("*") else type_ == each for each in wanted)


@lru_cache(maxsize=4_096)
def _text(value: str) -> str:
    """Return a string as JSON, cached because each event of a run repeats its correlation id."""
    return compact(value)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = -62_135_510_400_000  # 0001-01-02, so that it has a local time in every zone
LATEST: Final = 253_402_128_000_000  # 9999-12-30
FAR_FROM: Final = 4_954_435_200_000  # 2127-01-01
FAR_TEXT: Final = "after 2126"
"""Text of an instant that is further ahead than a wait may be now (`durations.FAR`); earlier versions stored such."""


def in_calendar(at_ms: int) -> int:
    """Return an instant, or the first or last one of the calendar: a stored number may be any of 64 bits."""
    return min(max(at_ms, EARLIEST), LATEST)


def utc(at_ms: int) -> datetime:
    """Return an instant in ms as a datetime in UTC, within the calendar."""
    if not EARLIEST <= at_ms <= LATEST:
        at_ms = in_calendar(at_ms)
    return _EPOCH + timedelta(0, at_ms // 1000, at_ms % 1000 * 1000)


def iso(at_ms: int) -> str:
    """Return an instant as RFC 3339 in UTC, with milliseconds, within the calendar."""
    if not EARLIEST <= at_ms <= LATEST:
        at_ms = in_calendar(at_ms)
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=8)
def _second(at_s: int) -> str:
    """Return an instant without its fraction, within the calendar; cached because most events share their second."""
    at_s = in_calendar(at_s * 1000) // 1000
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None).isoformat()


def trace_of(trace_id: str) -> str:
    """Return the trace id in a W3C traceparent; return other values unchanged."""
    return trace_id[3:35] if len(trace_id) == 55 and trace_id.startswith("00-") else trace_id


def make_body(
    tenant: str,
    run: str,
    seq: int,
    kind: str,
    at: int,
    node: str,
    visit: int,
    version: int,
    epoch: int,
    workflow: str,
    correlation_id: str,
    trace_id: str,
    details: bytes,
) -> bytes:
    """Return the CloudEvents bytes of an event from its columns, the same in every version of Outlast (decision 0070).

    CloudEvents attributes: id = RUN/SEQ, source = /TENANT/WORKFLOW, subject = RUN, and the extensions sequence and
    previous (ten digits, so that they sort as text), correlationid, traceid. Names need no escape in JSON
    (limits.NAME).
    """
    head = (
        f'{{"specversion":"1.0","id":"{run}/{seq}","source":"/{tenant}/{workflow}",'
        f'"type":"{TYPES}{kind}","subject":"{run}","time":"{_second(at // 1000)}.{at % 1000:03d}Z",'
        f'"datacontenttype":"application/json",'
        f'"sequence":"{seq:010d}","previous":"{seq - 1:010d}",'
        f'"correlationid":{_text(correlation_id or run)},"traceid":{_text(trace_id or "-")},'
        f'"data":{{"version":{version},"epoch":{epoch},"node":"{node}","visit":{visit}'
    ).encode()
    if details[: len(_FORKED)] == _FORKED:
        head, details = _with_ancestor(head, details)
    return b"%b,%b}" % (head, details[1:]) if details else head + b"}}"


def ancestor_in(details: bytes) -> str:
    """Return the run that the run of an event was forked from; '' if it is no fork."""
    if details[: len(_FORKED)] != _FORKED:
        return ""
    return details[len(_FORKED) :].partition(b'"')[0].decode()


def _with_ancestor(head: bytes, details: bytes) -> tuple[bytes, bytes]:
    """Return the head with the extension `forkedfrom`, and the details without it. Names need no escape."""
    name, _, rest = details[len(_FORKED) :].partition(b'"')
    extended = head.replace(b',"data":{', b',"forkedfrom":"%b","data":{' % name, 1)
    return extended, b"{" + rest[1:] if rest[:1] == b"," else b""


def chain_hash(predecessor: str, body: bytes) -> str:
    """Return the hash of an event: SHA-256 of the previous event's hash and its own bytes."""
    return hashlib.sha256(predecessor.encode() + body).hexdigest()

"""Export of one run as a JSON document, and verification of such a document without a store.

Format (version 1): `format`, `version`, `exported_at`, `generation`, then one list for each kind of row. A row is an
object of its columns with `sha256`, the digest of the others. `seal` is the digest of all row digests. Bytes are text
if they are UTF-8, as all bytes written by Outlast are, else {"base64": …}. Columns may be added; none changes its
meaning.
"""

import base64
import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from outlast.core.codec import canonical
from outlast.core.commit import Instant
from outlast.core.divergence import MAP
from outlast.core.durations import CLOCK_SKEW
from outlast.core.events import iso
from outlast.core.generation import Generation
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, EVIDENCE, MEMO, WAIT
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.map_rows import MAP_KINDS
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_rows import ATTRIBUTE, EVENT, FLAGGING, FLOOR, MESSAGE, RUN, STATE_CHUNK, Event, Floor
from outlast.core.state.snapshot_codec import MARK, StateChunk, decode, unpack
from outlast.engine.snapshots import values_of
from outlast.engine.store_maintenance import ledger_purged, present_generation
from outlast.errors import InvalidInput, NotFound
from outlast.runtime.operations import Operations
from outlast.store.port import RunRows
from outlast.telemetry.redact import redact, redacted
from outlast.upkeep.fsck import violations
from outlast.upkeep.fsck_checks import Finding

Text = TypeVar("Text", str, bytes)
R = TypeVar("R", bound=Row)
_COLUMNS: Final = {kind.row: kind.columns for kind in KINDS}
LEFT_OUT: Final = b"{}"
"""Replaces an earlier large state that held a secret, because its parts are shared with other states."""


def redacted_row(row: R) -> R:
    """Return the row with every text and JSON redacted; the same row if it contains no secret."""
    clean = {name: _clean(value) for name, value in row._asdict().items() if type(value) in (str, bytes)}
    changed = {name: value for name, value in clean.items() if value != getattr(row, name)}
    return row._replace(**changed) if changed else row  # type: ignore[return-value]


def redacted_states(events: Sequence[Event], values: Sequence[StateChunk]) -> tuple[list[Event], list[StateChunk]]:
    """Return events with redacted states, and the values their states still name. Raises Corrupt.

    A state in parts (core/state/snapshot_codec.py) is joined before it is redacted, because a secret may cross a
    boundary. If any state contains a secret, no parts are exported: the last such state is written in full, and earlier
    ones are left out.
    """
    parts = {value.hash: unpack(value.packed, value.body, value.hash) for value in values}
    joined = {e.seq: decode(e.snapshot, parts).state for e in events if e.snapshot and e.snapshot[:1] == MARK}
    if all(_clean(state) == state for state in joined.values()) and all(
        _clean(part) == part for part in parts.values()
    ):
        return [*events], [*values]
    last = max(joined)
    whole = {seq: _clean(state) if seq == last else LEFT_OUT for seq, state in joined.items()}
    return [e._replace(snapshot=whole.get(e.seq, e.snapshot)) for e in events], []


def _clean(data: Text) -> Text:
    if isinstance(data, str):
        return _redacted_text(data)
    if data[:1] == MARK:
        return data  # `redacted_states` redacts states in parts
    try:
        return _redacted_text(data.decode()).encode()
    except UnicodeDecodeError:
        return data


def _redacted_text(text: str) -> str:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return redact(text)
    if not isinstance(value, dict | list | str):
        return text
    clean = redacted(value)
    return text if clean == value else json.dumps(clean, ensure_ascii=False, separators=(",", ":"))


FORMAT: Final = "outlast.export"
VERSION: Final = 1
VALUES: Final = "values"
USAGE: Final = "usage"
ATTRIBUTES: Final = "attributes"
FLAGGINGS: Final = "flaggings"
WINDOW: Final = "window"
SECTIONS: Final[dict[str, AnyKind]] = {
    "run": RUN,
    "events": EVENT,
    "effects": EFFECT,
    "shared_effects": EFFECT,
    "memos": MEMO,
    "waits": WAIT,
    "approvals": APPROVAL,
    "messages": MESSAGE,
    "evidence": EVIDENCE,
    VALUES: STATE_CHUNK,  # only if a state of the run is large enough to be split
    USAGE: CALL_USAGE,  # only if a call has reported usage
    ATTRIBUTES: ATTRIBUTE,  # only if its workflow declares some
    FLAGGINGS: FLAGGING,  # only if the run needed a person
    WINDOW: FLOOR,  # only if the history is a window that has moved
    **{kind.name: kind for kind in MAP_KINDS},  # only if a visit has a map
}
OPTIONAL: Final = frozenset({VALUES, USAGE, ATTRIBUTES, FLAGGINGS, WINDOW, *(kind.name for kind in MAP_KINDS)})
LEDGER_PURGED: Final = "ledger_purged"
"""True in a document whose run has lost its ledger to its retention, so that no effect is missing."""
BODY: Final = "body"
"""Bytes of an event that its hash is of, beside the columns that they are made from."""
REDACTED: Final = "redacted"
"""Column names from which something was left out, beside the columns of the row."""
BY_CONTENT: Final = frozenset({"history_chain", "effect_digest", "approval_plans", "approval_consumed", "state_whole"})
"""Checks computed from a row's bytes. They do not apply to redacted rows."""
OF_DIGESTS: Final = frozenset({"row_digest", "seal", "history_chain", "state_whole", "effect_digest", "approval_plans"})
"""Checks that compare digests: a finding of them means that the document was changed after the export."""


class VerifiedExport(NamedTuple):
    """Content of a verified document, and its findings."""

    run: str
    events: int
    effects: int
    approvals: int
    generation: int
    findings: tuple[Finding, ...]
    redacted: int
    """Rows with redactions; their own bytes cannot be verified here."""

    @property
    def changed(self) -> bool:
        """True if a digest does not fit. Otherwise the findings were in the store when the run was exported."""
        return any(finding.check in OF_DIGESTS for finding in self.findings)


class ExportedRows(NamedTuple):
    """Rows of a run from one snapshot, and the same by section of an export."""

    rows: RunRows
    events: Sequence[Event]
    parts: dict[str, Sequence[Row]]
    floor: Floor | None


async def rows_to_export(ops: Operations, run: str) -> ExportedRows:
    """Read all rows of a run of this tenant. Raises NotFound, Corrupt."""
    (rows,) = await ops.store.run_rows([(ops.tenant, run)])
    if rows is None:
        raise NotFound(f"no run {run}", f"tenant {ops.tenant} has no run of this id", "list them with: outlast runs ls")
    events = [event for event in await ops.history(run) if event.seq <= rows.run.seq]
    parts: dict[str, Sequence[Row]] = {
        "run": [rows.run],
        "events": events,
        "effects": rows.effects,
        "shared_effects": rows.shared,
        "memos": rows.memos,
        "waits": rows.waits,
        "approvals": rows.approvals,
        "messages": rows.messages,
        "evidence": rows.evidence,
        VALUES: await values_of(ops.store, rows, events),
        USAGE: await ops.store.rows(CALL_USAGE, (ops.tenant, run)),
        ATTRIBUTES: await ops.store.rows(ATTRIBUTE, (ops.tenant, run)) if rows.run.attributes_text else (),
        FLAGGINGS: await ops.store.rows(FLAGGING, (ops.tenant, run)),
    }
    if any(memo.activity == MAP for memo in rows.memos):
        for kind in MAP_KINDS:
            parts[kind.name] = await _all_rows(ops, kind, run)
    floor = await ops.store.load(FLOOR, (ops.tenant, run))  # after the events, so none above it is missing
    if floor is not None:
        parts |= {WINDOW: [floor], "events": [e for e in events if e.seq == 1 or e.seq >= floor.seq]}
    return ExportedRows(rows, events, parts, floor)


async def _all_rows(ops: Operations, kind: AnyKind, run: str) -> list[Row]:
    found: list[Row] = []
    after: Key = ()
    while page := await ops.store.rows(kind, (ops.tenant, run), after=after):
        found += page
        after = key_of(kind, page[-1])
    return found


async def export(ops: Operations, run: str, *, whole: bool = False) -> dict[str, Any]:
    """Export a run of this tenant from one snapshot of its rows. Raises NotFound, Corrupt.

    Secrets are redacted (telemetry/redact.py) and the row names the columns; `whole` exports everything.
    """
    found = await rows_to_export(ops, run)
    rows, parts = found.rows, found.parts
    generation = await present_generation(ops.store) or Generation(1, "", 0)
    shown = parts if whole else _redacted(parts)
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "exported_at": iso(rows.now.business),
        "generation": generation._asdict(),
    }
    if await ledger_purged(ops.store, rows.run):
        document[LEDGER_PURGED] = True
    for name, section in shown.items():
        if section or name not in OPTIONAL:
            document[name] = [_sealed(_marked(row, of)) for row, of in zip(section, parts[name], strict=False)]
    return {**document, "seal": _seal(document)}


def _written(row: Row) -> dict[str, Any]:
    written = {name: _text(value) for name, value in zip(_COLUMNS[type(row)], row, strict=True)}
    return {**written, BODY: _text(row.body)} if isinstance(row, Event) else written


def _redacted(parts: dict[str, Sequence[Any]]) -> dict[str, Sequence[Row]]:
    events, values = redacted_states(parts["events"], parts[VALUES])
    shown = {**parts, "events": events, VALUES: values}
    return {name: [redacted_row(row) for row in found] for name, found in shown.items()}


def _marked(row: Row, of: Row) -> dict[str, Any]:
    """Return a row as JSON data, with the names of its redacted columns."""
    columns = [name for name, a, b in zip(_COLUMNS[type(row)], row, of, strict=True) if a != b]
    return {**_written(row), REDACTED: columns} if columns else _written(row)


def _text(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _sealed(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "sha256": sha256(canonical(row)).hexdigest()}


def _seal(document: dict[str, Any]) -> str:
    rest = {name: value for name, value in document.items() if name not in SECTIONS and name != "seal"}
    rows = {name: [row["sha256"] for row in document[name]] for name in SECTIONS if name in document}
    return sha256(canonical({**rest, **rows})).hexdigest()


def verify(data: bytes) -> VerifiedExport:
    """Verify a document without a store: row digests, the chain of events, and every check of fsck.

    This finds accidental changes, and deliberate ones unless the digests were recomputed; store the seal elsewhere to
    find those too. Raises InvalidInput if the document is not an export.
    """
    try:
        return _verified(_read(data))
    except RecursionError:
        raise _not_an_export("it is nested too deeply") from None


def _verified(document: dict[str, Any]) -> VerifiedExport:
    found: list[Finding] = []
    parts: dict[str, list[Any]] = {}
    redacted: set[tuple[str, tuple[Any, ...]]] = set()
    for name, kind in SECTIONS.items():
        parts[name] = []
        for n, written in enumerate(document.get(name, ())):
            row = _row(name, kind, n, written)
            parts[name].append(row)
            if written.get(REDACTED):
                redacted.add((kind.name, row[: kind.key]))
            if _sealed({k: v for k, v in written.items() if k != "sha256"})["sha256"] != written.get("sha256"):
                found.append(Finding("row_digest", kind.name, row[: kind.key], "it was changed after the export"))
            if kind is EVENT and written.get(BODY) != _text(row.body):
                found.append(Finding("history_chain", kind.name, row[: kind.key], "its columns do not give its bytes"))
    if not found and _seal(document) != document.get("seal"):
        found.append(Finding("seal", "document", (str(document.get("exported_at")),), "rows were added or removed"))
    (run,) = parts["run"] if len(parts["run"]) == 1 else (None,)
    last = next((e for e in reversed(parts["events"]) if e.snapshot is not None), None)
    if run is None or last is None:
        raise InvalidInput("this export contains no run", "it needs one run and its first event", "export again")
    rows = RunRows(
        run=run,
        last=last,
        effects=tuple(parts["effects"]),
        memos=tuple(parts["memos"]),
        waits=tuple(parts["waits"]),
        approvals=tuple(parts["approvals"]),
        messages=tuple(parts["messages"]),
        evidence=tuple(parts["evidence"]),
        now=Instant(0, 0, 0),
        shared=tuple(parts["shared_effects"]),
    )
    generation = int(document["generation"]["n"])
    broken = violations(
        rows,
        parts["events"],
        generation=generation,
        values=parts[VALUES],
        ledger_purged=document.get(LEDGER_PURGED) is True,
        skew=CLOCK_SKEW,
        floor=next(iter(parts[WINDOW]), None),
    )
    found += [f for f in broken if f.check not in BY_CONTENT or (f.kind, f.key) not in redacted]
    counts = (len(parts["events"]), len(rows.effects), len(rows.approvals))
    return VerifiedExport(run.run, *counts, generation, tuple(found), len(redacted))


def _read(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
        needed = [name for name in SECTIONS if name in document or name not in OPTIONAL]
        good = document["format"] == FORMAT and all(isinstance(document[name], list) for name in needed)
        version = int(document["version"])
        int(document["generation"]["n"])
    except (ValueError, KeyError, TypeError) as error:
        raise _not_an_export(repr(error)) from error
    if not good:
        raise _not_an_export(f"its format is {document['format']!r}")
    if version > VERSION:
        raise InvalidInput(
            "this export was written by a newer version of Outlast", f"{version}; this one reads {VERSION}", "update"
        )
    return dict(document)


def _not_an_export(why: str) -> InvalidInput:
    return InvalidInput("this file is not an export of a run", why, "make one with: outlast export RUN --to FILE")


def _row(name: str, kind: AnyKind, n: int, written: Any) -> Any:
    hints = get_type_hints(kind.row)
    try:
        fields = zip(kind.row._fields, kind.columns, strict=True)
        return kind.row(**{name: _value(hints[name], written[column]) for name, column in fields if column in written})
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{name}[{n}] of this export cannot be read", repr(error), "export the run again") from error


def _value(hint: Any, value: Any) -> Any:
    if hint in (bytes, bytes | None) and value is not None:
        return base64.b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()
    if isinstance(hint, type) and not isinstance(value, hint):
        return hint(value)  # a status by its value
    return value

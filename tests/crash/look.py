"""What the store says of the run, read from outside without a lock: no process of ours needs to live for it."""

import hashlib
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.life import RUN_ID, TENANT

Rows = list[dict[str, Any]]
OVER = ("completed", "failed", "cancelled")


@dataclass
class Look:
    """The rows of the one run of a story, as plain dictionaries."""

    run: dict[str, Any]  # {} before the start
    effects: Rows
    waits: Rows
    approvals: Rows
    notes: Rows
    events: Rows
    slots: Rows
    signals: set[str]  # ids of signals already left

    @property
    def over(self) -> bool:
        return bool(self.run) and self.run["status"] in OVER

    @property
    def waiting(self) -> list[dict[str, Any]]:
        return json.loads(self.run["waiting_for"] or "[]")

    @property
    def attention(self) -> list[dict[str, Any]]:
        return json.loads(self.run["attention"] or "[]")

    def end(self) -> dict[str, Any]:
        """What must be equal to the uncrashed run's end."""
        last = json.loads(self.events[-1]["body"])["data"] if self.events else {}
        return {
            "run": {k: self.run[k] for k in ("status", "node", "visit", "label", "visits", "attention", "owner")},
            "outcome": last.get("outcome"),
            "reason": last.get("reason"),
            "effects": {f"{e['visit']}/{e['key']}": e["status"] for e in self.effects},
            "approvals": [(a["wait"], a["status"], a["chosen"], a["consumed_by"]) for a in self.approvals],
            "waits": {f"{w['visit']}/{w['key']}": w["status"] for w in self.waits},
        }

    def wrong(self) -> list[str]:
        """The invariants of a run that has ended: no gap in its numbers, a chain that verifies, nothing left open."""
        found = []
        if [e["seq"] for e in self.events] != list(range(1, self.run["seq"] + 1)):
            found.append("event numbers have a gap")
        data = [json.loads(e["body"])["data"] for e in self.events]
        if {d["version"] for d in data} != set(range(1, self.run["version"] + 1)):
            found.append("versions have a gap")
        epochs = [d["epoch"] for d in data]
        if epochs != sorted(epochs) or epochs[-1] != self.run["epoch"]:
            found.append("an epoch went backwards")
        head = ""
        for event in self.events:
            head = hashlib.sha256(head.encode() + event["body"]).hexdigest()
            if head != event["hash"]:
                found.append(f"the chain breaks at event {event['seq']}")
        if head != self.run["head"]:
            found.append("the run's head is not its last event's hash")
        ordinals = [e["ordinal"] for e in self.effects]
        if len(set(ordinals)) != len(ordinals):
            found.append("two effects share an ordinal")
        found += [f"{e['key']} is left {e['status']}" for e in self.effects if not e["settled_at"]]
        found += [f"slot {s['i']} is held by {s['holder']}" for s in self.slots if s["holder"]]
        return found


def look(db: Path) -> Look:
    """Read the file as it lies there; a log that a killed process left is read with it."""
    if not db.exists():
        return _nothing()
    connection = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'run'").fetchone():
            return _nothing()
        runs = _rows(connection, "run", "tenant")
        assert len(runs) < 2
        return Look(
            run=runs[0] if runs else {},
            effects=_rows(connection, "effect", "visit, key"),
            waits=_rows(connection, "wait", "visit, key"),
            approvals=_rows(connection, "approval", "asked_at, id"),
            notes=_rows(connection, "note", "n"),
            events=_rows(connection, "event", "seq"),
            slots=_rows(connection, "slot", "i"),
            signals={
                t["key"].removeprefix("signal/")
                for t in _rows(connection, "token", "key")
                if (t["tenant"], t["run"]) == (TENANT, RUN_ID)
            },
        )
    finally:
        connection.close()


def _nothing() -> Look:
    return Look({}, [], [], [], [], [], [], set())


def _rows(connection: sqlite3.Connection, table: str, order: str) -> Rows:
    return [dict(row) for row in connection.execute(f'SELECT * FROM "{table}" ORDER BY {order}')]

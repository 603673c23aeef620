"""The store of a scenario between two processes, and the rows of its one run, read without a store."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from typing_extensions import override

from outlast.core.events import EventType
from outlast.core.machine import TERMINAL
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, WAIT
from outlast.core.rows.limit_rows import SLOT
from outlast.core.rows.run_rows import EVENT, MESSAGE, RESULT, RUN, STATE_CHUNK, TOKEN, Event
from outlast.core.state.snapshot_codec import decode, unpack
from outlast.store.sqlite.database import Rows, read_tables
from outlast.testing.crash_values import RUN_ID, TENANT, ScenarioState

TABLES: Final = {
    RUN.name: "tenant",
    EFFECT.name: "visit, key",
    WAIT.name: "visit, key",
    APPROVAL.name: "asked_at, id",
    MESSAGE.name: "n",
    EVENT.name: "seq",
    SLOT.name: "i",
    STATE_CHUNK.name: "hash",
    RESULT.name: "ordinal",
    TOKEN.name: "key",
}


@dataclass
class RunSnapshot:
    """The rows of a run as dictionaries. `run` is empty before the start."""

    run: dict[str, Any]
    effects: Rows
    waits: Rows
    approvals: Rows
    messages: Rows
    events: list[Event]
    slots: Rows
    signals: set[str]  # ids of signals already sent
    values: Rows  # chunks of its states
    results: Rows

    @property
    def over(self) -> bool:
        """True if the run has ended."""
        return bool(self.run) and self.run["status"] in TERMINAL

    @property
    def waiting(self) -> Rows:
        """Return the items that the run waits for."""
        return list(json.loads(self.run["waiting_for"] or "[]"))

    @property
    def attention(self) -> Rows:
        """Return the reasons why the run requires attention."""
        return list(json.loads(self.run["attention"] or "[]"))

    @property
    def state(self) -> Any:
        """Return the state of the newest snapshot."""
        kept = [e.snapshot for e in self.events if e.snapshot]
        if not kept:
            return {}
        values = {v["hash"]: unpack(v["packed"], v["body"], v["hash"]) for v in self.values}
        return json.loads(decode(kept[-1], values).state)

    @property
    def nodes(self) -> list[str]:
        """Return the nodes in the order of their completion. A crash must not change it."""
        done = [e.data() for e in self.events if e.type == EventType.CHECKPOINT]
        return [str(data.get("completed", data["node"])) for data in done]

    def end(self) -> dict[str, Any]:
        """Return the values that must equal those of the run without a crash."""
        last = self.events[-1].data() if self.events else {}
        return {
            "run": {
                k: self.run[k] for k in ("status", "node", "visit", "status_label", "visits", "attention", "owner")
            },
            "outcome": last.get("outcome"),
            "reason": last.get("reason"),
            "nodes": self.nodes,
            "effects": {f"{e['visit']}/{e['key']}": e["status"] for e in self.effects},
            "approvals": [(a["wait"], a["status"], a["chosen"], a["consumed_by"]) for a in self.approvals],
            "waits": {f"{w['visit']}/{w['key']}": w["status"] for w in self.waits},
            "results": [(r["ordinal"], r["key"], r["kind"], bytes(r["data"])) for r in self.results],
            "counted": [d["results"] for e in self.events if "results" in (d := e.data())],
        }

    def wrong(self) -> list[str]:
        """Return violated invariants of an ended run: gaps in numbers, a broken hash chain, rows left open."""
        found = []
        if [e.seq for e in self.events] != list(range(1, self.run["seq"] + 1)):
            found.append("event numbers have a gap")
        if {e.run_version for e in self.events} != set(range(1, self.run["version"] + 1)):
            found.append("versions have a gap")
        epochs = [e.epoch for e in self.events]
        if epochs != sorted(epochs) or epochs[-1] != self.run["epoch"]:
            found.append("an epoch went backwards")
        head = ""
        for event in self.events:
            head = hashlib.sha256(head.encode() + event.body).hexdigest()
            if head != event.hash:
                found.append(f"the chain breaks at event {event.seq}")
        if head != self.run["event_hash"]:
            found.append("the run's head is not its last event's hash")
        ordinals = [e["ordinal"] for e in self.effects]
        if len(set(ordinals)) != len(ordinals):
            found.append("two effects share an ordinal")
        if [r["ordinal"] for r in self.results] != list(range(1, len(self.results) + 1)):
            found.append("the numbers of results have a gap")
        found += [f"{e['key']} is left {e['status']}" for e in self.effects if not e["settled_at"]]
        found += [f"slot {s['i']} is held by {s['holder']}" for s in self.slots if s["holder"]]
        return found


def read_run(db: Path) -> RunSnapshot:
    """Read the rows from the file."""
    return snapshot_of(read_tables(db, TABLES))


def snapshot_of(found: dict[str, Rows] | None) -> RunSnapshot:
    """Return the snapshot of the rows by table, each in the order of TABLES. None: there is no store yet."""
    if found is None:
        return RunSnapshot({}, [], [], [], [], [], [], set(), [], [])
    runs = found[RUN.name]
    assert len(runs) < 2
    left = {t["key"].removeprefix("signal/") for t in found[TOKEN.name] if (t["tenant"], t["run"]) == (TENANT, RUN_ID)}
    return RunSnapshot(
        run=runs[0] if runs else {},
        effects=found[EFFECT.name],
        waits=found[WAIT.name],
        approvals=found[APPROVAL.name],
        messages=found[MESSAGE.name],
        events=[Event._make(row[name] for name in EVENT.columns) for row in found[EVENT.name]],
        slots=found[SLOT.name],
        signals=left,
        values=found[STATE_CHUNK.name],
        results=found[RESULT.name],
    )


class ScenarioStore(Protocol):
    """Store in which the processes of a scenario keep their rows."""

    def request(self, state: ScenarioState) -> dict[str, Any]:
        """Return what a process must be told to open the store of this state."""

    def read(self, state: ScenarioState) -> RunSnapshot:
        """Read the rows of the run."""

    def copy(self, state: ScenarioState, to: Path) -> ScenarioState:
        """Copy the scenario, store included, into another folder."""

    def discard(self, folder: Path) -> None:
        """Delete every scenario in a folder, and the folder."""


class ScenarioFile(ScenarioStore):
    """A SQLite file in the folder of the scenario."""

    @override
    def request(self, state: ScenarioState) -> dict[str, Any]:
        return {"db": str(state.db)}

    @override
    def read(self, state: ScenarioState) -> RunSnapshot:
        return read_run(state.db)

    @override
    def copy(self, state: ScenarioState, to: Path) -> ScenarioState:
        return state.copy(to)

    @override
    def discard(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

"""The store of a scenario between two processes, and the rows of its tree of runs, read without a store."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from typing_extensions import override

from outlast.core.children import runs_of
from outlast.core.compensation import can_undo
from outlast.core.events import EventType
from outlast.core.machine import TERMINAL, EffectStatus, RunStatus
from outlast.core.maps import CANCELLED, COMPLETED, FAILED, NOT_STARTED
from outlast.core.rows.effect_columns import CHILD
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, WAIT, Effect
from outlast.core.rows.limit_rows import SLOT
from outlast.core.rows.map_rows import MAP_OUTCOME, MAP_PROGRESS
from outlast.core.rows.run_columns import DESCENT
from outlast.core.rows.run_rows import EVENT, FLOOR, MESSAGE, RESULT, RUN, STATE_CHUNK, TOKEN, Event, Floor
from outlast.core.state.snapshot_codec import decode, unpack
from outlast.store.sqlite.database import Rows, read_tables
from outlast.testing.crash_values import ScenarioState

LETTERS: Final = {RunStatus.COMPLETED: COMPLETED, RunStatus.FAILED: FAILED, RunStatus.CANCELLED: CANCELLED}
TABLES: Final = {
    RUN.name: "created_at, run",
    EFFECT.name: "visit, key",
    WAIT.name: "visit, key",
    APPROVAL.name: "asked_at, id",
    MESSAGE.name: "n",
    EVENT.name: "seq",
    SLOT.name: "i",
    STATE_CHUNK.name: "hash",
    RESULT.name: "ordinal",
    TOKEN.name: "key",
    MAP_PROGRESS.name: "visit, key",
    MAP_OUTCOME.name: "visit, key, place",
    FLOOR.name: "run",
}


@dataclass
class RunSnapshot:
    """The rows of a run as dictionaries, and of the runs below it. `run` is empty before the start."""

    path: str
    """The keys of the children from the first run to this one, as in "ada/hotel"; '' for the first run."""
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
    maps: Rows  # progress of its maps
    counted: Rows  # outcomes of children of its maps whose rows are not in its ledger any more
    children: "list[RunSnapshot]"
    floor: Floor | None = None  # of a history that is a window

    @property
    def tree(self) -> "Iterator[RunSnapshot]":
        """Yield this run and every run below it."""
        yield self
        for child in self.children:
            yield from child.tree

    def of(self, run: str) -> "RunSnapshot":
        """Return a run of the tree."""
        return next(each for each in self.tree if each.run["run"] == run)

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
        """Return the values that must equal those of the run without a crash, of each run of the tree.

        Of a child that was cancelled, this is its status alone: a crash delays a child, so that the cancel overtakes
        other calls. `wrong` checks that those that it has made are undone.
        """
        below = {f"{each.path} {part}": value for each in self.tree if each.path for part, value in each._end().items()}
        return {**self._end(), **below}

    @property
    def overtaken(self) -> bool:
        """True for a child that was cancelled."""
        return bool(self.path) and self.run["status"] == RunStatus.CANCELLED

    def _end(self) -> dict[str, Any]:
        if self.overtaken:
            return {"status": self.run["status"]}
        last = self.events[-1].data() if self.events else {}
        if self.floor is not None:
            return self._end_of_window(last, self.floor)
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
            "maps": {f"{m['visit']}/{m['key']}": [m["states"].lower(), m["decided"]] for m in self.maps},
        }

    def _end_of_window(self, last: dict[str, Any], floor: Floor) -> dict[str, Any]:
        """Return the values of a run whose history is a window. A crash delays its purge, so its rows may differ."""
        done = Counter(floor.purged.done)
        done.update(e["activity"] for e in self.effects if e["status"] == EffectStatus.DONE)
        return {
            "run": {
                k: self.run[k] for k in ("status", "node", "visit", "status_label", "visits", "attention", "owner")
            },
            "outcome": last.get("outcome"),
            "reason": last.get("reason"),
            "calls": dict(done),
            "once": {e["key"]: e["status"] for e in self.effects if not e["visit"]},
        }

    def wrong(self) -> list[str]:
        """Return violated invariants of an ended tree: gaps in numbers, a broken hash chain, rows left open.

        In a tree, each child has one row of its parent with its outcome, and ends before its parent.
        """
        return [f"{each.path}: {text}" if each.path else text for each in self.tree for text in each._wrong()]

    def _wrong(self) -> list[str]:
        found = self._wrong_children()
        events, begins, head, versions = self.events, 1, "", set(range(1, self.run["version"] + 1))
        if self.floor is not None:
            events = [e for e in events if e.seq >= self.floor.seq]
            begins, head = self.floor.seq, self.floor.event_hash
            versions = {version for version in versions if events and version >= events[0].run_version}
            if not self.events or self.events[0].seq != 1:
                found.append("the first event is missing")
        if [e.seq for e in events] != list(range(begins, self.run["seq"] + 1)):
            found.append("event numbers have a gap")
        if {e.run_version for e in events} != versions:
            found.append("versions have a gap")
        epochs = [e.epoch for e in self.events]
        if epochs != sorted(epochs) or epochs[-1] != self.run["epoch"]:
            found.append("an epoch went backwards")
        for event in events:
            head = hashlib.sha256(head.encode() + event.body).hexdigest()
            if head != event.hash:
                found.append(f"the chain breaks at event {event.seq}")
        if head != self.run["event_hash"]:
            found.append("the run's head is not its last event's hash")
        ordinals = [e["ordinal"] for e in self.effects]
        if len(set(ordinals)) != len(ordinals):
            found.append("two effects share an ordinal")
        if self.floor is None and [r["ordinal"] for r in self.results] != list(range(1, len(self.results) + 1)):
            found.append("the numbers of results have a gap")
        found += [f"{e['key']} is left {e['status']}" for e in self.effects if not e["settled_at"]]
        found += [f"slot {s['i']} is held by {s['holder']}" for s in self.slots if s["holder"]]
        return found

    def _wrong_children(self) -> list[str]:
        stored = [Effect._make(e[name] for name in EFFECT.columns) for e in self.effects]
        calls = [call._replace(status=EffectStatus(call.status)) for call in stored]
        rows = [call for call in calls if call.child_text]
        runs = {child.run["run"]: child for child in self.children}
        named = Counter(run for row in rows for run in runs_of(row))
        kept = {row.external_id for row in rows}
        named.update(o["child"] for o in self.counted if o["child"] and o["child"] not in kept)
        found = [f"{runs[run].path} has no row in the ledger of its parent" for run in runs.keys() - named.keys()]
        found += [f"the ledger names the child {run}, which does not exist" for run in named.keys() - runs.keys()]
        for row in rows:
            if row.external_id not in runs:
                continue
            child = runs[row.external_id]
            done = row.status in (EffectStatus.DONE, EffectStatus.UNDONE)
            if done != (child.run["status"] == RunStatus.COMPLETED):
                found.append(f"{child.path} is {child.run['status']}, and its row says {row.status.value}")
            if child.run["ended_at"] > self.run["ended_at"] and CHILD.decode(row.child_text).close != "abandon":
                found.append(f"{child.path} ended after its parent")
        left = [call.key for call in calls if self.overtaken and call.status is EffectStatus.DONE and can_undo(call)]
        found += [f"{key} is done, and not undone after the cancel" for key in left]
        return found + self._wrong_maps(runs)

    def _wrong_maps(self, runs: "Mapping[str, RunSnapshot]") -> list[str]:
        """Return violated invariants of maps: each child that was counted has ended, with the outcome in its letter."""
        found: list[str] = []
        counted = Counter((o["visit"], o["key"], o["child"]) for o in self.counted if o["child"])
        found += [f"the child {key[2]} was counted {n} times" for key, n in counted.items() if n > 1]
        states = {(m["visit"], m["key"]): m["states"] for m in self.maps}
        for outcome in self.counted:
            letter = states[outcome["visit"], outcome["key"]][outcome["place"]].lower()
            child = runs.get(outcome["child"])
            if outcome["child"] and (child is None or LETTERS.get(child.run["status"]) != letter):
                status = "does not exist" if child is None else f"is {child.run['status']}"
                found.append(f"the child {outcome['child']} {status}, and the map {outcome['key']} counts {letter}")
        for (visit, key), letters in states.items():
            ended = sum(letter != NOT_STARTED for letter in letters)
            if ended != (n := sum((o["visit"], o["key"]) == (visit, key) for o in self.counted)):
                found.append(f"the map {key} counts {ended} children, and has the outcomes of {n}")
        return found


def read_run(db: Path) -> RunSnapshot:
    """Read the rows from the file."""
    return snapshot_of(read_tables(db, TABLES))


def snapshot_of(found: dict[str, Rows] | None) -> RunSnapshot:
    """Return the snapshot of the rows by table, each in the order of TABLES. None: there is no store yet."""
    if found is None or not found[RUN.name]:
        slots = found[SLOT.name] if found else []
        return RunSnapshot("", {}, [], [], [], [], [], slots, set(), [], [], [], [], [])
    below: dict[str, Rows] = {}
    for run in found[RUN.name]:
        below.setdefault(DESCENT.decode(run["descent"]).parent, []).append(run)
    ((first,), lost) = below[""], {parent for parent in below if parent} - {run["run"] for run in found[RUN.name]}
    assert not lost, f"runs whose parent does not exist: {lost}"
    return _snapshot(first, "", found, below)


def _snapshot(run: dict[str, Any], path: str, found: Mapping[str, Rows], below: Mapping[str, Rows]) -> RunSnapshot:
    """Return a run of the tree; its children in the order of their start."""

    def of(table: str) -> Rows:
        return [row for row in found[table] if row["run"] == run["run"]]

    shared = [row for row in found[EFFECT.name] if row["by_run"] == run["run"] and row["run"] != run["run"]]

    keys, children = Counter[str](), []
    for child in below.get(run["run"], ()):
        key = DESCENT.decode(child["descent"]).called_as.partition(":")[2]
        keys[key] += 1
        name = f"{key}#{keys[key]}" if keys[key] > 1 else key
        children.append(_snapshot(child, f"{path}/{name}" if path else name, found, below))
    return RunSnapshot(
        path=path,
        run=run,
        effects=of(EFFECT.name) + shared,
        waits=of(WAIT.name),
        approvals=of(APPROVAL.name),
        messages=of(MESSAGE.name),
        events=[Event._make(row[name] for name in EVENT.columns) for row in of(EVENT.name)],
        slots=[] if path else found[SLOT.name],
        signals={token["key"].removeprefix("signal/") for token in of(TOKEN.name)},
        values=of(STATE_CHUNK.name),
        results=of(RESULT.name),
        maps=of(MAP_PROGRESS.name),
        counted=of(MAP_OUTCOME.name),
        children=children,
        floor=next((Floor._make(row[name] for name in FLOOR.columns) for row in of(FLOOR.name)), None),
    )


class ScenarioStore(Protocol):
    """Store in which the processes of a scenario keep their rows."""

    def request(self, state: ScenarioState) -> dict[str, Any]:
        """Return what a process must be told to open the store of this state."""

    def read(self, state: ScenarioState) -> RunSnapshot:
        """Read the rows of the runs."""

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

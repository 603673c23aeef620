"""The check of a round: no acknowledged change is lost, no effect is executed twice, and nothing is left open."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from bench.figures import percentile
from outlast.core.events import TAKEN, EventType
from outlast.core.machine import ApprovalStatus, EffectStatus, LeaseStatus
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, Approval, Effect
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_rows import EVENT, RUN, TOKEN, Event, Run, is_over
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.runtime.stores import open_store
from outlast.store.port import Store

TENANT = "default"
PLACES = {"repeated": "repeat", "reconciled": "reconcile", "asked": "ask", "slowly": "slow"}
CLAIMS = {each.value for each in TAKEN}
LOST = {EventType.TAKEN_OVER.value, EventType.REQUEUED.value}  # the owner before has died


class Verdict(NamedTuple):
    """Figures, and a sentence for each violation."""

    figures: dict[str, Any]
    wrong: list[str]


class Rows(NamedTuple):
    """Every row of the store."""

    runs: dict[str, Run]
    effects: list[Effect]
    events: dict[str, list[Event]]
    approvals: dict[str, Approval]
    tokens: set[str]  # run/key
    slots: list[Slot]
    workers: list[Worker]


async def _all(store: Store, kind: Any, prefix: tuple[str, ...]) -> list[Any]:
    found: list[Any] = []
    after: Any = ()
    while page := await store.rows(kind, prefix, after=after):
        found += page
        after = tuple(page[-1])[: kind.key]
    return found


async def rows_of(url: str) -> Rows:
    """Read every row of the tenant."""
    store = await open_store(url)
    try:
        events: dict[str, list[Event]] = {}
        for event in await _all(store, EVENT, (TENANT,)):
            events.setdefault(event.run, []).append(event)
        return Rows(
            {run.run: run for run in await _all(store, RUN, (TENANT,))},
            await _all(store, EFFECT, (TENANT,)),
            events,
            {row.id: row for row in await _all(store, APPROVAL, (TENANT,))},
            {f"{row.run}/{row.key}" for row in await _all(store, TOKEN, (TENANT,))},
            await _all(store, SLOT, (TENANT,)),
            await _all(store, WORKER, (STORE,)),
        )
    finally:
        await store.close()


def lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def judge(url: str, folder: Path, kills: dict[int, int]) -> Verdict:
    """Check a round after its workers have drained."""
    rows = asyncio.run(rows_of(url))
    history, world = lines(folder / "history"), lines(folder / "world")
    wrong: list[str] = []
    figures: dict[str, Any] = {
        "runs": len(rows.runs),
        "runs_by_status": dict(Counter(run.status.value for run in rows.runs.values())),
        "events": sum(map(len, rows.events.values())),
        "effects": len(rows.effects),
        "client": {
            op: dict(Counter(h["heard"] for h in history if h["op"] == op)) for op in {h["op"] for h in history}
        },
    }
    fsck(url, figures, wrong)
    _acknowledged(rows, history, figures, wrong)
    _world(rows, history, world, figures, wrong)
    _left(rows, figures, wrong)
    figures["takeover"] = takeovers(rows, kills)
    return Verdict(figures, wrong)


def fsck(url: str, figures: dict[str, Any], wrong: list[str]) -> None:
    """Check every invariant of the store."""
    command = [sys.executable, "-m", "outlast", "--store", url, "fsck", "--chain", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    if not done.stdout:
        wrong.append(f"fsck said nothing: {done.stderr[-500:]}")
        return
    looked = json.loads(done.stdout)
    figures["fsck"] = {"violations": len(looked["violations"]), "ms": looked["ms"]}
    wrong += [f"fsck: {v['check']} {v['kind']} {v['key']}: {v['what']}" for v in looked["violations"][:20]]


def _acknowledged(rows: Rows, history: list[dict[str, Any]], figures: dict[str, Any], wrong: list[str]) -> None:
    """Check that every `ok` is in the store and no `no` is."""
    lost: list[str] = []
    ghosts: list[str] = []
    for h in history:
        op, run, ok, no = h["op"], h["run"], h["heard"] == "ok", h["heard"] == "no"
        if op == "start":
            there = run in rows.runs
        elif op == "signal":
            there = f"{run}/signal/{h['id']}" in rows.tokens
            no = False  # sent twice with one id
        elif op in ("approve", "reject"):
            row = rows.approvals.get(h["id"])
            there = row is not None and (
                row.decided_by == "lead"
                and (
                    row.consumed_by != ""
                    or row.status.value.startswith(op[:6])
                    or row.status is ApprovalStatus.WITHDRAWN
                )
            )
            no = False  # polled until it is decided
        elif op == "cancel":
            end = rows.runs.get(run)
            there = end is not None and is_over(end)
            no = False  # a cancel takes several commits
        else:
            continue
        if ok and not there:
            lost.append(f"{op} of {run} was acknowledged and is not in the store")
        if no and there:
            ghosts.append(f"{op} of {run} was refused, and is in the store")
    figures["acknowledged_lost"], figures["refused_yet_there"] = len(lost), len(ghosts)
    wrong += lost[:10] + ghosts[:10]


def _world(
    rows: Rows, history: list[dict[str, Any]], world: list[dict[str, Any]], figures: dict[str, Any], wrong: list[str]
) -> None:
    """Check that no effect was executed twice without a person's decision, and that every done effect was executed."""
    did = Counter(line["path"] for line in world if line["what"] == "did")
    told = Counter(h["path"] for h in history if h["op"] == "did_not_happen" and h["heard"] in ("ok", "unknown"))
    twice = [
        f"{path} was executed {n} times, {told[path]} times on a person's word"
        for path, n in did.items()
        if n > 1 + told[path]
    ]
    never: list[str] = []
    for effect in rows.effects:
        n = json.loads(effect.args)["n"]
        path = f"/{PLACES.get(effect.activity, effect.activity)}/{n}"
        if effect.status in (EffectStatus.DONE, EffectStatus.UNDONE) and not did[path] and effect.settled_by != "lead":
            never.append(f"{effect.run} {effect.key} is {effect.status.value}, and the world never did {path}")
    figures["requests"] = sum(line["what"] == "asked" for line in world)
    figures["executed"] = sum(did.values())
    figures["executed_twice"] = len(twice)
    figures["decided_by_a_person"] = dict(
        Counter(h["op"] for h in history if h["op"] in ("happened", "did_not_happen") and h["heard"] == "ok")
    )
    wrong += twice[:10] + never[:10]


def _left(rows: Rows, figures: dict[str, Any], wrong: list[str]) -> None:
    """Check that every run has ended or waits for a person, and that no worker holds any."""
    waiting = [run for run in rows.runs.values() if not is_over(run)]
    for_people = [run for run in waiting if run.attention]
    figures["waiting_for_a_person"] = dict(Counter(a.reason.value for run in for_people for a in run.attention))
    stuck = [run for run in waiting if not run.attention]
    figures["stuck"] = len(stuck)
    wrong += [
        f"{run.run} is {run.status.value} in {run.node} of {run.owner or 'no worker'}, waits for {run.waiting_for}"
        for run in stuck[:10]
    ]
    wrong += [f"{run.run} is owned by {run.owner}" for run in waiting if run.owner][:10]
    wrong += [f"slot {s.i} is held by {s.holder}" for s in rows.slots if s.holder and is_over(rows.runs[s.holder])][:10]
    wrong += [f"worker {w.id} left its lease open" for w in rows.workers if w.status is LeaseStatus.ALIVE][:10]
    figures["workers_ever"] = len(rows.workers)


def takeovers(rows: Rows, kills: dict[int, int]) -> dict[str, Any]:
    """Return figures of `taken_over`."""
    return spread([*taken_over(rows, kills).values()])


def taken_over(rows: Rows, kills: dict[int, int]) -> dict[str, int]:
    """Return the ms from a worker's kill to the next claim of each of its runs, by run.

    A survivor without a free place queues the run of a dead worker, and another one claims it.
    """
    took: dict[str, int] = {}
    for run, events in rows.events.items():
        killed = 0
        for event in events:
            if event.type in LOST:
                pid = int(json.loads(event.body)["data"]["from"].split("-")[1])
                killed = kills.get(pid, 0)
                killed = killed if event.at >= killed else 0  # it was replaced before the kill
            if event.type in CLAIMS and killed:
                took.setdefault(run, event.at - killed)
                killed = 0
    return took


def sharers(rows: Rows, claimed: Collection[str], killed: int) -> list[int]:
    """Return how many of these runs each worker claimed first after the kill, the most first."""
    first: dict[str, str] = {}
    for run in claimed:
        for event in rows.events[run]:
            if event.type in CLAIMS and event.at >= killed:
                first.setdefault(run, json.loads(event.body)["data"]["worker"])
    return sorted(Counter(first.values()).values(), reverse=True)


def spread(took: list[int]) -> dict[str, Any]:
    """Return the number and the percentiles of durations."""
    if not took:
        return {"runs": 0}
    p50, p99 = (int(percentile(list(map(float, took)), share)) for share in (0.5, 0.99))
    return {"runs": len(took), "p50_ms": p50, "p99_ms": p99, "max_ms": max(took)}

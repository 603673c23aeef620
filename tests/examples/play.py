"""Plays a negotiation on the real engine with the market as its own process, a person answering at once."""

import asyncio
import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from examples.negotiation import record
from examples.negotiation.inbox import inbox_app, posting
from examples.negotiation.loopback import serve
from examples.negotiation.samples import sample
from examples.negotiation.state import Negotiation
from examples.negotiation.suppliers import INBOX
from examples.negotiation.workflow import negotiation
from outlast.core.commit import Mapping
from outlast.core.durations import Liveness
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.effect_rows import Approval, Effect
from outlast.core.rows.run_rows import Run, is_over
from outlast.core.run_transition import rearmed
from outlast.models.runs import RunDetail
from outlast.runtime.in_process import InProcessRuntime, state_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from tests.examples.helpers import GIVE_UP_S, ROOT, Market, market

Answer = Literal["approve", "reject", "again", "other"]
SCENARIOS = ROOT / "examples" / "negotiation" / "scenarios"


@dataclass
class Ended:
    """Result of a negotiation: state, approvals, effects, requests, slots, duration and bids."""

    state: RunDetail
    s: Negotiation
    approvals: list[Approval]
    effects: tuple[Effect, ...]
    counts: dict[str, record.Count]
    slots: list[str]
    passed: float
    """Duration in days of business time."""
    bids: list[Any] = field(default_factory=list)


def prompt(name: str, change: Callable[[dict[str, Any]], None] = lambda suppliers: None) -> dict[str, Any]:
    """Return the suppliers of a scenario, changed by `change`, with bids that are sent without delay."""
    suppliers: dict[str, Any] = json.loads((SCENARIOS / f"{name}.json").read_text(encoding="utf-8"))["suppliers"]
    suppliers = copy.deepcopy(suppliers)
    for supplier in suppliers.values():
        supplier["bids_after"] = 0
    change(suppliers)
    return suppliers


def negotiate(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    *answers: Answer,
    scenario: dict[str, Any] | None = None,
    store: str = "memory:",
    **changes: Any,
) -> Ended:
    """Run one purchase to its end. `answers`: decisions of the approver, in order. `store`: URL of an empty one."""
    suppliers = scenario or prompt(name)
    silent = {who for who, is_ in suppliers.items() if any(r["does"] == "silent" for r in is_.get("rules", []))}
    with market(folder, suppliers) as m:
        return asyncio.run(_negotiate(Setup(m, silent, list(answers), store), monkeypatch, name, changes))


@dataclass
class Setup:
    """The market, the suppliers that never bid, and the decisions of the approver."""

    market: Market
    silent: set[str]
    answers: list[Answer]
    store: str


async def _negotiate(setup: Setup, monkeypatch: pytest.MonkeyPatch, name: str, changes: dict[str, Any]) -> Ended:
    m = setup.market
    store = await open_store(setup.store)
    runtime = InProcessRuntime(store, [negotiation], live=Liveness(attempt_timeout=10_000))
    ops = runtime.operations

    try:
        async with runtime, serve(inbox_app(posting(ops.signal))) as inbox, asyncio.timeout(GIVE_UP_S):
            monkeypatch.setenv(INBOX, inbox)
            await ops.set_slots(1)
            purchase = sample(name, market=m.url, today=datetime.now(UTC).date()) | changes
            began = (await store.now()).business
            started = await ops.start_run("negotiation", purchase)
            await until_over(ops, setup, started.run)
            state = await runtime.get(started.run)
            found, _ = await ops.rows.approvals()
            return Ended(
                state=state,
                s=Negotiation.model_validate(await state_of(ops, started.run)),
                approvals=sorted(found, key=lambda a: a.asked_at),
                effects=await ops.rows.effects(started.run),
                counts=dict(record.summary(record.read(m.record), started.run)),
                slots=[slot.holder for slot in await ops.rows.slots()],
                passed=((await store.now()).business - began) / 86_400_000,
                bids=[e for e in m.entries(started.run) if isinstance(e, record.Offered)],
            )
    finally:
        await store.close()


async def until_over(ops: Operations, setup: Setup, run_id: str) -> None:
    """Decide approvals until the run is over. If only a deadline is awaited, move the clock to it."""
    while not is_over(run := await ops.rows.run(run_id)):
        pending, _ = await ops.rows.approvals(status=ApprovalStatus.PENDING.value)
        if pending:
            assert setup.answers, pending[0].summary
            await decide(ops, pending[0], setup.answers.pop(0))
        elif run.attention:
            return
        elif not run.owner and (until := silence(run, setup.market.entries(run_id), setup.silent)):
            now = await ops.store.now()
            await ops.store.set_mapping(Mapping(0, now.real, max(until, now.business) + 1, 1.0), rearmed)
        await asyncio.sleep(0.01)


def silence(run: Run, entries: Sequence[Any], silent: set[str]) -> int:
    """Return the end of a parked run's wait if all expected bids have been delivered, else 0."""
    until = min((w.until for w in run.waiting_for if w.kind != "approval" and w.until), default=0)
    acted = {e.n for e in entries if isinstance(e, record.Executed)}
    asked = [e for e in entries if isinstance(e, record.Arrived) and e.kind in record.APPROACHES and e.n in acted]
    delivered = {e.bid_id for e in entries if isinstance(e, record.Offered) and e.status == 202}
    return until if len(delivered) == sum(1 for e in asked if e.supplier not in silent) else 0


async def decide(ops: Operations, approval: Approval, answer: Answer) -> None:
    match answer:
        case "approve":
            await ops.approve(approval.id, reason="under budget")
        case "other":
            await ops.approve(approval.id, reason="we know them", alternative=1)
        case "again":
            await ops.reject(approval.id, reason="ask once more", again=True)
        case "reject":
            await ops.reject(approval.id, reason="buy less")

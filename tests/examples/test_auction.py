"""The seven nodes on the real engine, from purchase to award, with the market as its own process."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.negotiation import record
from examples.negotiation.inbox import inbox_app, posting
from examples.negotiation.loopback import serve
from examples.negotiation.samples import sample
from examples.negotiation.state import Negotiation
from examples.negotiation.summary import description
from examples.negotiation.suppliers import INBOX
from examples.negotiation.workflow import negotiation
from outlast.core.durations import Liveness
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.run_rows import is_over
from outlast.models.runs import RunDetail
from outlast.runtime.in_process import InProcessRuntime, state_of
from outlast.runtime.stores import open_store
from tests.examples.helpers import GIVE_UP_S, Market, market

NODES = ["ingest", "classify", "route", "auction", "evaluate", "approve", "award"]


async def auction(
    m: Market, store_url: str, monkeypatch: pytest.MonkeyPatch, *, reject: str = ""
) -> tuple[RunDetail, Negotiation]:
    """Run one leverage purchase and decide its approval as soon as it is requested."""
    store = await open_store(store_url)
    runtime = InProcessRuntime(store, [negotiation], live=Liveness(attempt_timeout=10_000))
    ops = runtime.operations

    try:
        async with runtime, serve(inbox_app(posting(ops.signal))) as inbox, asyncio.timeout(GIVE_UP_S):
            monkeypatch.setenv(INBOX, inbox)
            await ops.set_slots(1)
            handle = await runtime.start(
                workflow_name="negotiation",
                input=sample("leverage", market=m.url, today=datetime.now(UTC).date()),
                idempotency_key="RFQ-2041",
                correlation_id="c-1",
            )
            while not (pending := (await ops.rows.approvals(status=ApprovalStatus.PENDING.value))[0]):
                run = await ops.rows.run(handle.id)
                assert not run.attention and not is_over(run), await runtime.get(run.run)
                await asyncio.sleep(0.02)
            assert [slot.holder for slot in await ops.rows.slots()] == [handle.id]
            if reject:
                await ops.reject(pending[0].id, reason=reject)
            else:
                await ops.approve(pending[0].id, reason="under budget")
            state = await runtime.finished(handle.id)
            assert [slot.holder for slot in await ops.rows.slots()] == [""]
            assert len({e.key for e in await ops.rows.effects(handle.id)}) == len(await ops.rows.effects(handle.id))
            return state, Negotiation.model_validate(await state_of(ops, handle.id))
    finally:
        await store.close()


@pytest.mark.req("RUN-1", "RUN-2", "RUN-6", "GATE-1", "RT-1", "RT-2", "EFF-1")
def test_a_purchase_is_auctioned_approved_and_awarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with market(tmp_path, "calm") as m:
        state, s = asyncio.run(auction(m, f"sqlite:{tmp_path / 'outlast.db'}", monkeypatch))
        counts = record.summary(record.read(m.record), state.run)
    assert state.shown == "AWARDED"
    assert (s.quadrant, s.rounds_held, s.cycle) == ("LEVERAGE", 5, 1)
    assert s.suppliers == ["acme", "baltica", "cordoba", "dunlin", "elmtree"]
    assert [d.supplier_id for d in s.discarded] == ["farrow"]
    assert s.declined == {"dunlin": "our order book is full until summer"}
    assert len(s.bids) == 4 * 5
    assert state.outcome["supplier_id"] == "acme"
    assert state.outcome["order_id"].startswith("PO-acme-")
    assert state.outcome["approved_by"] == "local"
    assert f"ordered: {s.order_id} (approved by local)" in description(s)
    assert {kind: count.sent for kind, count in counts.items()} == {
        "invitations": 5 + 4 * 4,
        "quotes": 0,
        "inquiries": 0,
        "proposals": 0,
        "feedback": 4 * 5,
        "orders": 1,
        "messages": 4,
        "cancellations": 0,
    }
    assert {count.repeated for count in counts.values()} == {0}


@pytest.mark.req("GATE-1", "RUN-2", "RUN-6")
def test_a_rejected_award_ends_cancelled_with_the_reason_and_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with market(tmp_path, "calm") as m:
        state, _ = asyncio.run(auction(m, "memory:", monkeypatch, reject="buy less"))
        counts = record.summary(record.read(m.record), state.run)
    assert state.shown == "CANCELLED"
    assert state.reason == "rejected by local: buy less"
    assert state.outcome is None
    assert counts["orders"].arrived == counts["messages"].arrived == 0

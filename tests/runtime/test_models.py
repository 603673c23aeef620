"""Models of rows have the text that services have sent since before they were made of rows directly."""

from pathlib import Path

from pydantic import BaseModel

from outlast.core.approvals import Actor
from outlast.core.commit import Instant
from outlast.core.machine import (
    ApprovalStatus,
    DeliveryStatus,
    EffectStatus,
    LeaseStatus,
    Reason,
    RunStatus,
    SubscriptionStatus,
)
from outlast.core.rows.effect_rows import Approval, Effect, Evidence
from outlast.core.rows.limit_rows import Pause
from outlast.core.rows.outbox_rows import Delivery, Subscription
from outlast.core.rows.run_columns import ATTENTION, WAITING_FOR, Attention, WaitingFor
from outlast.core.rows.run_rows import Result, Run
from outlast.core.rows.store_rows import Worker
from outlast.insight.approval_reads import approval_summary
from outlast.insight.attention_reads import attention_item, breaker_item
from outlast.insight.row_models import (
    active_pause,
    caller_info,
    effect_record,
    result_row,
    run_summary,
    worker_status,
)
from outlast.insight.tenant_rows import EffectEvidence
from outlast.runtime.webhooks import webhook_delivery, webhook_summary

SAMPLES = Path(__file__).with_name("models.jsonl")
NOW = Instant(10_000, 10_000, 0)
ENTRY = Attention(Reason.EFFECT_UNCERTAIN, 3_000, "it broke", "pay/7", 2)
RUN = Run(
    tenant="t", run="r1", version=3, epoch=1, owner="", inbox_seq=0, due_at=None, lane="claim@1", queue="",
    status=RunStatus.WAITING, workflow="claim", node="pay", status_label="", visit=2, entered_at=5_000, seq=3,
    event_hash="", attention_text=ATTENTION.encode([ENTRY]),
    waiting_for_text=WAITING_FOR.encode([WaitingFor("approval", "ap_1 «Pay» now", "lead", 2_000, 9_000, "goes on")]),
    timers_text="", visits_text="", crash_count=0, slots_text="", ceiling_at=0, created_at=1_000, ended_at=0,
    requested_by="local:ana", correlation_id="c", trace_id="",
)  # fmt: skip
EFFECT = Effect(
    tenant="t", run="r1", visit=2, key="pay/7", version=2, status=EffectStatus.UNCERTAIN, activity="pay", digest="d",
    node="pay", args=b'{"cents": 5}', response=b'"ok"', error_text='{"code":"timeout","detail":"late"}',
    external_id="", attempts=2, waited_ms=0, ordinal=1, epoch=1, first_at=2_000, not_after=3_000, settle_after=12_000,
    covered_until=0, approval="ap_1", allowed_by="", undo="", settled_at=0, settled_by="",
)  # fmt: skip
EVIDENCE = Evidence("t", "r1", 2, "pay/7", 4, r'{"status":"done","response":"{\"paid\":5}"}', 4_000)
PLANS = (
    r'[{"activity":"pay","key":"pay/7","digest":"d","arguments":"{\"cents\":5}"},'
    r'{"activity":"pay","key":"pay/7","digest":"e","arguments":"{\"cents\":4}","of":0,"changed_by":"bo",'
    r'"changed_at":2500,"changes":{"cents":4}}]'
)
APPROVAL = Approval(
    tenant="t", run="r1", id="ap_1", version=2, status=ApprovalStatus.APPROVED, visit=2, wait="w", plans_text=PLANS,
    summary="Pay", risk="high", who="lead", requested_by="local:ana", asked_at=2_000, within_until=9_000,
    valid_ms=60_000, decided_at=3_000, decided_by="bo", claims_text='["lead"]', reason="fine", chosen="e",
    valid_until=63_000, consumed_by="", again=1, not_requester=1, editable_text='["cents"]', claimed_by="bo",
)  # fmt: skip
HEALTH = '{"of":4,"pid":7,"host":"h","version":"1","loop_late_ms":1,"loop_ticked_ms":2}'
WORKER = Worker("*", "w-1", 2, LeaseStatus.ALIVE, 12_000, "claim@1", "desk", 1_000, 9_000, HEALTH)
PAUSE = Pause("t", "provider/erp", 1, 1, "engine", "away", 2_000, "breaker", 11_000, 1)
WEBHOOK = Subscription(
    tenant="t", subscription="wh_1", version=1, status=SubscriptionStatus.ACTIVE,
    url="https://example.com/h?token=abc", name="n", types_text='["dev.outlast.run.*"]', workflows_text='["claim"]',
    secret_text='key\n{"x-kind":"a"}', former="", former_until=0, since=1_000, swept="", why="", created_at=1_000,
    created_by="ana", changed_at=2_000, changed_by="bo",
)  # fmt: skip
DELIVERY = Delivery(
    tenant="t", run="r1", subscription="wh_1", seq=2, version=1, status=DeliveryStatus.DEAD, event="evt",
    type="dev.outlast.workflow.started", attempts=1, first_at=2_000, last_at=3_000, due_at=11_000, code=422,
    answer="no", error="http_422", took_ms=5, by="bo",
)  # fmt: skip
ANA = Actor("ana", frozenset({"lead"}), ("lead",))


def business(at: int) -> int:
    """Convert real time to business time."""
    return at - 1_000


def models() -> list[BaseModel]:
    """Return a model of each kind of row."""
    return [
        run_summary(RUN, ["claim@1"], 2),
        effect_record(EFFECT, NOW, [EVIDENCE], held=frozenset()),
        approval_summary(APPROVAL, ANA),
        worker_status(WORKER, NOW, 1),
        active_pause(PAUSE, 3, business),
        caller_info(ANA, "t", 5_000),
        webhook_summary(WEBHOOK),
        webhook_delivery(DELIVERY, business),
        result_row(Result("t", "r1", "k", 1, 1, "lead", b'{"a":1}', 2_000)),
        breaker_item(PAUSE, 3),
        attention_item(RUN, ENTRY, EffectEvidence(EFFECT, (EVIDENCE,)), NOW),
    ]


def texts() -> list[str]:
    """Return each model as clients get it."""
    return [each.model_dump_json(by_alias=True) for each in models()]


def test_models_have_the_stored_text() -> None:
    """After a field was added, `python -m tests.runtime.test_models` writes `models.jsonl`: read the difference."""
    assert texts() == SAMPLES.read_text(encoding="utf-8").splitlines()


def test_models_are_read_back_from_their_text() -> None:
    for each in models():
        assert type(each).model_validate_json(each.model_dump_json(by_alias=True)) == each


if __name__ == "__main__":
    SAMPLES.write_text("".join(f"{each}\n" for each in texts()), encoding="utf-8")

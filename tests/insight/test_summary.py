"""The summary of a tenant, from rows that are made here."""

from outlast.core.approvals import Actor
from outlast.core.causes import flags_of
from outlast.core.commit import Instant, Mapping
from outlast.core.durations import HOUR
from outlast.core.limits import COUNT_MAX
from outlast.core.machine import Reason, SubscriptionStatus
from outlast.core.rows.limit_rows import Pause
from outlast.core.rows.outbox_rows import Subscription
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.webhooks.deliveries import GONE
from outlast.insight.summary import status_summary
from outlast.models.service import StatusSummary
from outlast.store.open_rows import FlaggedRuns, GivenUp, SummaryRows
from tests.conformance.subject import T0, approval_row

ANA = Actor("ana", frozenset({"finance"}), ("finance",))
NOTHING = SummaryRows((), (), (), 0, {}, (), (), ())


def summary(rows: SummaryRows = NOTHING, *, actor: Actor = ANA, at: int = T0) -> StatusSummary:
    return status_summary(rows, actor, Instant(at, at, 0), Mapping(0, 0, 0, 1.0))


def flagged(*entries: Attention) -> FlaggedRuns:
    flags = flags_of(ATTENTION.encode(entries))
    return FlaggedRuns(flags.causes, 1, flags.flagged_at, flags.flagged_until)


def webhook(name: str, **changes: object) -> Subscription:
    row = Subscription("acme", name, 1, SubscriptionStatus.ACTIVE, "https://example.com/?token=abc", "", "", "", "k\n",
                       "", 0, 0, "", "", T0, "ann", T0, "ann")  # fmt: skip
    return row._replace(**changes)  # type: ignore[arg-type]


def test_an_empty_tenant_has_no_count() -> None:
    found = summary()
    assert (found.attention, found.reasons, found.next_deadline, found.count_max) == (0, [], None, COUNT_MAX)
    assert found.version == summary(at=T0 + 1).version, "the time alone changes nothing"


def test_approvals_are_counted_for_the_caller() -> None:
    rows = [
        approval_row("ap-1")._replace(within_until=T0 - 1),
        approval_row("ap-2")._replace(within_until=T0 + HOUR),
        approval_row("ap-3")._replace(within_until=T0 + 100 * HOUR, who="legal"),
        approval_row("ap-4")._replace(within_until=T0 + 30 * HOUR, not_requester=1, requested_by="ana"),
    ]
    late = flagged(Attention(Reason.APPROVAL_TIMEOUT, T0 - HOUR, "late"))
    found = summary(NOTHING._replace(voted=tuple(rows), flagged=(late,)))
    assert (found.approvals_pending, found.approvals_mine) == (4, 2)
    assert (found.approvals_overdue, found.approvals_due) == (2, 1)
    program = Actor("bot", frozenset({"finance"}), ("finance",), person=False)
    assert summary(NOTHING._replace(voted=tuple(rows)), actor=program).approvals_mine == 0
    before, after = (summary(NOTHING._replace(voted=tuple(rows)), at=at).version for at in (T0, T0 + 2 * HOUR))
    assert before != after, "an approval became overdue"


def test_reasons_come_by_their_nearest_consequence() -> None:
    rows = (
        flagged(Attention(Reason.EXCEPTION, T0 - 5, "a"), Attention(Reason.EXCEPTION, T0 - 9, "b", "k")),
        flagged(Attention(Reason.EXCEPTION, T0 - 7, "c")),
        flagged(Attention(Reason.APPROVAL_TIMEOUT, T0, "late")),
        flagged(Attention(Reason.EFFECT_UNCERTAIN, T0 - 99, "lost", "pay/1")),
    )
    breaker = Pause("acme", "provider/erp", 1, 1, "outlast", "away", T0 - 50, "breaker", T0 + HOUR)
    manual = Pause("acme", "activity/pay", 1, 1, "ann", "closed", T0)
    ended = manual._replace(key="activity/old", up=0)
    found = summary(NOTHING._replace(flagged=rows, pauses=(breaker, manual, ended), uncertain=COUNT_MAX))
    assert [(each.reason, each.count) for each in found.reasons] == [
        ("approval_timeout", 1), ("effect_uncertain", 1), ("provider_away", 1), ("exception", 2),
    ]  # fmt: skip
    assert found.reasons[0].until is not None and found.reasons[1].until is None
    assert (found.attention_runs, found.attention, found.uncertain) == (4, 5, COUNT_MAX)
    assert [(each.paused, each.kind) for each in found.pauses] == [
        ("provider erp", "breaker"), ("activity pay", "operator"),
    ]  # fmt: skip
    assert found.pauses[0].again_at is not None


def test_webhooks_in_trouble_are_listed_without_their_secrets() -> None:
    gone = webhook("wh-2", status=SubscriptionStatus.DISABLED, why=GONE)
    by_hand = webhook("wh-3", status=SubscriptionStatus.DISABLED, why="moved")
    rows = NOTHING._replace(
        subscriptions=(webhook("wh-1"), gone, by_hand), dead=(GivenUp("wh-1", 2, T0 - 2, "http_500"),)
    )
    found = summary(rows)
    assert [(each.webhook, each.events, each.detail) for each in found.webhooks] == [
        ("wh-1", 2, "http_500"), ("wh-2", 0, GONE),
    ]  # fmt: skip
    assert "abc" not in found.model_dump_json()
    assert [(each.reason, each.count) for each in found.reasons] == [("webhook_dead", 2)]


def test_lanes_without_a_worker_are_named() -> None:
    (lane,) = summary(NOTHING._replace(unserved={"auction@2": 7})).unserved
    assert (lane.lane, lane.workflow, lane.version, lane.runs) == ("auction@2", "auction", 2, 7)

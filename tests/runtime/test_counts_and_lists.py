"""Counts, sections, lists and searches agree with the rows, whatever their mix and order.

A filter after a limit hides rows, and a count over such a page is false. So every page here is small.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.core.approvals import Actor
from outlast.core.commit import Commit, Put
from outlast.core.machine import ApprovalStatus, DeliveryStatus, EffectStatus, Reason, SubscriptionStatus
from outlast.core.rows.effect_rows import APPROVAL, EFFECT
from outlast.core.rows.outbox_rows import DELIVERY, SUBSCRIPTION, Delivery, Subscription
from outlast.core.rows.run_columns import ATTENTION, WAITING_FOR, Attention, WaitingFor
from outlast.core.rows.run_rows import FLAGGING, RUN
from outlast.core.run_transition import flagging
from outlast.insight import approval_reads as approvals
from outlast.insight import cause_reads, tenant_rows
from outlast.models.attention import RunAttention
from outlast.models.service import StatusSummary
from outlast.runtime.operations import Operations
from outlast.runtime.served_versions import ANSWERED_BY_MOVE
from outlast.runtime.stores import open_store
from outlast.store.memory import MemoryStore
from outlast.store.queries import PAGE_MAX
from outlast.ui.routes.board import groups_of
from tests.conformance.subject import T0, approval_row, effect_row, run_row

TENANT = "default"
ANA = Actor("ana", frozenset({"finance"}), ("finance",))
REASONS = (Reason.EXCEPTION, Reason.EFFECT_UNCERTAIN, Reason.CONTRADICTION, Reason.STRANDED_VERSION, Reason.NODE_GONE)
UNREADABLE = '[{"reason":"exception"'
"""Attention that is no JSON: lists and counts show the reasons of its causes."""


class Given:
    """Rows of a store: runs by their reasons, newest first, each with its lane and whether it waits for a timer."""

    def __init__(self, runs: list[tuple[tuple[Reason, ...], int, bool, bool]]) -> None:
        self.runs = {f"run-{n:04}": each for n, each in enumerate(runs)}

    def reasons(self, run: str) -> set[Reason]:
        """Return the reasons that a list shows of a run."""
        of_run, *_ = self.runs[run]
        return set(of_run)

    def cause(self, run: str, reason: Reason) -> str:
        """Return the cause of a reason of a run: runs of one lane have the same."""
        _, lane, *_ = self.runs[run]
        return f"{REASONS.index(reason)}{lane:011}"

    def with_reason(self, reason: Reason) -> list[str]:
        """Return the runs of a reason, newest first."""
        return sorted((run for run in self.runs if reason in self.reasons(run)), reverse=True)

    async def put(self, store: Any) -> None:
        """Write the rows. The creation of a run is its number, so its row comes later than those before it."""
        writes = []
        for n, (run, (reasons, lane, waits, spoilt)) in enumerate(self.runs.items()):
            entries = [
                Attention(reason, T0 + n, f'why "reason":"{Reason.EXCEPTION}"', "k/1", cause=self.cause(run, reason))
                for reason in reasons
            ]
            timer = WAITING_FOR.encode([WaitingFor("timer", "a rest")]) if waits else ""
            row = run_row(
                run, TENANT, created_at=T0 + n, lane=f"w@{lane}", attention_text=ATTENTION.encode(entries),
                waiting_for_text=timer, correlation_id="rare" if waits else "", version=1,
            )  # fmt: skip
            writes.append(Put(RUN, row._replace(attention_text=UNREADABLE) if spoilt else row, 0))
            if entries:
                writes.append(Put(FLAGGING, flagging(row, 1, entries), 0))
        for i in range(0, len(writes), 50):
            await store.commit(Commit(tuple(writes[i : i + 50])))


def operations(store: Any) -> Operations:
    return Operations(store, tenant=TENANT, actor=ANA, workflows={})


async def _causes_agree(rows: Given, ops: Operations, limit: int) -> None:
    """Check that causes, their counts, their bars and their lists are those of the rows."""
    wanted: dict[str, list[str]] = {}
    for run, (reasons, *_) in rows.runs.items():
        for reason in reasons:
            wanted.setdefault(rows.cause(run, reason), []).append(run)
    found = await ops.causes()
    assert {each.cause: each.runs for each in found.causes} == {cause: len(of) for cause, of in wanted.items()}
    assert not found.more
    for each in found.causes:
        listed = await all_of(lambda cursor, of=each.cause: ops.attention(cause=of, cursor=cursor, limit=limit))
        assert [item.run for item in listed] == sorted(wanted[each.cause], reverse=True)
        assert {item.cause for item in listed} == {each.cause}
        detail = await ops.cause(each.cause)
        assert (detail.runs, detail.read) == (len(listed), len(listed))
        assert sum(each_.runs for each_ in detail.versions) == len(listed)
        at = datetime.fromtimestamp(T0 / 1000, UTC)
        bars = await ops.bars(cause=each.cause, since=at, until=at + timedelta(seconds=1), bars=4)
        assert sum(bar.flagged for bar in bars.bars) == len(listed) and not bars.at_least


async def all_of(read: Callable[[str], Awaitable[Any]]) -> list[Any]:
    """Return the items of every page."""
    found: list[Any] = []
    cursor, more = "", True
    while more:
        page = await read(cursor)
        found += getattr(page, "attention", None) or getattr(page, "runs", None) or getattr(page, "approvals", [])
        cursor = page.next_cursor
        more = bool(cursor)
    return found


mixes = st.lists(
    st.tuples(
        st.lists(st.sampled_from(REASONS), max_size=2, unique=True).map(tuple),
        st.integers(1, 2),
        st.booleans(),
        st.sampled_from([False] * 9 + [True]),
    ),
    max_size=24,
)


@settings(derandomize=True, deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=mixes, limit=st.integers(1, 5))
def test_sections_counts_and_lists_agree_with_the_rows(
    runs: list[tuple[tuple[Reason, ...], int, bool, bool]], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_rows, "RUNS_PER_READ", 4)
    asyncio.run(_agree(Given(runs), limit))


async def _agree(rows: Given, limit: int) -> None:
    store = await open_store("memory:")
    await rows.put(store)
    ops = operations(store)
    summary = await ops.summary()
    flagged = [run for run in rows.runs if rows.reasons(run)]
    wanted = Counter(reason.value for run in rows.runs for reason in rows.reasons(run))
    assert {each.reason: each.count for each in summary.reasons} == wanted
    assert (summary.attention_runs, summary.at_least) == (len(flagged), [])
    groups = {each.reason: each for each in await groups_of(ops, summary)}
    assert set(groups) == set(wanted), "a section for each reason that is counted"
    await _causes_agree(rows, ops, limit)
    for reason in REASONS:
        runs = rows.with_reason(reason)
        listed = await all_of(lambda cursor, of=reason: ops.attention(reason=of, cursor=cursor, limit=limit))
        assert list(dict.fromkeys(item.run for item in listed)) == runs
        first = [i for i in (await ops.attention(reason=reason, limit=limit)).attention if isinstance(i, RunAttention)]
        assert len(first) == min(limit, len(runs)), "the first page has the first runs"
        if runs:
            assert groups[reason].items
            assert {item.reason for item in groups[reason].items} == {reason.value}
            assert groups[reason].more == (len(groups[reason].items) < len(runs))
    everything = await all_of(lambda cursor: ops.attention(cursor=cursor, limit=limit))
    assert list(dict.fromkeys(each.run for each in everything)) == sorted(flagged, reverse=True)
    to_move = Counter(f"w@{rows.runs[run][1]}" for run in flagged if rows.reasons(run) & set(ANSWERED_BY_MOVE))
    assert {each.lane: each.flagged for each in await ops.versions() if each.flagged} == to_move
    await _searches_find(ops, rows, limit)
    await store.close()


async def _searches_find(ops: Operations, rows: Given, limit: int) -> None:
    rare = sorted((run for run, (_, _, waits, _) in rows.runs.items() if waits), reverse=True)
    for search in ({"q": "rare"}, {"waiting_for": "timer"}):
        found = await all_of(lambda cursor, by=search: ops.runs(cursor=cursor, limit=limit, **by))
        assert [each.run for each in found] == rare
        assert [each.run for each in (await ops.runs(limit=limit, **search)).runs] == rare[:limit]
    for run in rows.runs:
        assert [each.run for each in (await ops.runs(q=run, limit=limit)).runs] == [run]


def test_a_reason_with_few_runs_is_not_hidden_by_one_with_many() -> None:
    """3,000 exceptions are newer than one uncertain effect: more than one read of the store brings."""

    async def go() -> StatusSummary:
        store = await open_store("memory:")
        many = [((Reason.EFFECT_UNCERTAIN,), 1, True, False)] + [((Reason.EXCEPTION,), 1, False, False)] * 3_000
        assert len(many) > PAGE_MAX
        await Given(many).put(store)
        ops = operations(store)
        assert [each.run for each in (await ops.runs(q="rare", limit=1)).runs] == ["run-0000"]
        assert [each.run for each in (await ops.attention(reason=Reason.EFFECT_UNCERTAIN, limit=1)).attention] == [
            "run-0000"
        ]
        (found,) = [each for each in await groups_of(ops, await ops.summary()) if each.reason == "effect_uncertain"]
        assert [item.run for item in found.items] == ["run-0000"]
        return await ops.summary()

    summary = asyncio.run(go())
    assert {each.reason: each.count for each in summary.reasons} == {"exception": 3_000, "effect_uncertain": 1}
    assert (summary.attention, summary.at_least) == (3_001, [])


@pytest.mark.req("OBS-5")
def test_the_count_of_ones_own_approvals_has_no_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def go() -> tuple[StatusSummary, list[Any], list[Any]]:
        monkeypatch.setattr(MemoryStore, "count_max", 10, raising=False)
        monkeypatch.setattr(approvals, "ROWS_PER_READ", 4)
        store = await open_store("memory:")
        soon = (await store.now()).business
        for n in range(30):
            mine = "finance" if n == 29 else "legal"
            row = approval_row(f"ap-{n}", f"run-{n}", TENANT)._replace(within_until=soon + 10**9 + n, who=mine)
            await store.commit(Commit((Put(APPROVAL, row, 0),)))
        ops = operations(store)
        first = (await ops.approvals(mine=True, limit=1)).approvals
        by_deadline = (await ops.approvals(mine=True, sort="deadline", limit=1)).approvals
        return await ops.summary(), first, by_deadline

    summary, first, by_deadline = asyncio.run(go())
    assert (summary.approvals_pending, summary.approvals_mine, summary.at_least) == (30, 1, [])
    assert [each.approval for each in first] == [each.approval for each in by_deadline] == ["ap-29"]


def test_causes_are_lower_bounds_if_a_store_stops_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(skew: int) -> tuple[bool, bool, bool]:
        monkeypatch.setattr(MemoryStore, "skew", skew, raising=False)
        monkeypatch.setattr(cause_reads, "FLAGGED_MAX", 2)
        store = await open_store("memory:")
        await Given([((Reason.EXCEPTION,), 1, False, False)] * 2).put(store)
        ops = operations(store)
        found = await ops.causes()
        detail = await ops.cause(found.causes[0].cause)
        return found.at_least, found.more, detail.at_least

    assert asyncio.run(go(0)) == (False,) * 3
    assert asyncio.run(go(1)) == (True,) * 3


def test_effects_of_one_run_are_paged_to_the_last_one() -> None:
    """The list of a run ended at its limit without a cursor."""

    async def go() -> list[str]:
        store = await open_store("memory:")
        await Given([((), 1, False, False)]).put(store)
        for n in range(7):
            row = effect_row("run-0000", f"k/{n}", TENANT)._replace(ordinal=n + 1, status=EffectStatus.UNCERTAIN)
            await store.commit(Commit((Put(EFFECT, row, 0),)))
        ops, found, cursor, more = operations(store), [], "", True
        while more:
            page = await ops.ledger(run="run-0000", cursor=cursor, limit=3)
            found += [each.key for each in page.effects]
            more = bool(cursor := page.next_cursor)
        return found

    assert asyncio.run(go()) == [f"k/{n}" for n in reversed(range(7))]


def test_a_webhook_is_not_hidden_by_the_failures_of_another() -> None:
    async def go() -> StatusSummary:
        store = await open_store("memory:")
        for name in ("wh-1", "wh-2"):
            row = Subscription(TENANT, name, 1, SubscriptionStatus.ACTIVE, "https://example.com/", "", "", "", "k\n",
                               "", 0, 0, "", "", T0, "ann", T0, "ann")  # fmt: skip
            await store.commit(Commit((Put(SUBSCRIPTION, row, 0),)))
        for n in range(1_100):
            of = "wh-1" if n == 0 else "wh-2"
            row = Delivery(TENANT, f"run-{n}", of, 1, 1, DeliveryStatus.DEAD, "evt", "t", 9, T0 + n, T0, 0, 500, "",
                           f"http_{n}", 1, "")  # fmt: skip
            await store.commit(Commit((Put(DELIVERY, row, 0),)))
        return await operations(store).summary()

    found = asyncio.run(go())
    assert [(each.webhook, each.events, each.detail) for each in found.webhooks] == [
        ("wh-1", 1, "http_0"), ("wh-2", 1_099, "http_1099"),
    ]  # fmt: skip
    assert ApprovalStatus.PENDING.value not in found.at_least

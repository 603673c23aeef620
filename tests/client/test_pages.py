"""Reads for pages and the answer to many runs, in this process and over HTTP."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from outlast import Client
from outlast.core.machine import Choice, Reason
from outlast.errors import Conflict, InvalidInput, NotFound
from outlast.models.attention import AnswerFor
from outlast.models.runs import RunSummary
from tests.client import flows
from tests.client.conftest import Place


async def _seen(client: Client, run: str, kind: str) -> RunSummary:
    """Return the run once it waits for something of this kind."""

    async def read() -> RunSummary | None:
        found = await client.run_summary(run)
        kinds = {wait.kind for wait in found.waiting_for} | {entry.reason for entry in found.attention}
        return found if kind in kinds else None

    found = await client.until(read, within_s=20)
    assert found is not None, f"{run} does not wait for {kind}"
    return found


async def _asked(client: Client) -> tuple[str, str]:
    """Start an order up to its approval and return the run and the approval."""
    run = await client.start(flows.orders, flows.Order(supplier=f"acme-{uuid4().hex}"))
    await _seen(client, run.id, "signal")
    await client.signal(run.id, "offer", {"cents": 5})
    await _seen(client, run.id, "approval")
    (approval,) = (await client.approvals(run=run.id)).approvals
    return run.id, approval.approval


def test_the_summary_counts_what_needs_a_person(place: Place) -> None:
    async def test(client: Client) -> None:
        before = await client.summary()
        run, approval = await _asked(client)
        after = await client.summary()
        assert after.version != before.version
        assert after.approvals_pending == before.approvals_pending + 1
        assert after.approvals_mine == before.approvals_mine + 1
        assert (after.approvals_overdue, after.approvals_due) == (0, 0)  # it is due in four days
        assert after.next_deadline is not None and after.next_deadline - after.now > timedelta(days=3)
        assert (await client.summary()).version == after.version
        await client.reject(approval, reason="too dear")
        assert await client.ended(run, within_s=20)
        assert (await client.summary()).approvals_pending == before.approvals_pending
        uncertain = await client.start(flows.troubles, flows.Trouble(kind="uncertain"))
        await _seen(client, uncertain.id, Reason.EFFECT_UNCERTAIN)
        (reason,) = [r for r in (await client.summary()).reasons if r.reason == Reason.EFFECT_UNCERTAIN]
        assert reason.count >= 1 and reason.since is not None
        cause = next(c for c in (await client.causes(reason="effect_uncertain")).causes if c.workflow == "trouble")
        assert (cause.name, sum(cause.bars) >= 1, len(cause.bars)) == ("ring", True, 48)
        detail = await client.cause(cause.cause)
        assert detail.runs == cause.runs >= 1 and detail.read == detail.runs
        assert [each.value for each in detail.fields[0].values] and detail.versions
        with pytest.raises(NotFound):
            await client.cause("0" * 12)
        bars = await client.bars(workflow="trouble", version=1, outcome="flagged", cause=cause.cause, bars=12)
        assert sum(bar.flagged for bar in bars.bars) >= 1 and bars.until - bars.since == timedelta(days=1)
        listed = await client.attention(cause=cause.cause, node=cause.node, version=1, workflow="trouble")
        assert uncertain.id in [each.run for each in listed.attention]
        with pytest.raises(InvalidInput):
            await client.bars(version=1)
        now = datetime.now(UTC)
        durations = await client.run_durations(since=now - timedelta(days=1), until=now + timedelta(minutes=1))
        assert durations.runs == durations.ended >= 1 and durations.people.p95_ms is not None
        decisions = await client.decision_times()
        assert decisions.decided.count >= 1 and decisions.groups
        for measured in (client.run_durations, client.decision_times):
            with pytest.raises(InvalidInput, match="a version without a workflow"):
                await measured(version=1)
        summary = await client.summary()
        assert summary.uncertain >= 1 and summary.attention >= summary.attention_runs >= 1
        await client.pause("activity", "place", reason="they are closed")
        assert [(p.paused, p.kind) for p in (await client.summary()).pauses] == [("activity place", "operator")]
        await client.resume("activity", "place")
        (effect,) = await client.effects(uncertain.id)
        await client.answer_many([AnswerFor(run=uncertain.id)], Reason.EFFECT_UNCERTAIN, Choice.GIVE_UP, text="gone")
        await _seen(client, uncertain.id, Reason.EXCEPTION)  # the refused call raised in the node
        await client.answer_many([AnswerFor(run=uncertain.id)], Reason.EXCEPTION, Choice.FAIL, text="gone")
        assert await client.ended(uncertain.id, within_s=20)
        assert (await client.effects(uncertain.id))[0].status == "refused" and effect.status == "uncertain"

    place.play(test)


def test_a_lane_without_a_worker_is_listed(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.orders, flows.Order(supplier="elsewhere"), scheduler="temporal")
        (lane,) = [each for each in (await client.summary()).unserved if each.lane == "temporal:order@1"]
        assert (lane.workflow, lane.version, lane.runs) == ("order", 1, 1)
        await client.move_to(run.id, "outlast")
        await _seen(client, run.id, "signal")
        assert all(each.lane != "temporal:order@1" for each in (await client.summary()).unserved)
        await client.cancel(run.id, reason="not needed")

    place.play(test)


def test_approvals_are_sorted_by_deadline_and_found_by_approver(place: Place) -> None:
    async def test(client: Client) -> None:
        first, second = await _asked(client), await _asked(client)
        sorted_ = await client.approvals(sort="deadline")
        deadlines = [each.within_until for each in sorted_.approvals]
        assert len(deadlines) >= 2 and None not in deadlines and deadlines == sorted(deadlines)  # type: ignore[type-var]
        assert {each.status for each in sorted_.approvals} == {"pending"}
        one = await client.approvals(sort="deadline", limit=1)
        rest = await client.approvals(sort="deadline", cursor=one.next_cursor)
        assert [a.approval for a in (*one.approvals, *rest.approvals)] == [a.approval for a in sorted_.approvals]
        await client.reject(first[1], reason="too dear")
        mine = await client.approvals(decided_by="me")
        assert first[1] in {each.approval for each in mine.approvals}
        assert second[1] not in {each.approval for each in mine.approvals}
        assert (await client.approvals(decided_by="nobody")).approvals == []
        with pytest.raises(InvalidInput):
            await client.approvals(sort="deadline", status="approved")
        with pytest.raises(InvalidInput):
            await client.approvals(sort="age")  # type: ignore[arg-type]
        await client.reject(second[1], reason="too dear")

    place.play(test)


def test_the_schema_of_an_awaited_signal_is_shown(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.orders, flows.Order(supplier=f"acme-{uuid4().hex}"))
        await _seen(client, run.id, "signal")
        (wait,) = (await client.run(run.id)).waiting_for
        assert wait.schema_ is not None and wait.schema_["properties"]["cents"]["type"] == "integer"
        listed = next(each for each in (await client.runs(waiting_for="signal")).runs if each.run == run.id)
        assert listed.waiting_for[0].schema_ is None
        await client.cancel(run.id, reason="not needed")

    place.play(test)


def test_the_timeline_has_bars_of_visits_attempts_and_waits(place: Place) -> None:
    async def test(client: Client) -> None:
        run, approval = await _asked(client)
        open_ = await client.timeline(run)
        assert [(lane.node, lane.visits) for lane in open_.lanes] == [("wait_for_offer", 1), ("decide", 1)]
        kinds = {(bar.kind, bar.wait or bar.what): bar for bar in open_.bars}
        assert kinds["attempt", "client_reserve"].outcome == "done"
        assert kinds["wait", "signal"].ended is not None
        asks = kinds["wait", "approval"]
        assert (asks.ended, asks.outcome, asks.approval) == (None, "open", approval)
        assert asks.until is not None and open_.next_deadline is not None and open_.ended is None
        assert not open_.grouped and open_.total == len(open_.bars)
        await client.reject(approval, reason="too dear")
        assert await client.ended(run, within_s=20)
        whole = await client.timeline(run)
        assert whole.ended is not None and [mark.kind for mark in whole.marks][-1] == "ended"
        assert next(bar for bar in whole.bars if bar.approval == approval).outcome == "rejected"
        late = await client.timeline(run, begin=whole.ended + timedelta(hours=1), end=whole.ended + timedelta(hours=2))
        assert late.bars == [] and late.total == 0
        with pytest.raises(InvalidInput):
            await client.timeline(run, begin=whole.ended, end=whole.began - timedelta(days=1))
        with pytest.raises(NotFound):
            await client.timeline("r9")

    place.play(test)


def test_one_answer_is_given_to_many_runs(place: Place) -> None:
    async def test(client: Client) -> None:
        flows.broken["on"] = True  # other tests of this process mend it
        runs = [(await client.start(flows.troubles, flows.Trouble(kind="error"))).id for _ in range(3)]
        for run in runs:
            await _seen(client, run, Reason.EXCEPTION)
        versions = [(await client.run_summary(run)).version for run in runs]
        given = [
            AnswerFor(run=runs[0], version=versions[0]),
            AnswerFor(run="r9"),
            AnswerFor(run=runs[1], version=versions[1] - 1),
            AnswerFor(run=runs[2]),
        ]
        found = (await client.answer_many(given, Reason.EXCEPTION, Choice.FAIL, text="the line is gone")).answers
        assert [(each.run, each.answered) for each in found] == [
            (runs[0], True), ("r9", False), (runs[1], False), (runs[2], True),
        ]  # fmt: skip
        assert found[2].refusal == "moved" and found[1].code == NotFound.code and found[1].error
        for run in (runs[0], runs[2]):
            assert await client.ended(run, within_s=20)
        with pytest.raises(InvalidInput):
            await client.answer_many([], Reason.EXCEPTION, Choice.FAIL, text="none")
        with pytest.raises(InvalidInput):
            await client.answer_many([AnswerFor(run="r9")] * 101, Reason.EXCEPTION, Choice.FAIL, text="too many")
        with pytest.raises(Conflict):
            await client.answer_many([AnswerFor(run=runs[1])], Reason.EXCEPTION, Choice.EXTEND, text="not offered")
        await client.answer_many([AnswerFor(run=runs[1])], Reason.EXCEPTION, Choice.FAIL, text="gone")

    place.play(test)

"""One surface, three ways: every method of the client against a store, and a service on SQLite and on PostgreSQL."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outlast import Budget, Client, RunHandle
from outlast.core.approver_rule import identity
from outlast.core.machine import Choice, EffectStatus, Reason, RunStatus
from outlast.core.start_details import BY_PLACE, DECLARED
from outlast.core.webhooks.webhook_details import WEBHOOK_DETAILS
from outlast.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    NotStorable,
    OutlastError,
    RunCancelled,
    RunFailed,
    WaitTimeout,
)
from outlast.models.agents import ToolFilter
from outlast.models.attention import RunAttention
from outlast.models.runs import RunDelta
from outlast.runtime.webhook_client import WebhookClient
from tests.client import flows
from tests.client.conftest import PATIENCE, Place

HERE = Path(__file__).parent


async def waits(client: Client, run: str, kind: str) -> None:
    """Wait until a run waits for this kind of thing."""

    async def found() -> bool | None:
        return any(wait.kind == kind for wait in (await client.run_summary(run)).waiting_for) or None

    assert await client.until(found, within_s=20), await client.run(run)


async def flagged(client: Client, kind: str, reason: Reason) -> RunHandle[flows.Trouble]:
    """Start a run and return it once it needs a person for this reason."""
    run = await client.start(flows.troubles, flows.Trouble(kind=kind))
    await needs(client, run.id, reason)
    return run


async def needs(client: Client, run: str, reason: Reason) -> None:
    """Wait until a run needs a person for this reason."""

    async def found() -> bool | None:
        return any(each.reason == reason for each in (await client.run_summary(run)).attention) or None

    assert await client.until(found, within_s=20), await client.run(run)


async def asked(client: Client, supplier: str) -> tuple[RunHandle[flows.Order], str]:
    """Start an order and return it with its pending approval."""
    run = await client.start(flows.orders, flows.Order(supplier=supplier))
    await run.signal("offer", flows.Offer(cents=4200))
    await waits(client, run.id, "approval")
    (approval,) = (await client.approvals(run=run.id)).approvals
    return run, approval.approval


@pytest.mark.req("RUN-1", "RUN-4")
def test_a_start_is_durable_typed_and_happens_once_per_key(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.greet, "ana", times=2)
        done = await run.result(PATIENCE)
        assert done == flows.Greeting(text="hello ana hello ana ", letters=20)
        assert (run.workflow, run.created) == ("greet", True)
        first = await client.start(flows.orders, flows.Order(supplier="acme"), key="Ä 7", correlation_id="c-1")
        again = await client.start("order", {"supplier": "acme"}, key="Ä 7", correlation_id="c-2", trace_id="t")
        assert (again.id, again.created, first.created) == (first.id, False, True)
        assert (await first.status()).correlation_id == "c-1"
        other = await client.start(flows.greet, flows.greet.arguments("bo"), key="Ä 7")
        assert other.created, "a key belongs to one workflow"
        with pytest.raises(Conflict, match="another input"):
            await client.start(flows.orders, {"supplier": "blix"}, key="Ä 7")
        named = await client.start(flows.greet, {"name": "cy"}, run_id=f"named-{first.id}")
        assert named.id == f"named-{first.id}"
        assert (await client.start_run("greet", b'{"name": "cy"}', run_id=named.id)).created is False

    place.play(test)


@pytest.mark.req("RUN-1", "OBS-4")
@pytest.mark.parametrize("name", BY_PLACE["request"])
def test_a_fact_of_a_start_is_kept_as_the_first_start_states_it(place: Place, name: str) -> None:
    field = DECLARED.fields[name]
    text = "ä" * field.chars_max

    async def test(client: Client) -> None:
        run = await client.start("greet", {"name": "ana"}, key=f"fact-{name}", **{name: text})
        again = await client.start_run("greet", {"name": "ana"}, key=f"fact-{name}", **{name: "another"})
        assert (again.run, again.created, getattr(again, name)) == (run.id, False, text)
        assert [getattr(each, name) for each in (await client.runs(q=run.id)).runs] == [text]
        assert getattr(await client.run(run.id), name) == getattr(await run.status(), name) == text
        other = await client.start_run("greet", b'{"name": "bo"}', **{name: "given to start_run"})
        assert getattr(other, name) == "given to start_run"
        with pytest.raises(InvalidInput, match=f"the {field.noun} is too long"):
            await client.start("greet", {"name": "bo"}, **{name: text + "x"})
        with pytest.raises(InvalidInput, match=f"the {field.noun} is 5"):
            await client.start("greet", {"name": "bo"}, **{name: 5})  # type: ignore[arg-type]

    place.play(test)


@pytest.mark.req("OBS-4")
def test_the_objective_of_a_run_is_shown_and_found(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.orders, flows.Order(supplier="Müller & Sons"))
        text = "Order from Müller & Sons for 0 cents"
        assert (await client.run(run.id)).objective == (await run.status()).objective == text
        assert [each.objective for each in (await client.runs(q="müller")).runs] == [text], "upper and lower case"
        assert (await client.explain(run.id)).facts["objective"] == text
        plain = await client.start(flows.greet, "ana")
        assert (await client.run_summary(plain.id)).objective == ""
        assert "objective" not in (await client.explain(plain.id)).facts

    place.play(test)


@pytest.mark.req("OBS-4", "GATE-8")
def test_the_steps_of_a_run_are_read_in_pages(place: Place) -> None:
    async def test(client: Client) -> None:
        run, approval = await asked(client, "steps")
        (request,) = (await client.steps(run.id, kind="approval_request")).steps
        assert (request.approval, request.status, request.by) == (approval, "pending", "buyer")
        await client.approve(approval, reason="cheap", changes={"cents": 4000})
        await run.result(PATIENCE)
        kinds = ["tool_call", "checkpoint", "approval_request", "approval_response", "tool_call", "checkpoint"]
        whole = await client.steps(run.id)
        acts = [step for step in whole.steps if step.kind in kinds]
        assert ([step.kind for step in acts], whole.steps[0].kind, whole.next_cursor) == (kinds, "start", "")
        response = acts[3]
        assert (response.status, response.detail, response.visit, response.node) == ("approved", "cheap", 2, "decide")
        assert '"cents":4000' in response.input.text and '"changes":{"cents":4000}' in response.input.text
        found, cursor = [], ""
        for _ in range(0, len(whole.steps), 2):
            page = await client.steps(run.id, limit=2, cursor=cursor)
            found += page.steps
            cursor = page.next_cursor
        assert (found, cursor) == (whole.steps, "")
        for step in whole.steps:
            (one,) = (await client.steps(run.id, step=step.id)).steps
            assert (one.id, one.input.cut, one.input.bytes) == (step.id, False, step.input.bytes)
        with pytest.raises(NotFound, match="no step call/1/none"):
            await client.steps(run.id, step="call/1/none")
        with pytest.raises(NotFound, match="no run"):
            await client.steps("none")
        with pytest.raises(InvalidInput):
            await client.steps(run.id, kind="thought")

    place.play(test)


@pytest.mark.req("RUN-10")
def test_two_runs_are_compared(place: Place) -> None:
    async def test(client: Client) -> None:
        run, approval = await asked(client, "compared-1")
        other, second = await asked(client, "compared-2")
        await client.approve(approval, reason="cheap", changes={"cents": 4000})
        await client.reject(second, reason="too dear")
        await run.result(PATIENCE)
        assert await client.ended(other.id, within_s=20)
        found = await client.compare(run.id, other.id)
        assert (found.run.run, found.other.run) == (run.id, other.id) and found.not_compared == []
        decision = next(each for each in found.differences if "decision" in each.differs)
        assert (decision.kind, decision.run and decision.run.detail) == ("approval", "cheap")
        assert decision.other is not None and decision.other.status == "rejected"
        pages = [await client.compare(run.id, other.id, after=n, limit=1) for n in range(found.total)]
        assert [page.differences[0] for page in pages] == found.differences
        assert [page.next_cursor for page in pages] == [*map(str, range(1, found.total)), ""]
        assert (await client.compare(run.id, run.id)).total == 0
        for one, two in ((run.id, "none"), ("none", run.id)):
            with pytest.raises(NotFound, match="no run none"):
                await client.compare(one, two)
        with pytest.raises(InvalidInput):
            await client.compare(run.id, other.id, limit=1_001)

    place.play(test)


@pytest.mark.req("RUN-10")
def test_an_ended_run_is_forked_from_a_checkpoint(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.greet, "ana", times=2)
        done = await run.result(PATIENCE)
        (point,) = (await client.fork_points(run.id)).points
        assert (point.past, point.to_accept) == (0, [])
        preview = await client.fork_preview(run.id, point.node, effects="recorded")
        assert (preview.checkpoint, preview.copied, len(preview.refused)) == (point.checkpoint, 0, 1)
        assert "approvers" in preview.refused[0] and preview.state
        terms = {"approvers": "lead", "effects": "recorded", "fork_id": f"{run.id}-fork"}
        fork = await client.fork_run(run.id, str(point.checkpoint), **terms)  # type: ignore[arg-type]
        assert (fork.run, fork.checkpoint, fork.created) == (run.id, point.checkpoint, True)
        assert not (await client.fork_run(run.id, point.node, **terms)).created  # type: ignore[arg-type]
        assert await client.get(flows.greet, fork.fork).result(PATIENCE) == done
        live = await client.fork_run_live(run.id, point.node)
        assert await client.ended(live.fork, within_s=20)
        listed = (await client.runs(forked_from=run.id)).runs
        assert {each.run for each in listed} == {fork.fork, live.fork}
        with pytest.raises(NotFound):
            await client.fork_run(run.id, "nowhere", approvers="lead")
        waiting, _ = await asked(client, "in-flight")
        assert (await client.fork_points(waiting.id)).in_flight
        with pytest.raises(Conflict, match="both"):
            await client.fork_run(waiting.id, "1", approvers="lead")
        both = await client.fork_run(waiting.id, "1", approvers="lead", both_go_on="to try another plan")
        assert both.both_go_on == "to try another plan"

    place.play(test)


def test_a_start_is_refused_with_every_problem(place: Place) -> None:
    async def test(client: Client) -> None:
        with pytest.raises(NotFound, match="no workflow loan"):
            await client.start("loan", {})
        with pytest.raises(InvalidInput) as refused:
            await client.start("greet", {"times": "x"})
        assert [path for path, _ in refused.value.problems] == ["name", "times"]
        with pytest.raises(InvalidInput, match="not valid"):
            await client.start(flows.orders, flows.Offer(cents=1))  # type: ignore[call-overload]
        with pytest.raises(InvalidInput, match="too long"):
            await client.start("greet", {"name": "x"}, key="x" * 1_000)
        with pytest.raises(NotStorable):
            await client.start("greet", {"name": object()})

    place.play(test)


def test_a_handle_reads_follows_and_ends(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.orders, flows.Order(supplier="acme"))
        numbers: list[int] = []

        async def follow() -> None:
            numbers.extend([event.number async for event in run.events()])

        following = asyncio.create_task(follow())
        await waits(client, run.id, "signal")
        assert (await run.status()).status == RunStatus.WAITING
        assert (await client.run_input(run.id))["supplier"] == "acme"
        held = await client.run_state(run.id)
        assert (held.node, held.state["supplier"], held.redacted) == ("wait_for_offer", "acme", False)
        assert (await run.detail()).visits[0].node == "wait_for_offer"
        assert await run.signal("offer", {"cents": 99}, signal_id="o-1")
        assert not await run.signal("offer", flows.Offer(cents=99), signal_id="o-1")
        await waits(client, run.id, "approval")
        await run.cancel("too dear")
        with pytest.raises(RunCancelled, match="too dear") as ended:
            await run.result(PATIENCE)
        assert ended.value.run == run.id and "too dear" in ended.value.reason
        await asyncio.wait_for(following, 60)
        assert numbers == list(range(1, len(numbers) + 1))
        page = await client.events(run.id, limit=2)
        assert [event.number for event in page.events] == [1, 2] and page.next_cursor and not page.ended
        assert [event.number async for event in run.events(after=2)] == numbers[2:], "also after its end"
        texts = [text async for text in client.follow(run.id, after=len(numbers) - 1)]
        assert len(texts) == 1 and texts[0].startswith('{"specversion"')
        for act in (run.cancel("again"), run.signal("offer", {"cents": 1})):
            with pytest.raises(Conflict, match="has ended"):
                await act
        with pytest.raises(InvalidInput, match="no fields"):
            await run.signal("offer", 7)
        assert await client.ended(run.id, within_s=20)
        end = await client.run_end(run.id, within_s=20)
        assert (
            end is not None
            and end.status == (await run.detail()).status
            and end.outcome == (await run.detail()).outcome
        )

    place.play(test)


@pytest.mark.req("RUN-7")
def test_updates_are_the_events_and_the_streamed_texts(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.narrate)
        numbers, words, sent = list[int](), "", False
        async for update in run.updates():
            if isinstance(update, RunDelta):
                assert (update.run, update.node, update.visit, update.key, update.attempt) == (
                    run.id, "narrate", 1, "", 0,
                )  # fmt: skip
                words += update.text
            else:
                numbers.append(update.number)
            if not sent:
                sent = await run.signal("go", {"text": "every word arrives"}, signal_id="s-1")
        assert words == "every word arrives ", "before the event that ends the visit"
        assert await run.result(PATIENCE) == "every word arrives"
        assert numbers == [event.number async for event in run.events()], "a text is no event"
        assert [type(each) async for each in client.updates(run.id)] == [str] * len(numbers), "nor is it stored"
        with pytest.raises(NotFound, match="no run r9"):
            await anext(client.updates("r9"))

    place.play(test)


@pytest.mark.req("RUN-7")
def test_a_reader_that_lags_loses_texts_and_no_event(place: Place) -> None:
    async def test(client: Client) -> None:
        run, long = await client.start(flows.narrate), " ".join("x" * 999 for _ in range(60))
        updates = run.updates()
        first = await anext(updates)
        await run.signal("go", {"text": long}, signal_id="s-1")
        assert await run.result(PATIENCE) == long
        rest = [each async for each in updates]
        events = [each.number for each in (first, *rest) if not isinstance(each, RunDelta)]
        assert events == [event.number async for event in run.events()]
        assert sum(len(each.text) for each in rest if isinstance(each, RunDelta)) < len(long)

    place.play(test)


def test_an_unknown_run_is_not_found(place: Place) -> None:
    async def test(client: Client) -> None:
        run = client.get("r9")
        reads = (run.status(), run.detail(), run.result(1), run.signal("x", {}), run.cancel("x"), client.explain("r9"))
        for act in reads:
            with pytest.raises(NotFound, match="no run r9"):
                await act
        with pytest.raises(NotFound):
            _ = [event async for event in run.events()]

    place.play(test)


def test_a_result_that_does_not_come(place: Place) -> None:
    async def test(client: Client) -> None:
        failed = await client.start(flows.troubles, flows.Trouble(kind="fails"))
        with pytest.raises(RunFailed, match="the supplier is gone"):
            await client.get(flows.troubles, failed.id).result(PATIENCE)
        run = await client.start(flows.orders, {"supplier": "acme"})
        await waits(client, run.id, "signal")
        for timeout in ("50ms", timedelta(milliseconds=50), 0.05):
            with pytest.raises(WaitTimeout, match=r"has not ended after 0\.1s\n.*signal offer") as late:
                await run.result(timeout)
            assert isinstance(late.value, TimeoutError)
        assert not await client.ended(run.id, within_s=0.01)
        assert await client.run_end(run.id, within_s=0.01) is None
        assert not await client.ended(run.id, within_s=0)
        assert await client.ended(failed.id, within_s=0)
        with pytest.raises(InvalidInput, match="timeout is 'soon'"):
            await run.result("soon")

    place.play(test)


def test_runs_are_listed_and_explained(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.greet, "lists", times=1)
        await run.result(PATIENCE)
        listed = await client.runs(workflow="greet", status=RunStatus.COMPLETED, q=run.id, since="1h", limit=5)
        assert [one.shown for one in listed.runs] == ["GREETED"], "the workflow names its end"
        assert [each.run for each in listed.runs] == [run.id] and not listed.next_cursor
        assert not (await client.runs(q=run.id, attention=True)).runs
        for wrong in ({"status": "WAITING"}, {"waiting_for": "godot"}, {"limit": 1_001}, {"since": "-1h"}):
            with pytest.raises(InvalidInput):
                await client.runs(**wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await client.approvals(status="maybe")
        assert not (await client.runs(q=run.id, waiting_for="signal")).runs
        results = await client.results(run.id, limit=1)
        assert (results.count, results.results[0].data) == (1, {"text": "hello lists "})
        assert not (await client.results(run.id, after=1)).results
        explained = await client.explain(run.id)
        assert "complete" in explained.sentence.lower()
        one, two = (await client.runs(limit=1)), (await client.runs(limit=1))
        assert one == two and one.next_cursor
        assert (await client.runs(limit=1, cursor=one.next_cursor)).runs[0].run != one.runs[0].run

    place.play(test)


@pytest.mark.req("GATE-2")
def test_approvals_are_read_and_decided(place: Place) -> None:
    async def test(client: Client) -> None:
        run, name = await asked(client, "acme")
        shown = await client.approval(name)
        assert shown.you_may_decide and shown.plans[0].arguments == {"supplier": "acme", "cents": 4200}
        assert name in [each.approval for each in (await client.approvals(status="pending", mine=True)).approvals]
        assert name not in [each.approval for each in (await client.approvals(overdue=True)).approvals]
        claimed = await client.claim_approval(name, version=shown.version)
        assert claimed.claimed_by
        with pytest.raises(Conflict, match="has changed since") as moved:
            await client.approve(name, reason="fine", version=shown.version)
        assert moved.value.refusal == "moved"
        passed = await client.reassign(name, "lead|buyer", reason="on leave", version=claimed.version)
        assert passed.who == "buyer | lead"
        with pytest.raises(NotFound, match="no alternative 5"):
            await client.approve(name, reason="fine", alternative=5)
        decided = await client.approve(name, reason="fine", changes={"cents": 4000})
        assert (decided.status, decided.reason) == ("approved", "fine")
        done = await run.result(PATIENCE)
        assert isinstance(done, flows.Order) and done.receipt == "acme confirms 4000"
        with pytest.raises(Conflict, match="cannot be decided"):
            await client.reject(name, reason="changed my mind")
        other, name = await asked(client, "blix")
        assert (await client.reject(name, reason="too dear")).status == "rejected"
        with pytest.raises(RunCancelled, match="too dear"):
            await other.result(PATIENCE)
        with pytest.raises(NotFound):
            await client.approval("ap_9")

    place.play(test)


def test_attention_is_listed_and_answered(place: Place) -> None:
    async def test(client: Client) -> None:
        flows.broken["on"] = True
        run, two = await flagged(client, "error", Reason.EXCEPTION), await flagged(client, "error", Reason.EXCEPTION)
        more = await flagged(client, "error", Reason.EXCEPTION)
        await flagged(client, "error", Reason.EXCEPTION)
        page = await client.attention(reason=Reason.EXCEPTION, workflow="trouble")
        assert {run.id, two.id} <= {item.run for item in page.attention if isinstance(item, RunAttention)}
        (item,) = await client.attention_of(run.id)
        assert (item.reason, item.node) == ("exception", "trouble") and "no line" in item.detail
        assert await client.attention_of((await client.start(flows.greet, "x")).id) == []
        with pytest.raises(OutlastError):
            await client.answer(run.id, Choice.EXTEND, text="no", by=timedelta(hours=1))
        flows.broken["on"] = False
        assert await client.answer(run.id, Choice.CONTINUE, text="mended") is Reason.EXCEPTION
        await client.continue_run(two.id, reason="mended")
        assert (await run.result(PATIENCE)).kind == (await two.result(PATIENCE)).kind == "error"
        asked = {"workflow": "trouble", "contains": "NO LINE"}
        preview = await client.preview_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, **asked)
        job = await client.start_bulk_answer(Reason.EXCEPTION, Choice.CONTINUE, text="mended", **asked)
        assert preview.runs == job.total >= 2 and not preview.confirm
        assert await client.ended(job.run, within_s=20)
        job = await client.bulk_answer(job.run)
        assert (job.ended, job.answered, job.refused, job.by) == (True, job.total, 0, (await client.whoami()).name)
        assert (await more.result(PATIENCE)).kind == "error"

    place.play(test)


@pytest.mark.req("GATE-8")
def test_items_are_assigned_at_the_same_time_and_until_they_are_answered(place: Place) -> None:
    async def test(client: Client) -> None:
        flows.broken["on"] = True
        runs = [await flagged(client, "error", Reason.EXCEPTION) for _ in range(4)]
        items = await asyncio.gather(*(client.assign(run.id, "cleo", note="hers") for run in runs))
        assert {(item.run, item.reason, item.assigned_to) for item in items} == {
            (run.id, "exception", "cleo") for run in runs
        }
        page = await client.attention(assigned_to="cleo")
        assert [item.run for item in page.attention if isinstance(item, RunAttention) and item.assigned_note == "hers"]
        assert {item.run for item in page.attention} == {run.id for run in runs}, "one is lost"
        mine = await client.assign(runs[0].id, "me", reason=Reason.EXCEPTION)
        assert mine.assigned_to == identity(mine.assigned_by) and mine.assigned_at is not None
        assert [item.run for item in (await client.attention(assigned_to="me")).attention] == [runs[0].id]
        assert not (await client.assign(runs[1].id, "")).assigned_to
        free = {item.run for item in (await client.attention(assigned_to="none")).attention}
        assert runs[1].id in free and runs[2].id not in free
        with pytest.raises(Conflict, match="not flagged poisoned"):
            await client.assign(runs[0].id, "cleo", reason=Reason.POISONED)
        with pytest.raises(NotFound):
            await client.assign("none-such", "cleo")
        flows.broken["on"] = False
        for run in runs:
            await client.continue_run(run.id, reason="mended")
            await run.result(PATIENCE)
        assert (await client.attention(assigned_to="cleo")).attention == []

    place.play(test)


@pytest.mark.req("EFF-3")
def test_effects_are_read_and_settled(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await flagged(client, "uncertain", Reason.EFFECT_UNCERTAIN)
        key = "client-ring/uncertain"
        (effect,) = await client.effects(run.id)
        assert (effect.key, effect.status, effect.run) == (key, "uncertain", run.id)
        assert (await client.effect(run.id, key)).id == (await client.effect(run.id, key, visit=effect.visit)).id
        with pytest.raises(NotFound, match="no effect nothing"):
            await client.effect(run.id, "nothing")
        ledger = await client.ledger(status=EffectStatus.UNCERTAIN, activity="ring", run=run.id, since="1h", limit=5)
        assert [each.key for each in ledger.effects] == [key]
        for wrong in (None, 7):
            with pytest.raises(InvalidInput, match="the answer of activity ring is not valid"):
                await client.resolve_effect(run.id, key, "happened", reason="x", external_id="x-1", response=wrong)
        await client.resolve_effect(run.id, key, "happened", reason="they say so", external_id="x-1", response="rang")
        assert (await run.result(PATIENCE)).kind == "uncertain"
        assert (await client.effect(run.id, key)).external_id == "x-1"
        with pytest.raises(Conflict):
            await client.resolve_effect(run.id, key, "give_up", reason="again", correct=True)
        order, approval = await asked(client, "undo")
        assert await client.to_undo(order.id) == ["client_reserve client-reserve/undo"]
        assert await client.not_undone(order.id) == []
        await client.reject(approval, reason="no")

    place.play(test)


def test_an_answer_is_bound_to_what_was_shown(place: Place) -> None:
    async def test(client: Client) -> None:
        flows.broken["on"] = True
        run, other = await flagged(client, "error", Reason.EXCEPTION), await flagged(client, "error", Reason.EXCEPTION)
        shown = (await client.run_summary(run.id)).version
        flows.broken["on"] = False
        with pytest.raises(Conflict) as refused:
            await client.answer(run.id, Choice.CONTINUE, text="mended", version=shown - 1)
        assert refused.value.refusal == "moved"
        assert await client.answer(run.id, Choice.CONTINUE, text="mended", version=shown) is Reason.EXCEPTION
        await client.answer(other.id, Choice.CONTINUE, text="mended")
        assert (await run.result(PATIENCE)).kind == (await other.result(PATIENCE)).kind == "error"
        doubtful = await flagged(client, "uncertain", Reason.EFFECT_UNCERTAIN)
        (effect,) = await client.effects(doubtful.id)
        given: dict[str, Any] = {"reason": "they say so", "external_id": "x-1", "response": "rang"}
        resolve = partial(client.resolve_effect, doubtful.id, effect.key, "happened", **given)
        with pytest.raises(NotFound):
            await resolve(visit=effect.visit + 1)
        with pytest.raises(Conflict) as refused:
            await resolve(version=effect.version - 1, visit=effect.visit)
        assert refused.value.refusal == "moved"
        await resolve(version=effect.version, visit=effect.visit)

    place.play(test)


def test_a_page_of_attention_and_of_unfinished_runs_has_a_limit(place: Place) -> None:
    async def test(client: Client) -> None:
        flows.broken["on"] = True
        runs = [await flagged(client, "error", Reason.EXCEPTION) for _ in range(2)]
        page = await client.attention(workflow="trouble", limit=1)
        assert len({item.run for item in page.attention if isinstance(item, RunAttention)}) == 1 and page.next_cursor
        assert len(await client.unfinished("trouble", "trouble@1", limit=1)) == 1
        assert len(await client.unfinished("trouble", "trouble@1")) >= 2
        for run in runs:
            await client.cancel(run.id, reason="enough")

    place.play(test)


def test_one_run_is_moved_or_refused(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.orders, flows.Order(supplier="moved"))
        await waits(client, run.id, "signal")
        assert "order@1" in await client.unmovable(run.id)
        with pytest.raises(NotFound):
            await client.unmovable("none-such")
        with pytest.raises(OutlastError) as refused:
            await client.move_run(run.id, "order", 9, reason="a mistake")
        assert refused.value.refusal == "unserved"
        with pytest.raises(NotFound):
            await client.move_run("none-such", "order", 9, reason="a mistake")
        await run.cancel("enough")

    place.play(test)


def test_a_run_beyond_its_ceiling_is_extended(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.delays, {})
        await needs(client, run.id, Reason.TOTAL_TIMEOUT)
        await client.extend(run.id, by="1h", reason="they are slow")
        await run.signal("arrived", {})
        assert await run.result(PATIENCE) == flows.Slow()

    place.play(test)


def test_the_store_is_described(place: Place) -> None:
    async def test(client: Client) -> None:
        me = await client.whoami()
        assert me.tenant == "default" and me.person and me.name.startswith("local:")
        assert client.me in ("you", me.name) and client.has_code is place.in_process
        assert abs(await client.now() - datetime.now(UTC)) < timedelta(minutes=5)
        (worker,) = [each for each in await client.workers() if each.serving]
        assert "greet@1" in worker.serves
        assert (await client.input_schema("greet"))["required"] == ["name"]
        assert await client.input_schema("nothing") == {}
        topology = await client.topology("order", "order@1")
        assert topology is not None and "decide" in str(topology)
        assert await client.topology("order", "order@9") is None
        run = await client.start(flows.orders, flows.Order(supplier="acme"))
        await waits(client, run.id, "signal")
        (version,) = [each for each in await client.versions() if each.lane == "order@1"]
        assert version.runs >= 1 and version.served_by
        assert run.id in await client.unfinished("order", "order@1")
        with pytest.raises(OutlastError, match="order"):
            await client.move_runs("order", 7, [run.id], reason="a new version")
        failed = (await client.move_runs("order", 1, ["r9"], reason="it stays")).failed
        assert [name for name, _ in failed] == ["r9"]

    place.play(test)


@pytest.mark.req("RUN-10")
def test_a_budget_is_raised_and_set_for_each_day(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.thrift, "a", "b")
        await needs(client, run.id, Reason.BUDGET_EXHAUSTED)
        seen = await client.run(run.id)
        assert (seen.used.tokens, seen.used.money, seen.used.calls) == (60, "0.5", 1)
        assert (seen.budget.tokens, seen.budget.money, seen.budget.calls) == (50, None, 9)
        assert (
            (await client.explain(run.id)).facts["used"].startswith("60 of 50 tokens, 0.5 money, 1 of 9 reported calls")
        )
        (item,) = [each for each in (await client.attention()).attention if each.run == run.id]
        assert [each.choice for each in item.choices] == ["raise", "cancel"]
        with pytest.raises(InvalidInput):
            await client.raise_budget(run.id, reason="none")
        nearest = await client.budgeted_runs(limit=1)
        assert [(each.run, each.shares[0].percent) for each in nearest.runs] == [(run.id, 120.0)] and nearest.every
        await client.raise_budget(run.id, tokens=50, money="0.25", reason="worth it")
        (act,) = (await client.audit(kind="budget", since="1h", limit=1)).entries
        assert (act.run, act.what) == (run.id, "raised the budget by 50 tokens, 0.25 money")
        assert await run.result(PATIENCE) == "AB"
        after = await client.run(run.id)
        assert (after.used.tokens, after.budget.tokens) == (120, 100)

        assert not await client.budgets()
        await client.set_budget(Budget(tokens=1_000_000, money="2.5"), reason="the plan")
        (budget,) = await client.budgets()
        assert (await client.usage(days=3)).every
        assert (await client.prompts(workflow="none", model="none", days=3)).every
        assert (await client.tools(workflow="none")).tools == []
        none = await client.tool_calls(tool="none", workflow="none", version=1, outcome=ToolFilter.AGAIN, limit=1)
        assert (none.calls, none.every, none.next_cursor) == ([], True, "")
        with pytest.raises(NotFound, match="no instructions"):
            await client.prompt("0" * 32, workflow="none")
        assert (budget.limits.tokens, budget.limits.money, budget.limits.calls) == (1_000_000, "2.5", None)
        assert (budget.tenant, budget.reason, budget.runs) == ("default", "the plan", 0)
        assert budget.used.tokens >= 120
        with pytest.raises(InvalidInput, match="minutes"):
            await client.set_budget(Budget(minutes=5))
        await client.set_budget(None)
        assert not await client.budgets()

    place.play(test)


def test_a_query_is_saved_under_a_name_and_removed(place: Place) -> None:
    async def test(client: Client) -> None:
        saved = await client.save_view(" late  orders ", 'customer:"Acme Inc" status:failed')
        assert (saved.name, saved.query) == ("late orders", 'status:failed customer:"Acme Inc"')
        assert saved.by == (await client.whoami()).name and saved.at.tzinfo is not None
        assert list(await client.views()) == [saved]
        other = await client.save_view("late orders", "status:waiting")
        assert [each.query for each in await client.views()] == ["status:waiting"]
        for name, query, why in (
            ("late\u200b", "status:failed", "not seen"), ("x" * 61, "status:failed", "60 characters"),
            ("none", " ", "no query"), ("odd", "status:none", "status is one of"),
        ):  # fmt: skip
            with pytest.raises(OutlastError, match=why):
                await client.save_view(name, query)
        with pytest.raises(NotFound, match="no view 'none'"):
            await client.remove_view("none")
        assert list(await client.views()) == [other]
        assert list(await client.remove_view("late orders")) == [] == list(await client.views())

    place.play(test)


def test_pauses_begin_and_end(place: Place) -> None:
    async def test(client: Client) -> None:
        paused = await client.pause("activity", "place", reason="the supplier is away")
        assert (paused.paused, paused.reason) == ("activity place", "the supplier is away")
        assert [each.paused for each in await client.pauses()] == ["activity place"]
        assert (await client.resume("activity", "place")).runs == 0
        assert not await client.pauses()
        with pytest.raises(NotFound):
            await client.resume("activity", "place")

    place.play(test)


def test_webhooks_are_kept(place: Place) -> None:
    async def test(client: Client) -> None:
        hooks: WebhookClient = client.webhooks
        made = await hooks.add(
            "http://127.0.0.1:1/hook", name="desk", types=["dev.outlast.run.*"], workflows=["order"],
            headers={"X-Api-Key": "secret"}, from_start=True,
        )  # fmt: skip
        assert made.secret.startswith("whsec_") and made.headers == ["x-api-key"]
        one = await hooks.get(made.webhook)
        assert (one.name, one.status, await hooks.list()) == ("desk", "active", [one])
        attempt = await hooks.test(made.webhook)
        assert not attempt.accepted and attempt.error
        assert (await hooks.rotate(made.webhook, keep=timedelta(hours=1))).secret not in ("", made.secret)
        assert (await hooks.disable(made.webhook, reason="moved")).why == "moved"
        assert (await hooks.enable(made.webhook)).status == "active"
        assert (await hooks.deliveries(made.webhook, limit=1)).deliveries == []
        assert (await hooks.deliveries()).next_cursor == ""
        assert await hooks.redeliver(made.webhook) == 0
        assert await hooks.unsent_ms() >= 0
        with pytest.raises(NotFound):
            await hooks.redeliver(f"{made.webhook}:r9:1")
        assert (await hooks.remove(made.webhook)).webhook == made.webhook
        with pytest.raises(NotFound):
            await hooks.get(made.webhook)
        with pytest.raises(InvalidInput):
            await hooks.add("ftp://example.com")
        with pytest.raises(InvalidInput):
            await hooks.notify("ftp://example.com", role="finance")

    place.play(test)


@pytest.mark.req("OUT-1")
@pytest.mark.parametrize("name", WEBHOOK_DETAILS.by_place["request"])
def test_a_fact_of_a_webhook_is_kept_and_has_its_greatest_length(place: Place, name: str) -> None:
    field = WEBHOOK_DETAILS.fields[name]
    text = "ä" * field.chars_max

    async def test(client: Client) -> None:
        hooks: WebhookClient = client.webhooks
        made = [
            await hooks.add("http://127.0.0.1:1/hook", **{name: text}),  # type: ignore[arg-type]
            await hooks.notify("ntfys://1.1.1.1/topic", role="finance", **{name: text}),  # type: ignore[arg-type]
        ]
        listed = {each.webhook: getattr(each, name) for each in await hooks.list()}
        for each in made:
            assert getattr(each, name) == listed[each.webhook] == text
            assert getattr(await hooks.get(each.webhook), name) == text
            await hooks.remove(each.webhook)
        for wrong in (text + "x", "a\0b"):
            with pytest.raises(InvalidInput):
                await hooks.add("http://127.0.0.1:1/hook", **{name: wrong})  # type: ignore[arg-type]
            with pytest.raises(InvalidInput):
                await hooks.notify("ntfys://1.1.1.1/topic", role="finance", **{name: wrong})  # type: ignore[arg-type]

    place.play(test)


def public(kind: type[Any]) -> set[str]:
    """Return the public methods of a class."""
    return {name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))}


@pytest.mark.req("RT-4")
def test_a_run_moves_between_schedulers(place: Place) -> None:
    """Our worker leaves it alone until it is moved here."""

    async def test(client: Client) -> None:
        run = await client.start(flows.orders, flows.Order(supplier="elsewhere"), scheduler="temporal")
        found = await client.run_summary(run.id)
        assert (found.scheduler, found.lane, found.served) == ("temporal", "temporal:order@1", False)
        with pytest.raises(NotFound, match="no live worker serves langgraph:order@1"):
            await client.move_to(run.id, "langgraph")
        with pytest.raises(InvalidInput, match="no scheduler cron"):
            await client.move_to(run.id, "cron")
        await client.move_to(run.id, "langgraph", force=True)
        await client.move_to(run.id, "outlast", reason="they were slow")
        await waits(client, run.id, "signal")
        assert (await client.run_summary(run.id)).scheduler == "outlast"
        with pytest.raises(Conflict, match="outlast schedules"):
            await client.move_to(run.id, "outlast")
        versions = {each.lane: each.scheduler for each in await client.versions()}
        assert versions["order@1"] == "outlast"
        assert {each.scheduler for each in await client.workers()} == {"outlast"}

    place.play(test)


@pytest.mark.req("RUN-13")
def test_the_runs_that_a_run_has_started_are_its_tree(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.herald, name="Ada")
        assert await run.result() == len("hello Ada ")
        (child,) = (await client.tree(run.id)).children
        assert (child.key, child.parent, child.workflow, child.shown) == ("greeting", run.id, "greet", "GREETED")
        (found,) = (await client.runs(parent=run.id)).runs
        assert (found.run, found.root, found.depth) == (child.run, run.id, 1)
        assert child.run not in {each.run for each in (await client.runs(no_children=True)).runs}
        with pytest.raises(NotFound):
            await client.tree("nowhere")

    place.play(test)


@pytest.mark.req("RUN-13")
def test_a_child_is_detached_from_its_parent(place: Place) -> None:
    async def test(client: Client) -> None:
        run = await client.start(flows.listener, name="Ada")
        await waits(client, run.id, "child")
        (child,) = (await client.tree(run.id)).children
        for _ in range(2):
            await client.detach(child.run, reason="it takes too long")
        assert await run.result(PATIENCE) == "detached: it takes too long"
        assert (await client.run_summary(child.run)).status == "waiting"
        with pytest.raises(Conflict, match="is no child"):
            await client.detach(run.id, reason="why")
        await client.cancel(child.run, reason="clean up")

    place.play(test)


def test_no_method_is_left_out() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py"))
    called = set(re.findall(r"\.(\w+)\(", text))
    assert (public(Client) | public(RunHandle) | public(WebhookClient)) - called == set()

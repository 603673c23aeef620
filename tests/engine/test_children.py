"""Child runs of a node: started once, waited for, cancelled with their parent, and undone (S-30)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import ChildFailed, Context, Fail, Refused, Workflow, workflow
from outlast.core import children
from outlast.core.rows.run_rows import RUN, Run
from outlast.engine import run_executor
from outlast.errors import Conflict, InvalidInput, LimitExceeded, NotFound, WaitTimeout
from outlast.store.queries import RunsBelow
from tests.engine.world import MINUTE, SECOND, Go, Receiver, State, World, one_node, write

pytestmark = pytest.mark.req("RUN-13")
Ctx = Context[State]


@workflow
async def research(ctx: Context, topic: str) -> str:
    """Take 20 seconds. A topic of the name bad fails."""
    await ctx.sleep("20s")
    if topic == "bad":
        raise Fail("no such topic")
    return topic.upper()


@workflow
async def listens(ctx: Context, topic: str) -> str:
    return (await ctx.receive("word", Go)).word


def child_rows(world: World, run: str = "r1") -> list[Any]:
    return [e for e in world.effects(run) if e.child_text]


def child_run(world: World, key: str, run: str = "r1") -> Run:
    row = world.core.rows.get(RUN, ("t", world.effect(key, run).external_id))
    assert isinstance(row, Run)
    return row


def all_runs(world: World) -> list[Run]:
    return list(world.core.rows.under(RUN, ("t",)))


@pytest.mark.every_store
async def test_a_parent_gets_the_outcome_of_a_child_that_it_starts_once(world: World) -> None:
    executed = []

    async def body(ctx: Ctx) -> None:
        executed.append(ctx.visit)
        ctx.state.said.append(await ctx.run(research, topic="tin"))

    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    assert world.waiting() == [("child", child_rows(world)[0].activity + " " + child_rows(world)[0].key)]
    (row,) = child_rows(world)
    child = child_run(world, row.key)
    assert (child.parent, child.root, child.depth, child.called_as) == ("r1", "r1", 1, f"1:{row.key}")
    assert child.requested_by == "me"
    await world.pass_(MINUTE)
    assert world.status() == "completed" and world.outcome()["said"] == ["TIN"]
    assert len(executed) == 2 and len(all_runs(world)) == 2


async def test_handles_start_several_and_wait_for_each(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        handles = [await ctx.start(research, topic=each) for each in ("tin", "zinc", "lead")]
        ctx.state.said += await asyncio.gather(*(each.result() for each in handles))

    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    assert [kind for kind, _ in world.waiting()] == ["child"] * 3
    await world.pass_(MINUTE)
    assert world.outcome()["said"] == ["TIN", "ZINC", "LEAD"]
    assert [e.ordinal for e in child_rows(world)] == [1, 2, 3]


async def test_a_child_that_fails_raises_and_is_caught(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        try:
            await ctx.run(research, research.arguments(topic="bad"), key="bad")
        except ChildFailed as failed:
            ctx.state.said += [failed.workflow, failed.key, failed.code, failed.detail]

    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.outcome()["said"] == ["research", "bad", "failed", "no such topic"]


async def test_a_failure_that_is_not_caught_asks_a_person_and_may_be_tried_again(world: World) -> None:
    words = iter(["", "fine"])

    @workflow
    async def flaky(ctx: Context) -> str:
        return next(words) or _fail("down")

    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.run(flaky, {}, key="k"))

    flow = one_node(body)
    world.worker(flow, flaky)
    await world.start(flow)
    assert world.reasons() == ["child_failed"]
    first = world.effect("k").external_id
    await world.answer("child_failed", "retry")
    assert world.status() == "completed" and world.outcome()["said"] == ["fine"]
    assert world.effect("k").external_id != first and world.effect("k").attempts == 2
    assert {run.status.value for run in all_runs(world)} == {"completed", "failed"}


@pytest.mark.parametrize("key", ["undo/a", "lineage?r1/a", "tree?r1/a"])
async def test_a_child_cannot_have_a_key_of_the_engine(world: World, key: str) -> None:
    said = []

    async def body(ctx: Ctx) -> None:
        with pytest.raises(InvalidInput, match="such keys are the engine's own") as refused:
            await ctx.run(research, research.arguments("other"), key=key)
        said.append(refused.value.what)

    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    assert world.status() == "completed" and said == [f"child research cannot have the key {key}"]
    assert child_rows(world) == []


async def test_a_child_of_an_earlier_visit_may_be_tried_again(world: World) -> None:
    words = iter(["", "fine"])

    @workflow
    async def shaky(ctx: Context) -> str:
        return next(words) or _fail("down")

    flow = Workflow("two", state=State)

    @flow.node(start=True)
    async def begin(ctx: Ctx) -> Literal["later"]:
        await ctx.start(shaky, shaky.arguments(), key="k", parent_close="abandon")
        return "later"

    @flow.node
    async def later(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.child("k").result())

    world.worker(flow, shaky)
    await world.start(flow)
    assert world.reasons() == ["child_failed"]
    await world.answer("child_failed", "retry")
    assert world.status() == "completed" and world.outcome()["said"] == ["fine"]
    assert world.effect("k").attempts == 2 and world.effect("k").child.close == "abandon"


def _fail(reason: str) -> str:
    raise Fail(reason)


@pytest.mark.parametrize(("choice", "status"), [("fail", "failed"), ("cancel", "cancelled")])
async def test_a_person_ends_a_parent_whose_child_failed(world: World, choice: str, status: str) -> None:
    @workflow
    async def fails(ctx: Context) -> str:
        raise Fail("down")

    async def body(ctx: Ctx) -> None:
        await ctx.run(fails, {}, key="k")

    flow = one_node(body)
    world.worker(flow, fails)
    await world.start(flow)
    await world.answer("child_failed", choice)
    assert world.status() == status and len(all_runs(world)) == 2


@pytest.mark.every_store
async def test_a_cancelled_parent_undoes_after_its_children_have_ended(world: World) -> None:
    receiver, theirs = Receiver(), Receiver()
    order, pay = write(receiver, undo=True), write(theirs, name="pay", undo=True)

    @workflow
    async def spends(ctx: Context) -> str:
        await ctx.do(pay, "b")
        await ctx.sleep("9h")
        return "spent"

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await ctx.run(spends, spends.arguments(), key="c", no_undo="it undoes what it spends")

    flow = one_node(body)
    world.worker(flow, spends)
    await world.start(flow)
    assert world.waiting() == [("child", "spends c")]
    await world.cancel()
    child = child_run(world, "c")
    assert (world.status(), child.status.value) == ("cancelled", "cancelled")
    assert child.ended_at <= world.run().ended_at
    assert len(receiver.did) == len(theirs.did) == 2
    assert world.effect("c").code == "cancelled"


async def test_a_failed_parent_waits_while_a_child_cannot_end(world: World) -> None:
    """The undo of the child has failed, so the parent undoes nothing until a person has answered."""
    receiver, theirs = Receiver(), Receiver(None, Refused("gone"))
    order, pay = write(receiver, undo=True), write(theirs, name="pay", undo=True)

    @workflow
    async def spends(ctx: Context) -> str:
        await ctx.do(pay, "b")
        await ctx.sleep("9h")
        return "spent"

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await ctx.start(spends, spends.arguments(), key="c", no_undo="it undoes what it spends")
        await ctx.sleep("1m")
        raise Fail("enough")

    flow = one_node(body)
    world.worker(flow, spends)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    child = child_run(world, "c")
    assert (world.status(), child.status.value) == ("compensating", "compensating")
    assert world.waiting() == [("child", "spends c")] and len(receiver.did) == 1
    assert world.reasons(child.run) == ["undo_failed"]
    await world.answer("undo_failed", "done_by_hand", child.run, key="undo/pay/b")
    assert world.status() == "failed" and len(receiver.did) == 2


async def test_a_completed_child_is_undone_by_its_plan_in_the_order_of_numbers(world: World) -> None:
    receiver = Receiver()
    order, fire = write(receiver, undo=True), write(receiver, name="fire")

    @workflow
    async def hire(ctx: Context) -> str:
        return "hired"

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await ctx.run(hire, hire.arguments(), key="h", undo=fire.plan("h"))
        await ctx.do(order, "z")
        raise Fail("enough")

    flow = one_node(body)
    world.worker(flow, hire)
    await world.start(flow)
    assert world.status() == "failed"
    assert [key.rsplit(":", 1)[1] for key in receiver.attempts] == [
        "order/a", "order/z", "undo/order/z", "undo/h", "undo/order/a",
    ]  # fmt: skip
    assert world.effect("h").status.value == "undone"


@workflow
async def undoes_badly(ctx: Context, room: str) -> None:
    raise Fail("locked")


async def test_a_failed_undo_by_a_run_names_the_child_that_is_not_undone(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.run(research, research.arguments(topic="tin"), key="c", undo=undoes_badly.arguments("c"))
        raise Fail("enough")

    flow = one_node(body)
    world.worker(flow, research, undoes_badly)
    await world.start(flow)
    await world.pass_(MINUTE)
    (entry,) = world.attention()
    assert entry.detail.startswith("the undo of research c by undoes_badly: it was not done: failed: locked")


async def test_a_parent_that_completes_waits_for_its_children(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.start(research, research.arguments(topic="tin"), key="c")

    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    assert (world.status(), world.waiting()) == ("waiting", [("child", "research c")])
    await world.pass_(MINUTE)
    assert world.status() == "completed" == child_run(world, "c").status.value


@pytest.mark.parametrize("end", ["completed", "failed"])
async def test_an_abandoned_child_goes_on_alone(world: World, end: str) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.start(research, research.arguments(topic="tin"), key="c", parent_close="abandon")
        if end == "failed":
            raise Fail("enough")

    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    assert (world.status(), child_run(world, "c").status.value) == (end, "waiting")
    await world.pass_(MINUTE)
    assert child_run(world, "c").status.value == "completed"
    assert world.effect("c").status.value == "done" and not [
        m for m in world.messages() if m.kind == children.CHILD_KIND
    ]


@pytest.mark.every_store
async def test_first_takes_a_child_or_a_time_and_ends_the_child_that_lost(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        match await ctx.first(ctx.run(research, research.arguments(topic="tin"), key="c"), ctx.sleep("10s")):
            case 0, word:
                ctx.state.said.append(word)
            case 1, _:
                ctx.state.said.append("late")

    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    assert sorted(kind for kind, _ in world.waiting()) == ["child", "timer"]
    await world.pass_(11 * SECOND)
    assert world.status() == "completed" and world.outcome()["said"] == ["late"]
    assert child_run(world, "c").status.value == "cancelled"


async def test_first_leaves_a_child_that_is_only_waited_for(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        slow = await ctx.start(research, research.arguments(topic="tin"), key="slow")
        fast = await ctx.start(listens, listens.arguments(topic="x"), key="fast")
        await fast.signal("word", Go(word="now"), id="only")
        won, word = await ctx.first({"slow": slow.result(), "fast": fast.result()})
        ctx.state.said += [won, word, await slow.result()]

    flow = one_node(body)
    world.worker(flow, research, listens)
    await world.start(flow)
    assert world.waiting() == [("child", "research slow")]
    await world.pass_(MINUTE)
    assert world.outcome()["said"] == ["fast", "now", "TIN"]


@pytest.mark.every_store
@pytest.mark.parametrize(("words", "end"), [(2, ["b:yes", "c:yes"]), (1, ["b:yes", "late"])])
async def test_rounds_take_the_first_answers_within_one_deadline(world: World, words: int, end: list[str]) -> None:
    """The first two of three children within nine minutes; a worker dies after each answer."""

    async def body(ctx: Ctx) -> None:
        end_at = ctx.now() + timedelta(minutes=9)
        living = {
            key: await ctx.start(listens, listens.arguments(topic=key), key=key, no_undo="it listens") for key in "abc"
        }
        while len(ctx.state.said) < 2:
            waits = {key: handle.result() for key, handle in living.items()}
            won, word = await ctx.first({**waits, "late": ctx.sleep(until=end_at, round=len(ctx.state.said))})
            ctx.state.said.append("late" if won == "late" else f"{won}:{word}")
            if won == "late":
                break
            living.pop(won)
        for handle in living.values():
            await handle.cancel(reason="enough")

    flow = one_node(body)
    worker = world.worker(flow, listens)
    await world.start(flow)
    for key in "bc"[:words]:
        worker.kill()
        await world.signal("word", child_run(world, key).run, word="yes")
        worker = world.worker(flow, listens)
        await world.pass_(3 * MINUTE)
    await world.pass_(9 * MINUTE)
    assert world.status() == "completed" and world.outcome()["said"] == end
    statuses = {key: child_run(world, key).status.value for key in "abc"}
    assert statuses == {"a": "cancelled", "b": "completed", "c": "completed" if words == 2 else "cancelled"}
    assert len(all_runs(world)) == 4


async def test_a_result_that_comes_too_late_is_a_timeout_on_each_re_run(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        slow = await ctx.start(research, research.arguments(topic="tin"), key="slow")
        try:
            await slow.result(timeout="10s")
        except WaitTimeout:
            ctx.state.said.append("late")
        await ctx.sleep("1m", name="more")
        ctx.state.said.append(await slow.result())

    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert world.status() == "completed", world.attention()
    assert world.outcome()["said"] == ["late", "TIN"]


async def test_a_handle_cancels_and_a_later_visit_finds_the_child(world: World) -> None:
    flow = Workflow("two", state=State, when_empty="complete")

    @flow.node(start=True)
    async def begin(ctx: Ctx) -> Literal["later"]:
        await ctx.start(research, research.arguments(topic="tin"), key="c")
        return "later"

    @flow.node
    async def later(ctx: Ctx) -> None:
        child = ctx.child("c")
        await child.cancel(reason="no longer needed")
        await child.cancel(reason="no longer needed")
        try:
            await child.result()
        except ChildFailed as failed:
            ctx.state.said.append(failed.code)

    world.worker(flow, research)
    await world.start(flow)
    assert world.status() == "completed" and world.outcome()["said"] == ["cancelled"]
    assert child_run(world, "c").status.value == "cancelled"
    assert len([m for m in world.messages(child_run(world, "c").run) if m.kind == "cancel"]) == 1


class Deep(BaseModel):
    left: int


async def test_the_tree_has_a_limit_of_depth(world: World) -> None:
    flow = Workflow("deep", state=Deep)

    @flow.node(start=True)
    async def only(ctx: Context[Deep]) -> None:
        if ctx.state.left:
            await ctx.run(flow, Deep(left=ctx.state.left - 1), key="next")

    world.worker(flow)
    await world.start(flow, left=8)
    assert world.status() == "completed" and len(all_runs(world)) == 9
    assert {run.root for run in all_runs(world)} == {"", "r1"} and max(run.depth for run in all_runs(world)) == 8
    await world.start(flow, "r2", left=9)
    deepest = max((run for run in all_runs(world) if run.root == "r2"), key=lambda run: run.depth)
    assert "the limit is 8" in str(deepest.attention)


async def test_mistakes_are_said(world: World) -> None:
    order = write(Receiver())

    @workflow
    async def writes(ctx: Context) -> None:
        await ctx.do(order, "a")

    said: list[Exception] = []

    @workflow
    async def reads(ctx: Context) -> None:
        """Beside `order`, which it does not call."""

    async def body(ctx: Ctx) -> None:
        await ctx.run(reads)
        named_at_run_time = writes
        for make in (
            lambda: ctx.run(named_at_run_time),
            lambda: ctx.run(research, research.arguments(topic="a"), parent_close="never"),
            lambda: ctx.run(research, research.arguments(topic="a"), once_per="tenant"),
            lambda: ctx.run(research, research.arguments(topic="a"), kee="x"),
            lambda: ctx.run(writes, writes.arguments(), undo=order.plan("b"), parent_close="abandon"),
            lambda: ctx.run("nothing", {}),
        ):
            try:
                await make()
            except Exception as error:
                said.append(error)
        await ctx.start(research, research.arguments(topic="a"), key="same")
        try:
            await ctx.start(research, research.arguments(topic="b"), key="same")
        except Conflict as error:
            said.append(error)

    flow = one_node(body)
    assert (writes.writes, reads.writes) == (("order",), ())
    world.worker(flow, research, writes, reads)
    await world.start(flow)
    texts = [str(each) for each in said]
    assert "child writes has neither undo= nor no_undo=" in texts[0]
    assert "'cancel' or 'abandon'" in texts[1] and "once per visit or run" in texts[2] and "no option kee" in texts[3]
    assert "has undo= and parent_close='abandon'" in texts[4]
    assert "nothing" in texts[5] and "key same is recorded for research with the input" in texts[6]


@workflow
async def named_by_text(ctx: Context, topic: str) -> None: ...


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda ctx: ctx.start(None, {}), ["cannot be a run of None", "ctx.run(research"]),
        (lambda ctx: ctx.start(_fail, {}), ["cannot be a run of <function _fail", "@workflow"]),
        (lambda ctx: ctx.start(write(Receiver()), {}), ["cannot be a run of", "ctx.do(order, …)"]),
        (
            lambda ctx: ctx.run(research, no_undo="x"),
            ["has the option no_undo without an input", "ctx.run(research, research.arguments(…), no_undo=…)"],
        ),
        (
            lambda ctx: ctx.start(research, topic="a", parent_close="abandon", once_per="run"),
            ["ctx.run(research, research.arguments(…), once_per=…, parent_close=…)"],
        ),
        (
            lambda ctx: ctx.run("named_by_text", topic="a"),
            ["takes it as a dict", 'ctx.run("named_by_text", {"topic": "tin"}'],
        ),
        (lambda ctx: ctx.run(research, {"topic": "a"}, undo="listens"), ["undo= is 'listens'", "release.plan(room)"]),
        (lambda ctx: ctx.run(research, {"topic": "a"}, key=5), ["the key 5", 'key="tin"; left out or empty']),
        (lambda ctx: ctx.run(research, {"topic": "a"}, parent_close="kill"), ["'kill'", 'parent_close="abandon"']),
        (lambda ctx: ctx.run(research, {"topic": "a"}, once_per="root"), ["'root'", 'once_per="run"']),
        (lambda ctx: _awaited(ctx.child, "none"), ["no child none", "await ctx.start(research"]),
        (lambda ctx: ctx.child("c").signal("word", {"word": "x"}, id="1"), ["signal word", "{'word': 'x'}", "a model"]),
        (lambda ctx: ctx.child("c").signal("word", "x", id="1"), ["the value 'x'", 'handle.signal("stop", Stop()']),
        (lambda ctx: ctx.child("c").cancel(reason=5), ["the reason is 5", "it is text"]),
        (lambda ctx: ctx.child("c").cancel(reason=" "), ["a cancel needs a reason"]),
    ],
)
async def test_a_mistake_of_a_call_is_said_with_what_to_write(
    world: World, make: Callable[[Any], Awaitable[Any]], says: list[str]
) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.start(research, research.arguments(topic="a"), key="c")
        try:
            await make(ctx)
        except (InvalidInput, NotFound) as error:
            ctx.state.said.append(str(error))

    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    await world.pass_(MINUTE)
    (text,) = world.outcome()["said"]
    assert [each for each in says if each not in text] == [], text


async def _awaited(call: Callable[..., Any], *args: object) -> None:
    call(*args)


async def test_a_second_signal_of_an_id_is_not_sent_and_an_empty_key_is_none(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        child = await ctx.start(listens, listens.arguments(topic="x"), key="")
        ctx.state.said.append(child.key)
        await child.signal("word", Go(word="one"), id="1")
        await child.signal("word", Go(word="two"), id="1")
        ctx.state.said.append(await child.result())

    flow = one_node(body)
    world.worker(flow, listens)
    await world.start(flow)
    key, word = world.outcome()["said"]
    assert key.startswith("listens/") and word == "one"
    assert len([m for m in world.messages(child_rows(world)[0].external_id) if m.kind == "signal"]) == 1


async def test_a_key_that_another_starter_has_is_a_conflict(world: World) -> None:
    keyed: Workflow[Any] = Workflow("keyed", state=State, key="order-{n}")

    @keyed.node(start=True)
    async def only(ctx: Ctx) -> None:
        await ctx.sleep("1h")

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.run(keyed, State(n=7))
        except Conflict as error:
            ctx.state.said.append(str(error))

    flow = one_node(body)
    world.worker(flow, keyed)
    await world.start(keyed, "first", n=7)
    await world.start(flow)
    assert "keyed was started before: first" in world.outcome()["said"][0]
    assert not child_rows(world)


async def _asks_by_run(ctx: Ctx) -> Any:
    return await ctx.run(keyed, State(), key="c")


async def _asks_by_start(ctx: Ctx) -> Any:
    return await (await ctx.start(keyed, State(), key="c")).result()


async def _asks_by_first(ctx: Ctx) -> Any:
    return await ctx.first(ctx.run(keyed, State(), key="c"), ctx.sleep("1h"))


keyed = Workflow("keyed", state=State, key=lambda state: "only/1", when_empty="complete")


@keyed.node(start=True)
async def keyed_node(ctx: Ctx) -> None: ...


@pytest.mark.every_store
@pytest.mark.parametrize("ask", [_asks_by_run, _asks_by_start, _asks_by_first])
async def test_one_of_two_parents_that_start_a_key_at_once_gets_a_conflict(world: World, ask: Any) -> None:
    """Both have read that no run has the key; the store refuses the second start."""

    async def body(ctx: Ctx) -> None:
        await ask(ctx)

    flow = one_node(body)
    await world.start(flow, run="r1")
    await world.start(flow, run="r2")
    world.worker(flow, keyed)
    await world.pass_(MINUTE)
    (lost,) = [run for run in ("r1", "r2") if world.status(run) != "completed"]
    (asked,) = world.attention(lost)
    assert asked.reason == "exception" and "was started before: run-" in asked.detail


@pytest.mark.every_store
@pytest.mark.parametrize("part", ["child c", "complete", "park", "start"])
async def test_a_worker_that_dies_after_a_commit_leaves_nothing_twice(world: World, part: str) -> None:
    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.run(research, research.arguments(topic="tin"), key="c"))

    flow = one_node(body)
    dead = world.worker(flow, research)
    dead.wire.after(part, dead.kill)
    await world.start(flow)
    await world.pass_(MINUTE)
    world.worker(flow, research)
    await world.pass_(3 * MINUTE)
    assert world.status() == "completed" and world.outcome()["said"] == ["TIN"]
    assert len(all_runs(world)) == 2


async def test_an_end_while_the_parent_parks_is_not_missed(world: World) -> None:
    """The child ends between the parent's look and its park."""

    @workflow
    async def quick(ctx: Context) -> str:
        return "done"

    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.run(quick, {}, key="c"))

    flow = one_node(body)
    parents = world.worker(flow)
    held: list[Any] = []
    parents.wire.before("park", lambda: held.append(world.worker(quick)))
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.status() == "completed" and world.outcome()["said"] == ["done"]


@pytest.mark.every_store
async def test_an_end_that_meets_an_ended_parent_is_decided_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent ends between the look of the child's holder and its commit. The holder keeps the child."""

    async def body(ctx: Ctx) -> None:
        await ctx.start(research, research.arguments(topic="tin"), key="c", parent_close="abandon")
        await ctx.sleep("10s")

    read, looks, living = run_executor.parent_rows, [0], list[Run]()

    async def outdated(store: Any, child: Run) -> children.ParentRows:
        looks[0] += 1
        rows = await read(store, child)
        return rows._replace(run=living[0]._replace(due_at=None)) if looks[0] == 1 else rows

    monkeypatch.setattr(run_executor, "parent_rows", outdated)
    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    living.append(world.run())
    await world.pass_(MINUTE)
    child = child_run(world, "c")
    assert (looks[0], world.status(), child.status.value) == (2, "completed", "completed")
    assert world.verbs(child.run).count("claimed") == 2 and "requeued" not in world.verbs(child.run)


async def test_a_refused_request_to_end_is_made_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The store was away as a parent ended its child. No person is asked, and no fault is logged."""

    async def body(ctx: Ctx) -> None:
        await ctx.run(listens, listens.arguments(topic="x"), key="c")

    flow = one_node(body)
    worker = world.worker(flow, listens)
    await world.start(flow)
    worker.wire.away.append("stop c")
    await world.cancel()
    await world.pass_(MINUTE)
    assert not worker.wire.away and "attention" not in world.verbs() and "StoreAway" not in caplog.text
    assert world.status() == child_run(world, "c").status.value == "cancelled"


async def test_a_parent_gives_its_slot_back(world: World) -> None:
    world.add_slots("t", 1)

    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.run(research, research.arguments(topic="tin"), key="c"))

    flow = one_node(body)
    assert flow.slot_while_waiting
    world.worker(flow, research)
    await world.start(flow)
    assert [slot.holder for slot in world.slots()] == [child_run(world, "c").run]
    await world.pass_(MINUTE)
    assert world.status() == "completed" and [slot.holder for slot in world.slots()] == [""]


@pytest.mark.every_store
async def test_a_tree_has_so_many_runs_and_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended runs count. The refusal names the root and the limit, at any depth, and the child can go on without."""
    monkeypatch.setattr("outlast.engine.child_runs.DESCENDANTS_MAX", 4)

    @workflow
    async def quick(ctx: Context, n: int) -> str:
        return "done"

    @workflow
    async def starts(ctx: Context, of: int) -> list[str]:
        said = []
        for n in range(of):
            try:
                said.append(await ctx.run(quick, quick.arguments(n=n)))
            except LimitExceeded as refused:
                said.append(refused.why)
        return said

    async def body(ctx: Ctx) -> None:
        await ctx.run(starts, starts.arguments(of=1))
        ctx.state.said += await ctx.run(starts, starts.arguments(of=2))

    flow = one_node(body)
    world.worker(flow, quick, starts)
    await world.start(flow)
    await world.pass_(MINUTE)
    first, second = world.outcome()["said"]
    assert first == "done" and second.startswith("4 runs are below its root r1")
    assert len(all_runs(world)) == 5


async def test_the_first_children_of_a_root_are_not_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without children reads nothing more for its starts, and one with children reads once per claim."""
    asked = []
    query = type(world.store).query

    async def counted(self: Any, given: Any) -> Any:
        asked.extend([given.root] if isinstance(given, RunsBelow) else [])
        return await query(self, given)

    monkeypatch.setattr(type(world.store), "query", counted)

    async def body(ctx: Ctx) -> None:
        for n in range(3):
            await ctx.start(research, research.arguments(topic=f"t{n}"))
        await ctx.receive("go", Go)
        for n in range(3, 6):
            await ctx.start(research, research.arguments(topic=f"t{n}"))

    flow = one_node(body)
    world.worker(flow, research)
    await world.start(flow)
    assert asked == []
    await world.signal("go")
    assert asked == ["r1"]

"""The first of several waits: one winner, which stays, in the order of arrival; the others are closed (S-29)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from outlast.errors import Conflict
from outlast.flow import Context, Workflow, role
from tests.engine.world import HOUR, MINUTE, Go, Receiver, State, World, one_node, write

Ctx = Context[State]
BOSS = role("boss")


def racing(within: str = "2h", deadline: str = "1h") -> Workflow[State]:
    """Workflow that waits for a signal `go`, a deadline, or an approval."""
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        match await ctx.first(
            ctx.receive("go", Go),
            ctx.sleep(deadline),
            ctx.approval(order.plan("a", 1), summary="Order a", by=BOSS, within=within),
        ):
            case 0, go:
                ctx.state.said = ["signal", go.word]
            case 1, _:
                ctx.state.said = ["deadline"]
            case 2, decision:
                ctx.state.said = ["decision", str(decision.approved), decision.by]
                if decision.approved:
                    await ctx.do(decision.chosen)

    return one_node(body)


def states(world: World) -> dict[str, str]:
    return {wait.key: wait.status.value for wait in world.waits()}


@pytest.mark.req("RUN-12")
@pytest.mark.every_store
async def test_a_signal_ends_the_set_and_closes_the_others(world: World) -> None:
    flow = racing()
    process = world.worker(flow)
    await world.start(flow)
    assert (world.status(), world.run().owner, process.worker.held) == ("waiting", "", 0)
    assert [kind for kind, _ in world.waiting()] == ["signal", "timer", "approval"]
    approval = world.pending()
    await world.signal("go", word="yes")
    assert world.outcome()["said"] == ["signal", "yes"]
    assert states(world) == {"go": "bound", "sleep": "closed"}
    (left,) = world.approvals()
    assert (left.status.value, left.reason) == ("withdrawn", "wait?go ended first")
    with pytest.raises(Conflict, match=r"wait\?go ended first"):
        await world.decide(approval)


@pytest.mark.req("RUN-12")
@pytest.mark.every_store
async def test_the_deadline_ends_the_set(world: World) -> None:
    flow = racing(deadline="10m")  # on PostgreSQL an hour without work takes 6 s of CPU
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * MINUTE - 1)
    assert world.status() == "waiting"
    await world.pass_(MINUTE)
    assert world.outcome()["said"] == ["deadline"]
    assert states(world) == {"go": "closed", "sleep": "bound"}
    assert world.approvals()[0].status.value == "withdrawn"


@pytest.mark.req("RUN-12")
@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_a_decision_ends_the_set(world: World, verb: str) -> None:
    """A rejection wins as an approval does, and what was approved is done once."""
    flow = racing()
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending(), approve=verb == "approve")
    assert world.outcome()["said"] == ["decision", str(verb == "approve"), "boss"]
    assert states(world) == {"go": "closed", "sleep": "closed"}
    assert [e.status.value for e in world.effects()] == (["done"] if verb == "approve" else [])


@pytest.mark.req("RUN-12")
@pytest.mark.parametrize("late", [False, True])
async def test_a_deadline_wins_only_if_every_message_came_at_or_after_it(world: World, late: bool) -> None:
    """The store's time of arrival decides, however late the run is executed."""
    flow = racing()
    first = world.worker(flow)
    await world.start(flow)
    first.kill()
    await world.pass_(HOUR - (0 if late else 1))
    await world.signal("go", word="just in time")
    await world.pass_(HOUR)
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.outcome()["said"] == (["deadline"] if late else ["signal", "just in time"])


@pytest.mark.req("RUN-12")
@pytest.mark.parametrize("signal_first", [False, True])
async def test_of_several_answers_the_one_that_arrived_first_wins(world: World, signal_first: bool) -> None:
    flow = racing()
    first = world.worker(flow)
    await world.start(flow)
    first.kill()
    await world.pass_(MINUTE)
    if signal_first:
        await world.signal("go", word="one")
    approval = world.pending()
    await world.decide(approval)
    if not signal_first:
        await world.signal("go", word="one")
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.outcome()["said"][0] == ("signal" if signal_first else "decision")
    (left,) = world.approvals()
    assert (left.status.value, left.decided_by) == ("withdrawn" if signal_first else "approved", "boss")


@pytest.mark.req("RUN-12", "REC-1")
@pytest.mark.every_store
async def test_the_winner_is_the_same_after_a_crash(world: World) -> None:
    """What could win by then does not: the memo names the winner."""
    seen: list[int] = []

    async def body(ctx: Ctx) -> None:
        at, _ = await ctx.first(ctx.receive("a", Go), ctx.receive("b", Go))
        seen.append(at)
        await ctx.receive("end", Go)
        ctx.state.said = [str(at)]

    flow = one_node(body)
    first = world.worker(flow)
    first.wire.after("first wait?b", first.kill)
    await world.start(flow)
    await world.signal("b", word="b")
    await world.signal("a", word="a")
    world.worker(flow)
    await world.pass_(MINUTE)
    await world.signal("end")
    assert seen and set(seen) == {1}
    assert world.outcome()["said"] == ["1"]


@pytest.mark.req("RUN-12")
async def test_a_message_that_lands_while_the_deadline_is_bound_is_read_first(world: World) -> None:
    """The trace of the model of S-29: the commit names the last message that was read."""
    flow = racing()
    process = world.worker(flow)
    await world.start(flow)
    await world.pass_(HOUR - MINUTE)
    process.wire.before("first wait?sleep", lambda: world.signal_now("go", word="heard"))
    await world.pass_(MINUTE)
    assert world.outcome()["said"] == ["deadline"], "it was stamped at the deadline"
    assert len(world.messages()) == 1


@pytest.mark.req("RUN-12")
async def test_a_decision_that_lands_while_another_wait_wins_is_refused_or_wins(world: World) -> None:
    flow = racing()
    process = world.worker(flow)
    await world.start(flow)
    approval = world.pending()
    process.wire.before("first wait?go", lambda: world.decide_now(approval))
    await world.signal("go", word="one")
    assert world.outcome()["said"] == ["signal", "one"]
    assert world.approvals()[0].status.value == "withdrawn"
    assert world.effects() == []


@pytest.mark.req("RUN-12")
@pytest.mark.every_store
async def test_a_loser_takes_no_message_and_a_later_round_does(world: World) -> None:
    """Ask in rounds until three have answered or ten minutes have passed."""

    async def body(ctx: Ctx) -> None:
        answers: list[str] = []
        for n in range(9):
            found = await ctx.first(
                {"bid": ctx.receive("bid", Go, round=n), "note": ctx.receive("note", Go, round=n),
                 "end": ctx.sleep("10m", round=n)}
            )  # fmt: skip
            answers.append(found[0] if found[1] is None else f"{found[0]} {found[1].word}")
            if found[0] == "end":
                break
        ctx.state.said = answers

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("bid", word="1")
    await world.signal("note", word="2")
    await world.signal("bid", word="3")
    await world.pass_(11 * MINUTE)
    assert world.outcome()["said"] == ["bid 1", "note 2", "bid 3", "end"]
    assert states(world)["bid#0"] == "bound" and states(world)["note#0"] == "closed"


@pytest.mark.req("RUN-12", "GATE-3")
async def test_an_approval_whose_time_runs_out_asks_an_operator_and_the_others_go_on(world: World) -> None:
    flow = racing(within="10m")
    process = world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * MINUTE)
    assert world.reasons() == ["approval_timeout"]
    assert not world.attention()[0].stops
    assert [kind for kind, _ in world.waiting()] == ["signal", "timer"]
    flagged = world.verbs().count("flagged")
    await world.signal("other")
    assert world.verbs().count("flagged") == flagged, "it is asked once"
    await world.signal("go", word="yes")
    assert world.outcome()["said"] == ["signal", "yes"]
    assert world.reasons() == [] and process.worker.held == 0
    entry = next(e for e in world.events() if b"ended first" in e.body)
    assert b"was not decided in time" in entry.body


@pytest.mark.req("RUN-12", "GATE-3")
async def test_an_approval_of_a_set_may_be_asked_again(world: World) -> None:
    flow = racing(within="10m")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * MINUTE)
    await world.answer("approval_timeout", "ask_again")
    assert world.reasons() == []
    await world.decide(world.pending())
    assert world.outcome()["said"][0] == "decision"


@pytest.mark.req("RUN-12")
async def test_without_another_open_wait_the_operator_stops_the_run(world: World) -> None:
    """Both approvals time out: nothing of the set can end any more without an answer."""

    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        await ctx.first(
            ctx.approval(order.plan("a", 1), summary="a", by=BOSS, within="10m", name="one"),
            ctx.approval(order.plan("b", 1), summary="b", by=BOSS, within="20m", name="two"),
        )

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * MINUTE)
    assert [a.stops for a in world.attention()] == [False]
    await world.pass_(10 * MINUTE)
    assert [a.stops for a in world.attention()] == [True, True]


def refused(make: Callable[[Ctx], list[Any]]) -> Workflow[State]:
    async def body(ctx: Ctx) -> None:
        await ctx.first(*make(ctx))

    return one_node(body)


@pytest.mark.req("RUN-12")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda ctx: [], "given 0 waits"),
        (lambda ctx: [ctx.receive("a", Go)], "given 1 waits"),
        (lambda ctx: [ctx.receive(f"a{n}", Go) for n in range(9)], "given 9 waits"),
        (
            lambda ctx: [ctx.receive("a", Go), ctx.emit({}, key="x")],
            r"ctx.emit at .*first.py:\d+, which is no wait",
        ),
        (lambda ctx: [ctx.receive("a", Go), 7], "an object of the type int"),
        (lambda ctx: [ctx.receive("a", Go), ctx.first(ctx.sleep("1h"), ctx.receive("b", Go))], "which is no wait"),
        (lambda ctx: [one := ctx.receive("a", Go), one], "one wait twice"),
        (lambda ctx: [ctx.receive("a", Go), ctx.receive("a", Go)], "twice in one visit"),
        (lambda ctx: [ctx.receive("a", Go, round=-1), ctx.sleep("1h")], "round=-1"),
        (lambda ctx: [ctx.collect("a", Go, timeout="1h", limit=0), ctx.sleep("1h")], "limit=0"),
    ],
)
async def test_what_is_no_set_of_waits_is_refused(world: World, make: Callable[[Ctx], list[Any]], says: str) -> None:
    flow = refused(make)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"]
    import re

    assert re.search(says, world.attention()[0].detail), world.attention()[0].detail


@pytest.mark.req("RUN-12")
async def test_a_wait_that_was_awaited_before_is_refused(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        done = ctx.receive("a", Go, timeout="1ms")
        await done
        await ctx.first(done, ctx.sleep("1h"))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["exception"]
    assert "which was awaited or given before" in world.attention()[0].detail


@pytest.mark.req("RUN-12", "EFF-9")
@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("closed", "closed earlier in this visit, because another wait of its ctx.first ended before it"),
        ("lower", "the rounds of a name rise"),
    ],
)
async def test_a_rerun_that_asks_for_another_wait_is_told_so(world: World, second: str, says: str) -> None:
    dead: list[bool] = []

    async def body(ctx: Ctx) -> None:
        if not dead or second == "lower":
            await ctx.first(ctx.receive("a", Go, round=2), ctx.receive("b", Go))
        if dead:
            await ctx.receive("a", Go, round=1 if second == "lower" else 2)
        await ctx.receive("end", Go)

    flow = one_node(body)
    first = world.worker(flow)
    first.wire.after("first wait?b", lambda: (dead.append(True), first.kill()))
    await world.start(flow)
    await world.signal("b", word="b")
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["node_diverged"], world.attention()
    assert says in world.attention()[0].detail


@pytest.mark.req("RUN-12")
async def test_two_open_waits_of_one_name_are_refused(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.first(ctx.receive("a", Go, round=1), ctx.receive("a", Go, round=2))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"]
    assert "two open waits of one name" in world.attention()[0].detail


@pytest.mark.req("RUN-12")
async def test_a_collect_takes_part_with_its_limit_and_its_deadline(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        at, got = await ctx.first(
            ctx.collect("a", Go, timeout="30m", limit=2), ctx.sleep(timedelta(hours=1)), ctx.receive("b", Go)
        )
        ctx.state.said = [str(at), *(each.word for each in got or ())]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow, "full")
    await world.signal("a", "full", word="1")
    await world.signal("a", "full", word="2")
    assert world.events("full")[-1].type.endswith("completed")
    await world.start(flow, "short")
    await world.signal("a", "short", word="1")
    await world.pass_(30 * MINUTE)
    import json

    said = [json.loads(world.events(run)[-1].body)["data"]["outcome"]["said"] for run in ("full", "short")]
    assert said == [["0", "1", "2"], ["0", "1"]]


@pytest.mark.req("RUN-12", "RUN-2")
async def test_the_set_may_wait_beside_other_waits(world: World) -> None:
    import asyncio

    async def body(ctx: Ctx) -> None:
        (at, _), other = await asyncio.gather(ctx.first(ctx.receive("a", Go), ctx.sleep("1h")), ctx.receive("c", Go))
        ctx.state.said = [str(at), other.word]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("c", word="c")
    assert world.status() == "waiting"
    await world.signal("a", word="a")
    assert world.outcome()["said"] == ["0", "c"]

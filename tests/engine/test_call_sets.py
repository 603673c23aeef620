"""A `do_all` that may end before all its calls have begun: enough of them, too many failures, and one set for good."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.enough import ENDED_EARLY
from outlast.core.limits import CALLS_PER_VISIT_MAX
from outlast.core.rows.effect_rows import MEMO
from outlast.errors import InvalidInput
from outlast.flow import (
    Allow,
    Context,
    Deny,
    FanOut,
    NeedsApproval,
    Perhaps,
    PolicyRequest,
    Refused,
    Retry,
    RetryLater,
    Verdict,
    Workflow,
    role,
)
from tests.engine.world import HOUR, MINUTE, QUIET, Go, Receiver, Slow, State, World, one_node, reading, write
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-14")
Ctx = Context[State]
LETTERS = "abcdef"


async def summary_of(done: FanOut[Any, Any]) -> list[str]:
    """Return what a set has come to, as one list."""
    values = {**await done.values(), **{key: str(error) for key, error in (await done.errors()).items()}}
    members = (f"{key} {status} {values.get(key, '')}".strip() for key, status in done.statuses.items())
    return ["enough" if done.enough else "too few", *members]


def sets(world: World, run: str = "r1") -> int:
    return sum(memo.key.startswith(ENDED_EARLY) for memo in world.core.rows.under(MEMO, ("t", run)))


@pytest.mark.every_store
@pytest.mark.parametrize(
    ("bounds", "script", "expected"),
    [
        ({"min_successful": 2}, [], "enough, a completed did order/a, b completed did order/b, c not_started"),
        ({"tolerated_failures": 0}, ["no"], "too few, a failed no, b not_started, c not_started"),
        ({"tolerated_failures": 1}, ["no"], "enough, a failed no, b completed did order/b, c completed did order/c"),
        ({"min_successful": 3}, [None, "no"], "too few, a completed did order/a, b failed no, c not_started"),
        (
            {"min_successful": 1, "tolerated_failures": 1},
            ["no", "no"],
            "too few, a failed no, b failed no, c not_started",
        ),
        ({"tolerated_failures": 3}, ["no"] * 3, "enough, a failed no, b failed no, c failed no"),
    ],
)
async def test_a_set_ends_with_enough_or_too_few(
    world: World, bounds: dict[str, int], script: list[Any], expected: str
) -> None:
    order = write(Receiver(*(Refused(each) if each else None for each in script)))

    async def body(ctx: Ctx) -> None:
        ctx.state.said = await summary_of(await ctx.do_all({x: order.plan(x) for x in "abc"}, at_most=1, **bounds))

    world.worker(flow := one_node(body))
    await world.start(flow)
    assert ", ".join(world.outcome()["said"]) == expected
    assert len(world.effects()) == 3 - expected.count("not_started")
    assert sets(world) == ("not_started" in expected)


async def test_a_list_has_positions_and_an_empty_set_has_enough(world: World) -> None:
    order = write(Receiver(Refused("no")))

    async def body(ctx: Ctx) -> None:
        ctx.state.said = await summary_of(await ctx.do_all([order.plan(x) for x in "ab"], tolerated_failures=1))
        ctx.state.said += await summary_of(await ctx.do_all([], tolerated_failures=0))

    world.worker(flow := one_node(body))
    await world.start(flow)
    assert world.outcome()["said"] == ["enough", "0 failed no", "1 completed did order/b", "enough"]


async def test_calls_under_way_settle_and_count_as_what_they_became(world: World) -> None:
    """The third call is under way when two have failed, and makes enough."""
    late = Slow()
    shop = Receiver(late, Refused("no"), Refused("no"))
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        plans = {x: order.plan(x) for x in LETTERS}
        done = await ctx.do_all(plans, at_most=3, min_successful=1, tolerated_failures=1)
        ctx.state.said = await summary_of(done)

    world.worker(flow := one_node(body))
    await world.start(flow)
    assert world.status() == "running" and len(shop.attempts) == 3
    late.go.set()
    await world.settle()
    summary = ["enough", "a completed did order/a", "b failed no", "c failed no"]
    assert world.outcome()["said"] == [*summary, "d not_started", "e not_started", "f not_started"]


@pytest.mark.every_store
async def test_each_re_run_gets_the_same_set(world: World) -> None:
    """Also after the body has made, by itself, a call that the set never began."""
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        done = await ctx.do_all({x: order.plan(x) for x in "abc"}, at_most=1, min_successful=1)
        summary = await summary_of(done)
        await ctx.do(order, "b")
        await ctx.receive("go", Go)
        ctx.state.said = summary

    worker = world.worker(flow := one_node(body))
    await world.start(flow)
    worker.kill()
    world.worker(flow)
    await world.pass_(2 * MINUTE)
    await world.signal("go")
    assert world.outcome()["said"] == ["enough", "a completed did order/a", "b not_started", "c not_started"]
    assert [effect.key for effect in world.effects()] == ["order/a", "order/b"]


async def test_recorded_outcomes_count_before_another_call_begins(world: World) -> None:
    """Those of `b` and `f` make enough, so `a`, which did not happen, is not made again."""
    shop = Receiver(Perhaps("lost"))
    order = write(shop)
    seen: list[str] = []

    async def body(ctx: Ctx) -> None:
        plans = {x: order.plan(x) for x in LETTERS}
        if not seen:
            seen.append("first")
            await asyncio.gather(*(ctx.do(plans[x]) for x in "abf"))
        ctx.state.said = await summary_of(await ctx.do_all(plans, at_most=1, min_successful=2))

    world.worker(flow := one_node(body))
    await world.start(flow)
    assert world.reasons() == ["effect_uncertain"]
    await world.pass_(QUIET)
    await world.resolve("order/a", "did_not_happen")
    await world.pass_(HOUR)
    assert world.outcome()["said"][:3] == ["enough", "a not_started", "b completed did order/b"]
    assert [each.rpartition(":")[2] for each in shop.did] == ["order/b", "order/f"]


def _strict(request: PolicyRequest) -> Verdict:
    large = request.activity == "large"
    return NeedsApproval("large", role("boss"), "Really?") if large else Allow("small")


def mixed(shop: Receiver, at_most: int, least: int) -> Workflow[State]:
    """Workflow of a set of which `b` and `d` need an approval."""
    small, large = write(shop), write(shop, name="large")

    async def body(ctx: Ctx) -> None:
        plans = {x: (large if x in "bd" else small).plan(x) for x in "abcd"}
        ctx.state.said = await summary_of(await ctx.do_all(plans, at_most=at_most, min_successful=least))

    return one_node(body, policy=_strict)


@pytest.mark.every_store
@pytest.mark.parametrize("at_most", [0, 2])
async def test_a_call_that_waits_for_its_approval_has_not_begun(world: World, at_most: int) -> None:
    """It never begins once there is enough, and its approvers are asked no more."""
    shop = Receiver()
    world.worker(flow := mixed(shop, at_most, 2))
    await world.start(flow)
    summary = ["enough", "a completed did order/a", "b not_started", "c completed did order/c", "d not_started"]
    assert world.outcome()["said"] == summary and sets(world) == 1
    assert [each.rpartition(":")[2] for each in shop.attempts] == ["order/a", "order/c"]
    assert {each.status.value for each in world.approvals()} == {"withdrawn"}
    assert {each.reason for each in world.approvals()} == {"there was enough without it"}


async def test_a_call_that_needs_an_approval_is_awaited_until_there_is_enough(world: World) -> None:
    world.worker(flow := mixed(Receiver(), 0, 3))
    await world.start(flow)
    assert world.status() == "waiting" and len(world.approvals()) == 2
    await world.decide(world.approvals()[0])
    assert world.outcome()["said"][0] == "enough" and len(world.effects()) == 3
    assert sorted(each.status.value for each in world.approvals()) == ["approved", "withdrawn"]


async def test_an_uncertain_call_keeps_its_place_in_the_set(world: World) -> None:
    """A person says what became of it. No further call begins, although there was enough without it."""
    shop = Receiver(Slow(Perhaps("lost")))
    order = write(shop)
    slow = shop.script[0]

    async def body(ctx: Ctx) -> None:
        plans = {x: order.plan(x) for x in "abcd"}
        ctx.state.said = await summary_of(await ctx.do_all(plans, at_most=2, min_successful=1))

    world.worker(flow := one_node(body))
    await world.start(flow)
    slow.go.set()
    await world.settle()
    assert world.reasons() == ["effect_uncertain"]
    await world.pass_(HOUR)
    await world.resolve("order/a", "happened", response=b'"by phone"')
    summary = ["enough", "a completed by phone", "b completed did order/b", "c not_started", "d not_started"]
    assert world.outcome()["said"] == summary


async def test_a_call_that_waits_for_its_retry_has_begun(world: World) -> None:
    shop = Receiver(RetryLater("later", after=timedelta(minutes=10)))
    order = write(shop, retry=Retry(total_wait=timedelta(hours=2)))

    async def body(ctx: Ctx) -> None:
        plans = {x: order.plan(x) for x in "abcd"}
        ctx.state.said = await summary_of(await ctx.do_all(plans, at_most=2, min_successful=1))

    world.worker(flow := one_node(body))
    await world.start(flow)
    assert world.status() == "waiting"
    await world.pass_(11 * MINUTE)
    summary = ["enough", "a completed did order/a", "b completed did order/b", "c not_started", "d not_started"]
    assert world.outcome()["said"] == summary


async def test_a_lookup_that_raises_has_failed_in_each_re_run(world: World) -> None:
    answers = iter([ConnectionError("away"), "7", "8", "9"])

    def answer() -> str:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    price = reading(answer, key="price/{what}", retry=Retry(attempts=1))

    async def body(ctx: Ctx) -> None:
        summary = await summary_of(await ctx.do_all({x: price.plan(x) for x in "abcd"}, at_most=1, min_successful=2))
        await ctx.receive("go", Go)
        ctx.state.said = summary

    world.worker(flow := one_node(body))
    await world.start(flow)
    await world.signal("go")
    summary = ["enough", "a failed away", "b completed 7", "c completed 8", "d not_started"]
    assert world.outcome()["said"] == summary


async def test_a_denied_proposal_has_failed(world: World) -> None:
    """Also in the re-run after the wait, which asks the policy nothing again."""
    small, large = write(Receiver()), write(Receiver(), name="large")

    async def body(ctx: Ctx) -> None:
        plans = {"a": large.plan("a"), "b": small.plan("b"), "c": small.plan("c")}
        summary = await summary_of(await ctx.do_all(plans, at_most=1, min_successful=1, proposed=True))
        await ctx.receive("go", Go)
        ctx.state.said = summary

    def denies(request: PolicyRequest) -> Verdict:
        return Deny("large", "too dear") if request.activity == "large" else Allow("small")

    world.worker(flow := one_node(body, policy=denies))
    await world.start(flow)
    await world.signal("go")
    enough, failed, *others = world.outcome()["said"]
    assert [enough, *others] == ["enough", "b completed did order/b", "c not_started"]
    assert failed.startswith("a failed policy_denied")


async def test_a_set_beyond_the_limit_of_a_visit_makes_no_call(world: World) -> None:
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        await ctx.do_all([order.plan(f"{n}") for n in range(CALLS_PER_VISIT_MAX + 1)], at_most=1, min_successful=1)

    world.worker(flow := one_node(body))
    await world.start(flow)
    assert world.reasons() == ["exception"] and world.effects() == []
    assert "OUT-105" in world.attention()[0].detail


@pytest.mark.req("EFF-9")
@pytest.mark.parametrize("change", ["keys", "bounds"])
async def test_another_set_in_a_re_run_asks_a_person(world: World, change: str) -> None:
    """`c` was never begun, so no call is recorded for it: the row of the set is."""
    shop = Receiver()
    order = write(shop)
    runs: list[str] = []

    async def body(ctx: Ctx) -> None:
        runs.append("r")
        again = len(runs) > 1
        keys = "abd" if again and change == "keys" else "abc"
        least = 3 if again and change == "bounds" else 2
        await ctx.do_all({x: order.plan(x) for x in keys}, at_most=1, min_successful=least)
        await ctx.receive("go", Go)

    world.worker(flow := one_node(body))
    await world.start(flow)
    await world.signal("go")
    assert len(shop.attempts) == 2
    assert world.reasons() == ["node_diverged"]
    assert "order do_all" in world.attention()[0].detail


@pytest.mark.parametrize(
    "given", [{"min_successful": 4}, {"tolerated_failures": -1}, {"min_successful": 1, "refused": "return"}]
)
async def test_impossible_bounds_make_no_call(world: World, given: dict[str, Any]) -> None:
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        await ctx.do_all([order.plan(x) for x in "abc"], **given)

    world.worker(flow := one_node(body))
    await world.start(flow)
    assert world.reasons() == ["exception"] and world.effects() == []
    assert "OUT-103" in world.attention()[0].detail


@pytest.mark.parametrize(
    ("removal", "test", "given"),
    [
        ("ended_sets_forgotten", test_each_re_run_gets_the_same_set, ()),
        ("ended_sets_not_expected", test_another_set_in_a_re_run_asks_a_person, ("keys",)),
        ("recorded_outcomes_not_counted", test_recorded_outcomes_count_before_another_call_begins, ()),
        ("gates_not_left", test_a_call_that_waits_for_its_approval_has_not_begun, (2,)),
    ],
)
async def test_each_safeguard_is_needed(
    world: World, monkeypatch: pytest.MonkeyPatch, removal: str, test: Callable[..., Any], given: tuple[Any, ...]
) -> None:
    remove(removal, monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        await test(world, *given)


@pytest.mark.parametrize("bounds", [{}, {"min_successful": 1}])
@pytest.mark.parametrize(("plans", "place"), [({"x": 5}, "'x'"), ([5], "0")])
async def test_what_is_no_plan_is_refused(world: World, plans: Any, place: str, bounds: dict[str, int]) -> None:
    async def body(ctx: Ctx) -> None:
        with pytest.raises(InvalidInput, match=rf"(?s)got int at {place}.*write ask\.plan"):
            await ctx.do_all(plans, **bounds)
        ctx.state.said.append("refused")

    world.worker(flow := one_node(body))
    await world.start(flow)
    assert world.outcome()["said"] == ["refused"]

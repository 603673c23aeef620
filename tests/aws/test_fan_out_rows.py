"""Rows about parallel branches and maps, in virtual time: `ctx.do_all` over calls, and `ctx.map` over child runs."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from outlast import Context, Fail, FanOut, Refused, activity, workflow
from outlast.testing import AppFactory

TERMS: Any = {"no_undo": "a step is not undone"}
Shown = dict[str, Any]


@activity(key="aws-branch/{value}", name="aws-branch", no_undo="it returns what it got")
async def branch(value: str) -> str:
    if value.startswith("bad"):
        raise Refused("bad", f"{value} failed")
    return value


@activity(key="aws-number/{value}", name="aws-number", no_undo="it returns what it got")
async def number(value: int) -> int:
    return value


@activity(key="aws-object/{name}", name="aws-object", no_undo="it returns what it got")
async def thing(name: str) -> dict[str, str]:
    return {name: "v"}


def shown(done: FanOut[Any, Any]) -> Shown:
    """Return a result as the rows project it."""
    started = [key for key in done.statuses if key not in done.not_started]
    early = "MIN_SUCCESSFUL_REACHED" if done.enough else "FAILURE_TOLERANCE_EXCEEDED"
    return {
        "completionReason": early if done.not_started or done.cancelled else "ALL_COMPLETED",
        "status": "FAILED" if done.failed else "SUCCEEDED",
        "successCount": len(done.completed),
        "failureCount": len(done.failed),
        "totalCount": len(started),
    }


@workflow(name="aws-parallel")
async def parallel(ctx: Context, values: list[str], bounds: dict[str, int]) -> Shown:
    """Make a call for each value, one after the other."""
    done = await ctx.do_all([branch.plan(each) for each in values], at_most=1, **bounds)  # type: ignore[call-overload]
    return shown(done)


@workflow(name="aws-item")
async def item(ctx: Context, value: str) -> str:
    """Make one call; an item that begins with bad fails."""
    try:
        return await ctx.do(branch, value)
    except Refused as error:
        raise Fail(error.detail) from None


@workflow(name="aws-map")
async def mapped(ctx: Context, values: list[str], bounds: dict[str, int]) -> Shown:
    """Run a child for each value, one after the other."""
    inputs = {each: item.arguments(each) for each in values}
    return shown(await ctx.map(item, inputs, at_most=1, **TERMS, **bounds))


def reason(of: Shown, *numbers: int) -> Shown:
    """Return a projection with these numbers of successes, failures and members."""
    return {**of, **dict(zip(("successCount", "failureCount", "totalCount"), numbers, strict=True))}


ALL: Shown = {"completionReason": "ALL_COMPLETED", "status": "FAILED"}
MIN: Shown = {"completionReason": "MIN_SUCCESSFUL_REACHED", "status": "SUCCEEDED"}
EXCEEDED: Shown = {"completionReason": "FAILURE_TOLERANCE_EXCEEDED", "status": "FAILED"}
QUARTER: Mapping[str, int] = {"tolerated_failures": 4 * 25 // 100}


def projected(app: AppFactory, values: list[str], bounds: Mapping[str, int], expected: Shown) -> None:
    """Play a row with calls, and with child runs."""
    given = {"values": values, "bounds": dict(bounds)}
    of_calls = app(parallel).start(parallel, given)
    assert (of_calls.status, of_calls.outcome) == ("completed", expected)
    of_children = app(mapped, item).start(mapped, given)
    assert (of_children.status, of_children.outcome) == ("completed", expected)


def test_the_first_failure_ends_it(outlast_app: AppFactory) -> None:
    projected(outlast_app, ["ok", "bad", "c"], {"tolerated_failures": 0}, reason(EXCEEDED, 1, 1, 2))


def test_enough_ends_it(outlast_app: AppFactory) -> None:
    projected(outlast_app, ["a", "b", "c", "d"], {"min_successful": 2}, reason(MIN, 2, 0, 2))


def test_a_tolerated_failure_ends_nothing(outlast_app: AppFactory) -> None:
    projected(outlast_app, ["a", "bad", "c"], {"tolerated_failures": 1}, reason(ALL, 2, 1, 3))


def test_more_failures_than_tolerated_end_it(outlast_app: AppFactory) -> None:
    projected(outlast_app, ["bad1", "bad2", "c"], {"tolerated_failures": 1}, reason(EXCEEDED, 0, 2, 2))


def test_a_percentage_is_a_number(outlast_app: AppFactory) -> None:
    projected(outlast_app, ["bad1", "bad2", "c", "d"], QUARTER, reason(EXCEEDED, 0, 2, 2))
    projected(outlast_app, ["bad1", "b", "c", "d"], QUARTER, reason(ALL, 3, 1, 4))


def test_all_may_fail(outlast_app: AppFactory) -> None:
    projected(outlast_app, ["bad1", "bad2", "bad3"], {"tolerated_failures": 3}, reason(ALL, 0, 3, 3))


def test_it_ends_when_too_few_are_left(outlast_app: AppFactory) -> None:
    """Theirs makes the third call, although three successes of three cannot be reached after a failure."""
    projected(outlast_app, ["a", "bad", "c"], {"min_successful": 3}, reason(EXCEEDED, 1, 1, 2))


def test_too_many_failures_come_before_enough(outlast_app: AppFactory) -> None:
    bounds = {"min_successful": 3, "tolerated_failures": 1}
    projected(outlast_app, ["bad1", "bad2", "c", "d"], bounds, reason(EXCEEDED, 0, 2, 2))


# --- values --------------------------------------------------------------------------------------------
def test_values_come_in_the_order_of_the_input(outlast_app: AppFactory) -> None:
    @workflow(name="aws-ordered")
    async def ordered(ctx: Context, at_most: int) -> list[list[str]]:
        names = {"first": "r0", "second": "r1", "third": "r2"}
        plans = {name: branch.plan(value) for name, value in names.items()}
        return [
            list((await ctx.do_all(plans, at_most=at_most)).values()),
            await ctx.do_all(list(plans.values()), at_most=at_most),
        ]

    app = outlast_app(ordered)
    for at_most in (1, 2):
        assert app.start(ordered, {"at_most": at_most}).outcome == [["r0", "r1", "r2"]] * 2


def test_values_keep_their_types(outlast_app: AppFactory) -> None:
    @workflow(name="aws-typed")
    async def typed(ctx: Context) -> list[Any]:
        plans: list[Any] = [branch.plan("hello"), number.plan(42), thing.plan("k")]
        return await ctx.do_all(plans, at_most=1)

    assert outlast_app(typed).start(typed, {}).outcome == ["hello", 42, {"k": "v"}]


def test_nothing_has_an_empty_result(outlast_app: AppFactory) -> None:
    @workflow(name="aws-empty")
    async def empty(ctx: Context) -> list[Any]:
        calls: dict[str, Any] = await (await ctx.do_all({}, tolerated_failures=0)).values()
        return [await ctx.do_all([]), list(calls), list(await (await ctx.map(item, {}, **TERMS)).values())]

    assert outlast_app(empty, item).start(empty, {}).outcome == [[], [], []]


def test_a_failure_that_no_code_catches_asks_a_person(outlast_app: AppFactory) -> None:
    @workflow(name="aws-rethrown-call")
    async def of_calls(ctx: Context) -> None:
        await (await ctx.do_all([branch.plan("bad"), branch.plan("b")], at_most=1, tolerated_failures=0)).raise_failed()

    @workflow(name="aws-rethrown-child")
    async def of_children(ctx: Context) -> None:
        inputs = {each: item.arguments(each) for each in ("bad", "b")}
        await (await ctx.map(item, inputs, at_most=1, tolerated_failures=0, **TERMS)).raise_failed()

    for flow, why in ((of_calls, "exception"), (of_children, "child_failed")):
        run = outlast_app(flow, item).start(flow, {})
        assert run.attention == [why]
        run.answer(why, "fail")
        assert run.status == "failed"


def test_a_branch_that_waits(outlast_app: AppFactory) -> None:
    """A branch with a wait is a child run. The one that has completed is not executed again."""
    executed: list[str] = []

    @workflow(name="aws-waiting")
    async def waiting(ctx: Context, value: str) -> str:
        executed.append(value)
        if value == "b1":
            await ctx.sleep("2s")
        return value

    @workflow(name="aws-of-waiting")
    async def parent(ctx: Context) -> list[str]:
        done = await ctx.map(waiting, {each: waiting.arguments(each) for each in ("b0", "b1")}, at_most=1)
        return list((await done.values()).values())

    app = outlast_app(parent, waiting)
    run = app.start(parent, {})
    app.clock.skip("2s")
    assert (run.status, run.outcome) == ("completed", ["b0", "b1"])
    assert executed == ["b0", "b1", "b1"]


def test_one_inside_another(outlast_app: AppFactory) -> None:
    @workflow(name="aws-inner")
    async def inner(ctx: Context) -> list[str]:
        return await ctx.do_all([branch.plan("i1"), branch.plan("i2")], at_most=1)

    @workflow(name="aws-outer")
    async def outer(ctx: Context) -> list[list[str]]:
        done = await ctx.map(inner, {"a": inner.arguments()}, at_most=1, **TERMS)
        return list((await done.values()).values())

    assert outlast_app(outer, inner).start(outer, {}).outcome == [["i1", "i2"]]


def test_at_most_0_is_no_limit(outlast_app: AppFactory) -> None:
    @workflow(name="aws-no-limit")
    async def unlimited(ctx: Context, at_most: int) -> list[str]:
        return await ctx.do_all([branch.plan("a"), branch.plan("b")], at_most=at_most)

    app = outlast_app(unlimited)
    assert app.start(unlimited, {"at_most": 0}).outcome == ["a", "b"]
    assert app.start(unlimited, {"at_most": -1}).attention == ["exception"]


# --- maps ----------------------------------------------------------------------------------------------
def mapping(make: Callable[[Any, int], Any], name: str) -> Any:
    """Return a workflow that maps a function of an item and its place over its items, one after the other."""

    @workflow(name=f"{name}-item")
    async def one(ctx: Context, value: Any, at: int) -> Any:
        return make(value, at)

    @workflow(name=name)
    async def flow(ctx: Context, items: list[Any], sleeps: bool = False) -> list[Any]:
        inputs = {f"item-{n}": one.arguments(each, n) for n, each in enumerate(items)}
        done = await ctx.map(one, inputs, at_most=1)
        if sleeps:
            await ctx.sleep("1s")
        return list((await done.values()).values())

    return flow, one


@pytest.mark.parametrize(
    ("make", "items", "expected"),
    [
        (lambda value, at: f"Hello, {value}!", ["World", "Kiro"], ["Hello, World!", "Hello, Kiro!"]),
        (lambda value, at: value * 2, [1, 2], [2, 4]),
        (lambda value, at: value + at, [10, 20, 30], [10, 21, 32]),
        (lambda value, at: value * 10, [1, 2], [10, 20]),
        (lambda value, at: value.upper(), ["x", "y"], ["X", "Y"]),
    ],
    ids=["a text", "a number", "its place", "a named item", "another form"],
)
def test_a_function_of_each_item(outlast_app: AppFactory, make: Any, items: list[Any], expected: list[Any]) -> None:
    """Each item is a child run with a key, which the code derives from the item."""
    flow, one = mapping(make, "aws-function")
    assert outlast_app(flow, one).start(flow, {"items": items}).outcome == expected


def test_a_wait_after_a_map(outlast_app: AppFactory) -> None:
    flow, one = mapping(lambda value, at: value.upper(), "aws-then-wait")
    app = outlast_app(flow, one)
    run = app.start(flow, {"items": ["a", "b"], "sleeps": True})
    assert run.status == "waiting"
    app.clock.skip("1s")
    assert run.outcome == ["A", "B"]


def test_a_wait_after_a_map_with_a_failure(outlast_app: AppFactory) -> None:
    @workflow(name="aws-fail-then-wait")
    async def flow(ctx: Context) -> Shown:
        inputs = {each: item.arguments(each) for each in ("ok", "bad")}
        done = await ctx.map(item, inputs, at_most=1, tolerated_failures=1, **TERMS)
        await ctx.sleep("1s")
        return shown(done)

    app = outlast_app(flow, item)
    run = app.start(flow, {})
    app.clock.skip("1s")
    assert run.outcome == reason(ALL, 1, 1, 2)


def test_a_map_in_any_order_of_ends(outlast_app: AppFactory) -> None:
    @workflow(name="aws-map-two")
    async def flow(ctx: Context) -> list[str]:
        done = await ctx.map(item, {each: item.arguments(each) for each in ("r0", "r1", "r2")}, at_most=2, **TERMS)
        return list((await done.values()).values())

    assert outlast_app(flow, item).start(flow, {}).outcome == ["r0", "r1", "r2"]


def test_a_large_result_is_loaded_when_it_is_read(outlast_app: AppFactory) -> None:
    @workflow(name="aws-large")
    async def large(ctx: Context, n: int) -> str:
        return str(n) * 70_000

    @workflow(name="aws-of-large")
    async def flow(ctx: Context) -> list[int]:
        done = await ctx.map(large, {f"{n}": large.arguments(n) for n in range(4)}, at_most=1)
        return [len(done.completed), len(done.statuses), sum([len(value) async for _, value in done])]

    assert outlast_app(flow, large).start(flow, {}).outcome == [4, 4, 280_000]

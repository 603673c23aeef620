"""Timers and races of asyncio around a wait are refused when the workflow is loaded (docs/waiting.md)."""

import asyncio
import asyncio as aio
from asyncio import timeout as within
from asyncio import wait_for
from types import ModuleType
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity, role, workflow
from outlast.errors import DefinitionError
from tests.mutants import remove


class State(BaseModel):
    n: int = 0


Ctx = Context[State]
async_timeout: Any = ModuleType("async_timeout")
"""Stand-in for the package of this name, which need not be installed."""


def _timeout(delay: float) -> Any:
    return asyncio.timeout(delay)


_timeout.__module__, _timeout.__name__ = "async_timeout", "timeout"
async_timeout.timeout = _timeout


@activity(key="race/{n}", no_undo="a test")
async def race(n: int) -> int:
    return n


async def helper(given: Ctx) -> Any:
    return await other(given)


async def other(given: "Ctx") -> Any:
    return await given.receive("go", State)


async def foreign() -> None:
    await asyncio.sleep(1)


# --- refused ------------------------------------------------------------------------------------------------
async def directly(ctx: Ctx) -> None:
    await asyncio.wait_for(ctx.receive("go", State), 60)


async def imported(ctx: Ctx) -> None:
    await wait_for(timeout=60, fut=ctx.sleep("1h"))


async def imported_here(c: Ctx) -> None:
    from asyncio import wait_for as bounded

    await bounded(c.collect("go", State, timeout="1h"), 60)


async def by_another_name(ctx: Ctx) -> None:
    await aio.wait([aio.create_task(ctx.receive("go", State))], timeout=1)


async def tasks_of_names(ctx: Ctx) -> None:
    a, b = asyncio.create_task(ctx.receive("go", State)), asyncio.create_task(ctx.sleep("1h"))
    done, left = await asyncio.wait({a, b}, return_when=asyncio.FIRST_COMPLETED)
    for each in left:
        each.cancel()
    assert done


async def tasks_in_a_list(ctx: Ctx) -> None:
    tasks = [asyncio.ensure_future(foreign())]
    for n in range(3):
        name = f"go-{n}"
        tasks.append(asyncio.ensure_future(ctx.receive(name, State)))
    for each in asyncio.as_completed(tasks):
        await each


async def one_after_the_other(ctx: Ctx) -> None:
    for task in [asyncio.create_task(ctx.receive(name, State)) for name in "ab"]:
        await asyncio.wait_for(task, 60)


async def of_a_helper(ctx: Ctx) -> None:
    await asyncio.wait_for(asyncio.gather(helper(ctx), foreign()), 60)


async def of_a_nested_function(ctx: Ctx) -> None:
    async def inner() -> None:
        await ctx.receive("go", State)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(inner())
        await asyncio.wait([task])


async def in_a_block(ctx: Ctx) -> None:
    async with asyncio.timeout(60):
        await race.do() if False else None  # type: ignore[attr-defined]
        await ctx.approval(race.plan(1), summary="s", by=role("x"), within="96h")


async def in_a_block_of_a_name(ctx: Ctx) -> None:
    async with within(60) as block:
        block.reschedule(100)
        await helper(ctx)


async def in_a_block_made_before(ctx: Ctx) -> None:
    block = asyncio.timeout_at(60)
    async with block, asyncio.TaskGroup():
        await ctx.receive("go", State)


async def in_a_block_of_anyio(ctx: Ctx) -> None:
    with anyio.move_on_after(60):
        await ctx.receive("go", State)


async def in_a_block_that_fails(ctx: Ctx) -> None:
    with anyio.fail_after(60):
        await ctx.receive("go", State)


async def in_a_block_of_async_timeout(ctx: Ctx) -> None:
    async with async_timeout.timeout(60):
        await ctx.receive("go", State)


class Holder:
    """An object with the context of its node."""

    ctx: Ctx


async def of_the_context_of_an_object(ctx: Ctx) -> None:
    holder = Holder()
    holder.ctx = ctx
    await asyncio.wait_for(holder.ctx.receive("go", State), 60)


REFUSED = [
    directly, imported, imported_here, by_another_name, tasks_of_names, tasks_in_a_list, one_after_the_other,
    in_a_block_that_fails, in_a_block_of_async_timeout, of_the_context_of_an_object,
    of_a_helper, of_a_nested_function, in_a_block, in_a_block_of_a_name, in_a_block_made_before, in_a_block_of_anyio,
]  # fmt: skip


def flow_of(body: Any) -> Workflow[State]:
    flow = Workflow("races", state=State)
    flow.node(start=True)(body)
    return flow


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body.__name__)
def test_a_wait_inside_a_race_or_timer_is_refused_with_both_lines(body: Any) -> None:
    with pytest.raises(DefinitionError) as refused:
        flow_of(body).validate()
    assert f'node "{body.__name__}" of workflow "races"' in refused.value.what
    assert refused.value.what.count("tests/flow/test_races.py:") == 3, "the node, the wait and the race"
    first = body.__code__.co_firstlineno
    line = int(refused.value.where.rpartition(":")[2])
    assert first < line <= first + 9 and "timeout=" in refused.value.fix


def test_a_function_is_checked_like_a_node() -> None:
    @workflow
    async def late(ctx: Context[Any], n: int) -> int:
        async with asyncio.timeout(n):  # outlast: ignore[OL306] the timer is tested
            await ctx.receive("go", State)
        return n

    with pytest.raises(DefinitionError, match=r"inside asyncio\.timeout"):
        late.validate()


# --- allowed ------------------------------------------------------------------------------------------------
async def around_calls(ctx: Ctx) -> None:
    tasks = [asyncio.create_task(ctx.do(race, n)) for n in range(3)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait_for(ctx.do(race, 4), 60)
    async with asyncio.timeout(60):
        await ctx.do(race, 5)


async def beside_waits(ctx: Ctx) -> None:
    go = await ctx.receive("go", State)
    task = asyncio.create_task(ctx.sleep("1h"))
    async with asyncio.timeout(60):
        await asyncio.sleep(go.n)
        await foreign()
    await task
    task = asyncio.create_task(foreign())
    await asyncio.wait_for(task, 60)


async def of_another_receiver(ctx: Ctx) -> None:
    channel: Any = ctx.state
    async with asyncio.timeout(60):
        await channel.receive("go", State)
    await asyncio.wait_for(channel.sleep(), 60)


async def without_an_end(ctx: Ctx) -> None:
    await asyncio.wait_for(ctx.receive("go", State), None)
    async with asyncio.timeout(None):
        await ctx.receive("go", State)


async def defined_and_called_outside(ctx: Ctx) -> None:
    async with asyncio.timeout(60):

        async def later() -> None:
            await ctx.receive("go", State)

        await foreign()
    await later()


async def gathered(ctx: Ctx) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.receive("go", State))
    await asyncio.gather(ctx.sleep("1h"), other(ctx))


ALLOWED = [
    around_calls, beside_waits, of_another_receiver, without_an_end, defined_and_called_outside, gathered,
]  # fmt: skip


@pytest.mark.parametrize("body", ALLOWED, ids=lambda body: body.__name__)
def test_what_ends_is_allowed(body: Any) -> None:
    flow_of(body).validate()


@pytest.mark.parametrize("guarded", [True, False])
def test_without_the_look_at_its_source_a_race_of_waits_is_loaded(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if guarded:
        with pytest.raises(DefinitionError, match=r"asyncio\.wait"):
            flow_of(tasks_of_names).validate()
    else:
        remove("races_of_waits_loaded", monkeypatch)
        flow_of(tasks_of_names).validate()

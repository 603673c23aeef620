"""A workflow that starts a child with neither an undo nor a reason does not load (S-30)."""

from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup, workflow
from outlast.errors import DefinitionError
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-13")


class Nothing(BaseModel):
    """A state without a value."""


@activity(name="starts_pay", key="pay/{order}", no_undo="it is a test")
async def pay(order: str) -> None:
    """Pay."""


@lookup(name="starts_look")
async def look(order: str) -> int:
    """Look."""
    return 1


@workflow
async def pays(ctx: Context, order: str) -> None:
    """Pay."""
    await ctx.do(pay, order)


@workflow
async def reads(ctx: Context, order: str) -> int:
    """Read."""
    return await ctx.do(look, order)


async def helper(ctx: Context[Nothing]) -> None:
    """Start a child in a helper function."""
    await ctx.start(pays, pays.arguments("a"), key="a")


async def undecided(ctx: Context[Nothing]) -> None:
    await ctx.run(pays, pays.arguments("a"), key="a")


async def in_a_set(ctx: Context[Nothing]) -> None:
    await ctx.first(ctx.run(pays, order="a"), ctx.sleep("1h"))


async def in_a_helper(ctx: Context[Nothing]) -> None:
    await helper(ctx)


async def with_a_reason(ctx: Context[Nothing]) -> None:
    await ctx.run(pays, pays.arguments("a"), key="a", no_undo="it undoes itself")


async def with_an_undo(ctx: Context[Nothing]) -> None:
    await ctx.run(pays, pays.arguments("a"), undo=pay.plan("a"))


async def that_reads(ctx: Context[Nothing]) -> None:
    await ctx.run(reads, order="a")


async def by_a_variable(ctx: Context[Nothing]) -> None:
    for flow in (pays, reads):
        await ctx.run(flow, {"order": "a"})


async def with_options(ctx: Context[Nothing]) -> None:
    options: dict[str, Any] = {"no_undo": "it undoes itself"}
    await ctx.run(pays, pays.arguments("a"), **options)


def loaded(body: Any) -> Workflow[Nothing]:
    """Return the workflow of one node, checked as a worker does."""
    flow = Workflow(f"starts_{body.__name__}", state=Nothing)
    flow.node(start=True)(body)
    return flow.validate()


@pytest.mark.parametrize("body", [undecided, in_a_set, in_a_helper])
def test_a_start_without_an_answer_does_not_load(body: Any) -> None:
    with pytest.raises(DefinitionError) as refused:
        loaded(body)
    assert "starts pays with neither undo= nor no_undo=" in str(refused.value)
    assert "it may call starts_pay" in str(refused.value) and "test_child_starts.py:" in str(refused.value)


@pytest.mark.parametrize("body", [with_a_reason, with_an_undo, that_reads, by_a_variable, with_options])
def test_other_starts_load(body: Any) -> None:
    loaded(body)


def test_without_the_check_its_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    remove("undecided_children_loaded", monkeypatch)
    with pytest.raises(pytest.fail.Exception):
        test_a_start_without_an_answer_does_not_load(undecided)

"""Trees of runs for tests of crashes: each function returns workflows, the root first, over the activity it is given.

`book` books one place, by a receiver that can be asked, and has an undo that can be asked, too.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel

from outlast import ChildFailed, Context, Fail, RetryLater, Workflow, activity, role, workflow

Tree: TypeAlias = tuple[Workflow[Any, Any, Any], ...]
Make: TypeAlias = Callable[[Any], Tree]
WORD_AFTER_MS: Final = 10_000
"""Time after which the message, the decision and the deadline of `first_with_losers` come."""


class Word(BaseModel):
    word: str = ""


class Rounds(BaseModel):
    n: int = 0
    words: list[str] = []


def one_of_three_fails(book: Any) -> Tree:
    """A parent with three children, of which one fails and is undone."""

    @workflow(name="tree-trip")
    async def trip(ctx: Context, town: str) -> str:
        await ctx.do(book, town)
        await ctx.sleep("5s")
        if town == "rome":
            raise Fail("full")
        return town

    @workflow(name="tree-trips", when_empty="complete")
    async def trips(ctx: Context) -> list[str]:
        await ctx.do(book, "plan")
        towns = ("oslo", "rome", "wien")
        handles = [await ctx.start(trip, trip.arguments(each), key=each, no_undo="kept") for each in towns]
        said: list[str] = []
        for handle in handles:
            try:
                said.append(await handle.result())
            except ChildFailed as failed:
                said.append(failed.detail)
        return said

    return trips, trip


def first_with_losers(book: Any) -> Tree:
    """The message, the decision and the deadline have the same instant, so the deadline wins, and a child loses."""

    @workflow(name="tree-slow")
    async def slow(ctx: Context) -> str:
        await ctx.do(book, "slow")
        await ctx.sleep("1h")
        return "slow"

    @workflow(name="tree-first", when_empty="complete")
    async def first(ctx: Context) -> str:
        won, _ = await ctx.first(
            ctx.run(slow, slow.arguments(), key="slow", no_undo="it undoes what it books"),
            ctx.receive("word", Word),
            ctx.approval(book.plan("asked"), summary="Book it", by=role("boss"), within="1h"),
            ctx.sleep("10s"),
        )
        return str(won)

    return first, slow


def cancel_of_three_levels(book: Any) -> Tree:
    """Four leaves below two runs; two of them have booked, and two try again later, when the root is cancelled."""

    @activity(key="seat/{n}", name="tree-seat", no_undo="there is none")
    async def seat(n: str) -> None:
        raise RetryLater("no seat is free", after="30m")

    @workflow(name="tree-leaf")
    async def leaf(ctx: Context, n: str) -> None:
        await ctx.do(book, n)
        if n.endswith("b"):
            await ctx.do(seat, n)
        await ctx.sleep("1h")

    @workflow(name="tree-middle")
    async def middle(ctx: Context, n: str) -> None:
        await ctx.do(book, f"middle-{n}")
        names = (f"{n}-a", f"{n}-b")
        await asyncio.gather(*[ctx.run(leaf, leaf.arguments(each), key=each, no_undo="its own") for each in names])

    @workflow(name="tree-cancelled")
    async def root(ctx: Context) -> None:
        await ctx.do(book, "root")
        await asyncio.gather(*[ctx.run(middle, middle.arguments(n), key=n, no_undo="its own") for n in ("x", "y")])

    return root, middle, leaf


def ends_with_open_children(how: Literal["completed", "failed", "abandoned"]) -> Make:
    """A parent that ends while two children live."""

    def make(book: Any) -> Tree:
        @workflow(name=f"tree-child-{how}")
        async def child(ctx: Context, n: str) -> str:
            await ctx.do(book, n)
            await ctx.sleep("1h" if how == "failed" else "30s")
            return n

        @workflow(name=f"tree-{how}", when_empty="complete")
        async def parent(ctx: Context) -> None:
            await ctx.do(book, "parent")
            close: Any = "abandon" if how == "abandoned" else "cancel"
            for n in ("a", "b"):
                await ctx.start(child, child.arguments(n), key=n, parent_close=close, no_undo="its own")
            if how == "failed":
                await ctx.sleep("1s")
                raise Fail("enough")

        return parent, child

    return make


def map_with_enough(book: Any) -> Tree:
    """A window of three, of which two wait for an hour. The second that completes is enough, and one never begins."""

    @workflow(name="tree-supplier")
    async def supplier(ctx: Context, name: str) -> str:
        await ctx.do(book, name)
        await ctx.sleep("1h" if name.startswith("slow") else "5s")
        return name

    @workflow(name="tree-map", when_empty="complete")
    async def suppliers(ctx: Context) -> list[str]:
        await ctx.do(book, "tender")
        asked = {name: supplier.arguments(name) for name in ("ada", "slow-bo", "slow-cy", "dan", "eve")}
        done = await ctx.map(supplier, asked, at_most=3, min_successful=2, no_undo="its own")
        return [f"{key} {status}" for key, status in done.statuses.items()]

    return suppliers, supplier


def map_with_failures(book: Any) -> Tree:
    """A window of two. The second failure is one too many, and what has completed is undone."""

    @workflow(name="tree-digger")
    async def digger(ctx: Context, name: str) -> str:
        await ctx.do(book, name)
        await ctx.sleep("1h" if name.startswith("slow") else "5s")
        if name.startswith("bad"):
            raise Fail("nothing there")
        return name

    @workflow(name="tree-map-failed", when_empty="complete")
    async def dig(ctx: Context) -> None:
        await ctx.do(book, "dig")
        sites = ("good", "slow", "bad-x", "bad-y", "late")
        asked = {name: digger.arguments(name) for name in sites}
        undo = {name: book.plan(f"close {name}") for name in sites}
        done = await ctx.map(digger, asked, at_most=2, tolerated_failures=1, undo=undo)
        if not done.enough:
            raise Fail("too many failed")

    return dig, digger


def words_to_the_parent(book: Any) -> Tree:
    """A child that tells its parent two words while it goes on."""

    @workflow(name="tree-speaker")
    async def speaker(ctx: Context) -> None:
        for word in ("oslo", "rome"):
            await ctx.do(book, word)
            assert ctx.parent is not None
            await ctx.parent.signal("word", Word(word=word), id=word)
        await ctx.sleep("5s")

    @workflow(name="tree-listener", when_empty="complete")
    async def listener(ctx: Context) -> list[str]:
        child = await ctx.start(speaker, speaker.arguments(), key="speaker", no_undo="kept")
        await child.result()
        words = await ctx.collect("word", Word, timeout="1s", limit=5)
        return [each.word for each in words]

    return listener, speaker


def endless(book: Any) -> Tree:
    """A run with a window of three visits, which makes a call in each and reads a signal in one."""
    window: Workflow[Any, Any, Any] = Workflow("tree-window", state=Rounds, history=3, undo="window", dedupe_for="1h")

    @window.node(start=True)
    async def turn(ctx: Context[Rounds]) -> Literal["turn"] | None:
        ctx.state.n += 1
        await ctx.do(book, str(ctx.state.n))
        if ctx.state.n == 2:
            word = await ctx.receive("word", Word)
            ctx.state.words.append(word.word)
        return "turn" if ctx.state.n < 9 else None

    return (window.validate(),)


TREES: Final[dict[str, Make]] = {
    "fails": one_of_three_fails,
    "first": first_with_losers,
    "cancel": cancel_of_three_levels,
    "completed": ends_with_open_children("completed"),
    "failed": ends_with_open_children("failed"),
    "abandoned": ends_with_open_children("abandoned"),
    "map": map_with_enough,
    "map-failed": map_with_failures,
    "words": words_to_the_parent,
}

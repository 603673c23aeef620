"""An activity that returned before its work had run is uncertain, is not called again, and is never done."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from outlast.flow import Context, DidNotHappen, activity, lookup, resend
from tests.engine.world import MINUTE, State, World, one_node, threads_and_time

Ctx = Context[State]
pytestmark = [pytest.mark.req("EFF-2"), pytest.mark.filterwarnings("error")]
CALLED: list[str] = []
BEGUN: list[str] = []


async def helper(what: str) -> str:
    CALLED.append(what)
    return what


def items(what: str) -> Iterator[str]:
    CALLED.append(what)
    yield what


def declared(fn: Any, **options: Any) -> Any:
    return activity(key="pay/{what}", no_undo="x", name="pay", **options)(fn)


def _pay(what: str) -> str:
    BEGUN.append(what)
    return helper(what)  # type: ignore[return-value]


async def _pay_async(what: str) -> str:
    BEGUN.append(what)
    return helper(what)  # type: ignore[return-value]


def _pay_each(what: str) -> list[str]:
    BEGUN.append(what)
    return items(what)  # type: ignore[return-value]


POOL = ThreadPoolExecutor(1)


@dataclass
class Receipt:
    id: Any


def _pay_in_a_thread(what: str) -> str:
    BEGUN.append(what)
    return POOL.submit(str, what)  # type: ignore[return-value]


def _pay_within(what: str) -> list[Receipt]:
    BEGUN.append(what)
    return [Receipt({"id": helper(what)})]


def _pay_mapped(what: str) -> list[str]:
    BEGUN.append(what)
    return map(str, [what])  # type: ignore[return-value]


def _pay_later(what: str) -> Any:
    BEGUN.append(what)
    return partial(helper, what)


def _pay_managed(what: str) -> Any:
    BEGUN.append(what)
    return contextmanager(items)(what)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (_pay_in_a_thread, "`_pay_in_a_thread` returned a Future that was never read"),
        (_pay_within, "`_pay_within` returned a coroutine that was never awaited"),
        (_pay_mapped, "`_pay_mapped` returned a map that was never run"),
        (_pay_later, "`_pay_later` returned a partial that was never called"),
        (_pay_managed, "`_pay_managed` returned a context manager that was never entered"),
        (_pay, "`_pay` returned a coroutine that was never awaited"),
        (_pay_async, "`_pay_async` returned a coroutine that was never awaited"),
        (_pay_each, "`_pay_each` returned a generator that was never run"),
    ],
)
@pytest.mark.parametrize("mode", ["ask_person", "resend", "reconcile"])
async def test_it_is_uncertain_and_not_called_again(world: World, fn: Any, said: str, mode: str) -> None:
    CALLED.clear()
    BEGUN.clear()
    options = {"if_uncertain": resend(remembered_for="1h")} if mode == "resend" else {}
    pay = declared(fn, **options)
    if mode == "reconcile":

        @pay.reconcile
        async def find(what: str) -> DidNotHappen:
            return DidNotHappen()

    flow = one_node(_body(pay))
    await world.start(flow)
    world.worker(flow)
    await threads_and_time(world, lambda: bool(world.attention()), MINUTE)
    await world.pass_(10 * MINUTE)
    (effect,) = world.effects()
    assert (effect.status, BEGUN, CALLED) == ("uncertain", ["a"], [])
    assert effect.error is not None and effect.error.code == "never_awaited" and said in effect.error.detail
    assert [str(reason) for reason in world.reasons()] == ["effect_uncertain"]


def _body(call: Any) -> Any:
    async def body(ctx: Ctx) -> None:
        await ctx.do(call, "a")

    return body


async def test_a_lookup_is_an_error_that_names_it(world: World) -> None:
    @lookup
    def look(what: str) -> str:
        return helper(what)  # type: ignore[return-value]  # outlast: ignore[OL305] the mistake under test

    flow = one_node(_body(look))
    await world.start(flow)
    world.worker(flow)
    await threads_and_time(world, lambda: bool(world.attention()), MINUTE)
    assert "`look` returned a coroutine that was never awaited" in str(world.run().attention)


async def test_an_undo_that_has_not_run_is_not_done(world: World) -> None:
    @activity(key="book/{what}", name="book")
    async def book(what: str) -> str:
        return what

    @book.undo
    async def release(response: str, what: str) -> object:
        return helper(what)

    async def body(ctx: Ctx) -> None:
        from outlast.flow import Fail

        await ctx.do(book, "a")
        raise Fail("enough")

    CALLED.clear()
    flow = one_node(body)
    await world.start(flow)
    world.worker(flow)
    await world.pass_(10 * MINUTE)
    undo = next(each for each in world.effects() if each.key.startswith("undo"))
    assert (undo.status, CALLED) == ("uncertain", [])
    assert undo.error is not None and "`release` returned a coroutine" in undo.error.detail

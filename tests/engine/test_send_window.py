"""A worker has few intents that are durable and not yet sent, so a death asks few needless questions (EFF-2)."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from outlast.core.limits import UNSENT_MAX
from outlast.engine.send_window import GRACE_S, SLOW_S, UNSENT_MIN, SendWindow
from outlast.flow import Context, Workflow, activity
from tests.engine.process import Process
from tests.engine.world import SECOND, State, World, one_node, ordering, threads_and_time

pytestmark = pytest.mark.req("EFF-2")
RUNS = 300


class Unsent:
    """Counter of intents that are durable while their calls have not started."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = self.most = self.first = 0
        self.sent = 0

    def watch(self, process: Process) -> None:
        """Count every intent that this process lands."""
        submit = process.wire.submit

        def counted(commit: Any, **options: Any) -> Any:
            if " intend " in commit.label:
                self.now += 1
                self.most = max(self.most, self.now)
                if not self.sent:
                    self.first = self.now
            return submit(commit, **options)

        process.wire.submit = counted  # type: ignore[method-assign]

    def calls(self, ms: int) -> Workflow[State]:
        """A workflow of one call that takes so long."""

        @activity(key="call/{what}", name="call", no_undo="a test undoes nothing")
        async def call(what: str) -> str:
            self.now -= 1
            self.sent += 1
            await self.world.time.sleep(ms)
            return what

        return ordering(call, "a")


async def test_runs_that_are_taken_at_once_have_few_intents_that_are_not_sent(world: World) -> None:
    """The first calls begin before the fifth intent; all runs come to their end."""
    unsent = Unsent(world)
    flow = unsent.calls(SECOND)
    for n in range(RUNS):
        await world.start(flow, f"r{n}")
    unsent.watch(world.worker(flow, concurrency=RUNS))
    await world.pass_(60 * SECOND)
    assert (unsent.sent, unsent.now) == (RUNS, 0)
    assert unsent.first <= UNSENT_MIN
    assert unsent.most <= UNSENT_MAX
    assert {world.status(f"r{n}") for n in range(RUNS)} == {"completed"}


async def test_a_refused_intent_frees_its_place(world: World) -> None:
    """As many commits fail as the window has places; every run is sent afterwards."""
    unsent = Unsent(world)
    flow = unsent.calls(10)
    for n in range(12):
        await world.start(flow, f"r{n}")
    process = world.worker(flow)
    process.wire.away = [" intend "] * 2 * UNSENT_MIN
    await world.pass_(60 * SECOND)
    assert {world.status(f"r{n}") for n in range(12)} == {"completed"}


def _hanging(began: Callable[[], None], go: threading.Event) -> Any:
    @activity(key="plain/{what}", name="plain", no_undo="a test undoes nothing")
    def plain(what: str) -> str:
        began()
        go.wait(10)
        return what

    return plain


async def test_a_plain_function_is_intended_once_a_thread_is_free_for_it(world: World) -> None:
    """Twenty calls, two threads that hang: two intents. A call of an `async def` is made beside them."""
    began, go = threading.Semaphore(0), threading.Event()
    plain = _hanging(began.release, go)
    made: list[str] = []

    @activity(key="quick/{what}", name="quick", no_undo="a test undoes nothing")
    async def quick(what: str) -> str:
        made.append(what)
        return what

    async def body(ctx: Context[State]) -> None:
        await ctx.do_all({n: plain.plan(str(n)) for n in range(20)} | {"q": quick.plan("q")})

    world.worker(one_node(body), concurrency=2)
    await world.start(one_node(body))
    for _ in range(2):
        await asyncio.to_thread(began.acquire)
    await world.settle()
    assert made == ["q"]
    assert len([e for e in world.effects() if e.activity == "plain"]) == 2
    go.set()
    await threads_and_time(world, lambda: world.status() == "completed", SECOND, 1)
    assert len(world.effects()) == 21


async def test_the_window_halves_once_for_intents_that_were_long_unsent_and_grows_again(world: World) -> None:
    """A call that has ended makes it grow by one; a late one halves it, but not once for each of its neighbours."""
    window = SendWindow()

    async def pass_through(ms: int, n: int) -> None:
        places = [await window.enter() for _ in range(n)]
        for place in places:
            place.landed()
        await world.pass_(ms)
        for place in places:
            place.leave()

    async def room() -> int:
        places = [asyncio.create_task(window.enter()) for _ in range(2 * UNSENT_MAX)]
        await world.settle()
        inside = [place for place in places if place.done()]
        for place in places:
            place.cancel()
        await world.settle()
        for each in inside:
            each.result().leave()
        return len(inside)

    assert await room() == 4
    for _ in range(3):
        await pass_through(0, 4)
    assert await room() == 16
    await world.pass_(1)
    await pass_through(int(SLOW_S * SECOND) + 1, 16)
    assert await room() == 8
    await pass_through(int(GRACE_S * SECOND), 1)
    assert await room() == 9

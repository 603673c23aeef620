"""Exceptions of author's code: the run stops visibly, and the worker continues to serve."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from functools import partial

import pytest

from outlast.engine.user_code import RaisedByCode, as_exception, ends_process, from_signal
from outlast.flow import Context, activity
from tests.engine.raising import KINDS, PLACES, raising, version
from tests.engine.world import SECOND, State, World, one_node, ordering, threads_and_time

Ctx = Context[State]
BUDGET = 600 * SECOND


@pytest.mark.req("FAIL-6", "REC-2")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("place", PLACES)
async def test_any_exception_reaches_a_person_within_the_budget_and_frees_its_slot(
    world: World, place: str, workers: int
) -> None:
    """All kinds of exceptions at once, on workers that have fewer places than there are runs."""
    make, reason = PLACES[place]
    flows = [make(kind, raising(kind)) for kind in KINDS]
    if place == "migration":
        old = [version(kind, 1).validate() for kind in KINDS]
        world.worker(*old)
        for flow in old:
            await world.start(flow, flow.name)
        await world.off_duty()
    begun = world.time.wall()
    serving = [world.worker(*flows, concurrency=2) for _ in range(workers)]
    for flow in flows if place != "migration" else ():
        await world.start(flow, flow.name)
    await threads_and_time(world, lambda: all(map(world.reasons, KINDS)), BUDGET)
    assert {kind: world.reasons(kind) for kind in KINDS} == {kind: [reason] for kind in KINDS}
    assert world.time.wall() - begun <= BUDGET
    assert [(each.worker.held, each.task.done()) for each in serving] == [(0, False)] * workers


# --- what belongs to the process -----------------------------------------------------------------------------
def raised_by(act: Callable[[], object]) -> BaseException:
    try:
        act()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def raises(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=repr)
def test_an_exception_raised_by_code_belongs_to_the_code(error: BaseException) -> None:
    raised = raised_by(lambda: raises(error))
    found = as_exception(raised)
    assert isinstance(found, RaisedByCode) and found.__cause__ is error
    assert str(found).startswith(type(error).__name__)


def exits(*_: object) -> None:
    raise SystemExit(0)


class Runner:
    """As asyncio.Runner: its handler is a bound method in a partial."""

    def on_sigint(self, number: int, frame: object, main: object) -> None:
        raise KeyboardInterrupt


HANDLERS = {
    "default": signal.default_int_handler,
    "own": exits,
    "partial of a method": partial(Runner().on_sigint, main=None),
}


@pytest.mark.parametrize("handler", HANDLERS)
def test_an_exception_raised_by_a_signal_belongs_to_the_process(handler: str) -> None:
    before = signal.signal(signal.SIGINT, HANDLERS[handler])
    try:
        error = raised_by(lambda: [os.kill(os.getpid(), signal.SIGINT), *range(1000)])
        own = raised_by(lambda: raises(KeyboardInterrupt()))
        assert (from_signal(error), from_signal(own)) == (True, False)
        assert raised_by(lambda: as_exception(error)) is error
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_exception_raised_in_a_thread_belongs_to_its_code() -> None:
    found: list[bool] = []
    error = KeyboardInterrupt()  # without a traceback: an extension in C raised it
    thread = threading.Thread(target=lambda: found.append(ends_process(error)))
    thread.start()
    thread.join()
    assert found == [False]


# --- code that cancels its own task ------------------------------------------------------------------------------
async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def test_a_node_that_cancels_its_own_task_calls_a_person(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await cancels_itself()

    flow = one_node(body)
    serving = world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and serving.worker.held == 0


async def test_an_activity_that_cancels_the_task_of_its_call_calls_a_person(world: World) -> None:
    @activity(key="act/{what}", name="act", no_undo="a test")
    async def act(what: str) -> str:
        await cancels_itself()
        return ""

    flow = ordering(act, "a")
    serving = world.worker(flow)
    await world.start(flow)
    assert "exception" in world.reasons() and serving.worker.held == 0
    assert "CancelledError" in world.attention()[0].detail

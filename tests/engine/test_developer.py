"""A worker whose developer watches it (`outlast dev`): tracebacks of calls, and when one may be denied (EFF-3)."""

import asyncio
import threading
from datetime import timedelta

import pytest

from outlast.engine.call_errors import ERRORS_KEPT, CallErrors
from outlast.errors import Conflict
from outlast.flow import activity
from tests.engine.world import QUIET, SECOND, Receiver, Slow, World, ordering, write
from tests.mutants import remove

pytestmark = pytest.mark.req("EFF-3", "EFF-2")


@pytest.mark.parametrize("watched", [True, False])
async def test_a_call_that_has_returned_is_denied_at_once_beside_its_developer_only(
    world: World, watched: bool
) -> None:
    """Twice, because the second attempt has a bug as well."""
    shop = Receiver(KeyError("R-2"), KeyError("R-3"))
    flow = ordering(write(shop), "a")
    errors = CallErrors() if watched else None
    world.worker(flow, errors=errors)
    await world.start(flow)
    for n in (1, 2):
        assert (world.reasons(), len(shop.attempts)) == (["effect_uncertain"], n)
        if errors is None:
            with pytest.raises(Conflict, match="too early"):
                await world.resolve("order/a", "did_not_happen")
            await world.pass_(QUIET)
        else:
            assert "KeyError: 'R-" in errors.of("t", "r1", "order/a")
        await world.resolve("order/a", "did_not_happen")
    assert world.outcome()["said"] == ["did order/a"] and len(shop.attempts) == 3


@pytest.mark.parametrize("removed", ["", "call_denied_early"])
async def test_a_call_of_a_dead_process_has_its_settle_time(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """Its request may still be on its way."""
    if removed:
        remove(removed, monkeypatch)
    slow = Slow(acts_first=True)
    shop = Receiver(slow)
    flow = ordering(write(shop), "a")
    first = world.worker(flow, errors=CallErrors())
    await world.start(flow)
    await slow.begun.wait()
    settle_after = world.effect("order/a").settle_after
    first.kill()
    world.worker(flow, errors=CallErrors())
    while not world.attention():
        await world.pass_(SECOND)
    assert world.reasons() == ["effect_uncertain"]
    assert (world.effect("order/a").settle_after == settle_after) == (not removed)


async def test_a_thread_that_still_runs_has_its_settle_time(world: World) -> None:
    """Its call has not returned, so it may still send."""
    began, ends = threading.Event(), threading.Event()

    @activity(key="slow/{what}", no_undo="a test undoes nothing", timeout=timedelta(milliseconds=100))
    def slow(what: str) -> str:
        began.set()
        ends.wait(30)
        return what

    flow = ordering(slow, "a")
    world.worker(flow, errors=CallErrors())
    await world.start(flow)
    try:
        await asyncio.to_thread(began.wait)
        await world.pass_(100)
        effect = world.effect("slow/a")
        assert (world.reasons(), effect.code) == (["effect_uncertain"], "timeout")
        assert effect.settle_after > effect.not_after + 100
    finally:
        ends.set()


def test_the_latest_tracebacks_are_kept_from_the_code_of_the_author_on() -> None:
    errors = CallErrors()

    def fails() -> None:
        raise ValueError("token=hush is wrong")

    for n in range(ERRORS_KEPT + 1):
        try:
            fails()
        except ValueError as error:
            errors.keep(("t", "r", str(n)), error, frozenset({"hush"}))
    assert errors.of("t", "r", "0") == "" and errors.of("u", "r", "1") == ""
    kept = errors.of("t", "r", str(ERRORS_KEPT))
    assert "in fails" in kept and "ValueError: " in kept and "hush" not in kept

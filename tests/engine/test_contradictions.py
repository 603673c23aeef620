"""A run that was taken over goes on only where its checkpoint, its history and its row agree (CKP-6)."""

from collections.abc import Callable
from typing import Any

import pytest

from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import EVENT, RUN, Event, Run
from tests.engine.world import MINUTE, QUIET, Receiver, Slow, World, ordering, write

Spoil = Callable[[World], None]


def _put(world: World, row: Run | Event) -> None:
    kind: Any = RUN if isinstance(row, Run) else EVENT
    world.core.rows.put(kind, key_of(kind, row), row)


def nothing(world: World) -> None:
    pass


def another_last_event(world: World) -> None:
    _put(world, world.events()[-1]._replace(hash="x"))


def a_row_behind_its_history(world: World) -> None:
    run = world.run()
    _put(world, run._replace(version=run.version + 7))


def a_checkpoint_of_another_visit(world: World) -> None:
    _put(world, world.events()[0]._replace(visit=4))


def a_missing_event(world: World) -> None:
    run = world.run()
    _put(world, run._replace(seq=run.seq + 1))


@pytest.mark.req("CKP-6")
@pytest.mark.parametrize(
    ("spoil", "goes_on"),
    [(nothing, True), (another_last_event, False), (a_row_behind_its_history, False),
     (a_checkpoint_of_another_visit, False), (a_missing_event, False)],
)  # fmt: skip
async def test_recovery_refuses_rows_that_contradict(world: World, spoil: Spoil, goes_on: bool) -> None:
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop, mode="reconcile"), "a")
    first = world.worker(flow)
    await world.start(flow)
    await slow.begun.wait()
    first.kill()
    await world.settle()
    second = world.worker(flow)
    read = second.wire.run_rows

    async def spoilt(runs: Any) -> Any:
        """Between the claim, which writes a new head, and the first look at the rows."""
        if runs and world.run().owner == second.name and spoilt_yet == []:
            spoilt_yet.append(True)
            spoil(world)
        return await read(runs)

    spoilt_yet: list[bool] = []
    second.wire.run_rows = spoilt  # type: ignore[method-assign]
    await world.pass_(QUIET + MINUTE)
    if goes_on:
        assert world.status() == "completed"
    else:
        assert world.reasons() == ["contradiction"]
        assert len(shop.attempts) == 1, "nothing was called"

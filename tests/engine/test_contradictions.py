"""A run that was taken over goes on only where its checkpoint, its history and its row agree (CKP-6)."""

from collections.abc import Callable
from typing import Any

import pytest

from outlast.core.rows.row_kind import Key, key_of
from outlast.core.rows.run_rows import EVENT, RUN, Event, Run
from outlast.store.queries import Load, Query
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
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "among others"])
async def test_recovery_refuses_rows_that_contradict(world: World, spoil: Spoil, goes_on: bool, others: int) -> None:
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop, mode="reconcile"), "a")
    beside = ordering(write(Receiver(Slow(), Slow()), mode="reconcile"), "b", name="beside")
    first = world.worker(flow, beside)
    await world.start(flow)
    await slow.begun.wait()
    for n in range(others):
        await world.start(beside, f"other-{n}")
    first.kill()
    await world.settle()
    second = world.worker(flow, beside)
    read, ask, loaded = second.wire.run_rows, second.wire.query, list[Key]()

    async def spoilt(runs: Any) -> Any:
        """Between the claim, which writes a new head, and the first look at the rows."""
        if runs and world.run().owner == second.name and spoilt_yet == []:
            spoilt_yet.append(True)
            spoil(world)
        return await read(runs)

    async def asked(query: Query[Any]) -> Any:
        if isinstance(query, Load) and query.kind is EVENT:
            loaded.append(query.key)
        return await ask(query)

    spoilt_yet: list[bool] = []
    second.wire.run_rows, second.wire.query = spoilt, asked  # type: ignore[method-assign]
    await world.pass_(QUIET + MINUTE)
    if goes_on:
        assert world.status() == "completed"
        assert bool(loaded) is (others == 0), "the last events of several runs are read by one query"
    else:
        assert world.reasons() == ["contradiction"]
        assert len(shop.attempts) == 1, "nothing was called"

"""Each safeguard of the threads of LangGraph is removed once, and its promise must break."""

import asyncio
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Any

import pytest

from outlast.core.commit import Commit
from outlast.core.rows.graph_rows import GRAPH_KINDS, GRAPH_VALUE
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.engine import thread_removal
from outlast.errors import Conflict, Corrupt
from outlast.langgraph import OutlastSaver
from outlast.runtime.graph_threads import GraphThreads
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from tests.langgraph.test_saver import (
    FIRST,
    LOOP,
    Growing,
    Trap,
    asking_graph,
    checkpoint_of,
    config_of,
    grown,
    stored_with,
)
from tests.langgraph.test_thread_retention import is_whole_or_gone, stays_or_goes_whole, used_after_it_was_found
from tests.langgraph.test_thread_turns import a_slow_write_lands_beside_checkpoints
from tests.mutants import remove

pytestmark = pytest.mark.req("RT-3")
Promise = Callable[[Store], Awaitable[None]]


async def the_second_of_two_writers_is_refused(store: Store) -> None:
    one, two = OutlastSaver(store), OutlastSaver(store)
    await grown(one, "c1", "c2")
    await two.aput(config_of("t", "c2"), checkpoint_of("c3"), LOOP, {})
    with pytest.raises(Conflict):
        await one.aput(config_of("t", "c2"), checkpoint_of("c4"), LOOP, {})


class Paused(GraphThreads):
    """Threads that stop before they read values, until another writer has decided."""

    def __init__(self, store: Store, tenant: str) -> None:
        super().__init__(store, tenant)
        self.reached, self.goes_on = asyncio.Event(), asyncio.Event()

    async def _all(self, kind: AnyKind, prefix: Key) -> list[Any]:
        if kind is GRAPH_VALUE:
            self.reached.set()
            await self.goes_on.wait()
        return await super()._all(kind, prefix)


class Decided(GraphThreads):
    """Threads that stop after they have found which values are stored, until another writer is done."""

    def __init__(self, store: Store, tenant: str, other: Paused) -> None:
        super().__init__(store, tenant)
        self.other, self.goes_on = other, asyncio.Event()

    async def _missing(self, *args: Any) -> Any:
        found = await super()._missing(*args)
        self.other.goes_on.set()
        await self.goes_on.wait()
        return found


async def a_value_that_is_named_again_while_it_is_deleted_stays(store: Store) -> None:
    """A prune deletes the value of an early checkpoint while a new one has just found that it is stored."""
    saver = OutlastSaver(store)
    for n, (name, text) in enumerate((("c1", "x"), ("c2", "y"))):
        made = checkpoint_of(name, log=text * 500)
        await saver.aput(config_of("t", f"c{n}" if n else ""), made, LOOP, made["channel_versions"])
    pruner = Paused(store, "default")
    writer = OutlastSaver(store)
    writer._threads = decided = Decided(store, "default", pruner)
    prune = asyncio.ensure_future(pruner.keep_latest("t"))
    await pruner.reached.wait()
    made = checkpoint_of("c3", log="x" * 500)
    put = asyncio.ensure_future(writer.aput(config_of("t", "c2"), made, LOOP, made["channel_versions"]))
    await prune
    decided.goes_on.set()
    await put
    found = await saver.aget_tuple(config_of("t"))
    assert found is not None and found.checkpoint["channel_values"] == {"log": "x" * 500}


class PowerLoss(BaseException):
    """The process ends here."""


async def what_a_first_put_leaves_is_deleted_with_its_thread(store: Store) -> None:
    """A put of several commits is cut after each. The thread is listed, and a delete leaves no row of it."""
    commit, landed, most = store.commit, 0, 1

    async def cut(one: Commit, **more: Any) -> Any:
        nonlocal landed
        if landed == most:
            raise PowerLoss
        landed += 1
        return await commit(one, **more)

    made = checkpoint_of("c1", log=token_hex(1_500_000))
    while landed < most:
        landed, store.commit = 0, cut  # type: ignore[method-assign]
        try:
            await OutlastSaver(store).aput(config_of("t"), made, FIRST, made["channel_versions"])
            most = 0
        except PowerLoss:
            most += 1
        store.commit = commit  # type: ignore[method-assign]
        assert await GraphThreads(store, "default").all_threads() == ["t"]
        await OutlastSaver(store).adelete_thread("t")
        assert not any([await store.rows(kind, ()) for kind in GRAPH_KINDS])


async def a_growing_list_is_stored_once(store: Store) -> None:
    saver, parent, log = OutlastSaver(store), "", list[str]()
    for n in range(40):
        log.append(token_hex(200))
        made = checkpoint_of(f"c{n:02}", log=log)
        await saver.aput(config_of("t", parent), made, LOOP, made["channel_versions"])
        parent = made["id"]
    rows = await store.rows(GRAPH_VALUE, ())
    assert sum(len(row.body) for row in rows) < 5 * 40 * 400


async def a_pruned_delta_channel_keeps_its_value(store: Store) -> None:
    saver, thread = OutlastSaver(store), {"configurable": {"thread_id": "t"}}
    graph = asking_graph(saver, Growing)
    await graph.ainvoke({"log": ["in"]}, thread)
    before = await graph.aget_state(thread)
    await saver.aprune(["t"])
    assert (await graph.aget_state(thread)).values == before.values


async def no_object_of_another_class_is_made(store: Store) -> None:
    saver, made = OutlastSaver(store), checkpoint_of("c1", log=[Trap(7)])
    await saver.aput(config_of("t"), made, FIRST, made["channel_versions"])
    Trap.made = 0
    await saver.aget_tuple(config_of("t"))
    assert Trap.made == 0


async def a_format_that_can_run_code_is_refused(store: Store) -> None:
    saver = OutlastSaver(store)
    await grown(saver, "c1")
    await stored_with(store, format="json", body=b'{"id":"c1","channel_versions":{}}')
    with pytest.raises(Corrupt, match="format"):
        await saver.aget_tuple(config_of("t"))


async def a_thread_that_begins_again_during_its_deletion_has_new_rows_alone(store: Store) -> None:
    await stays_or_goes_whole("begins again")


async def a_thread_of_which_a_task_ended_is_in_use(store: Store) -> None:
    await stays_or_goes_whole("a task ends")


async def a_subgraph_of_a_deleted_thread_leaves_no_row(store: Store) -> None:
    await is_whole_or_gone("a new subgraph begins")


async def a_thread_is_looked_at_again_before_its_deletion(store: Store) -> None:
    before = thread_removal.COMMITS_AT_ONCE
    thread_removal.COMMITS_AT_ONCE = 2  # type: ignore[misc]
    try:
        await used_after_it_was_found()
    finally:
        thread_removal.COMMITS_AT_ONCE = before  # type: ignore[misc]


CASES: tuple[tuple[str, Promise], ...] = (
    ("any_parent_followed", the_second_of_two_writers_is_refused),
    ("erased_unnoticed", a_value_that_is_named_again_while_it_is_deleted_stays),
    ("rows_before_their_thread", what_a_first_put_leaves_is_deleted_with_its_thread),
    ("values_not_compared_with_the_parent", a_growing_list_is_stored_once),
    ("ancestors_of_deltas_pruned", a_pruned_delta_channel_keeps_its_value),
    ("any_class_made", no_object_of_another_class_is_made),
    ("any_format_read", a_format_that_can_run_code_is_refused),
    ("removal_without_a_mark", a_thread_that_begins_again_during_its_deletion_has_new_rows_alone),
    ("use_by_checkpoints_alone", a_thread_of_which_a_task_ended_is_in_use),
    ("writers_past_a_removal", a_subgraph_of_a_deleted_thread_leaves_no_row),
    ("threads_purged_whatever_their_use", a_thread_is_looked_at_again_before_its_deletion),
    ("writers_without_turns", a_slow_write_lands_beside_checkpoints),
)


def breaks(promise: Promise) -> bool:
    """Return True if the promise does not hold."""

    async def main() -> None:
        store = await open_store("memory:")
        try:
            await promise(store)
        finally:
            await store.close()

    try:
        asyncio.run(main())
    except (AssertionError, Conflict, Corrupt, pytest.fail.Exception):
        return True
    return False


@pytest.mark.parametrize("promise", [promise for _, promise in CASES], ids=lambda promise: str(promise.__name__))
def test_threads_keep_their_promises(promise: Promise) -> None:
    assert not breaks(promise)


@pytest.mark.parametrize(("removed", "promise"), CASES, ids=lambda each: each if isinstance(each, str) else "")
def test_without_its_safeguard_a_promise_breaks(
    removed: str, promise: Promise, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(removed, monkeypatch)
    assert breaks(promise)

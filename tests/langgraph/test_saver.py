"""OutlastSaver: the threads of LangGraph graphs in every store, beside LangGraph's own saver."""

import asyncio
import inspect
import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from operator import add
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Final, TypedDict
from unittest.mock import ANY

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from outlast.core import crash_points
from outlast.core.commit import Commit, Erase, Put
from outlast.core.rows.graph_rows import GRAPH_CHECKPOINT, GRAPH_KINDS, GRAPH_VALUE, GRAPH_WRITE
from outlast.core.rows.run_rows import RUN
from outlast.errors import Conflict, Corrupt, InvalidInput, NotFound
from outlast.langgraph import OutlastSaver
from outlast.runtime.stores import open_store
from outlast.store.memory import MemoryCore, MemoryStore
from outlast.store.port import Store
from tests.conformance import HandClock
from tests.conformance.test_stores import Dynamo, Memory, Postgres, Sqlite, Subjects
from tests.langgraph.methods import (
    BESIDE_THEIRS,
    CAPABILITIES,
    FORMS,
    NO_STORE,
    OURS_ALONE,
    PAGE,
    methods,
    theirs_has,
    written,
)
from tests.langgraph.methods import STORES as STORE_NAMES

pytestmark = pytest.mark.req("RT-3")
STORES: Final[tuple[Callable[[Path], Subjects], ...]] = (Memory, Sqlite, Postgres, Dynamo)
EACH = pytest.mark.parametrize("subject", STORES)


@asynccontextmanager
async def opened(subject: Callable[[Path], Subjects], folder: Path, writers: int = 1) -> AsyncIterator[list[Store]]:
    one = subject(folder)
    try:
        yield [await one.open(f"w{n}") for n in range(writers)]
    finally:
        await one.close()


# --- LangGraph's own suite ---------------------------------------------------------------
@EACH
def test_the_published_suite_passes_whole(subject: Callable[[Path], Subjects], tmp_path: Path) -> None:
    @checkpointer_test(name="OutlastSaver")
    async def saver() -> AsyncIterator[OutlastSaver]:
        folder = tmp_path / token_hex(4)
        folder.mkdir()
        async with opened(subject, folder) as (store,):
            yield OutlastSaver(store)

    report = asyncio.run(validate(saver))
    assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
    assert {name for name, result in report.results.items() if result.tests_passed} == CAPABILITIES
    assert report.passed_all()


# --- each method, sync and async, beside LangGraph's saver --------------------------------
def checkpoint_of(name: str, **values: Any) -> Any:
    versions = {channel: f"{len(name):010}.{name}" for channel in values}
    return {**empty_checkpoint(), "id": name, "ts": "2026", "channel_values": values, "channel_versions": versions}


def config_of(thread: str, checkpoint: str = "", ns: str = "") -> Any:
    found = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": found | ({"checkpoint_id": checkpoint} if checkpoint else {})}


def shown(found: CheckpointTuple | None) -> Any:
    """Return a tuple as data, in which two savers must agree."""
    if found is None:
        return None
    config, checkpoint, metadata, parent, writes = found
    return (
        dict(config["configurable"]), {**checkpoint}, json.loads(json.dumps(metadata)),
        parent and dict(parent["configurable"]), [tuple(write) for write in writes or ()],
    )  # fmt: skip


async def call(saver: Any, form: str, name: str, *args: Any, **options: Any) -> Any:
    """Call a method in its sync or async form."""
    if form == "sync":
        found = await asyncio.to_thread(getattr(saver, name), *args, **options)
        return [shown(each) for each in found] if name == "list" else found
    if name == "list":
        return [shown(each) async for each in saver.alist(*args, **options)]
    return await getattr(saver, f"a{name}")(*args, **options)


async def played(saver: Any, form: str) -> list[Any]:
    """Play one story on a saver and return what it answered."""
    seen: list[Any] = []

    async def do(name: str, *args: Any, **options: Any) -> Any:
        found = await call(saver, form, name, *args, **options)
        seen.append((name, shown(found) if isinstance(found, CheckpointTuple) else found))
        return found

    big = "x" * 9_000
    await do("get_tuple", config_of("t"))
    first = checkpoint_of("c1", a=1, b=[big], c=None, d=b"\0\xff")
    await do("put", config_of("t"), first, {"source": "input", "step": -1, "parents": {}}, first["channel_versions"])
    await do("put_writes", config_of("t", "c1"), [("a", 2), ("b", [big + "y"])], "task-2", "~p1")
    await do("put_writes", config_of("t", "c1"), [("a", 3)], "task-1", "~p2")
    await do("put_writes", config_of("t", "c1"), [("a", "ignored")], "task-1", "~p2")
    await do("put_writes", config_of("t", "c1"), [("__error__", "e1")], "task-3")
    await do("put_writes", config_of("t", "c1"), [("__error__", "e2")], "task-3")
    await do("get_tuple", config_of("t"))
    second = checkpoint_of("c2", a=2, b=[big, big + "y"], d=b"\0\xff")
    second["channel_versions"]["d"] = first["channel_versions"]["d"]
    changed = {name: second["channel_versions"][name] for name in ("a", "b")}
    metadata = {"source": "loop", "step": 0, "parents": {}, "who": "ann", "n": 1}
    await do("put", config_of("t", "c1"), second, metadata, changed)
    inner = checkpoint_of("c3", z={"k": [1, 2.5, True]})
    metadata = {"source": "input", "step": -1, "parents": {"": "c2"}}
    await do("put", config_of("t", ns="sub:1"), inner, metadata, inner["channel_versions"])
    other = checkpoint_of("c9", a=0)
    await do("put", config_of("u"), other, {"source": "input", "step": -1, "parents": {}}, other["channel_versions"])
    for config in (config_of("t"), config_of("t", "c1"), config_of("t", "none"), config_of("t", ns="sub:1")):
        await do("get_tuple", config)
    await do("get", config_of("t"))
    for config, options in (
        (None, {}), (config_of("t"), {}), (config_of("t"), {"limit": 1}), (config_of("t", "c1"), {}),
        (config_of("t"), {"before": config_of("t", "c2")}), (config_of("t"), {"filter": {"who": "ann", "n": 1}}),
        (config_of("t"), {"filter": {"who": "bob"}}), ({"configurable": {"thread_id": "t"}}, {}), (None, {"limit": 2}),
    ):  # fmt: skip
        await do("list", config, **options)
    await do("get_delta_channel_history", config=config_of("t", "c2"), channels=["a", "b", "none"])
    await do("delete_thread", "t")
    await do("delete_thread", "t")
    await do("list", None)
    await do("get_tuple", config_of("t", "c1"))
    return seen


def on_a_store(subject: Callable[[Path], Subjects], folder: Path, story: Callable[[Any], Any]) -> Any:
    """Play a story with a saver on a new store."""

    async def main() -> Any:
        async with opened(subject, folder) as (store,):
            saver = OutlastSaver(store)
            try:
                return await story(saver)
            finally:
                await asyncio.to_thread(saver.close)

    return asyncio.run(main())


EACH_FORM = pytest.mark.parametrize("form", FORMS)


@EACH
@EACH_FORM
def test_each_method_answers_as_langgraphs_saver_does(
    subject: Callable[[Path], Subjects], form: str, tmp_path: Path
) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "oracle.db")) as oracle:
        expected = asyncio.run(played(oracle, "sync"))
    seen = on_a_store(subject, tmp_path, lambda saver: played(saver, form))
    for found, wanted in zip(seen, expected, strict=True):
        assert found == wanted
    assert {name for name, _ in seen} == BESIDE_THEIRS


@EACH
@EACH_FORM
def test_each_method_that_langgraphs_saver_lacks_does_as_its_docstring_says(
    subject: Callable[[Path], Subjects], form: str, tmp_path: Path
) -> None:
    async def story(saver: OutlastSaver) -> set[str]:
        used: set[str] = set()

        async def do(name: str, *args: Any, **options: Any) -> None:
            used.add(name)
            await call(saver, form, name, *args, **options)

        async def ids(thread: str) -> list[str]:
            return [each[1]["id"] for each in await call(saver, form, "list", config_of(thread))]

        for n, graph_run in enumerate(("r1", "r1", "r2")):
            made = checkpoint_of(f"c{n}", log=["x" * 5_000] * (n + 1))
            metadata: Any = {**(LOOP if n else FIRST), "run_id": graph_run}
            await call(
                saver, form, "put", config_of("t", f"c{n - 1}" if n else ""), made, metadata, made["channel_versions"]
            )
        before = await call(saver, form, "get_tuple", config_of("t"))
        await do("copy_thread", "t", "u")
        copied = await call(saver, form, "get_tuple", config_of("u"))
        assert await ids("u") == ["c2", "c1", "c0"] and copied.checkpoint == before.checkpoint
        await do("prune", ["u"])
        assert await ids("u") == ["c2"] and await ids("t") == ["c2", "c1", "c0"]
        assert await call(saver, form, "get_tuple", config_of("u")) == copied._replace(parent_config=ANY)
        await do("delete_for_runs", ["r1"])
        assert await ids("t") == ["c2"] and await ids("u") == ["c2"]
        await do("prune", ["t", "u"], strategy="delete")
        assert await ids("t") == [] and await ids("u") == []
        return used

    assert on_a_store(subject, tmp_path, story) == OURS_ALONE


def test_the_table_of_methods_is_whole_and_current() -> None:
    """Each method of the interface is in a story above, and the page has the table of them."""
    assert methods() == BESIDE_THEIRS | OURS_ALONE | NO_STORE
    assert {name for name in BESIDE_THEIRS | OURS_ALONE if theirs_has(name)} == BESIDE_THEIRS
    assert len(STORES) == len(STORE_NAMES)
    page = PAGE.read_text(encoding="utf-8")
    assert "| `prune` |" in page and written(page) == page


# --- graphs ------------------------------------------------------------------------------
class State(TypedDict):
    log: Annotated[list[str], add]
    answer: str


class Growing(TypedDict):
    log: Annotated[list[str], DeltaChannel(lambda state, writes: [*state, *(x for write in writes for x in write)])]


def asking_graph(saver: BaseCheckpointSaver[Any] | None, state: Any = State) -> Any:
    """Build a graph with two parallel nodes, an interrupt and a subgraph."""

    def node(name: str) -> Callable[[Any], Any]:
        return lambda state: {"log": [name]}

    def ask(state: Any) -> dict[str, Any]:
        return {"log": [f"asked:{interrupt('go?')}"]}

    inner = StateGraph(state)
    inner.add_node("inner", node("inner"))
    inner.add_edge(START, "inner")
    graph = StateGraph(state)
    for name in ("left", "right"):
        graph.add_node(name, node(name))
        graph.add_edge(START, name)
        graph.add_edge(name, "ask")
    graph.add_node("ask", ask)
    graph.add_node("sub", inner.compile())
    graph.add_edge("ask", "sub")
    graph.add_edge("sub", END)
    return graph.compile(checkpointer=saver)


async def history(graph: Any, thread: Any) -> list[Any]:
    return [(each.values, each.next, each.metadata.get("source")) async for each in graph.aget_state_history(thread)]


async def conversed(saver: BaseCheckpointSaver[Any], state: Any, durability: Any) -> list[Any]:
    """Play a graph to its interrupt, resume it, and branch off from an earlier checkpoint."""
    graph, thread = asking_graph(saver, state), {"configurable": {"thread_id": "t"}}
    seen = [await graph.ainvoke({"log": ["in"]}, thread, durability=durability)]
    seen.append(await graph.ainvoke(Command(resume="yes"), thread, durability=durability))
    seen.append(await history(graph, thread))
    (waiting,) = [each async for each in graph.aget_state_history(thread) if each.next == ("ask",)]
    await graph.ainvoke(None, waiting.config, durability=durability)  # waits again, on a branch
    seen.append(await graph.ainvoke(Command(resume="no"), thread, durability=durability))
    await graph.aupdate_state(thread, {"log": ["edited"]})
    seen += [(await graph.aget_state(thread)).values, await history(graph, thread)]
    return [json.loads(json.dumps(each, default=lambda value: value.value)) for each in seen]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("state", [State, Growing], ids=["values", "deltas"])
def test_a_graph_with_interrupts_and_branches_is_as_with_langgraphs_saver(
    state: Any, durability: str, tmp_path: Path
) -> None:
    async def ours() -> list[Any]:
        async with OutlastSaver.open(f"sqlite:{tmp_path}/threads.db") as saver:
            return await conversed(saver, state, durability)

    async def theirs() -> list[Any]:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "oracle.db")) as saver:
            return await conversed(saver, state, durability)

    assert asyncio.run(ours()) == asyncio.run(theirs())


def test_a_program_without_an_event_loop_keeps_its_threads(tmp_path: Path) -> None:
    thread = {"configurable": {"thread_id": "t"}}
    with OutlastSaver.open_sync(f"sqlite:{tmp_path}/threads.db") as saver:
        asking_graph(saver).invoke({"log": ["in"]}, thread)
    with OutlastSaver.open_sync(f"sqlite:{tmp_path}/threads.db") as saver:
        assert (
            asking_graph(saver).invoke(Command(resume="yes"), thread)["log"][-3:]
            == ["right", "asked:yes", "inner"][-3:]
        )


# --- two writers -------------------------------------------------------------------------
LOOP: Final = {"source": "loop", "step": 1, "parents": {}}
FIRST: Final = {"source": "input", "step": -1, "parents": {}}


async def grown(saver: OutlastSaver, *names: str) -> None:
    """Put checkpoints, each after the one before."""
    parent = ""
    for name in names:
        made = checkpoint_of(name, log=[*names[: names.index(name)], name])
        await saver.aput(config_of("t", parent), made, FIRST if not parent else LOOP, made["channel_versions"])
        parent = name


@EACH
def test_of_two_checkpoints_after_one_parent_the_second_is_refused(
    subject: Callable[[Path], Subjects], tmp_path: Path
) -> None:
    async def main() -> None:
        async with opened(subject, tmp_path, 2) as stores:
            one, two = [OutlastSaver(store) for store in stores]
            await grown(one, "c1", "c2")
            left, right = checkpoint_of("c3", log=["left"]), checkpoint_of("c4", log=["right"])
            found = await asyncio.gather(
                one.aput(config_of("t", "c2"), left, LOOP, left["channel_versions"]),
                two.aput(config_of("t", "c2"), right, LOOP, right["channel_versions"]),
                return_exceptions=True,
            )
            (refused,) = [each for each in found if isinstance(each, BaseException)]
            assert isinstance(refused, Conflict) and refused.refusal == "stale_checkpoint"
            assert len([each async for each in two.alist(config_of("t"))]) == 3
            last = await two.aget_tuple(config_of("t"))
            assert last is not None and last.config in found

    asyncio.run(main())


def test_two_invocations_that_both_begin_a_thread_do_not_both_win(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(Memory, tmp_path, 2) as stores:
            one, two = [OutlastSaver(store) for store in stores]
            assert await one.aget_tuple(config_of("t")) is None and await two.aget_tuple(config_of("t")) is None
            made = checkpoint_of("c1", log=[])
            await one.aput(config_of("t"), made, {"source": "loop", "step": 5}, made["channel_versions"])
            for saver, metadata in ((two, {"source": "loop", "step": 5}), (OutlastSaver(stores[1]), FIRST)):
                with pytest.raises(Conflict, match="does not follow"):
                    await saver.aput(config_of("t"), checkpoint_of("c2"), metadata, {})

    asyncio.run(main())


def test_the_graph_of_the_second_writer_fails_and_a_branch_on_purpose_does_not(tmp_path: Path) -> None:
    """A fork is put after an earlier checkpoint that its reader named. It becomes the last one of the thread."""

    async def main() -> None:
        store = await open_store("memory:")
        saver = OutlastSaver(store)
        overtaken = StateGraph(State)

        async def slow(state: State) -> dict[str, Any]:
            if "second" not in state["log"]:
                await asking_graph(saver).ainvoke({"log": ["second"]}, thread)
            return {"log": ["slow"]}

        overtaken.add_node("slow", slow)
        overtaken.add_edge(START, "slow")
        graph, thread = overtaken.compile(checkpointer=saver), {"configurable": {"thread_id": "t"}}
        with pytest.raises(Conflict, match="does not follow"):
            await graph.ainvoke({"log": ["first"]}, thread)
        kept = await asking_graph(saver).aget_state(thread)
        assert "slow" not in kept.values["log"] and kept.next == ("ask",)
        first = [each async for each in graph.aget_state_history(thread)][-1]
        edited = await graph.aupdate_state(first.config, {"log": ["branch"]}, as_node="slow")
        assert (await graph.aget_state(thread)).config["configurable"] == edited["configurable"]
        with pytest.raises(Conflict):  # the branch moved the end of the thread
            await saver.aput(kept.config, checkpoint_of("zz"), LOOP, {})
        await store.close()

    asyncio.run(main())


# --- what is kept ------------------------------------------------------------------------
async def rows_of(store: Store) -> dict[str, int]:
    return {kind.name: len(await store.rows(kind, ())) for kind in GRAPH_KINDS}


@EACH
def test_a_deleted_thread_leaves_no_row_and_a_prune_keeps_what_the_last_checkpoint_needs(
    subject: Callable[[Path], Subjects], tmp_path: Path
) -> None:
    async def main() -> None:
        async with opened(subject, tmp_path) as (store,):
            saver = OutlastSaver(store)
            parent = ""
            for n in range(30):
                made = checkpoint_of(f"c{n:02}", log=[f"{i}" * 200 for i in range(n + 1)], same="s" * 200)
                await saver.aput(config_of("t", parent), made, LOOP, made["channel_versions"])
                await saver.aput_writes(config_of("t", made["id"]), [("log", ["w" * 20_000, made["id"]])], "task")
                parent = made["id"]
            before = await saver.aget_tuple(config_of("t"))
            await saver.acopy_thread("t", "u")
            await saver.aprune(["t"])
            assert shown(await saver.aget_tuple(config_of("t"))) == shown(before)
            assert len([each async for each in saver.alist(config_of("t"))]) == 1
            assert len(await store.rows(GRAPH_WRITE, ("default", "t"))) == 1
            kept = await store.rows(GRAPH_VALUE, ("default", "t"))
            assert len(kept) < len(await store.rows(GRAPH_VALUE, ("default", "u")))
            again = checkpoint_of("d0", log=[f"{i}" * 200 for i in range(31)])
            await saver.aput(config_of("t", parent), again, LOOP, again["channel_versions"])
            assert len([each async for each in saver.alist(config_of("u"))]) == 30
            with pytest.raises(Conflict, match="exists"):
                await saver.acopy_thread("t", "u")
            with pytest.raises(NotFound):
                await saver.acopy_thread("none", "v")
            for thread in ("t", "u"):
                await saver.adelete_thread(thread)
            assert set((await rows_of(store)).values()) == {0}

    asyncio.run(main())


def test_a_prune_keeps_the_writes_of_which_a_delta_channel_is_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with OutlastSaver.open("memory:") as saver:
            graph, thread = asking_graph(saver, Growing), {"configurable": {"thread_id": "t"}}
            await graph.ainvoke({"log": ["in"]}, thread)
            await graph.ainvoke(Command(resume="yes"), thread)
            before = await graph.aget_state(thread)
            assert before.values["log"][:3] == ["in", "left", "right"]
            await saver.aprune(["t"])
            assert (await graph.aget_state(thread)).values == before.values

    asyncio.run(main())


def test_threads_are_no_runs(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store("memory:")
        await asking_graph(OutlastSaver(store)).ainvoke({"log": []}, {"configurable": {"thread_id": "t"}})
        assert await store.rows(RUN, ()) == () and (await rows_of(store))["graph_thread"] > 0
        assert OutlastSaver(store, tenant="other") is not None
        assert [each async for each in OutlastSaver(store, tenant="other").alist(None)] == []
        await store.close()

    asyncio.run(main())


def test_a_growing_list_is_stored_once(tmp_path: Path) -> None:
    """300 checkpoints of a list that grows by 100 bytes take a twentieth of what LangGraph's saver writes."""

    def grow(saver: Any) -> None:
        parent, log = "", []
        for n in range(300):
            log.append(f"message {n} " + "abcdefghij" * 9)
            made = checkpoint_of(f"{n:04}", log=list(log))
            saver.put(config_of("t", parent), made, LOOP, made["channel_versions"])
            parent = made["id"]

    with SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as theirs:
        grow(theirs)
    with OutlastSaver.open_sync(f"sqlite:{tmp_path}/ours.db") as ours:
        grow(ours)
        found = ours.get_tuple(config_of("t"))
        assert found is not None and len(found.checkpoint["channel_values"]["log"]) == 300
    assert 7 * (tmp_path / "ours.db").stat().st_size < (tmp_path / "theirs.db").stat().st_size


# --- stored bytes ------------------------------------------------------------------------
class Trap:
    """A class of which no value may come back unless its name was allowed."""

    made: int = 0

    def __init__(self, value: int = 0) -> None:
        Trap.made += 1
        self.value = value

    def model_dump(self) -> dict[str, int]:
        return {"value": self.value}


async def stored_with(store: Store, **columns: Any) -> None:
    """Replace columns of the only checkpoint, as someone with access to the database could."""
    (row,) = await store.rows(GRAPH_CHECKPOINT, ())
    await store.commit(Commit((Put(GRAPH_CHECKPOINT, row._replace(version=row.version + 1, **columns), row.version),)))


HOSTILE: Final = {
    "a json constructor": {
        "format": "json",
        "body": b'{"lc":2,"type":"constructor","id":["os","system"],"args":["x"]}',
    },
    "a pickle": {"format": "pickle", "body": b"cos\nsystem\n(S'x'\ntR."},
    "broken bytes": {"format": "msgpack", "body": b"\xc1\xff"},
    "no mapping": {"format": "msgpack", "body": b"\x01"},
    "no places": {"channels": "[]"},
    "a place of nothing": {"channels": '{"log":["msgpack","w","00"]}'},
    "a place without a form": {"channels": '{"log":["msgpack","x","00"]}'},
    "a place that is no list": {"channels": '{"log":7}'},
    "inline bytes that are no base64": {"channels": '{"log":["msgpack","i","!"]}'},
    "no metadata": {"metadata": "7"},
    "deep metadata": {"metadata": "[" * 100_000},
    "a body elsewhere": {"body_at": "p:ff"},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_bytes_are_an_error_that_names_the_thread(case: str) -> None:
    async def main() -> None:
        store = await open_store("memory:")
        saver = OutlastSaver(store)
        await grown(saver, "c1")
        await stored_with(store, **HOSTILE[case])
        with pytest.raises(Corrupt, match="c1"):
            await saver.aget_tuple(config_of("t"))
        await saver.adelete_thread("t")
        assert set((await rows_of(store)).values()) == {0}
        await store.close()

    asyncio.run(main())


def test_only_allowed_classes_are_made(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store("memory:")
        strict, open_to = OutlastSaver(store), OutlastSaver(store, allow=[Trap])
        made = checkpoint_of("c1", log=[Trap(7)])
        await strict.aput(config_of("t"), made, FIRST, made["channel_versions"])
        Trap.made = 0
        found = await strict.aget_tuple(config_of("t"))
        assert found is not None and Trap.made == 0
        assert not isinstance(found.checkpoint["channel_values"]["log"][0], Trap)
        found = await open_to.aget_tuple(config_of("t"))
        assert found is not None and isinstance(found.checkpoint["channel_values"]["log"][0], Trap)
        await store.close()

    asyncio.run(main())


def test_a_value_that_was_exchanged_is_found(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store("memory:")
        saver = OutlastSaver(store)
        made = checkpoint_of("c1", log=["x" * 500])
        await saver.aput(config_of("t"), made, FIRST, made["channel_versions"])
        (row,) = await store.rows(GRAPH_VALUE, ())
        await store.commit(Commit((Erase(GRAPH_VALUE, row[:4]),)))
        await store.commit(Commit((Put(GRAPH_VALUE, row._replace(packed=0, body=b"other"), 0),)))
        with pytest.raises(Corrupt, match="hash"):
            await saver.aget_tuple(config_of("t"))
        await store.close()

    asyncio.run(main())


def test_mistakes_of_a_caller_are_said_without_a_traceback() -> None:
    async def main() -> None:
        async with OutlastSaver.open("memory:") as saver:
            for config in ({"configurable": {}}, config_of(""), config_of("t" * 600), config_of("t", ns="n" * 600)):
                with pytest.raises(InvalidInput):
                    await saver.aput(config, checkpoint_of("c1"), FIRST, {})
            with pytest.raises(InvalidInput, match="strategy"):
                await saver.aprune(["t"], strategy="all")

    asyncio.run(main())


# --- programs that are killed ------------------------------------------------------------
PUBLISHED: Final = inspect.getdoc(interrupt) or ""
"""Documentation of LangGraph, with a program that waits for a person and goes on."""
SAVER: Final = "from langgraph.checkpoint.memory import InMemorySaver\n"
OURS: Final = """\
import sys, uuid
from outlast.langgraph import OutlastSaver
InMemorySaver = lambda: opened.enter_context(OutlastSaver.open_sync(sys.argv[1]))
uuid.uuid4 = lambda: uuid.UUID(int=7)  # both processes work on one thread
from contextlib import ExitStack
opened = ExitStack()
"""
KILL: Final = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"


def ran(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, str(folder / "program.py"), f"sqlite:{folder}/threads.db"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_published_program_is_killed_and_continued(tmp_path: Path) -> None:
    """The program of LangGraph's documentation is unchanged but for the saver, and its thread outlives SIGKILL."""
    published = textwrap.dedent(PUBLISHED.partition("```python\n")[2].partition("    ```")[0])
    assert SAVER in published and published.count("for chunk in") == 2
    program = published.replace(SAVER, OURS)
    build, first, rest = program.split("for chunk in")
    waits = ran(tmp_path, f"{build}for chunk in{first}{KILL}")
    assert waits.returncode == -signal.SIGKILL and "what is your age?" in waits.stdout, waits.stderr
    goes_on = ran(tmp_path, f"{build}for chunk in{rest}opened.close()\n")
    assert "> Received an input from the interrupt: some input from a human!!!" in goes_on.stdout, goes_on.stderr


STEPS: Final = """
from operator import add
from pathlib import Path
from typing import Annotated, TypedDict
import os, signal, sys
from langgraph.graph import START, StateGraph
from outlast.langgraph import OutlastSaver

class State(TypedDict):
    log: Annotated[list[str], add]

def node(name):
    def act(state):
        if state["log"] == os.environ.get("DIE_AT", "").split():
            os.kill(os.getpid(), signal.SIGKILL)
        print(name, flush=True)
        return {"log": [name]}
    return act

graph = StateGraph(State)
for before, name in zip([START, "a", "b"], "abc"):
    graph.add_node(name, node(name))
    graph.add_edge(before, name)
with OutlastSaver.open_sync(sys.argv[1]) as saver:
    thread = {"configurable": {"thread_id": "t"}}
    graph = graph.compile(checkpointer=saver)
    given = None if graph.get_state(thread).values else {"log": ["in"]}
    print(*graph.invoke(given, thread, durability="sync")["log"])
"""


def test_a_graph_that_is_killed_goes_on_at_its_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for log, done in (("in a", "a"), ("in a b", "b")):
        monkeypatch.setenv("DIE_AT", log)
        killed = ran(tmp_path, STEPS)
        assert killed.returncode == -signal.SIGKILL and killed.stdout.split() == [done], killed.stderr
    monkeypatch.delenv("DIE_AT")
    assert ran(tmp_path, STEPS).stdout.split() == ["c", "in", "a", "b", "c"]


class PowerLoss(BaseException):
    """The process ends here."""


def test_after_each_commit_of_a_put_the_thread_is_whole(tmp_path: Path) -> None:
    """A put is cut after each of its commits. The last whole checkpoint is read, and the put is repeated."""

    async def cut(after: int) -> int:
        core = MemoryCore(HandClock())
        saver = OutlastSaver(MemoryStore(core, "w1"))
        await grown(saver, "c1")
        landed = 0

        def point(name: str, labels: Any) -> None:
            nonlocal landed
            if name == "store.batch:after":
                landed += 1
                if landed == after:
                    raise PowerLoss

        large = checkpoint_of("c2", log=[token_hex(800_000), "x" * 5_000, token_hex(1_000)])
        crash_points.hook = point
        try:
            await saver.aput(config_of("t", "c1"), large, LOOP, large["channel_versions"])
        except PowerLoss:
            pass
        finally:
            crash_points.hook = None
        again = OutlastSaver(MemoryStore(core, "w2"))
        before = await again.aget_tuple(config_of("t"))
        assert before is not None and before.checkpoint["id"] in ("c1", "c2")
        await again.aput(config_of("t", "c1"), large, LOOP, large["channel_versions"])
        found = await again.aget_tuple(config_of("t"))
        assert found is not None and found.checkpoint["channel_values"] == large["channel_values"]
        await again.adelete_thread("t")
        assert all(not core.rows.under(kind, ()) for kind in GRAPH_KINDS)
        return landed

    async def main() -> None:
        commits = await cut(0)
        assert commits >= 2, "a large value takes several commits"
        for after in range(1, commits + 1):
            await cut(after)

    asyncio.run(main())


# --- bounded reads -----------------------------------------------------------------------
async def read_by(store: Store, saver: OutlastSaver, *args: Any, **options: Any) -> tuple[list[str], int]:
    """Return the ids that `list` answers, and the number of checkpoints that it has read."""
    query, rows = store.query, 0

    async def counted(asked: Any) -> Any:
        nonlocal rows
        found = await query(asked)
        if getattr(asked, "kind", None) is GRAPH_CHECKPOINT:
            rows += len(found) if isinstance(found, tuple) else 1
        return found

    store.query = counted  # type: ignore[method-assign]
    try:
        return [each.checkpoint["id"] async for each in saver.alist(*args, **options)], rows
    finally:
        store.query = query  # type: ignore[method-assign]


@EACH
def test_a_list_with_a_limit_reads_no_more_rows_of_each_namespace(
    subject: Callable[[Path], Subjects], tmp_path: Path
) -> None:
    async def main() -> None:
        async with opened(subject, tmp_path) as (store,):
            saver = OutlastSaver(store)
            await grown(saver, *(f"c{n:02}" for n in range(0, 40, 2)))
            for n in range(1, 40, 2):
                inner = checkpoint_of(f"c{n:02}", z=n)
                config = config_of("t", f"c{n - 2:02}" if n > 1 else "", ns="sub:1")
                await saver.aput(config, inner, LOOP if n > 1 else FIRST, inner["channel_versions"])
            whole, own = {"configurable": {"thread_id": "t"}}, config_of("t")
            assert await read_by(store, saver, own, limit=3) == (["c38", "c36", "c34"], 3)
            assert await read_by(store, saver, own, limit=2, before=config_of("t", "c36")) == (["c34", "c32"], 2)
            assert await read_by(store, saver, config_of("t", "c04")) == (["c04"], 1)
            assert await read_by(store, saver, config_of("t", "c04"), before=config_of("t", "c04")) == ([], 0)
            assert await read_by(store, saver, whole, limit=0) == ([], 0)
            for config in (whole, None):  # two rows of each of the two namespaces
                assert await read_by(store, saver, config, limit=2) == (["c39", "c38"], 4)
            names, _ = await read_by(store, saver, whole)
            assert names == [f"c{n:02}" for n in range(39, -1, -1)]

    asyncio.run(main())


def test_a_list_of_more_rows_than_are_read_at_once_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.langgraph.saver.READ_AT_ONCE", 3)

    async def main() -> None:
        async with OutlastSaver.open("memory:") as saver:
            await grown(saver, *(f"c{n}" for n in range(9)))
            for options in ({}, {"filter": {"source": "loop"}}):
                found = [each.checkpoint["id"] async for each in saver.alist(config_of("t"), **options)]  # type: ignore[arg-type]
                assert found == [f"c{n}" for n in range(8, 0 if options else -1, -1)]

    asyncio.run(main())

"""Promises about rows of threads of LangGraph: they are deleted with a commit, and only under the expected version."""

from outlast.core.commit import Commit, Erase, Expect, Put
from outlast.core.rows.graph_rows import GRAPH_KINDS, GRAPH_THREAD, GRAPH_VALUE, GraphThread, GraphValue
from outlast.core.rows.row_kind import Key
from outlast.store.batch import VERSION
from outlast.store.port import Store
from outlast.store.queries import Newest
from tests.conformance.subject import T0, TENANT, Subject, refused_for, run_row, start, two

LINE: Key = (TENANT, "thread-1", "")


def _thread(version: int = 1, thread: str = "thread-1", at: int = T0) -> GraphThread:
    return GraphThread(TENANT, thread, "", version, "c1", 1, T0, at)


def _value(name: str, thread: str = "thread-1") -> GraphValue:
    return GraphValue(TENANT, thread, "", name, 0, b"\0bytes", T0)


async def _fill(store: Store) -> None:
    puts = (Put(GRAPH_THREAD, _thread(), 0), Put(GRAPH_VALUE, _value("a"), 0), Put(GRAPH_VALUE, _value("b"), 0))
    await store.commit(Commit(puts))


async def an_erased_row_is_gone_with_its_commit(s: Subject) -> None:
    """A row of a thread is deleted by the commit that says so, for every writer, and no other row is."""
    a, b = await two(s)
    await _fill(a)
    await b.commit(Commit((Put(GRAPH_VALUE, _value("a", "thread-2"), 0),)))
    erase = (Erase(GRAPH_VALUE, (*LINE, "a")), Erase(GRAPH_VALUE, (*LINE, "never there")))
    await b.commit(Commit(erase, expects=(Expect(GRAPH_THREAD, LINE, 1),)))
    assert await a.rows(GRAPH_VALUE, (TENANT,)) == (_value("b"), _value("a", "thread-2"))


async def an_outdated_erase_deletes_nothing(s: Subject) -> None:
    """A deletion that expects an older version of its thread is refused whole."""
    a, b = await two(s)
    await _fill(a)
    await a.commit(Commit((Put(GRAPH_THREAD, _thread(2), 1),)))
    late = Commit((Erase(GRAPH_VALUE, (*LINE, "a")),), expects=(Expect(GRAPH_THREAD, LINE, 1),))
    await refused_for(VERSION, b.commit(late))
    assert len(await b.rows(GRAPH_VALUE, LINE)) == 2


async def an_erased_thread_begins_again(s: Subject) -> None:
    """After its deletion a thread is inserted as a new one, and a write that names an earlier version is refused."""
    a, b = await two(s)
    await _fill(a)
    await b.commit(Commit((Erase(GRAPH_THREAD, LINE),), expects=(Expect(GRAPH_THREAD, LINE, 1),)))
    assert await a.load(GRAPH_THREAD, LINE) is None
    await refused_for(VERSION, a.commit(Commit((Put(GRAPH_THREAD, _thread(2), 1),))))
    await a.commit(Commit((Put(GRAPH_THREAD, _thread(), 0),)))
    assert await b.load(GRAPH_THREAD, LINE) == _thread()


async def a_thread_is_no_run(s: Subject) -> None:
    """A thread whose id is that of a run shares no row with it, and is found in its own list alone."""
    a, b = await two(s)
    await a.commit(start(run_row("run-1")))
    puts = (Put(GRAPH_THREAD, _thread(thread="run-1"), 0), Put(GRAPH_VALUE, _value("a", "run-1"), 0))
    await b.commit(Commit(puts))
    (rows,) = await a.run_rows([(TENANT, "run-1")])
    assert rows is not None and rows.run == run_row("run-1")
    for kind in GRAPH_KINDS:
        for row in await a.rows(kind, (TENANT,)):
            assert row[1] == "run-1"
    await b.commit(Commit((Put(GRAPH_THREAD, _thread(thread="t2", at=T0 + 1), 0),)))
    found = await b.query(Newest(GRAPH_THREAD, TENANT, (("ns", ""),)))
    assert [row.thread for row in found.rows] == ["t2", "run-1"]

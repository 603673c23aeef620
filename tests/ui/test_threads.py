"""Pages of the threads of LangGraph: the list, and the checkpoints of one with parents, branches, writes and sizes."""

import asyncio
import os
import re
import subprocess
from collections.abc import Coroutine
from typing import Any
from urllib.parse import quote

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.graph_threads import GraphData
from outlast.core.rows.graph_rows import GRAPH_CHECKPOINT
from outlast.runtime.graph_threads import GraphThreads, NewCheckpoint, NewWrite, TaskWrites
from outlast.ui.routes import thread_pages
from tests.ui.conftest import Service
from tests.ui.html_page import HtmlPage

pytestmark = pytest.mark.req("RT-3")
UTF8 = {**os.environ, "LC_ALL": "C.UTF-8"}
HOSTILE = "</td><script>alert(1)</script>\"'>{{7*7}}\u202e\u0007 a/b?c=d&e#f%41 " + "w" * 300


def on(service: Service, work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, service.loop).result(30)


async def put(
    threads: GraphThreads, thread: str, name: str, parent: str = "", ns: str = "", *, text: str = "log", **more: Any
) -> None:
    """Put a checkpoint with one channel and two writes."""
    metadata = {"source": text, "step": 3}
    values = {text: GraphData("msgpack", b"\xc0")}
    empty = GraphData("msgpack", b"\x80")
    await threads.put(NewCheckpoint(thread, ns, name, parent, metadata, empty, values, (), **more))
    writes = [NewWrite(i, text, GraphData("msgpack", b"x" * 100)) for i in range(2)]
    await threads.put_writes(TaskWrites(thread, ns, name, "task", "", writes, False))


def threads_of(service: Service, tenant: str = "default") -> GraphThreads:
    return GraphThreads(service.state.store, tenant)


def row_of(page: str, name: str) -> str:
    """Return the text of the row of a checkpoint."""
    (row,) = re.findall(rf'<tr id="checkpoint-{name}">.*?</tr>', page, re.DOTALL)
    return HtmlPage(row).text


def test_an_empty_list_says_how_a_graph_keeps_threads(service: Service) -> None:
    page = service.get("/ui/threads")
    assert page.status_code == 200 and "outlast.langgraph.OutlastSaver" in page.text
    assert 'href="/ui/threads"' in service.get("/ui/runs").text, "every page leads to it"


def test_threads_are_listed_by_their_last_change_and_paged(service: Service) -> None:
    threads = threads_of(service)
    for thread in ("l-1", "l-2", "l-3"):
        on(service, put(threads, thread, "c1"))
    on(service, put(threads, "l-1", "c2", "c1"))
    seen, address = list[str](), "/ui/threads?limit=2"
    while address:
        page = HtmlPage(service.get(address).text)
        seen += [each["href"].partition("thread=")[2] for each in page.links if "/ui/thread?" in each["href"]]
        address = next((each["href"] for each in page.links if each.get("rel") == "next"), "")
    assert seen == ["l-1", "l-3", "l-2"]
    assert service.get("/ui/threads?limit=2&cursor=abc").status_code == 422
    assert "l-1" not in service.get("/ui/runs").text, "threads are no runs"


def test_a_thread_shows_parents_branches_writes_and_bytes(service: Service) -> None:
    threads = threads_of(service)
    for name, parent in (("c1", ""), ("c2", "c1"), ("c3", "c2")):
        on(service, put(threads, "t", name, parent))
    assert "branch" not in service.get("/ui/thread?thread=t").text
    on(service, put(threads, "t", "c4", "c1", branches=True))
    on(service, put(threads, "t", "s1", ns="sub:1"))
    page = service.get("/ui/thread?thread=t").text
    assert "4 on 2 branches" in HtmlPage(page).text
    last, forked, before, first = (row_of(page, f"c{n}") for n in (4, 3, 2, 1))
    assert last.startswith("c4 last branch 1 log 3 c1 log 2 ") and forked.startswith("c3 branch 2 log 3 c2 log 2 ")
    assert "c1 of branch 1" in before and first.startswith("c1 branch 1 log 3 log 2 ")
    row = on(service, service.state.store.load(GRAPH_CHECKPOINT, ("default", "t", "", "c1")))
    assert f" {len(row.body) + len(row.metadata) + len(row.channels) + 200} " in first
    assert page.index("checkpoint-c4") < page.index("checkpoint-c3") < page.index("checkpoint-c1")
    (inner,) = [each["href"] for each in HtmlPage(page).links if "ns=sub" in each["href"]]
    assert "s1 last" in row_of(service.get(inner).text, "s1")
    assert "outlast threads show t" in page and "outlast threads export t --to FILE" in page


def test_a_long_thread_is_paged_and_says_what_it_leaves_out(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = threads_of(service)
    for n in range(5):
        on(service, put(threads, "long", f"c{n}", f"c{n - 1}" if n else ""))
    monkeypatch.setattr(thread_pages, "SIZE", 2)
    monkeypatch.setattr(thread_pages, "READ_MAX", 3)
    first = service.get("/ui/thread?thread=long").text
    assert "checkpoint-c3" in first and "checkpoint-c2" not in first and "The last 3 are shown" in first
    assert "branches" not in first, "none is among those that were read"
    on(service, put(threads, "long", "c5", "c3", branches=True))
    assert "6 on at least 2 branches" in HtmlPage(service.get("/ui/thread?thread=long").text).text
    on(service, threads.delete("long"))
    for n in range(5):
        on(service, put(threads, "long", f"c{n}", f"c{n - 1}" if n else ""))
    (later,) = {each["href"] for each in HtmlPage(first).links if each.get("rel") == "next"}
    second = service.get(later).text
    assert "checkpoint-c2" in second and "checkpoint-c1" not in second and 'rel="next"' not in second


def test_a_thread_of_many_subgraphs_links_to_those_that_changed_last(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph gives each call of a subgraph a namespace. Once the page had a link to each of 10,000."""
    monkeypatch.setattr(thread_pages, "SPACES_MAX", 2)
    threads = threads_of(service)
    for ns in ("", "sub:1", "sub:2", "sub:3", "sub:4"):
        on(service, put(threads, "many", "c1", ns=ns))
    page = HtmlPage(service.get("/ui/thread?thread=many&ns=sub:1").text)
    linked = [each["href"].partition("ns=")[2] for each in page.links if "thread=many" in each["href"]]
    assert [each.replace("%3A", ":") for each in linked] == ["", "sub:1", "sub:3", "sub:4"]
    assert "5 namespaces, of which those that changed last are shown" in page.text


def test_texts_of_a_graph_are_inert(service: Service) -> None:
    """The pages have as many elements as with a text without markup, and each link leads to its thread."""
    threads, elements = threads_of(service), list[int]()
    for text in (HOSTILE.translate({ord("<"): "(", ord(">"): ")"}), HOSTILE):
        on(service, put(threads, text, "c1", text=text))
        (link,) = [
            each["href"]
            for each in HtmlPage(service.get("/ui/threads?limit=1").text).links
            if "/ui/thread?" in each["href"]
        ]
        pages = [service.get(address) for address in ("/ui/threads?limit=1", link)]
        assert [each.status_code for each in pages] == [200, 200] and "checkpoint-c1" in pages[1].text
        assert all("<script>alert" not in each.text and "{{7*7}}" in each.text for each in pages)
        elements.append(sum(HtmlPage(each.text).elements for each in pages))
    assert elements[0] == elements[1]


def test_a_checkpoint_that_cannot_be_read_is_a_row_that_says_so(service: Service) -> None:
    on(service, put(threads_of(service), "broken", "c1"))
    on(service, put(threads_of(service), "broken", "c2", "c1"))
    on(service, spoiled(service, "broken", metadata="[7"))
    page = service.get("/ui/thread?thread=broken")
    assert page.status_code == 200
    assert "unreadable" in row_of(page.text, "c1") and "unreadable" not in row_of(page.text, "c2")


BYTES = b"cos\nsystem\n(S'x'\ntR.<script>alert(2)</script>\xff\x00"


def test_hostile_bytes_and_damaged_rows_are_text_under_the_same_policy(service: Service) -> None:
    """No value is decoded for a page, so a pickle or a constructor in the store is a number of bytes."""
    threads = threads_of(service)
    for form in ("pickle", "json", "</code><img src=x onerror=alert(3)>"):
        data = GraphData(form, BYTES)
        write = TaskWrites("bytes", "", "c1", f"t-{form[:4]}", "", [NewWrite(0, HOSTILE, data)], False)
        on(service, threads.put_writes(write))
    new = NewCheckpoint("bytes", "", "c1", "", {"source": HOSTILE}, GraphData("pickle", BYTES), {HOSTILE: data}, ())
    on(service, threads.put(new))
    damaged = {
        "metadata": "\ud7ff<script>alert(4)</script>",
        "channels": '{"a":7}',
        "format": "<script>",
        "parent": "<script>alert(5)</script>",
    }
    on(service, put(threads, "bytes", "c2", "c1"))
    on(service, spoiled(service, "bytes", **damaged))
    policy = policy_of(service.get("/ui/runs"))
    for address in ("/ui/threads", "/ui/thread?thread=bytes"):
        page = service.get(address)
        assert page.status_code == 200 and policy_of(page) == policy
        assert "<script>alert" not in page.text and "<img src=x" not in page.text and "Traceback" not in page.text
    assert "unreadable" in row_of(page.text, "c1") and "unreadable" not in row_of(page.text, "c2")


def test_a_command_names_a_thread_with_invisible_characters_for_a_shell(service: Service) -> None:
    """A page shows their code points. Once the command had these in place of the characters, and found no thread."""
    thread = "\u202e\u05e9\u05dc a'b\\c\u0007"
    on(service, put(threads_of(service), thread, "c1"))
    page = HtmlPage(service.get(f"/ui/thread?thread={quote(thread)}").text).text
    (word,) = re.findall(r"outlast threads show (\$'.*?c\\u0007')", page)
    assert (
        subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True, env=UTF8).stdout
        == thread.encode()
    )


def policy_of(page: Any) -> str:
    """Return the Content-Security-Policy of a page without its nonce."""
    return re.sub(r"'nonce-[\w-]+'", "'nonce'", page.headers["content-security-policy"])


async def spoiled(service: Service, thread: str, **columns: Any) -> None:
    """Replace columns of the checkpoint c1, as a process with access to the database could."""
    store = service.state.store
    row = await store.load(GRAPH_CHECKPOINT, ("default", thread, "", "c1"))
    assert row is not None
    changed = row._replace(version=row.version + 1, **columns)
    await store.commit(Commit((Put(GRAPH_CHECKPOINT, changed, row.version),)))


def test_a_thread_of_another_tenant_does_not_exist(service: Service) -> None:
    on(service, put(threads_of(service, "globex"), "theirs", "c1"))
    assert "theirs" not in service.get("/ui/threads").text
    for address in ("thread=theirs", "thread=none", "", "thread=" + quote("a/../b"), "thread=theirs&ns=sub"):
        page = service.get(f"/ui/thread?{address}")
        assert page.status_code == 404 and "no thread" in page.text
    assert service.get("/ui/thread?thread=" + "x" * 600).status_code == 422

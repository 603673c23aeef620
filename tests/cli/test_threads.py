"""`outlast threads`: threads of LangGraph graphs that OutlastSaver keeps."""

import asyncio
import json
import sqlite3
from base64 import b64decode
from pathlib import Path

import pytest

from outlast.langgraph import OutlastSaver
from tests.cli.conftest import Terminal
from tests.langgraph.test_saver import asking_graph

pytestmark = pytest.mark.req("RT-3")


def kept(outlast: Terminal, *threads: str) -> None:
    """Play a graph to its interrupt on each thread."""

    async def main() -> None:
        async with OutlastSaver.open(outlast.url) as saver:
            for thread in threads:
                await asking_graph(saver).ainvoke({"log": ["in"]}, {"configurable": {"thread_id": thread}})

    asyncio.run(main())


def test_threads_are_listed_shown_and_deleted(outlast: Terminal) -> None:
    outlast.start()
    assert "no graph of LangGraph" in outlast("threads", "ls").out
    kept(outlast, "t-1", "t-2")
    listed = outlast("threads", "ls", "-o", "json").json["threads"]
    assert {each["thread"] for each in listed} == {"t-1", "t-2"} and listed[0]["checkpoints"] == 3
    assert outlast("threads", "ls").row("t-2").split()[1] == "3"
    first = outlast("threads", "ls", "--limit", "1", "-o", "json").json
    rest = outlast("threads", "ls", "--cursor", first["cursor"], "-o", "json").json
    assert [first["threads"][0], *rest["threads"]] == listed and rest["cursor"] == ""
    shown = outlast("threads", "show", "t-1")
    assert shown.code == 0 and "t-1 has 3 checkpoints" in shown.out and "(last)" in shown.out and "loop 1" in shown.out
    assert "t-1" not in outlast("runs", "ls").out
    assert outlast("threads", "rm", "t-1").code == 2, "nothing is deleted without an answer"
    assert outlast("threads", "rm", "t-1", "--yes").code == 0
    for command in ("rm", "show", "export"):
        gone = outlast("threads", command, "t-1", *(["--yes"] if command == "rm" else []))
        assert gone.code == 3 and "no thread t-1" in gone.err
    assert [each["thread"] for each in outlast("threads", "ls", "-o", "json").json["threads"]] == ["t-2"]


def test_an_export_has_the_bytes_of_every_value(outlast: Terminal, tmp_path: Path) -> None:
    kept(outlast, "t-1")
    file = tmp_path / "t-1.json"
    assert outlast("threads", "export", "t-1", "--to", str(file)).code == 0
    document = json.loads(file.read_text())
    assert document == outlast("threads", "export", "t-1").json
    last = document["checkpoints"][0]
    assert last["last"] and last["metadata"]["source"] == "loop" and last["writes"]
    log = b64decode(last["values"]["log"]["base64"])
    assert log.endswith(b"right") and last["values"]["log"]["format"] == "msgpack"


def test_old_threads_are_purged(outlast: Terminal) -> None:
    kept(outlast, "t-1", "t-2")
    assert outlast("threads", "purge", "--older", "1d", "--yes").code == 0
    assert len(outlast("threads", "ls", "-o", "json").json["threads"]) == 2
    cut = outlast("threads", "purge", "--older", "0s", "--keep-latest", "--yes")
    assert "2 threads cut to the last checkpoint" in cut.out
    assert [each["checkpoints"] for each in outlast("threads", "ls", "-o", "json").json["threads"]] == [1, 1]
    assert outlast("threads", "purge", "--older", "0s", "--yes", "-o", "json").json["threads"] == 2
    assert outlast("threads", "ls", "-o", "json").json["threads"] == []


def test_threads_of_all_tenants_are_purged_with_runs_if_asked(outlast: Terminal) -> None:
    kept(outlast, "t-1", "t-2")
    assert outlast("purge", "--yes", "-o", "json").json["threads"] == 0
    assert outlast("purge", "--threads", "1d", "--yes", "-o", "json").json["threads"] == 0
    assert len(outlast("threads", "ls", "-o", "json").json["threads"]) == 2
    asked = outlast("purge", "--threads", "0s")
    assert asked.code == 2 and "every thread of LangGraph" in asked.out + asked.err
    assert "2 threads of LangGraph deleted" in outlast("purge", "--threads", "0s", "--yes").out
    assert outlast("threads", "ls", "-o", "json").json["threads"] == []


def test_a_checkpoint_that_cannot_be_read_is_a_row_that_says_so(outlast: Terminal) -> None:
    """Once one damaged row ended the command, and the others of its thread could not be seen."""
    kept(outlast, "t-1")
    with sqlite3.connect(outlast.folder / outlast.url.removeprefix("sqlite:")) as db:
        changed = "UPDATE graph_checkpoint SET metadata = '[7' WHERE checkpoint = (SELECT min(checkpoint) FROM {})"
        assert db.execute(changed.format("graph_checkpoint")).rowcount == 1
    shown = outlast("threads", "show", "t-1")
    assert shown.code == 0 and shown.out.count("unreadable") == 1 and "loop 1" in shown.out
    *rest, first = outlast("threads", "show", "t-1", "-o", "json").json["checkpoints"]
    assert "metadata cannot be read" in first["problem"] and not any("problem" in each for each in rest)

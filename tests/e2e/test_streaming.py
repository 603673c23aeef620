"""Words of a model reach listeners of a service in another process, on SQLite and PostgreSQL, across a kill -9."""

import json
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.store.delta_channel import FOLDER
from tests import forked
from tests.e2e import streaming
from tests.e2e.helpers import GIVE_UP_S, ROOT, SHORT, Receiver, when
from tests.postgres.conftest import schema, url
from tests.service.conftest import Running
from tests.service.test_streams import stream

__all__ = ["schema", "url"]
Words = dict[tuple[int, str], str]
"""Text by epoch and key."""


@pytest.fixture
def receivers() -> Iterator[list[Receiver]]:
    """Receivers of the two parts; the second one does not answer yet."""
    opened = [Receiver(), Receiver()]
    opened[1].may_answer.clear()
    yield opened
    for each in opened:
        each.close()


@pytest.fixture
def hired(tmp_path: Path) -> Iterator[list["subprocess.Popen[Any]"]]:
    """Workers, which are killed at the end."""
    workers: list[subprocess.Popen[Any]] = []
    yield workers
    for worker in workers:
        worker.kill()
        worker.wait(GIVE_UP_S)


def hire(store: str, receivers: list[Receiver]) -> "subprocess.Popen[Any]":
    urls = {f"RECEIVER_{n}": each.url for n, each in enumerate(receivers, 1)}
    env = {**os.environ, **urls, "PYTHONPATH": f"{ROOT}"}
    command = ["outlast", "--store", store, "worker", "tests.e2e.streaming", *SHORT]
    return forked.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def until(events: Iterator[dict[str, Any]], words: Words, word: str = "") -> int:
    """Collect the words of a stream until this one arrives, or its end. Return the number of the last event."""
    last = 0
    for each in events:
        last = int(each.get("id", last))
        if each.get("event") == "delta":
            assert "id" not in each
            delta = json.loads(each["data"])
            assert (delta["node"], delta["visit"]) == ("write", 1) and "tenant" not in delta
            words[delta["epoch"], delta["key"]] += delta["text"]
            if word and word in delta["text"]:
                return last
    assert not word, f"{word} never came: {dict(words)}"
    return last


@pytest.mark.req("RUN-7")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_words_reach_a_listener_in_another_process_across_a_kill(
    kind: str,
    tmp_path: Path,
    receivers: list[Receiver],
    hired: list["subprocess.Popen[Any]"],
    request: pytest.FixtureRequest,
) -> None:
    file = tmp_path / "outlast.db"
    store = f"sqlite:{file}" if kind == "sqlite" else request.getfixturevalue("url")
    words: Words = defaultdict(str)
    with Running(store, [streaming.stories], worker=False) as service:
        run = service.start("story", parts=[])
        with stream(service, f"/v1/runs/{run}/events") as events:
            next(events)
            hired.append(hire(store, receivers))
            until(events, words, "2.2")
            when(lambda: receivers[1].seen)
            first = dict(words)
            (killed,) = {epoch for epoch, _ in first}
            hired[0].kill()
            assert hired[0].wait(GIVE_UP_S) == -signal.SIGKILL
            words.clear()
            hired.append(hire(store, receivers))
            until(events, words, "2.2")
            receivers[1].may_answer.set()
            last = until(events, words)
        ended = service.ended(run)
        history = service.get(f"/v1/runs/{run}/events?limit=1000").json()["events"]
    assert first[killed, "model/1"] == "1.0 1.1 1.2 1.end "
    assert first[killed, "model/2"] == "2.0 2.1 2.2 "
    assert first[killed, ""] == "part-1 part-2 "
    (later,) = {epoch for epoch, _ in words}
    assert later > killed
    assert words[later, "model/2"] in ("2.0 2.1 2.2 2.end ", "2.0 2.1 2.2 "), "the end of the run may come first"
    assert (later, "model/1") not in words, "a recorded answer is not streamed again"
    assert words.get((later, ""), "") == "part-2 ", "the first recorded call is passed before the node streams again"
    assert ended["status"] == "completed" and int(history[-1]["sequence"]) == last == len(history)
    assert [dict(each.seen) for each in receivers] == [{"1": 1}, {"2": 2}], "only the killed request is asked again"
    assert not Path(f"{file}{FOLDER}").exists()


def tail(run: str, *args: str, **env: str) -> "subprocess.Popen[str]":
    """Start `outlast runs tail` and return it once it has printed the first event, so that it listens."""
    command = ["outlast", "runs", "tail", run, *args]
    process = forked.Popen(command, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and "started" in process.stdout.readline()
    return process


@pytest.mark.req("RUN-7")
def test_words_reach_the_command_line_in_other_processes(
    tmp_path: Path, receivers: list[Receiver], hired: list["subprocess.Popen[Any]"]
) -> None:
    store = f"sqlite:{tmp_path / 'outlast.db'}"
    with Running(store, [streaming.stories], worker=False) as service:
        run = service.start("story", parts=[])
        at_store, at_url = {"OUTLAST_STORE": store}, {"OUTLAST_URL": service.url}
        tails = [
            tail(run, **at_store), tail(run, **at_url), tail(run, "-o", "ndjson", **at_store),
            tail(run, "-o", "ndjson", **at_url), tail(run, "-o", "ndjson", "--events-only", **at_store),
        ]  # fmt: skip
        hired.extend([*tails, hire(store, receivers)])
        when(lambda: receivers[1].seen)
        receivers[1].may_answer.set()
        outs = [process.communicate(timeout=GIVE_UP_S)[0] for process in tails]
    assert [process.returncode for process in tails] == [0] * len(tails)
    for plain in outs[:2]:
        texts = [line.split(maxsplit=2) for line in plain.splitlines() if line.split()[0] == "text"]
        assert {place for _, place, _ in texts} == {"write#1"}
        said = " ".join(text for _, _, text in texts).split()
        assert sorted(said) == sorted(["part-1", "1.0", "1.1", "1.2", "1.end", "part-2", "2.0", "2.1", "2.2", "2.end"])
    only = outs[-1].splitlines()
    for lines in (out.splitlines() for out in outs[2:4]):
        deltas = [each for each in map(json.loads, lines) if each["type"] == "delta"]
        words: Words = defaultdict(str)
        for each in deltas:
            words[each["epoch"], each["key"]] += each["text"]
        assert words == {(1, ""): "part-1 part-2 ", (1, "model/1"): "1.0 1.1 1.2 1.end ",
                         (1, "model/2"): "2.0 2.1 2.2 2.end "}  # fmt: skip
        events = [line for line in lines if json.loads(line)["type"] != "delta"]
        assert events == only, "the events are the stored bytes, with or without texts"

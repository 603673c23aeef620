"""Event streams: in order, once, from any number, for many listeners; slow ones do not delay others."""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity, connect
from outlast.core.events import EventType
from outlast.core.state.delta_packets import Delta, DeltaOrigin
from outlast.errors import Unavailable
from outlast.runtime.stores import open_store
from outlast.service.event_broadcaster import EventBroadcaster
from outlast.service.event_stream import (
    BUFFER,
    BUFFER_BYTES,
    DELTA_BYTES_BEHIND,
    DELTAS_BEHIND,
    EventListener,
    delta_frame,
)
from tests.service.conftest import ALL, PATIENCE_S, Running, Service
from tests.service.test_serve import eventually

STREAM = {"Accept": "text/event-stream"}
answered = threading.Event()


class Question(BaseModel):
    words: str


questions = Workflow("question", state=Question)


@activity(key="service-model/{words}", no_undo="said is said")
def model(words: str) -> str:
    answered.wait(PATIENCE_S)
    return f"{words}!"


@questions.node(start=True)
async def ask_model(ctx: Context[Question]) -> None:
    ctx.log("asks", "asks the model", words=ctx.state.words)
    ctx.state.words = await ctx.do(model, ctx.state.words)


HERE = DeltaOrigin("acme", "r1", "write", 1, 1, "", 0)


@pytest.mark.req("RUN-7")
def test_a_listener_that_is_behind_loses_deltas_and_no_event() -> None:
    listener = EventListener("acme", "r1")
    for n in range(10 * DELTAS_BEHIND):
        listener.offer(delta_frame(Delta(HERE, f"{n} ")))
    assert len(listener) == DELTAS_BEHIND and not listener.cut.is_set()
    for seq in range(1, 100):
        listener.push(seq, b"event")
    assert len(listener) == DELTAS_BEHIND + 99 and not listener.cut.is_set()
    large = EventListener("acme", "r1")
    for _ in range(40):
        large.offer(b"x" * 100_000)
    assert len(large) == DELTA_BYTES_BEHIND // 100_000


async def _heard_of_three() -> list[list[bytes]]:
    store = await open_store("memory:")
    broadcaster = EventBroadcaster(store)
    places = [("acme", "r1"), ("acme", "r2"), ("globex", "r1")]
    listeners = [await broadcaster.listen(*place) for place in places]
    everything, _ = await broadcaster.listen_to_all("acme", "")
    broadcaster._on_deltas([Delta(HERE, "for r1")])
    broadcaster.close()
    heard = [await each.received() for each in (*listeners, everything)]
    await store.close()
    return [[data for _, data in items] for items in heard]


@pytest.mark.req("RUN-7")
def test_deltas_reach_listeners_to_their_run_only() -> None:
    """Neither another run, nor the run of that id in another tenant, nor the stream of all runs."""
    one, *others = asyncio.run(_heard_of_three())
    assert one == [delta_frame(Delta(HERE, "for r1"))] and others == [[], [], []]
    assert b"acme" not in one[0] and b"id:" not in one[0]
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
    name, data = page.partition("```text\nevent: ")[2].splitlines()[:2]
    (shown,) = parsed(iter([*one[0].decode().splitlines()[:2], ""]))
    assert (name, list(json.loads(data.removeprefix("data: ")))) == (shown["event"], list(json.loads(shown["data"])))


@contextmanager
def stream(service: Service, path: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the events of a stream, comments as {"comment": …}."""
    with httpx2.Client(base_url=service.url, timeout=PATIENCE_S) as client:
        with client.stream("GET", path, headers={**STREAM, **headers}) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield parsed(answer.iter_lines())


def parsed(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Each message of a stream."""
    message: dict[str, Any] = {}
    for line in lines:
        if line.startswith(":"):
            yield {"comment": line}
        elif not line:
            if "data" in message:
                yield message
            message = {}
        else:
            name, _, value = line.partition(": ")
            message[name] = value


@pytest.mark.req("RUN-7")
def test_a_stream_sends_old_and_new_events_and_ends(service: Service) -> None:
    run = service.start("wish", text="?")
    with stream(service, f"/v1/runs/{run}/events") as events:
        assert next(events)["event"] == EventType.STARTED
        service.post(f"/v1/runs/{run}/signals/said", {"payload": {"text": "hi"}})
        rest = list(events)
    ids = [1, *(int(each["id"]) for each in rest if "id" in each)]
    assert ids == list(range(1, len(ids) + 1)), "every number, once, in order"
    assert rest[-1]["event"] == EventType.FINISHED_WELL
    page = service.get(f"/v1/runs/{run}/events?limit=2")
    found = page.json()["events"]
    while link := page.headers.get("link"):
        page = service.get(link.partition(">")[0][1:])
        found += page.json()["events"]
    assert page.json()["ended"]
    assert [int(each["sequence"]) for each in found] == ids
    assert json.loads(rest[-1]["data"])["id"] == found[-1]["id"]


@pytest.mark.req("RUN-7")
def test_a_listener_that_reconnects_continues_after_its_last_event(service: Service) -> None:
    run = service.start("job", rounds=3)
    last = service.ended(run)["version"]
    with stream(service, f"/v1/runs/{run}/events", **{"Last-Event-ID": "3"}) as events:
        assert [int(each["id"]) for each in events] == list(range(4, last + 1))
    over = service.get(f"/v1/runs/{run}/events", headers={**STREAM, "Last-Event-ID": str(last)})
    assert (over.status_code, over.content) == (204, b""), "a browser reconnects after any other status"
    bad = service.get(f"/v1/runs/{run}/events", headers={**STREAM, "Last-Event-ID": "x"})
    assert (bad.status_code, bad.json()["refusal"]) == (422, "bad_header")
    assert service.get("/v1/runs/none/events", headers=STREAM).status_code == 404


@pytest.mark.req("RUN-7")
def test_a_future_last_event_id_is_refused(service: Service) -> None:
    """As after a restore: waiting for that number would lose the events before it."""
    run = service.start()
    service.asked(run)
    answer = service.get(f"/v1/runs/{run}/events", headers={**STREAM, "Last-Event-ID": "99"})
    assert (answer.status_code, answer.json()["refusal"]) == (422, "bad_header")
    assert f"run {run} has " in answer.json()["detail"]


@pytest.mark.req("RUN-7")
def test_an_outage_of_the_store_ends_a_stream_without_a_fault(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Listeners reconnect, and a traceback for each of hundreds would hide the cause."""
    run = service.start("wish", text="?")

    async def away(*args: Any, **more: Any) -> Any:
        raise Unavailable("disk I/O error")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(service.state.store, "rows", away)
        with stream(service, f"/v1/runs/{run}/events") as events:
            assert list(events) == []
    assert "an event stream ends: disk I/O error" in caplog.text
    assert not [record for record in caplog.records if record.exc_info or record.levelno > logging.WARNING]
    with stream(service, f"/v1/runs/{run}/events") as events:
        assert next(events)["event"] == EventType.STARTED


@pytest.mark.req("RUN-7")
def test_a_failed_broadcaster_ends_its_streams_and_restarts(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listeners would take silence for "no events"."""
    run = service.start("wish", text="?")

    async def broken(*args: Any, **more: Any) -> Any:
        raise RuntimeError("a mistake of ours")

    with stream(service, f"/v1/runs/{run}/events") as events:
        next(events)
        with monkeypatch.context() as patch:
            patch.setattr(service.state.store, "load_many", broken)
            assert all("data" in each for each in events), "it ends"
    with stream(service, f"/v1/runs/{run}/events") as events:
        service.post(f"/v1/runs/{run}/signals/said", {"payload": {"text": "hi"}})
        assert list(events)[-1]["event"] == EventType.FINISHED_WELL


def at_rest(body: Any) -> bool:
    """Return True if every run of a list has ended, or waits without a worker and without being due."""
    return all(run["ended_at"] or (run["waiting_for"] and not run["owner"] and not run["due"]) for run in body["runs"])


def test_one_stream_has_all_runs_of_the_tenant(service: Service) -> None:
    service.until("/v1/runs?limit=200", at_rest)  # runs of earlier tests, which read the first event only
    assert service.get("/v1/events").json()["refusal"] == "not_acceptable"
    with stream(service, "/v1/events") as events:
        first = service.start("job", rounds=2)
        seen = []
        for each in events:
            if "data" in each:
                seen.append(json.loads(each["data"])["subject"])
                if each["event"] == EventType.FINISHED_WELL and seen[-1] == first:
                    last = each["id"]
                    break
    assert set(seen) == {first}, "nothing of what was there before"
    second = service.start("job", rounds=2)
    service.ended(second)
    with stream(service, "/v1/events", **{"Last-Event-ID": last}) as events:
        missed = json.loads(next(each for each in events if "data" in each)["data"])
        assert missed["subject"] == second, "events without a listener"
    with stream(service, "/v1/events", **{"Last-Event-ID": "elsewhere-7"}) as events:
        assert next(events)["event"] == "gap"


def test_heartbeats_are_sent_and_a_stop_ends_every_stream(folder_url: str) -> None:
    with Running(folder_url, ALL, heartbeat_s=0.2) as service:
        run = service.start("wish", text="?")
        ended = threading.Event()

        def listen() -> None:
            with stream(service, f"/v1/runs/{run}/events") as events:
                seen = []
                for each in events:
                    seen.append(each)
                    if "comment" in each:
                        heard.set()
                ended.set()

        heard = threading.Event()
        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        assert heard.wait(PATIENCE_S)
    assert ended.wait(PATIENCE_S), "the service stopped, and with it the stream"


def test_a_stream_during_the_stop_does_not_delay_it(folder_url: str) -> None:
    """Like a listener that reconnects at once over an open connection."""
    with Running(folder_url, ALL, worker=False, heartbeat_s=3_600) as service:
        run = service.start("wish", text="?")
        service.loop.call_soon_threadsafe(service.state.stop)
        for path in (f"/v1/runs/{run}/events", "/v1/events"):
            with stream(service, path) as events:
                list(events)
        eventually(lambda: len(service.state.broadcaster) == 0)


def test_one_poll_serves_many_listeners(folder_url: str) -> None:
    with Running(folder_url) as service:
        run = service.start("wish", text="?")
        service.until(f"/v1/runs/{run}", lambda body: body["status"] == "waiting")
        listeners = [_connect(service, f"/v1/runs/{run}/events") for _ in range(200)]
        idle = [socket.create_connection(_address(service)) for _ in range(300)]
        for each in listeners:
            _read_until(each, b"run.parked")
        assert len(service.state.broadcaster) == 200
        looks = _counted(service)
        assert service.get("/healthz").status_code == 200
        service.post(f"/v1/runs/{run}/signals/said", {"payload": {"text": "hi"}})
        for each in listeners:
            assert b"workflow.completed" in _read_until(each, b"workflow.completed")
            each.close()
        for each in idle:
            each.close()
        assert all(n <= 1 for n in looks), "however many listen, a look reads each run once"


def test_a_slow_listener_is_cut_off(folder_url: str) -> None:
    with Running(folder_url, worker=False) as service:
        run = service.start("wish", text="?")
        slow = service.call(service.state.broadcaster.listen("default", run))
        good = service.call(service.state.broadcaster.listen("default", run))

        async def flood() -> None:
            for n in range(BUFFER + 10):
                for each in (slow, good):
                    each.push(n + 1, b"x")
                await good.received()

        service.call(flood())
        assert slow.cut.is_set() and not good.cut.is_set()
        assert len(slow) <= BUFFER

        async def large() -> int:
            heavy, n = EventListener("default", run), 0
            while not heavy.cut.is_set():
                heavy.push(n, bytes(BUFFER_BYTES // 4))
                n += 1
            await heavy.received()
            return n

        assert service.call(large()) < BUFFER / 10, "few, and large"


def _address(service: Service) -> tuple[str, int]:
    host, _, port = service.url.removeprefix("http://").partition(":")
    return host, int(port)


def _connect(service: Service, path: str) -> socket.socket:
    made = socket.create_connection(_address(service), timeout=PATIENCE_S)
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: {_address(service)[0]}\r\nAccept: text/event-stream\r\n\r\n".encode())
    return made


def _read_until(made: socket.socket, mark: bytes) -> bytes:
    found = b""
    while mark not in found:
        data = made.recv(65536)
        assert data, found
        found += data
    return found


def _counted(service: Service) -> list[int]:
    """Count the runs that each poll reads from now on."""
    store, counts = service.state.store, []
    load_many = store.load_many

    async def counting(kind: Any, keys: Any, **more: bool) -> Any:
        counts.append(len(keys))
        return await load_many(kind, keys, **more)

    store.load_many = counting  # type: ignore[method-assign]  # the store's own, counted
    return counts


@pytest.mark.req("RUN-7")
def test_a_log_entry_is_streamed_while_its_node_waits_for_a_call(folder_url: str) -> None:
    answered.clear()
    with Running(folder_url, [questions]) as own:
        run = own.start("question", words="why")
        with stream(own, f"/v1/runs/{run}/events") as events:
            bodies = (json.loads(each["data"]) for each in events if "data" in each)
            entry = next(body for body in bodies if body["type"] == EventType.LOGGED)
            assert (entry["data"]["text"], entry["data"]["words"]) == ("asks the model", "why")
            assert own.get(f"/v1/runs/{run}").json()["status"] == "running"  # its call waits for the next line
            answered.set()
            assert next(body for body in bodies if body["type"] == EventType.FINISHED_WELL)


@pytest.mark.req("RUN-7")
@pytest.mark.parametrize("path", ["/v1/runs/{run}/events", "/v1/events"])
def test_a_process_has_a_maximum_number_of_streams(folder_url: str, path: str) -> None:
    with Running(folder_url, ALL) as own:
        own.state.broadcaster.most = 1
        run = own.start("wish", text="?")
        with stream(own, f"/v1/runs/{run}/events") as events:
            next(events)
            with own.client.stream("GET", path.format(run=run), headers=STREAM) as more:
                assert more.status_code == 429 and "too many streams" in more.read().decode()
                assert int(more.headers["retry-after"]) > 0
            assert own.get(f"/v1/runs/{run}/events").status_code == 200, "pages are served"


class Turns(BaseModel):
    n: int = 0


turns = Workflow("service-window", state=Turns, history=5)


@turns.node(start=True)
async def turn_once(ctx: Context[Turns]) -> Literal["turn_once"] | None:
    ctx.state.n += 1
    return "turn_once" if ctx.state.n < 40 else None


@pytest.mark.req("RUN-15")
def test_a_stream_from_before_the_window_says_what_it_leaves_out(folder_url: str) -> None:
    with Running(folder_url, (turns,)) as service:
        run = service.start("service-window", n=0)
        service.ended(run)
        with stream(service, f"/v1/runs/{run}/events") as events:
            seen = [(each["event"], int(each.get("id", 0))) for each in events if "data" in each]
        assert [name for name, _ in seen[:2]] == [EventType.STARTED, "gap"]
        first = seen[2][1]
        assert first > 30 and [number for _, number in seen[2:]] == [*range(first, seen[-1][1] + 1)]
        with stream(service, f"/v1/runs/{run}/events", **{"Last-Event-ID": str(first - 1)}) as events:
            assert "gap" not in [each["event"] for each in events if "data" in each]

        async def numbers() -> list[int]:
            async with connect(service.url, workflows=[turns]) as client:
                return [each.number async for each in client.get(run).events()]

        assert asyncio.run(numbers()) == [1, *range(first, seen[-1][1] + 1)]

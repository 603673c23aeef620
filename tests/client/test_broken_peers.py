"""Peers that double, displace, cut, inflate and delay answers, and streams of another kind."""

import asyncio
import gzip
import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, cast

import pytest

import outlast
from outlast import Client
from outlast.client import service_client
from outlast.client import service_connection as connection
from outlast.client.event_frames import FRAME_BYTES_MAX, BrokenStream, Frame, frames
from outlast.client.service_client import ServiceClient
from outlast.client.service_connection import PROBLEM, REQUEST_ID, REQUESTS_MAX, STREAM_S, ServiceConnection
from outlast.core.events import EventType
from outlast.core.machine import RunStatus
from outlast.errors import Busy, Misplaced, NotFound, NotStorable, OutlastError, Unavailable, Uncertain, WaitTimeout
from outlast.models.runs import CloudEvent, EndedRun, RunDelta, RunSummary
from outlast.models.service import PauseEnded
from tests.client.peers import Asked, Script, event, http, peer, stream, summary
from tests.mutants import remove

END = EventType.FINISHED_WELL.value
DELTA = RunDelta(run="r1", node="n", visit=1, epoch=1, key="", attempt=0, text="a\u2028b\x85c\x0bd")
BOMB = gzip.compress(bytes(64 * 1024 * 1024))
DELTA_FRAME = f"event: delta\ndata: {DELTA.model_dump_json()}\n\n".encode()


def deep(levels: int) -> list[object]:
    """Return a list in a list in a list."""
    found: list[object] = []
    for _ in range(levels):
        found = [found]
    return found


def against(script: Script, test: Callable[[Client], Awaitable[None]], timeout: float = 20) -> None:
    """Run a test with a client of a peer."""

    async def go() -> None:
        async with peer(script) as url, outlast.connect(url, timeout=timeout) as client:
            await test(client)

    asyncio.run(go())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reopen streams at once."""
    monkeypatch.setattr(service_client, "BACK_OFF_S", (0.0, 0.01))


# --- answers of other requests ---------------------------------------------------------------------
@pytest.mark.parametrize("guarded", [True, False])
def test_a_doubled_answer_is_not_read_as_that_of_the_next_request(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Two answers to one request come in one packet, and the connection stays open."""
    if not guarded:
        remove("answers_of_other_requests_believed", monkeypatch)

    def script(asked: Asked) -> Sequence[bytes]:
        return (2 * http(summary(asked.path.rpartition("/")[2])),)

    async def test(client: Client) -> None:
        runs = [(await client.run_summary(f"r{i}")).run for i in range(4)]
        assert (runs == ["r0", "r1", "r2", "r3"]) is guarded, runs

    against(script, test)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_doubled_answer_to_a_list_or_a_write_is_known_by_the_id_of_its_request(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("answers_of_other_requests_believed", monkeypatch)
    acts = itertools.count()

    def script(asked: Asked) -> Sequence[bytes]:
        body = b'{"resumed": "x", "by": "ana", "runs": %d}' % next(acts)
        return (2 * http(body, **{REQUEST_ID: asked.headers[REQUEST_ID.lower()]}),)

    async def test(client: Client) -> None:
        runs = [(await client.resume("tenant")).runs for _ in range(3)]
        assert len(set(runs)) == (3 if guarded else 2), runs

    against(script, test)


def test_a_write_whose_answers_are_all_displaced_is_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.client.service_connection.REPEATS_S", (0.0, 0.01))
    keys: list[str] = []

    def script(asked: Asked) -> Sequence[bytes]:
        keys.append(asked.headers.get("idempotency-key", ""))
        return (http(b'{"recorded": true, "run": %b}' % summary("other")),)

    async def test(client: Client) -> None:
        with pytest.raises(Uncertain, match="did not answer"):
            await client.cancel("r1", reason="x")
        assert len(keys) == 3 and len(set(keys)) == 1
        with pytest.raises(Unavailable):
            await client.run_summary("r1")

    against(script, test)


@pytest.mark.parametrize(
    "shown", ["nginx-7", "ab12.5", "", "{asked}, nginx-7", "nginx-7, {asked}", "{asked}, {asked}", "req_0123456789ab"]
)
def test_a_request_id_that_a_proxy_sets_is_no_sign(shown: str) -> None:
    def script(asked: Asked) -> Sequence[bytes]:
        return (http(summary("r1"), **{REQUEST_ID: shown.format(asked=asked.headers[REQUEST_ID.lower()])}),)

    async def test(client: Client) -> None:
        assert (await client.run_summary("r1")).run == "r1"

    against(script, test)


@pytest.mark.parametrize("shown", ["req_0123456789ab.1", "req_0123456789ab.1, nginx-7"])
def test_the_refusal_of_another_client_is_not_believed(shown: str) -> None:
    """A proxy gave a command the answer to the request of another client: "the webhooks keep changing"."""
    refusal = b'{"code": "OUT-402", "title": "the webhooks keep changing", "detail": "", "hint": "try again"}'
    asked_of: list[str] = []

    def script(asked: Asked) -> Sequence[bytes]:
        asked_of.append(asked.method)
        return (http(refusal, 409, PROBLEM, **{REQUEST_ID: shown}),)

    async def test(client: Client) -> None:
        with pytest.raises(Uncertain):
            await client.cancel("r1", reason="x")
        with pytest.raises(Unavailable):
            await client.run_summary("r1")
        assert asked_of.count("POST") > 1 and asked_of.count("GET") > 1, "repeated"

    against(script, test)


# --- bodies ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("encoding", ["gzip", "deflate, gzip", "gzip, gzip", "br", "zstd"])
def test_an_answer_that_inflates_is_not_read(encoding: str) -> None:
    """A gzip file of 64 KiB with 64 MiB of zeros; other encodings are not decoded at all."""
    read: list[int] = []

    async def test(client: Client) -> None:
        for _ in range(2):
            with pytest.raises(Unavailable, match="is not an Outlast service"):
                await client.run_summary("r1")
        with pytest.raises(Uncertain):
            await client.cancel("r1", reason="x")

    def script(asked: Asked) -> Sequence[bytes]:
        read.append(1)
        return (http(BOMB, Content_Encoding=encoding),)

    against(script, test)
    assert len(read) == 3, "each is read once"


@pytest.mark.parametrize(("encoding", "limit"), [("gzip", "INFLATED_BYTES_MAX"), ("", "ANSWER_BYTES_MAX")])
def test_no_more_of_an_answer_is_read_than_its_limit(
    monkeypatch: pytest.MonkeyPatch, encoding: str, limit: str
) -> None:
    """A little more than the limit, and not the whole that a peer sends."""
    read: list[int] = []
    chunk = bytes(1_024)
    monkeypatch.setattr(connection, limit, 8 * len(chunk))

    class Endless:
        headers: Final = {"content-encoding": encoding}
        num_bytes_downloaded = 1

        async def aiter_bytes(self) -> AsyncIterator[bytes]:
            while len(read) < 20:
                read.append(1)
                yield chunk

    assert asyncio.run(connection._body(cast(Any, Endless()))) == b""
    assert len(read) == 9


def test_a_compressed_answer_is_read_although_none_was_asked_for() -> None:
    async def test(client: Client) -> None:
        assert (await client.run_summary("r1")).run == "r1"

    def script(asked: Asked) -> Sequence[bytes]:
        assert asked.headers["accept-encoding"] == "identity"
        return (http(gzip.compress(summary("r1")), Content_Encoding="gzip"),)

    against(script, test)


def test_a_time_to_wait_that_is_no_number_of_outlast() -> None:
    body = b'{"code": "OUT-414", "title": "busy", "status": 429}'

    async def test(client: Client) -> None:
        with pytest.raises(Busy) as busy:
            await client.whoami()
        assert busy.value.retry_after_s == 1

    against(lambda asked: (http(body, 429, "application/problem+json", Retry_After="9" * 5_000),), test, timeout=1)


# --- streams ----------------------------------------------------------------------------------------
async def _framed(*chunks: bytes) -> list[Frame]:
    async def given() -> object:
        for chunk in chunks:
            yield chunk

    return [frame async for frame in frames(given())]  # type: ignore[arg-type]


def test_a_frame_ends_where_the_protocol_says() -> None:
    """U+2028, U+0085 and a vertical tab end a line of `str.splitlines`, and no line of a stream."""
    whole = b"\xef\xbb\xbfid: 7\r\n: hi\r" + b"data: x\ndata:y\n\n" + DELTA_FRAME + b"id: 8\ndata: cut"
    expected = [
        Frame("", "", "", comment=True), Frame("7", "", "x\ny"), Frame("", "delta", DELTA.model_dump_json()),
    ]  # fmt: skip
    assert asyncio.run(_framed(whole)) == expected
    assert asyncio.run(_framed(*(whole[i : i + 1] for i in range(len(whole))))) == expected


@pytest.mark.parametrize("data", [b"data: \xff\n\n", b"data: " + bytes(FRAME_BYTES_MAX), b"data: xxxxxx\n" * 400_000])
def test_bytes_that_are_no_frame_break_the_stream(data: bytes) -> None:
    with pytest.raises(BrokenStream):
        asyncio.run(_framed(data, b"more"))


FOREIGN = {
    "number": b"id: abc\ndata: {}\n\n",
    "digits": b"id: %b\ndata: {}\n\n" % (b"9" * 5_000),
    "page": b"id: 2\ndata: <html>\n\n",
    "value": b"id: 2\ndata: 5\n\n",
    "cut": event("r1", 2)[:-9] + b"\n\n",
    "bytes": b"id: 2\ndata: \xff\xfe\n\n",
    "run": event("r2", 2),
    "left out": event("r1", 3),
    "number of an event": event("r1", 2).replace(b"id: 2", b"id: x").replace(b"r1/2", b"r1/x"),
    "digits of an event": event("r1", 2)
    .replace(b"id: 2", b"id: " + b"9" * 5_000)
    .replace(b"r1/2", b"r1/" + b"9" * 5_000),
    "another number": b"id: 2\n" + event("r1", 3).partition(b"\n")[2],
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_frame_breaks_the_stream_and_each_event_comes_once(name: str) -> None:
    """Doubled frames, a foreign one, then the stream again from the last event."""
    asked_after: list[str] = []

    def script(asked: Asked) -> Sequence[bytes]:
        asked_after.append(asked.headers["last-event-id"])
        if len(asked_after) == 1:
            return (stream(event("r1", 1), event("r1", 1), DELTA_FRAME, FOREIGN[name]), b"")
        return (stream(event("r1", 1), event("r1", 2), event("r1", 2), event("r1", 3, END)), b"")

    async def test(client: Client) -> None:
        updates = [each async for each in client.get("r1").updates()]
        assert [each.number for each in updates if not isinstance(each, RunDelta)] == [1, 2, 3]
        assert [each.text for each in updates if isinstance(each, RunDelta)] == [DELTA.text]
        assert asked_after == ["0", "1"]

    against(script, test)


def test_a_peer_that_only_sends_foreign_frames_is_unavailable() -> None:
    async def test(client: Client) -> None:
        with pytest.raises(Unavailable, match="cannot be reached"):
            async for _ in client.get("r1").events():
                pass

    against(lambda asked: (stream(b"id: 1\ndata: <html>\n\n"), b""), test, timeout=0.5)


class Held:
    """Clock of an outage, which only its test moves."""

    ms = 0

    def mono(self) -> int:
        return self.ms


class Endless(Exception):
    """The client asks again and again."""


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("opening", [http(b"", 204), stream(), stream(b"event: hello\ndata: x\n\n")])
def test_reconnecting_ends_and_is_reported_once_if_the_run_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, opening: bytes, guarded: bool
) -> None:
    """The stream opens and ends, and the run is answered with a page: an end after `timeout`, one message."""
    if not guarded:
        remove("opened_streams_are_signs", monkeypatch)
    told: list[str] = []
    waited: list[float] = []
    clock = Held()
    monkeypatch.setattr(service_client, "BACK_OFF_S", (0.2, 0.5, 1.0, 2.0, 5.0))

    class HeldOutage(service_client.StreamOutage):
        def __init__(self, connection: ServiceConnection) -> None:
            super().__init__(connection)
            self._clock = clock  # type: ignore[assignment]

    yields = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if not seconds:  # the transport gives way to others
            await yields(0)
            return
        waited.append(seconds)
        clock.ms += round(seconds * 1_000)
        if sum(waited) > 120:
            raise Endless

    def script(asked: Asked) -> Sequence[bytes]:
        return (opening, b"") if "event-stream" in asked.headers["accept"] else (http(b"<html>", 200, "text/html"),)

    async def go() -> None:
        async with peer(script) as url:
            client = ServiceClient(ServiceConnection(url, "", timeout_s=60), told.append)
            with monkeypatch.context() as patch:
                patch.setattr(service_client, "StreamOutage", HeldOutage)
                patch.setattr(service_client.asyncio, "sleep", sleep)
                with pytest.raises(Unavailable if guarded else Endless):
                    async for _ in client.updates("r1"):
                        pass
            await client.close()

    asyncio.run(go())
    if not guarded:
        assert len(told) > 100 and len(waited) > 100
        return
    assert len(told) == 1 and 50 < sum(waited) <= 60 and len(waited) < 20, (told, waited)


@pytest.mark.parametrize("seen", [0, 2])
def test_the_events_that_no_stream_brought_are_read_when_the_run_has_ended(seen: int) -> None:
    """The run ends between the end of its stream and the look at its status, or a proxy ends each stream at once."""
    texts = [event("r1", n, END if n == 5 else "dev.outlast.run.checkpoint") for n in range(1, 6)]
    bodies = [text.partition(b"data: ")[2].strip() for text in texts]
    streams = [stream(*texts[:seen])] if seen else []

    def script(asked: Asked) -> Sequence[bytes]:
        if "event-stream" in asked.headers["accept"]:
            return (streams.pop() if streams else stream(), b"")
        if "/events" not in asked.path:
            return (http(summary("r1", "completed")),)
        after = int(asked.path.partition("after=")[2].partition("&")[0] or 0)
        page = bodies[after : after + 2]
        last = b'{"events": [%b], "last": %d, "ended": %b}'
        return (http(last % (b",".join(page), after + len(page), b"true" if after + 2 >= 5 else b"false")),)

    async def test(client: Client) -> None:
        assert [each.number async for each in client.get("r1").events()] == [1, 2, 3, 4, 5]

    against(script, test)


def test_a_stream_that_leaves_out_its_first_events_is_opened_again() -> None:
    opened: list[int] = []

    def script(asked: Asked) -> Sequence[bytes]:
        opened.append(int(asked.headers["last-event-id"]))
        whole = [event("r1", n, END if n == 3 else "dev.outlast.run.checkpoint") for n in range(1, 4)]
        return (stream(*whole[1:] if len(opened) == 1 else whole), b"")

    async def test(client: Client) -> None:
        assert [each.number async for each in client.get("r1").events()] == [1, 2, 3]
        assert opened == [0, 0]

    against(script, test)


def test_open_streams_keep_no_request_from_its_connection() -> None:
    """More streams than a pool of connections holds, as of a program that waits for many runs."""
    streams = 2 * REQUESTS_MAX + 1
    opened: list[str] = []

    def script(asked: Asked) -> Sequence[bytes]:
        if "event-stream" in asked.headers["accept"]:
            opened.append(asked.path)
            return (stream(event("r1", 1)),)
        return (http(summary("r1")),)

    async def test(client: Client) -> None:
        async def follow(gone_on: asyncio.Event) -> None:
            async for _ in client.get("r1").events():
                gone_on.set()

        events = [asyncio.Event() for _ in range(streams)]
        tasks = [asyncio.create_task(follow(each)) for each in events]
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.wait() for each in events))
        assert len(opened) == streams and (await client.run_summary("r1")).run == "r1"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    against(script, test)


@pytest.mark.parametrize(
    "value", ["a\ud800b", math.nan, math.inf, object(), {1: object()}, {"a\ud800": 1}, deep(5_000)]
)
def test_what_is_no_json_is_refused_before_it_is_sent(value: object) -> None:
    """As an action on the store refuses it. Before, the encoder's own errors came through."""
    asked_of: list[str] = []

    def script(asked: Asked) -> Sequence[bytes]:
        asked_of.append(asked.path)
        return (http(b"{}"),)

    async def test(client: Client) -> None:
        with pytest.raises(NotStorable):
            await client.signal("r1", "word", {"text": value})
        with pytest.raises(NotStorable):
            await client.approve("a1", changes={"text": value}, version=1)
        assert asked_of == []

    against(script, test)


def test_a_client_that_is_closed_answers_the_calls_that_wait_for_others() -> None:
    """More calls than are sent at once, to a peer that does not answer. Each gets an error of Outlast."""
    asked_of: list[str] = []

    all_sent = asyncio.Event()

    def script(asked: Asked) -> Sequence[bytes]:
        asked_of.append(asked.path)
        if len(asked_of) == REQUESTS_MAX:
            all_sent.set()
        return ()

    async def test(client: Client) -> None:
        calls = [asyncio.create_task(client.run_summary("r1")) for _ in range(REQUESTS_MAX + 20)]
        await all_sent.wait()
        await client.close()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(each, OutlastError) for each in ends), {repr(each) for each in ends}
        assert len(asked_of) == REQUESTS_MAX

    against(script, test)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_a_url_leaves_out_is_not_sent(name: str) -> None:
    """`/runs/../cancel` would be another path."""
    asked_of: list[str] = []

    def script(asked: Asked) -> Sequence[bytes]:
        asked_of.append(asked.path)
        return (http(summary("r1")),)

    async def test(client: Client) -> None:
        for call in (client.run_summary(name), client.cancel(name, reason="x"), client.webhooks.remove(name)):
            with pytest.raises(NotFound):
                await call
        assert asked_of == []

    against(script, test)


@pytest.mark.parametrize("sign", ["comment", "event", "answer"])
def test_each_sign_of_the_service_begins_the_time_of_an_outage_anew(monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    """A comment, an event, or the answer that the run goes on. The waits grow unless the stream itself brought it."""
    waited: list[float] = []
    opened: list[int] = []
    clock = Held()
    monkeypatch.setattr(service_client, "BACK_OFF_S", (0.2, 0.5, 1.0, 2.0, 5.0))

    class HeldOutage(service_client.StreamOutage):
        def __init__(self, connection: ServiceConnection) -> None:
            super().__init__(connection)
            self._clock = clock  # type: ignore[assignment]

    async def sleep(seconds: float) -> None:
        if seconds:  # not of a library that lets others go on
            waited.append(seconds)
            clock.ms += 1_000 + round(seconds * 1_000)

    def script(asked: Asked) -> Sequence[bytes]:
        if "event-stream" not in asked.headers["accept"]:
            goes_on = sign == "answer" and len(opened) != 50  # then it is away for a moment
            return (http(summary("r1") if goes_on else b"<html>", 200),)
        opened.append(1)
        if len(opened) > 60:
            return (stream(event("r1", int(asked.headers["last-event-id"]) + 1, END)), b"")
        news = {"comment": b": heartbeat\n\n", "event": event("r1", len(opened)), "answer": b""}[sign]
        return (stream(news), b"")

    async def go() -> None:
        async with peer(script) as url:
            client = ServiceClient(ServiceConnection(url, "", timeout_s=20), lambda told: None)
            with monkeypatch.context() as patch:
                patch.setattr(service_client, "StreamOutage", HeldOutage)
                patch.setattr(service_client.asyncio, "sleep", sleep)
                assert [each async for each in client.updates("r1")]
            await client.close()

    asyncio.run(go())
    assert len(opened) == 61 and sum(waited) > 10
    assert set(waited) == ({0.2, 0.5, 1.0, 2.0, 5.0} if sign == "answer" else {0.2})


def test_a_text_that_is_not_one_of_the_run_is_left_out() -> None:
    """A text may be lost, so it breaks no stream."""
    foreign = DELTA.model_copy(update={"run": "r2"})

    def script(asked: Asked) -> Sequence[bytes]:
        texts = [f"event: delta\ndata: {data}\n\n".encode() for data in (foreign.model_dump_json(), "{}", "<html>")]
        return (stream(*texts, DELTA_FRAME, event("r1", 1, END)), b"")

    async def test(client: Client) -> None:
        updates = [each async for each in client.get("r1").updates()]
        assert [type(each) for each in updates] == [RunDelta, CloudEvent]

    against(script, test)


def test_a_stream_that_ends_early_while_the_run_goes_on_is_reopened_for_as_long_as_it_takes() -> None:
    """Such as behind a proxy that ends idle connections before the first comment."""
    opened: list[int] = []

    def script(asked: Asked) -> Sequence[bytes]:
        if "event-stream" in asked.headers["accept"]:
            opened.append(1)
            return (stream(*([event("r1", 1, END)] if len(opened) > 60 else [])), b"")
        return (http(summary("r1")),)

    async def test(client: Client) -> None:
        assert [each.number async for each in client.get("r1").events()] == [1]

    against(script, test, timeout=0.5)


def test_a_stream_that_begins_while_the_service_is_away_waits_for_it() -> None:
    """A request that was never sent is repeated until `timeout`, for streams as for requests."""

    async def go() -> None:
        async with peer(lambda asked: ()) as gone:
            pass  # its port is free again
        port = int(gone.rpartition(":")[2])

        def script(asked: Asked) -> Sequence[bytes]:
            if "event-stream" in asked.headers["accept"]:
                return (stream(event("r1", 1, END)), b"")
            return (http(summary("r1", "completed")),)

        async with outlast.connect(gone, timeout=60) as client, peer(script) as here:
            refused = asyncio.Event()
            whole = client.connection._opened  # type: ignore[attr-defined]

            def opened(*args: object, **more: object) -> object:
                refused.set()
                return whole(*args, **more)

            client.connection._opened = opened  # type: ignore[attr-defined]
            following = asyncio.create_task(_all_of(client))
            await refused.wait()
            server = await asyncio.start_server(lambda r, w: _pipe(r, w, here), "127.0.0.1", port)
            assert await following == 1
            server.close()

    asyncio.run(go())


def test_what_cannot_be_sent_is_repeated_for_its_own_time() -> None:
    """A command waits long for an answer, and says soon that the service is not there."""

    async def go() -> None:
        async with peer(lambda asked: ()) as gone:
            pass  # nothing listens there any more
        connection = ServiceConnection(gone, "", timeout_s=3_600, unsent_s=0.3)
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable):
                await connection.post(PauseEnded, "/pauses/resume")
            with pytest.raises(Unavailable):
                await anext(ServiceClient(connection).updates("r1"))
        await connection.close()

    asyncio.run(go())


def test_a_tunnel_that_a_proxy_refuses_has_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def script(each: Asked) -> Sequence[bytes]:
        asked.append(each.method)
        return (http(b"", 502), b"")

    async def go() -> None:
        async with peer(script) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy)
            monkeypatch.delenv("NO_PROXY", raising=False)
            async with outlast.connect("https://outlast.example", timeout=0.3) as client:
                with pytest.raises(Unavailable):
                    await client.cancel("r1", reason="x")

    asyncio.run(go())
    assert set(asked) == {"CONNECT"}


async def _all_of(client: Client) -> int:
    return len([each async for each in client.get("r1").events()])


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: str) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", int(to.rpartition(":")[2]))
    back.write(await reader.readuntil(b"\r\n\r\n"))
    writer.write(await there.read())
    writer.close()
    back.close()


# --- time ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("silent", ["", "/v1/runs/r1", "/v1/runs/r1/events"])
def test_the_timeout_of_a_result_bounds_each_of_its_requests(silent: str) -> None:
    """The peer is silent for all, for the run, or for its events. The client's own timeout is far away."""

    def script(asked: Asked) -> Sequence[bytes]:
        if not silent or asked.path == silent:
            return ()
        return (http(summary("r1")),) if asked.path == "/v1/runs/r1" else (stream(b": heartbeat\n\n"),)

    async def test(client: Client) -> None:
        async with asyncio.timeout(60):  # hours before the client's own timeout
            with pytest.raises(WaitTimeout, match="has not ended after"):
                await client.get("r1").result(0.3)
            assert not await client.ended("r1", within_s=0.01)

    against(script, test, timeout=36_000)


def test_the_outcome_that_comes_too_late_is_a_timeout() -> None:
    def script(asked: Asked) -> Sequence[bytes]:
        asks.append(asked.path)
        return (http(summary("r1", "completed")),) if len(asks) == 1 else ()

    asks: list[str] = []

    async def test(client: Client) -> None:
        async with asyncio.timeout(60):
            with pytest.raises(WaitTimeout, match="has not ended"):
                await client.get("r1").result(0.3)

    against(script, test, timeout=36_000)


def test_a_result_without_time_is_read_once() -> None:
    async def test(client: Client) -> None:
        with pytest.raises(WaitTimeout, match="RUNNING"):
            await client.get("r1").result(0)

    assert RunSummary.model_validate_json(summary("r1")).shown == "RUNNING"
    against(lambda asked: (http(summary("r1")),), test)


def test_a_wait_without_time_sees_a_run_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """For its two reads, a wait has LOOK_S although its timeout has passed."""
    monkeypatch.setattr(service_client, "LOOK_S", 60.0)

    async def test(client: Client) -> None:
        assert await client.ended("r1", within_s=0)
        end = EndedRun(RunStatus.COMPLETED, 7, "", ())
        monkeypatch.setattr(service_client, "end_of", lambda found: end)

        async def read(self: ServiceClient, run: str) -> object:
            await asyncio.sleep(0.01)
            return None

        monkeypatch.setattr(ServiceClient, "run", read)
        assert await client.run_end("r1", within_s=0) == end

    against(lambda asked: (http(summary("r1", "completed")),), test)


def test_a_wait_that_ends_while_the_service_is_away_is_a_timeout() -> None:
    """The last read is for the text of the error only."""
    asks: list[str] = []

    def script(asked: Asked) -> Sequence[bytes]:
        if asked.path != "/v1/runs/r1":
            return (stream(b": heartbeat\n\n"),)
        asks.append(asked.path)
        return (http(summary("r1")),) if len(asks) == 1 else (http(b"<html>", 500, "text/html"),)

    async def test(client: Client) -> None:
        with pytest.raises(WaitTimeout, match="has not ended"):
            await client.get("r1").result(0.3)

    against(script, test)


@pytest.mark.parametrize("name", ["run_summary", "run"])
def test_a_timeout_of_a_part_is_not_that_of_the_wait(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    async def ended(self: ServiceClient, run: str, *, within_s: float | None = None) -> bool:
        return True

    async def times_out(self: ServiceClient, run: str) -> object:
        raise TimeoutError("a part of it")

    monkeypatch.setattr(ServiceClient, name, times_out)
    if name == "run":
        monkeypatch.setattr(ServiceClient, "ended", ended)

    async def test(client: Client) -> None:
        with pytest.raises(TimeoutError, match="a part of it"):
            await client.run_end("r1", within_s=36_000)

    against(lambda asked: (), test)


def test_the_opening_of_a_stream_is_bounded_by_the_timeout_of_the_client() -> None:
    def script(asked: Asked) -> Sequence[bytes]:
        return () if "event-stream" in asked.headers["accept"] else (http(summary("r1")),)

    async def test(client: Client) -> None:
        async with asyncio.timeout(STREAM_S / 2):
            with pytest.raises(Unavailable):
                await anext(client.get("r1").events())

    against(script, test, timeout=0.3)


def test_an_open_stream_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout of the client is that of its opening."""
    timeout, made = asyncio.timeout, list[asyncio.Timeout]()

    def noted(seconds: float | None) -> asyncio.Timeout:
        made.append(timeout(seconds))
        return made[-1]

    async def go() -> None:
        async with peer(lambda asked: (stream(b": heartbeat\n\n"),)) as url:
            connection = ServiceConnection(url, "", timeout_s=3_600)
            with monkeypatch.context() as patch:
                patch.setattr(asyncio, "timeout", noted)
                async with connection.stream("/runs/r1/events", 0):
                    assert made and made[0].when() is None
            await connection.close()

    asyncio.run(go())


# --- closed clients ------------------------------------------------------------------------------------
def test_a_closed_client_says_so() -> None:
    async def go() -> None:
        both = asyncio.Barrier(3)
        arrived: set[asyncio.Task[object]] = set()

        def silent(asked: Asked) -> Sequence[bytes]:
            arrived.add(asyncio.create_task(both.wait()))
            return ()

        async with peer(silent) as url:
            client = await outlast.connect(url, timeout=36_000)
            reading = asyncio.create_task(client.whoami())
            writing = asyncio.create_task(client.cancel("r1", reason="x"))
            await both.wait()  # both requests have arrived, and get no answer
            await client.close()
            with pytest.raises(Misplaced, match="closed"):
                await reading
            with pytest.raises(Uncertain):
                await writing

    asyncio.run(go())


def test_the_id_in_a_path_is_that_of_the_answer() -> None:
    async def go(script: Script) -> None:
        async with peer(script) as url:
            connection = ServiceConnection(url, "", timeout_s=20)
            assert (await connection.post(PauseEnded, "/pauses/resume")).by == "ana"
            await connection.close()

    asyncio.run(go(lambda asked: (http(b'{"resumed": "x", "by": "ana", "runs": 1}'),)))

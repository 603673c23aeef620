"""Claims of the client about a write: Uncertain, unless an answer of Outlast says how it ended (decision 0103)."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

import httpx2
import pytest

import outlast
from outlast import Budget, Client
from outlast.cli.exit_codes import NO_STORE, UNCERTAIN, report
from outlast.client.service_connection import ServiceConnection
from outlast.errors import Conflict, InvalidInput, NotFound, OutlastError, Unavailable, Uncertain
from outlast.models.service import PauseEnded
from outlast.operations import OPERATIONS
from outlast.operations.declaration import OperationRequest
from outlast.testing.http_receiver import CutConnection, HttpReceiver, HttpRequest, Reply
from tests.client import flows
from tests.client.test_http import answer, between, problem, relay
from tests.mutants import remove
from tests.operations.methods import METHODS, call_of
from tests.service.conftest import Running, Service

PAGE: Final = b"<!doctype html><title>Sign in</title>"
HTML: Final = (("content-type", "text/html"),)
NOT_SENT: Final = {407, 413, 414, 431}
STATUSES: Final = (
    200, 201, 204, 302, 307, 400, 401, 403, 404, 405, 407, 408, 409, 410, 412, 413, 414, 422, 425, 428, 429, 431, 451,
    499, 500, 501, 502, 503, 504, 505, 507, 511, 520, 522, 524, 530,
)  # fmt: skip
Write = Callable[[Client], Awaitable[object]]
AFTER_A_READ: Final = {"/v1/attention/{run}/resolve", "/v1/effects/{effect}/resolve"}
"""Paths of writes that the client sends after a read, so that a proxy without answers never gets them."""


def _write_of(request: OperationRequest[Any]) -> Write:
    return lambda client: call_of(client, request)


WRITES: Final[dict[str, Write]] = {
    **{
        each.id: _write_of(each.example)
        for each in OPERATIONS
        if each.changes and each.request in METHODS.values() and f"/v1{each.path}" not in AFTER_A_READ
    },
    "start": lambda c: c.start("order", {"supplier": "acme"}),
    "start with a key": lambda c: c.start("order", {"supplier": "acme"}, key="k"),
    "approve": lambda c: c.approve("ap_1", version=1),
    "reject": lambda c: c.reject("ap_1", reason="x", version=1),
    "budget": lambda c: c.set_budget(Budget(calls=1)),
    "redeliver": lambda c: c.webhooks.redeliver("wh_1"),
    "redeliver one": lambda c: c.webhooks.redeliver("wh_1:1"),
}
"""Calls of the client that change something: the example of each operation that is one method, and the others."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Running(f"sqlite:{tmp_path_factory.mktemp('lost') / 'outlast.db'}", flows.ALL) as running:
        yield running


class Claimed(NamedTuple):
    """Error of a write, and the requests that reached the proxy."""

    error: OutlastError
    requests: list[HttpRequest]


def claimed(write: Write, replies: Callable[[int], Reply | None], timeout: str | float = "20s") -> Claimed:
    """Return the error of a write whose n-th attempt (from 0) a proxy answers with `replies(n)`; None cuts it off."""
    seen: list[HttpRequest] = []
    raised: list[OutlastError] = []

    async def reply(request: HttpRequest) -> Reply:
        seen.append(request)
        found = replies(len(seen) - 1)
        if found is None:
            raise CutConnection
        return found

    async def test(client: Client) -> None:
        with pytest.raises(OutlastError) as error:
            await write(client)
        raised.append(error.value)

    between(reply, test, timeout=timeout)
    return Claimed(raised[0], seen)


@pytest.mark.req("RUN-4")
@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_a_proxy_answers_is_uncertain(name: str) -> None:
    """Each status that is no answer of Outlast, with a page as body."""

    async def all_of_them() -> dict[int, str]:
        said: dict[int, str] = {}
        status = 0

        async def reply(request: HttpRequest) -> Reply:
            return Reply(status, b"" if status == 204 else PAGE, HTML)

        receiver = HttpReceiver(reply)
        await receiver.open()
        async with outlast.connect(receiver.url, timeout="20s") as client:
            for status in STATUSES:
                with pytest.raises(OutlastError) as error:
                    await WRITES[name](client)
                said[status] = type(error.value).__name__
        await receiver.close()
        return said

    expected = {status: "Unavailable" if status in NOT_SENT else "Uncertain" for status in STATUSES}
    assert asyncio.run(all_of_them()) == expected


def test_the_writes_above_are_those_of_the_service(service: Service) -> None:
    document = service.client.get("/openapi.json").json()["paths"]
    templates = {path for path, methods in document.items() if set(methods) - {"get", "head"}}
    asked = set()
    for write in WRITES.values():
        asked |= {request.path for request in claimed(write, lambda n: Reply(500, PAGE, HTML)).requests}
    for template in templates - AFTER_A_READ:
        pattern = re.compile(re.sub(r"\{[^}]+\}", "[^/]+", template))
        assert any(pattern.fullmatch(path) for path in asked), template
    assert templates >= AFTER_A_READ


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"run":"r1"', b'\xef\xbb\xbf{"run":"r1"}', b'{"code":"OUT-402"}', PAGE]
)
def test_a_body_that_is_not_an_answer_is_uncertain_under_each_status(body: bytes) -> None:
    """A page that looks like a problem of Outlast has another media type."""
    for status in (200, 201, 409, 500):
        found = claimed(WRITES["cancel_run"], lambda n, status=status: Reply(status, body)).error  # type: ignore[misc]
        assert isinstance(found, Uncertain), (status, found)
        assert "is the URL of the service" in found.fix and "before you repeat it" in found.fix
    away = claimed(lambda c: c.whoami(), lambda n: Reply(500, body)).error
    assert isinstance(away, Unavailable), "a read changes nothing"


def test_problems_of_outlast_are_told_as_they_are() -> None:
    refused = claimed(WRITES["cancel_run"], lambda n: problem("OUT-402", 409))
    assert type(refused.error) is Conflict and len(refused.requests) == 1
    assert type(claimed(WRITES["cancel_run"], lambda n: problem("OUT-504", 503)).error) is Unavailable
    assert type(claimed(WRITES["cancel_run"], lambda n: problem("OUT-401", 413)).error) is NotFound


@pytest.mark.req("RUN-4")
@pytest.mark.parametrize(
    ("second", "kind"),
    [
        (problem("OUT-103", 422), InvalidInput),
        (problem("OUT-402", 409), Conflict),
        (problem("OUT-411", 401), Uncertain),
        (problem("OUT-403", 403), Uncertain),
        (problem("OUT-414", 429), Uncertain),
        (problem("OUT-504", 503), Uncertain),
        (problem("OUT-900", 500), Uncertain),
        (problem("OUT-999", 500), Uncertain),
        (problem("OUT-424", 409, "in_flight"), Uncertain),
        (Reply(413, PAGE, HTML), Uncertain),
    ],
)
def test_a_repetition_settles_a_lost_attempt_only_if_the_key_was_looked_up(second: Reply, kind: type) -> None:
    """A service that did not look up the key knows nothing of the attempt whose answer was lost."""
    found = claimed(WRITES["cancel_run"], lambda n: None if n == 0 else second)
    assert type(found.error) is kind and len({request.key for request in found.requests}) == 1, found


def test_a_refusal_after_a_key_in_flight_may_be_of_the_request_itself() -> None:
    """A key is in flight for 60 s after its process died. The repetition is executed and meets its own act."""
    busy = problem("OUT-424", 409, "in_flight", Retry_After="0")
    found = claimed(WRITES["cancel_run"], lambda n: [None, busy, problem("OUT-402", 409)][n])
    assert isinstance(found.error, Uncertain) and "OUT-402" in found.error.why
    gateway = Reply(503, PAGE, (*HTML, ("retry-after", "0")))
    found = claimed(WRITES["cancel_run"], lambda n: [gateway, problem("OUT-504", 503)][n])
    assert isinstance(found.error, Uncertain), "a gateway that asks for a repetition may have forwarded the first"
    lost = problem("OUT-505", 503, Retry_After="0")
    assert isinstance(claimed(WRITES["cancel_run"], lambda n: [lost, problem("OUT-504", 503)][n]).error, Uncertain)


@pytest.mark.req("RUN-4")
def test_a_run_that_a_proxy_hides_is_started_once_under_its_key(service: Service) -> None:
    hides = True

    async def forward(request: HttpRequest) -> Reply:
        got = await relay(service, request)
        return Reply(500, PAGE, HTML) if request.method == "POST" and hides else got

    async def test(client: Client) -> None:
        nonlocal hides
        with pytest.raises(Uncertain, match="did not answer"):
            await client.start("order", {"supplier": "hidden"}, key="hidden-1")
        hides = False
        again = await client.start("order", {"supplier": "hidden"}, key="hidden-1")
        assert not again.created, "the first request was carried out"
        await client.cancel(again.id, reason="done")

    between(forward, test)


def test_a_request_that_was_not_sent_is_repeated_until_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """More often than one whose answer was lost, because it cannot be done twice."""
    monkeypatch.setattr("outlast.client.service_connection.REPEATS_S", (0.0, 0.01))
    refusals = 8
    whole = httpx2.AsyncClient.send

    async def send(client: httpx2.AsyncClient, *args: Any, **more: Any) -> httpx2.Response:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise httpx2.ConnectError("refused")
        return await whole(client, *args, **more)

    async def reply(asked: HttpRequest) -> Reply:
        return answer({"resumed": "x", "by": "ana", "runs": 3})

    async def test(client: Client) -> None:
        assert (await client.resume("tenant")).runs == 3 and refusals == -1

    monkeypatch.setattr(httpx2.AsyncClient, "send", send)
    between(reply, test)


def test_a_connection_that_was_never_made_carries_no_write() -> None:
    """Refused, without a host of that name, or without TLS at the other end."""

    async def away(url: str) -> None:
        connection = ServiceConnection(url, "", timeout_s=0.3)
        with pytest.raises(Unavailable, match="cannot be reached"):
            await connection.post(PauseEnded, "/x")
        await connection.close()

    async def no_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def go() -> None:
        await away("http://127.0.0.1:1")
        await away("http://no-such-host.invalid")
        async with await asyncio.start_server(no_tls, "127.0.0.1", 0) as plain:
            await away(f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}")

    asyncio.run(go())


def test_the_timeout_bounds_an_answer_that_comes_byte_by_byte() -> None:
    async def drip() -> None:
        gone = asyncio.Semaphore(0)

        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.05)
            except ConnectionError:
                pass
            finally:
                writer.close()
                gone.release()

        async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            begun = asyncio.get_running_loop().time()
            async with outlast.connect(url, timeout=0.4) as client:
                with pytest.raises(Unavailable):
                    await client.whoami()
                with pytest.raises(Uncertain):
                    await client.cancel("r1", reason="x")
            assert await gone.acquire() and await gone.acquire(), "both handlers have closed their connections"
            assert asyncio.get_running_loop().time() - begun < 10, "each request ends with its timeout"

    asyncio.run(drip())


def test_a_part_that_was_carried_out_is_not_denied(service: Service) -> None:
    """A move of many runs and a redelivery consist of several requests."""
    service.client.post("/v1/workflows/order/runs", json={"input": {"supplier": "moved"}, "id": "r1"})
    moved = {"run": service.client.get("/v1/runs/r1").json()}
    seen: list[str] = []

    async def reply(request: HttpRequest) -> Reply:
        seen.append(request.path)
        if request.path.endswith("/redeliver"):
            first = seen.count(request.path) == 1
            return answer({"redelivered": "wh_1", "events": 7, "more": True}) if first else problem("OUT-504", 503)
        if request.path.endswith("/r1/move"):
            return answer(moved)
        return Reply(500, PAGE, HTML) if request.path.endswith("/r2/move") else problem("OUT-504", 503)

    async def test(client: Client) -> None:
        with pytest.raises(Uncertain, match="7 events are sent again"):
            await client.webhooks.redeliver("wh_1")
        done, failed, _ = await client.move_runs("order", 2, ["r1", "r2", "r3", "r4"], reason="x")
        assert done == ("r1",) and [run for run, _ in failed] == ["r2", "r3", "r4"]
        assert "it may have been done" in failed[0][1] and "it may have been done" not in failed[1][1]
        assert not any(path.endswith("/r4/move") for path in seen), "the service is away"

    between(reply, test, timeout="5s")


def test_the_exit_code_tells_that_a_command_may_have_been_done(capsys: pytest.CaptureFixture[str]) -> None:
    lost = claimed(WRITES["start"], lambda n: Reply(500, PAGE, HTML)).error
    assert report(lost, ["run", "order"]) == UNCERTAIN
    assert "do not repeat it without the same key" in capsys.readouterr().err
    refused = claimed(WRITES["start"], lambda n: Reply(413, PAGE, HTML)).error
    assert report(refused, ["run", "order"]) == NO_STORE


@pytest.mark.req("RUN-4")
@pytest.mark.parametrize("guarded", [True, False])
def test_without_the_note_that_bytes_left_a_cut_write_is_called_undone(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("unanswered_writes_called_undone", monkeypatch)
    error = claimed(WRITES["cancel_run"], lambda n: None, timeout="1s").error
    assert type(error) is (Uncertain if guarded else Unavailable)


@pytest.mark.req("RUN-4")
@pytest.mark.parametrize("guarded", [True, False])
def test_without_the_rule_a_page_of_a_proxy_is_taken_for_proof(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        remove("answers_of_proxies_believed", monkeypatch)
    error = claimed(WRITES["cancel_run"], lambda n: Reply(500, PAGE, HTML)).error
    assert type(error) is (Uncertain if guarded else Unavailable)

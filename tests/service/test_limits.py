"""Limits on bodies, headers, URLs and time, and the form of every error (S17, S18, S31)."""

import asyncio
import contextlib
import json
import logging
import select
import socket
import time
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest

from outlast.errors import BadRequest, Fault, Unavailable, Unverifiable
from outlast.service import connections
from outlast.service.problems import answer
from outlast.service.request_limits import SAFE, Bounds, RequestLimitsMiddleware
from outlast.service.strict_json import check_shape
from tests.service.conftest import Running, Service

START = "/v1/workflows/refund/runs"
JSON = {"Content-Type": "application/json"}
LOOKS = 1_500  # each takes a fiftieth of a second
MEMBERS = {"type", "title", "status", "detail", "hint", "code", "refusal", "request_id"}


def send(service: Service, body: bytes, **headers: str) -> Any:
    return service.client.post(START, content=body, headers={**JSON, **headers})


@pytest.mark.parametrize(
    ("body", "status", "refusal"),
    [
        (b" " * (1024 * 1024 + 1), 413, "body_too_large"),
        (b"[" * 65 + b"]" * 65, 422, "too_deep"),
        (b'{"a":' * 100_000, 422, "too_deep"),
        (b'["' + b"\\\\" + b'",' + b"[" * 65 + b"]" * 66, 422, "too_deep"),  # behind a text that ends with a backslash
        (b"[" + b"1," * 10_001 + b"1]", 422, "too_many_values"),
        (json.dumps({"input": {"order_id": "x" * 300_000}}).encode(), 422, "text_too_long"),
        (b'{"input": {"cents": ' + b"9" * 5_000 + b"}}", 422, "text_too_long"),
        (b"\xef\xbb\xbf{}", 422, "not_json"),
        (b"not json", 422, "not_json"),
        (b"\xff\xfe{}", 422, "not_json"),
        ('{"input": {"order_id": "\u2200"}}'.encode("utf-16-le"), 422, "not_json"),  # where quotes hide from the look
        (b'{"input": {"cents": NaN, "order_id": "a"}}', 422, "not_json"),
        (b'{"input": {"order_id": "a"}, "input": {"order_id": "b"}}', 422, "not_json"),
        (b'{"input": {"order_id": "a", "cents": 1, "\\u0063ents": 2}}', 422, "not_json"),
        (b'{"input": {"order_id": "a", "of": [[{"x": 1}, {"x": 1, "y": [], "x": 1}]]}}', 422, "not_json"),
        (b'{"input": {"cents": 1e999, "order_id": "a"}}', 422, None),
        (b'{"input": {"cents": 1, "order_id": "\\ud800"}}', 422, None),
        (b'{"correlation_id": "a\\u0000b", "input": {"cents": 1, "order_id": "a"}}', 422, None),
    ],
)
def test_large_bodies_and_invalid_json_are_refused(
    service: Service, body: bytes, status: int, refusal: str | None
) -> None:
    answer = send(service, body)
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.json()) >= MEMBERS
    assert refusal is None or answer.json()["refusal"] == refusal


def test_a_duplicate_name_is_refused_even_if_the_body_is_unused(service: Service) -> None:
    """One parser would use the first value, another the last, so a log could show another value than the one used."""
    answer = service.client.post("/v1/webhooks/wh_none/enable", content=b'{"a": 1, "a": 2}', headers=JSON)
    assert (answer.status_code, answer.json()["refusal"]) == (422, "not_json")
    assert "'a' appears twice" in answer.json()["detail"]
    assert "connection" not in answer.headers, "it was read to its end, and the next request may come"


def test_wide_bodies_and_brackets_in_texts_are_not_deep() -> None:
    for body in (b"[" + b"[]," * 200 + b"[]]", b'["' + b"[" * 200 + b'"]', b'["\\"' + b"[{" * 200 + b'"]'):
        check_shape(body)


def test_checking_a_body_takes_linear_time() -> None:
    """Half a megabyte of escapes, open quotes or brackets is scanned once per byte."""
    for body in (
        b'"' + b'\\"' * 500_000,
        b'"\\' * 500_000,
        b'["' * 30 + b"\\" * 900_001,
        b"-" * 1_000_000,
        b"[]" * 500_000,
    ):
        began = time.perf_counter()
        try:
            check_shape(body)
        except BadRequest:
            pass
        assert time.perf_counter() - began < 5, "quadratic work takes minutes"


@pytest.mark.parametrize(
    "path", ["/v1/runs?stauts=failed", "/v1/me?x=1", "/v1/runs/{run}?limit=1", "/v1/events?q=a", "/v1/runs/{run}?run=x"]
)
def test_unknown_query_parameters_are_refused(service: Service, path: str) -> None:
    """A misspelt filter would filter nothing, and a caller would act on the whole list."""
    answer = service.get(path.format(run=service.start()), headers={"Accept": "text/event-stream"})
    assert answer.status_code == 422 and "is not known" in answer.json()["detail"], answer.text
    dry = service.client.post(f"{START}?dry=1", json={"input": {"order_id": "q", "cents": 1}})
    assert dry.status_code == 422 and "is not known" in dry.json()["detail"], "nor is anything done that was not meant"
    twice = service.get("/v1/runs?status=failed&status=completed")
    assert twice.status_code == 422 and "appears twice" in twice.json()["detail"]
    for filter_ in ("runs?workflow", "effects?activity", "effects?run", "attention?workflow"):
        unseen = service.get(f"/v1/{filter_}=a%00")  # PostgreSQL takes it for a fault
        assert unseen.status_code == 422 and "NUL" in unseen.json()["detail"], filter_
    assert not any(run["status"] == "failed" for run in service.get("/v1/runs?q=q&status=failed").json()["runs"])


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/webhooks", "GET, HEAD, POST"),
        ("PATCH", "/v1/webhooks/wh_1", "DELETE, GET, HEAD"),
        ("OPTIONS", "/v1/runs/run_1/cancel", "POST"),
        ("HEAD", "/v1/runs/run_1/cancel", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
    ],
)
def test_a_405_lists_every_method_of_the_path(service: Service, method: str, path: str, allowed: str) -> None:
    answer = service.client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_head_is_answered_as_get_without_a_body(service: Service) -> None:
    run = service.start()
    for path in ("/healthz", "/readyz", "/openapi.json", f"/v1/runs/{run}/input", f"/v1/runs/{run}/events"):
        whole, head = service.get(path), service.client.head(path, headers={"Accept": "text/event-stream, */*"})
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-type"] == whole.headers["content-type"], "never a stream"
    assert service.client.head("/v1/runs/none").status_code == 404
    assert service.client.head(f"/v1/runs/{run}/cancel").status_code == 405


def test_heads_are_bounded_and_bodies_have_a_type(service: Service) -> None:
    assert service.get("/v1/runs?q=" + "x" * 9_000).json()["refusal"] == "url_too_long"
    many = {f"x-{n}": "1" for n in range(150)}
    assert service.get("/v1/runs", headers=many).json()["refusal"] == "headers_too_large"
    answer = service.client.post(START, content=b"{}", headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["refusal"]) == (415, "media_type")
    with contextlib.suppress(
        httpx2.ReadError, httpx2.WriteError
    ):  # it closes with bytes unread: a reset may overtake it
        huge = service.client.get("/healthz", headers={"x": "y" * 100_000})
        assert huge.status_code in (400, 431)
    wrong = service.client.put("/v1/runs")
    assert (wrong.status_code, wrong.json()["refusal"], "GET" in wrong.headers["allow"]) == (405, "method", True)
    assert service.get("/nothing").json()["refusal"] == "no_such_path"
    for key in ("", "ü", "x" * 256, "a b"):
        refused = service.client.post(START, json={"input": {}}, headers={b"Idempotency-Key": key.encode()})
        assert (refused.status_code, refused.json()["refusal"]) == (422, "key_malformed"), key


@pytest.mark.parametrize("said", [b"Content-Length: 2000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n"])
def test_a_body_is_too_large_by_content_length_or_by_content(folder_url: str, said: bytes) -> None:
    """Refused for its Content-Length before the first byte, or while reading."""
    with Running(folder_url, bounds=Bounds(body_bytes=1_000), worker=False) as service, connect(service) as there:
        body = b" " * 1_001 if b"chunked" in said else b""
        there.sendall(
            f"POST {START} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n".encode() + said + body
        )
        answer = answer_of(there)
        assert answer.startswith(b"HTTP/1.1 413 ") and b"connection: close" in answer.lower()
        assert send(service, b"[" + b" " * 998 + b"]").json()["refusal"] != "body_too_large", "as much as it may be"


def test_a_slow_body_is_refused_and_others_are_served(folder_url: str) -> None:
    with Running(folder_url, bounds=Bounds(body_s=0.5), worker=False) as service:
        host, _, port = service.url.removeprefix("http://").partition(":")
        slow = socket.create_connection((host, int(port)), timeout=20)
        slow.sendall(f"POST {START} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
                     "Content-Length: 100\r\n\r\n{".encode())  # fmt: skip
        assert service.get("/healthz").status_code == 200
        answer = b""
        while data := slow.recv(65536):
            answer += data
        assert b" 408 " in answer.partition(b"\r\n")[0] and b"too_slow" in answer
        slow.close()


def connect(service: Service) -> socket.socket:
    host, _, port = service.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def answer_of(there: socket.socket) -> bytes:
    answer = b""
    with contextlib.suppress(ConnectionResetError):  # it closes with bytes unread: a reset may overtake the answer
        while data := there.recv(65536):
            answer += data
    return answer


def test_the_rest_of_a_body_must_arrive_after_its_answer(folder_url: str) -> None:
    """Occasional bytes would keep the connection open, because each resets the idle timer."""
    with Running(folder_url, bounds=Bounds(body_s=0.3), worker=False) as service, connect(service) as slow:
        slow.sendall(b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000\r\n\r\n")
        got = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(LOOKS):
                if not select.select([slow], [], [], 0.02)[0]:
                    slow.sendall(b"x")
                elif more := slow.recv(65536):
                    got += more
                else:
                    break
            else:
                pytest.fail("it is kept for ever")
        assert got.startswith(b"HTTP/1.1 404 ")


def test_a_connection_continues_after_the_rest_of_a_body(service: Service) -> None:
    with connect(service) as quick:
        quick.sendall(b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\n\r\n")
        assert quick.recv(1) == b"H"
        quick.sendall(b"xyzGET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert b"HTTP/1.1 200 " in answer_of(quick)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a system that has no such limit")
def test_a_caller_that_reads_nothing_is_disconnected(folder_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsent data would be kept without a limit, also for a closed connection."""
    monkeypatch.setattr(connections, "UNREAD_MS", 500)
    with Running(folder_url, worker=False) as service, connect(service) as deaf:
        ask = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        gone = select.poll()
        gone.register(deaf, 0)  # of its end alone
        deaf.setblocking(False)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(LOOKS):
                if gone.poll(20):
                    break
                with contextlib.suppress(BlockingIOError):
                    deaf.send(ask)
        assert gone.poll(0), "the system ended it, and nothing was read"
        assert service.get("/healthz").status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: x"])
def test_a_missing_head_closes_the_connection(folder_url: str, sent: bytes) -> None:
    with Running(folder_url, bounds=Bounds(head_s=0.3), worker=False) as service, connect(service) as slow:
        slow.sendall(sent)
        assert answer_of(slow).startswith(b"HTTP/1.1 400 ")
        with connect(service) as quick:
            quick.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert answer_of(quick).startswith(b"HTTP/1.1 200 ")


def test_a_missing_second_head_closes_the_connection(folder_url: str) -> None:
    """The limit also applies after a first request."""
    with Running(folder_url, bounds=Bounds(head_s=3.0), worker=False) as service, connect(service) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        first = b""
        while not first.endswith(b"}}"):
            first += slow.recv(65536)
        assert first.startswith(b"HTTP/1.1 200 ")
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x")
        assert answer_of(slow).startswith(b"HTTP/1.1 400 ")


def test_a_body_has_time_after_a_slow_head(folder_url: str) -> None:
    """The timer of the head must not end the body."""
    with Running(folder_url, bounds=Bounds(head_s=3.0), worker=False) as service, connect(service) as slow:
        slow.sendall(f"POST {START} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                     "Connection: close\r\nContent-Length: 2\r\n\r\n{".encode())  # fmt: skip
        with connect(service) as silent:
            assert answer_of(silent).startswith(b"HTTP/1.1 400 ")
        slow.sendall(b"}")
        assert answer_of(slow).startswith(b"HTTP/1.1 422 ")


def test_an_endless_head_is_refused(service: Service) -> None:
    with connect(service) as there:
        there.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        sent = 0
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while sent < 64_000_000:
                sent += there.send(b"X-More: " + b"y" * 992 + b"\r\n")
        assert sent < 64_000_000, "it is all taken"
        assert answer_of(there)[:13] in (b"", b"HTTP/1.1 400 ")


def test_an_upgrade_is_answered_and_the_connection_closed(service: Service) -> None:
    with connect(service) as there:
        there.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        answer = answer_of(there)
        assert answer.startswith(b"HTTP/1.1 200 ") and b"connection: close" in answer.lower()


def test_a_fault_reveals_only_its_id(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    state = service.state
    read = state.store.run_rows

    async def broken(*args: Any) -> Any:
        raise RuntimeError("SELECT secret FROM somewhere")

    state.store.run_rows = broken  # type: ignore[method-assign]  # simulates a fault of ours
    try:
        with caplog.at_level(logging.ERROR, "outlast.service"):
            answer = service.get("/v1/runs/some", headers={"x-request-id": "mine-1"})
    finally:
        state.store.run_rows = read  # type: ignore[method-assign]
    body = answer.json()
    assert (answer.status_code, body["code"], body["request_id"]) == (500, "OUT-900", "mine-1")
    assert answer.headers["x-request-id"] == "mine-1"
    assert "secret" not in answer.text and "Traceback" not in answer.text
    assert "mine-1" in caplog.text and "secret" in caplog.text


def test_an_unavailable_store_is_answered_503_with_a_retry_time(folder_url: str) -> None:
    from outlast.errors import Unavailable

    with Running(folder_url, worker=False) as service:
        run = service.start("wish", text="?")
        read = service.state.store.run_rows

        async def away(*args: Any) -> Any:
            raise Unavailable("disk I/O error at /var/lib/secret.db")

        service.state.store.run_rows = away  # type: ignore[method-assign]
        answer = service.get(f"/v1/runs/{run}")
        service.state.store.run_rows = read  # type: ignore[method-assign]
        assert (answer.status_code, answer.headers["retry-after"], answer.json()["code"]) == (503, "1", "OUT-504")
        assert "secret" not in answer.text


def test_unknown_fields_are_refused_everywhere(service: Service) -> None:
    document = service.get("/openapi.json").json()
    bodies = [
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for item in document["paths"].values()
        for operation in item.values()
        if "requestBody" in operation
    ]
    assert len(bodies) >= 8
    for name in bodies:
        assert document["components"]["schemas"][name]["additionalProperties"] is False, name
    answer = service.post("/v1/workflows/job/runs", {"rounds": 1})
    assert answer.status_code == 422 and {"path": "body.rounds", "text": "is not known"} in answer.json()["problems"]


@pytest.mark.parametrize("since", ["1h", "yesterday", "2026-11-22T15:00:00"])
def test_an_invalid_duration_is_explained(service: Service, since: str) -> None:
    answer = service.get(f"/v1/runs?since={since}")
    assert answer.status_code == 422 and "e.g. PT1H" in answer.json()["detail"]


def test_an_outage_is_logged_in_one_line_and_a_fault_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    answer(Unverifiable("credentials cannot be checked now", "the keys cannot be fetched"), "req_1")
    answer(Unavailable("the store cannot be reached"), "req_2")
    answer(Fault("broken", "by us"), "req_3")
    assert [bool(record.exc_info) for record in caplog.records] == [False, False, True]


# --- the gate, before any server that keeps less than ours -----------------------------------------------
class Asked:
    """ASGI application that records its scopes and sends the given messages."""

    def __init__(self, *headers: tuple[bytes, bytes], fails: bool = False) -> None:
        self.scopes: list[Any] = []
        self.headers = headers
        self.fails = fails

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": list(self.headers)})
            if self.fails:
                raise RuntimeError("in the middle")
            await send({"type": "http.response.body", "body": b"a body"})


def through(app: Asked, **more: Any) -> list[Any]:
    """Return the messages sent for one request through the middleware."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": "/v1/runs", "raw_path": b"/v1/runs", "query_string": b"",
             "headers": [], **more}  # fmt: skip
    asyncio.run(RequestLimitsMiddleware(app, Bounds(), lambda: False)(scope, receive, send))
    return sent


def test_a_websocket_is_closed_and_other_protocols_pass() -> None:
    app = Asked()
    assert through(app, type="websocket") == [{"type": "websocket.close", "code": 1008}] and not app.scopes
    assert through(app, type="lifespan") == [] and [scope["type"] for scope in app.scopes] == ["lifespan"]


def test_the_middleware_turns_head_into_get() -> None:
    app = Asked()
    sent = through(app, method="HEAD", headers=[(b"accept", b"text/event-stream"), (b"x", b"1")])
    assert (app.scopes[0]["method"], app.scopes[0]["headers"]) == ("GET", [(b"x", b"1")])
    assert [message["body"] for message in sent[1:]] == [b""]
    assert through(Asked())[1]["body"] == b"a body"


def test_each_answer_has_an_id_and_security_headers_once() -> None:
    app = Asked((b"Cache-Control", b"max-age=5"))
    names = [name.lower() for name, _ in through(app, headers=[(b"x-request-id", b"mine-1")])[0]["headers"]]
    assert sorted(names) == sorted({*(name for name, _ in SAFE), b"x-request-id"})
    assert app.scopes[0]["outlast.request_id"] == "mine-1"


def test_a_started_answer_is_not_started_again() -> None:
    """Two starts would be two answers to one request."""
    with pytest.raises(RuntimeError, match="in the middle"):
        through(Asked(fails=True))


@pytest.mark.parametrize(
    "path", ["/v1/../x", "/v1/./x", "/v1//x", "/v1/..", "/v1/%2e%2e/x", "/v1/%2Fx", "/v1/%5c", "/v1/\\x", "/v1/%00"]
)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "read"])
def test_path_traversal_reaches_no_route(path: str, raw: bool) -> None:
    """Also if the server only provides the decoded path."""
    app = Asked()
    plain = unquote(path)
    (start, body) = through(app, path=plain, raw_path=path.encode() if raw else None)
    assert (start["status"], json.loads(body["body"])["refusal"], app.scopes) == (422, "bad_path", [])


def test_a_url_has_a_maximum_length() -> None:
    most = Bounds().url_bytes
    for size, status in ((most, 200), (most + 1, 414)):
        for path, query in ((size, 0), (size - 100, 100)):
            raw = b"/" + b"x" * (path - 1)
            sent = through(Asked(), path=raw.decode(), raw_path=raw, query_string=b"q" * query)
            assert sent[0]["status"] == status, (path, query)


def test_headers_have_a_maximum_number_and_size() -> None:
    bounds = Bounds()
    for headers, status in (
        ([(b"x", b"1")] * bounds.headers, 200), ([(b"x", b"1")] * (bounds.headers + 1), 431),
        ([(b"x", b"y" * (bounds.header_bytes - 1))], 200), ([(b"x", b"y" * bounds.header_bytes)], 431),
    ):  # fmt: skip
        assert through(Asked(), headers=headers)[0]["status"] == status

"""HTTP/1.1 bytes of unauthenticated callers: framing, trailers, pipelines and their limits (S17)."""

import contextlib
import resource
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from outlast.clocks import SystemClock
from outlast.service.connections import PIPELINED_MAX
from outlast.service.identity import AuthSettings, authenticator, new_token
from tests.service.conftest import Running, Service
from tests.service.test_limits import START, answer_of, connect

HOST = b"Host: 127.0.0.1\r\n"
CLOSE = b"Connection: close\r\n"
POST = f"POST {START} HTTP/1.1\r\n".encode()
JSON = b"Content-Type: application/json\r\n"
BODY = b'{"input":{"order_id":"wire","cents":1}}'
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
SIZED = b"Content-Length: %d\r\n" % len(BODY)
END = b"0\r\n\r\n"
PROBE = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
STRANGER_BYTES = 64_000_000
KEPT_BYTES = 16 * 1024 * 1024  # memory of one connection: far above its limits, far below the bytes sent


@pytest.fixture(scope="module")
def token() -> tuple[str, str]:
    return new_token("bot", tenant="acme", roles=["starter", "operator", "viewer"], person=False)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, token: tuple[str, str]) -> Iterator[Service]:
    """Service that requires a credential."""
    settings = AuthSettings(tokens=SecretStr(token[1]))
    url = f"sqlite:{tmp_path_factory.mktemp('guarded') / 'outlast.db'}"
    with Running(url, authenticator=authenticator(settings, SystemClock()), worker=False) as running:
        yield running


def ask(service: Service, *parts: bytes) -> bytes:
    """Return all bytes answered until the connection ends."""
    with connect(service) as there:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for part in parts:
                there.sendall(part)
        return answer_of(there)


@pytest.mark.parametrize("split", [False, True], ids=["one read", "a read of its own"])
def test_a_trailer_supplies_no_header(guarded: Service, token: tuple[str, str], split: bool) -> None:
    """Once, a trailer supplied `Authorization` and the run was started. Another supplied an Idempotency-Key."""
    bearer = f"Authorization: Bearer {token[0]}\r\n".encode()

    def post(head: bytes, trailer: bytes) -> bytes:
        whole = POST + HOST + head + CLOSE + CHUNKED + CHUNK
        end = b"0\r\n" + trailer + b"\r\n"
        return ask(guarded, whole, end) if split else ask(guarded, whole + end)

    assert post(JSON, bearer).startswith(b"HTTP/1.1 401 ")
    assert post(bearer, JSON).startswith(b"HTTP/1.1 415 "), "nor its type"
    for _ in range(2):
        answer = post(bearer + JSON, b"Idempotency-Key: of-the-trailer\r\nX-Request-Id: of-the-trailer\r\n")
        assert answer.startswith(b"HTTP/1.1 201 ") and b"of-the-trailer" not in answer
        assert b"replayed" not in answer.lower()


@pytest.mark.parametrize(
    ("said", "more"),
    [
        (b"0\r\n", b"X-More: " + b"y" * 990 + b"\r\n"),
        (b"0\r\nX-More: ", b"y" * 1_000),
        (b"0\r\n", b"y" * 1_000),
        (b"1;name=", b"y" * 1_000),
        (b"", b"0" * 1_000),
        (b"", b"1;" + b"y" * 990 + b"\r\nx\r\n"),
    ],
    ids=["fields", "one field", "one name", "an extension", "zeros of a size", "an extension of each byte"],
)
def test_endless_framing_is_refused(guarded: Service, said: bytes, more: bytes) -> None:
    """Once, the parser kept 70 MB of trailer fields before authentication."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with connect(guarded) as there:
        there.sendall(POST + HOST + JSON + CHUNKED + b"a\r\n0123456789\r\n" + said)
        sent = 0
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while sent < STRANGER_BYTES:
                sent += there.send(more * 64)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert sent < STRANGER_BYTES and grown < KEPT_BYTES, (sent, grown)


def test_chunks_of_one_byte_are_accepted(service: Service) -> None:
    """The limit allows chunks of one byte."""
    body = BODY + b" " * 100_000
    answer = ask(service, POST + HOST + CLOSE + JSON + CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + END)
    assert answer.startswith(b"HTTP/1.1 201 "), answer


FRAMED_TWICE = {
    "a length and chunks": SIZED + CHUNKED + CHUNK + END,
    "chunks and a length": b"Transfer-Encoding: chunked\r\n" + SIZED + b"\r\n" + CHUNK + END,
    "two lengths": SIZED + SIZED + b"\r\n" + BODY,
    "a list of lengths": b"Content-Length: %d, %d\r\n\r\n" % (len(BODY), len(BODY)) + BODY,
    "a length with a sign": b"Content-Length: +%d\r\n\r\n" % len(BODY) + BODY,
    "a space before the colon": b"Content-Length : %d\r\n\r\n" % len(BODY) + BODY,
    "two encodings": b"Transfer-Encoding: chunked\r\n" + CHUNKED + CHUNK + END,
    "an encoding behind chunks": b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNK + END,
    "an encoding of another": b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNK + END,
    "an unknown encoding": b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNK + END,
    "a folded line": b"X: a\r\n b\r\n" + SIZED + b"\r\n" + BODY,
    "a folded encoding": b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNK + END,
    "a line that ends with LF": SIZED.replace(b"\r", b"") + b"\r\n" + BODY,
    "a head that ends with LF": SIZED + b"\n" + BODY,
    "a CR in a value": b"X: a\rContent-Length: 5\r\n" + SIZED + b"\r\n" + BODY,
    "a NUL in a value": b"X: a\0b\r\n" + SIZED + b"\r\n" + BODY,
    "a chunk that ends with LF": CHUNKED + CHUNK[:-2] + b"\n" + END,
    "a size that ends with LF": CHUNKED + CHUNK.replace(b"\r\n", b"\n", 1) + END,
    "a size with 0x": CHUNKED + b"0x" + CHUNK + END,
    "a size with a sign": CHUNKED + b"+" + CHUNK + END,
    "a size beyond 64 bits": CHUNKED + b"f" * 17 + b"\r\n" + BODY + b"\r\n" + END,
    "a field between chunks": CHUNKED + CHUNK + b"X: y\r\n" + END,
}


@pytest.mark.parametrize("shape", FRAMED_TWICE)
def test_ambiguous_framing_is_refused(service: Service, shape: str) -> None:
    answer = ask(service, POST + HOST + CLOSE + JSON + FRAMED_TWICE[shape])
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1, answer
    assert b"connection: close" in answer.lower()


def test_chunks_in_http_1_0_are_refused(service: Service) -> None:
    """A proxy of that version would take the body for the next request (RFC 9112, 6.1)."""
    answer = ask(service, POST.replace(b"1.1", b"1.0") + HOST + JSON + CHUNKED + CHUNK + END)
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_pipelined_requests_have_a_limit(service: Service) -> None:
    answer = ask(service, PROBE * PIPELINED_MAX + PROBE[:-2] + CLOSE + b"\r\n")
    assert answer.count(b"HTTP/1.1 200 ") == PIPELINED_MAX + 1
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = ask(service, PROBE * 40_000)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert answer.count(b"HTTP/1.1 ") <= PIPELINED_MAX + 1 and grown < KEPT_BYTES, grown


def test_a_refusal_is_not_taken_for_the_answer_to_an_earlier_request(service: Service) -> None:
    """The caller would read 400 for an executed request, and repeat it."""
    answer = ask(service, POST + HOST + JSON + SIZED + b"\r\n" + BODY + b"\x01 garbage\r\n\r\n")
    assert not answer.startswith(b"HTTP/1.1 400 "), answer


@pytest.mark.parametrize("name", [b"Host", b"Authorization", b"Content-Type", b"Idempotency-Key", b"If-Match"])
def test_duplicate_single_value_headers_are_refused(service: Service, name: bytes) -> None:
    """A proxy that uses the other value would check another request."""
    head = HOST + JSON + b'Authorization: Bearer x\r\nIdempotency-Key: k\r\nIf-Match: "1"\r\n'
    answer = ask(service, POST + head + name.lower() + b": 127.0.0.1\r\n" + CLOSE + SIZED + b"\r\n" + BODY)
    assert answer.startswith(b"HTTP/1.1 400 ") and b'"ambiguous_head"' in answer, answer


def test_a_request_without_a_host_is_refused(service: Service) -> None:
    answer = ask(service, b"GET /healthz HTTP/1.1\r\n" + CLOSE + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and b'"ambiguous_head"' in answer, answer

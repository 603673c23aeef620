"""A command whose answer was lost: perhaps it was done, and the last line says what is safe to do now."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from outlast.cli.exit_codes import UNCERTAIN, report
from outlast.client.service_connection import ServiceConnection
from outlast.errors import OutlastError, Unavailable, Uncertain
from outlast.models.service import CallerInfo


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "refund", "--key", "A-17"], "repeat the command with the same --key: it is done once"),
        (["--tenant", "t", "run", "refund", "--id=r1"], "repeat the command with the same --id: it is done once"),
        (["signal", "r1", "go", "--id", "s1"], "repeat the command with the same --id: it is done once"),
        (["run", "refund"], "check first whether it was done: outlast runs ls;"),
        (["run", "refund"], "do not repeat it without the same key"),
        (["signal", "r1", "go"], "check first whether it was done: outlast runs show RUN;"),
        (["runs", "cancel", "r1"], "check first whether it was done: outlast runs show RUN;"),
        (["approvals", "approve", "ap_1"], "check first whether it was done: outlast approvals ls;"),
        (["pause", "tenant"], "check first whether it was done: outlast pauses;"),
    ],
)
def test_a_lost_answer_suggests_a_safe_repetition(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(Uncertain("the store's answer was lost"), words) == UNCERTAIN
    assert told in capsys.readouterr().err


class Mute(BaseHTTPRequestHandler):
    """Reads a request and closes the connection, or answers as a gateway whose upstream is slow."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/gateway"):
            self.send_error(504)
        self.close_connection = True

    def do_GET(self) -> None:
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture(scope="module")
def mute() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mute)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


async def failed(base: str, path: str, *, reads: bool = False) -> OutlastError:
    connection = ServiceConnection(base, "", unsent_s=0)
    try:
        await (connection.get(CallerInfo, path) if reads else connection.post(CallerInfo, path))
    except OutlastError as error:
        return error
    finally:
        await connection.close()
    raise AssertionError("it answered")


@pytest.mark.parametrize("path", ["/lost", "/gateway"])
def test_a_write_that_a_service_or_a_gateway_did_not_answer_is_uncertain(mute: str, path: str) -> None:
    assert isinstance(asyncio.run(failed(mute, path)), Uncertain)


def test_a_read_or_a_write_that_never_left_is_not(mute: str) -> None:
    """Nothing listens at port 1."""
    assert isinstance(asyncio.run(failed(mute, "/lost", reads=True)), Unavailable)
    assert isinstance(asyncio.run(failed("http://127.0.0.1:1", "/lost")), Unavailable)

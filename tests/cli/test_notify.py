"""`outlast worker --notify`: a request follows the flagged row, and a dead endpoint changes nothing."""

import json
import queue
import signal
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.cli.conftest import MODULE, PATIENCE_S, Terminal, eventually

NO_PROXY = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), "")


class Receiver:
    """A real HTTP server on the loopback that keeps what it is sent."""

    def __init__(self, status: int) -> None:
        self.got: queue.Queue[dict[str, Any]] = queue.Queue()
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/attention"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(params=[204])
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    one = Receiver(request.param)
    yield one
    one.server.shutdown()
    one.server.server_close()


def nobody() -> str:
    """Return an address without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/"


def raise_one(outlast: Terminal, url: str) -> str:
    """Run a worker that notifies `url` with a run that raises, and return the worker's output."""
    worker = outlast.worker("--notify", url, REFUND_FAULT="1", **NO_PROXY)
    outlast.start()
    (asked,) = eventually(lambda: outlast("approvals", "ls", "-o", "json").json["approvals"])
    outlast("approvals", "approve", asked["approval"], "--reason", "fine")
    eventually(lambda: outlast.see()["attention"])
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0
    return err


@pytest.mark.req("GATE-5")
def test_a_flagged_run_sends_one_notification(outlast: Terminal, receiver: Receiver) -> None:
    err = raise_one(outlast, receiver.url)
    told = receiver.got.get(timeout=PATIENCE_S)
    assert (told["run"], told["workflow"], told["tenant"], told["node"]) == ("r1", "refund", "default", "pay")
    (reason,) = told["reasons"]
    assert reason["reason"] == "exception" and reason["detail"] == "RuntimeError: the printer is on fire"
    assert reason["choices"] == ["continue", "fail", "cancel"] and reason["if_ignored"] == "stays as it is"
    assert reason["since"] == outlast.see()["attention"][0]["since"] and reason["trigger"] == ""
    assert "dlq_publish_failed" not in err and receiver.got.empty()


@pytest.mark.req("GATE-5", "FAIL-9")
def test_a_dead_endpoint_does_not_change_the_attention(outlast: Terminal) -> None:
    err = raise_one(outlast, nobody())
    assert "run r1 needs attention, and the alert failed" in err
    assert "counted: dlq_publish_failed 1" in err and "Traceback (most recent call last)\nhttp" not in err
    assert outlast.see()["shown"] == "REQUIRES_ATTENTION"
    assert "RuntimeError" in outlast("attention", "ls").out


@pytest.mark.req("FAIL-9")
@pytest.mark.parametrize("receiver", [500, 302], indirect=True)
def test_an_endpoint_that_does_not_take_it_is_a_failure_too(outlast: Terminal, receiver: Receiver) -> None:
    assert "counted: dlq_publish_failed 1" in raise_one(outlast, receiver.url)


def test_a_url_without_http_is_refused(outlast: Terminal) -> None:
    assert outlast("worker", MODULE, "--notify", "ftp://x").code == 2

"""Clients of tools reach no address inside the network, however a model writes it and wherever a page redirects."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

import outlast.http
from outlast import Refused, lookup
from outlast.agent import ScriptedModel, agent_workflow
from outlast.errors import InvalidInput
from outlast.flow import Perhaps
from outlast.http import PublicOnly
from outlast.testing import AppFactory
from tests.agent.agents import asks
from tests.mutants import remove
from tests.outbox.test_address import WRITTEN_OTHERWISE

HERE = "127.0.0.1/32"


class Site(ThreadingHTTPServer):
    """A site on this machine that keeps the host and path of each request. `/away` redirects to another address."""

    daemon_threads = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        self.server.seen.append((self.headers["Host"], self.path))
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Location", f"http://127.0.0.2:{self.server.port}/secret")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as one:
        threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield one
        one.shutdown()


@pytest.fixture(params=["async", "sync"])
def get(request: pytest.FixtureRequest) -> Any:
    """Return a function that sends a GET with either client: the address, options of the transport."""

    def sent(url: str, **options: Any) -> tuple[int, str]:
        if request.param == "sync":
            with outlast.http.Client(transport=PublicOnly(**options), follow_redirects=True) as http:
                found = http.get(url)
            return found.status_code, found.text

        async def ask() -> tuple[int, str]:
            transport = PublicOnly(**options)
            async with outlast.http.AsyncClient(transport=transport, follow_redirects=True) as http:
                answer = await http.get(url)
            return answer.status_code, answer.text

        return asyncio.run(ask())

    return sent


@pytest.mark.req("GATE-7")
def test_no_spelling_of_an_inner_address_is_reached(site: Site, get: Any) -> None:
    for host in WRITTEN_OTHERWISE:
        with pytest.raises((Refused, httpx2.ConnectError, httpx2.InvalidURL)) as raised:
            get(f"http://{host}:{site.port}/")
        assert not isinstance(raised.value, Refused) or raised.value.code == "address_not_allowed"
    assert site.seen == []


def test_an_allowed_network_is_reached_under_its_name(site: Site, get: Any) -> None:
    assert get(f"http://localhost:{site.port}/page?n=1", allow=[HERE, "::1/128"]) == (200, "ok")
    assert site.seen == [(f"localhost:{site.port}", "/page?n=1")]
    with pytest.raises(InvalidInput, match="not a network"):
        PublicOnly(allow=["here"])


def test_a_redirect_inside_is_not_followed(site: Site, get: Any) -> None:
    """The first request was answered, so it is not said that nothing was sent."""
    with pytest.raises(Perhaps, match=r"a redirect was not followed: 127\.0\.0\.2"):
        get(f"http://127.0.0.1:{site.port}/away", allow=[HERE])
    assert [path for _, path in site.seen] == ["/away"]


def test_the_connection_goes_to_the_address_that_was_checked(
    site: Site, get: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that resolves differently later, or to several addresses of which one is inside."""
    answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1", "10.0.0.1"]]
    real = socket.getaddrinfo

    def resolves(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host != "changes.example":
            return real(host, port, *args, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in answers.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", resolves)
    url = f"http://changes.example:{site.port}/"
    assert get(url, allow=[HERE])[0] == 200
    for _ in range(2):
        with pytest.raises(Refused):
            get(url, allow=[HERE])
    assert site.seen == [(f"changes.example:{site.port}", "/")]


def test_no_proxy_of_the_environment_is_used(site: Site, get: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{site.port}")
    with pytest.raises(Refused):
        get("http://127.0.0.2:9/secret")
    assert site.seen == []


@pytest.mark.req("GATE-7")
def test_a_model_is_told_that_an_address_is_not_allowed(outlast_app: AppFactory, site: Site) -> None:
    @lookup(name="fetch-public")
    async def fetch(url: str) -> str:
        """Fetch a page."""
        async with outlast.http.AsyncClient(transport=PublicOnly()) as http:
            return str((await http.get(url)).text)

    urls = (f"http://127.0.0.1:{site.port}/", "http://0177.0.0.1/", "ftp://example.com/", "http://[/")
    model = ScriptedModel([asks(*(("fetch-public", {"url": url}) for url in urls)), "done"])
    run = outlast_app(flow := agent_workflow("reader", model=model, tools=[fetch])).start(flow, {"objective": "read"})
    assert run.outcome == "done" and site.seen == []
    codes = [json.loads(m.text)["error"]["code"] for m in run.state.messages if m.role == "tool"]
    assert codes == ["address_not_allowed", "no_answer", "no_answer", "no_answer"]


# --- each safeguard removed --------------------------------------------------------------------------
def test_without_the_rule_a_model_reaches_this_machine(site: Site, get: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    remove("any_address", monkeypatch)
    assert get(f"http://127.1:{site.port}/")[0] == 200


def test_without_the_checked_address_a_name_is_resolved_twice(
    site: Site, get: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove("address_resolved_again", monkeypatch)
    with pytest.raises(httpx2.ConnectError):
        test_the_connection_goes_to_the_address_that_was_checked(site, get, monkeypatch)

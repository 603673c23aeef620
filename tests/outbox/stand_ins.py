"""HTTPS servers on this machine with the names and answers of Slack and Teams."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from httpcore2._backends.auto import AutoBackend

from tests.outbox.authority import Authority
from tests.outbox.helpers import Behaviour, Got, Receiver, answer

Names = dict[str, tuple[str, int]]
"""Addresses to which names resolve, and the ports of this machine that serve port 443 of these addresses."""

SLACK_PATH = "T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
TEAMS_FLOW = "643e69f83c8944438d68119179a10a64"
TEAMS_SIGNATURE = "KODuebWbDGYFr0z0eu-6Rj8aUKz7108W3wrNJZxFE5A"


@dataclass(frozen=True)
class Service:
    """One of the two services: its host, an address, its answer to a message that it accepts."""

    host: str
    address: str
    line: str
    """Request line of each message."""
    accepts: Behaviour
    texts: Callable[[dict[str, Any]], tuple[str, str]]
    """Returns title and text of a payload."""


def _slack_texts(payload: dict[str, Any]) -> tuple[str, str]:
    (attachment,) = payload["attachments"]
    return attachment["title"], attachment["text"]


def _teams_texts(payload: dict[str, Any]) -> tuple[str, str]:
    (attachment,) = payload["attachments"]
    title, text = attachment["content"]["body"]
    return title["text"], text["text"]


_TEAMS = "prod-12.westeurope.logic.azure.com"
_INVOKE = f"/workflows/{TEAMS_FLOW}/triggers/manual/paths/invoke"
_QUERY = f"api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig={TEAMS_SIGNATURE}"
SERVICES = {
    "slack": Service(
        "hooks.slack.com",
        f"https://hooks.slack.com/services/{SLACK_PATH}",
        f"POST /services/{SLACK_PATH} HTTP/1.1",
        answer(200, b"ok", content_type="text/html"),
        _slack_texts,
    ),
    "teams": Service(
        _TEAMS,
        f"https://{_TEAMS}:443{_INVOKE}?{_QUERY}",
        f"POST {_INVOKE}?{_QUERY} HTTP/1.1",
        answer(202),
        _teams_texts,
    ),
}


async def hang(got: Got, writer: Any) -> None:
    """Never answer."""
    await asyncio.Event().wait()


@dataclass
class StandIns:
    """Opens stand-ins; the client trusts the authority of their certificates, and finds them by name."""

    authority: Authority
    names: Names

    @asynccontextmanager
    async def listening(
        self, service: Service, *, certificate: str = "", at: str = "127.0.0.1", script: list[Behaviour] | None = None
    ) -> AsyncIterator[Receiver]:
        """Serve as a service while the block runs. `certificate`: name in it, if another one. `at`: the address
        to which the name resolves.
        """
        receiver = Receiver(service.accepts, script=script or [])
        async with receiver.listening(self.authority.serving(certificate or service.host)):
            self.names[service.host] = (at, receiver.port)
            yield receiver
            receiver.cut()


def payload_of(got: Got) -> dict[str, Any]:
    """Return the JSON of a request."""
    found: dict[str, Any] = json.loads(got.body)
    return found


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    """Return stand-ins for services; names of others are resolved as before."""
    real, backend = socket.getaddrinfo, AutoBackend.connect_tcp
    authority, names = Authority(tmp_path), Names()

    def resolve(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in names:
            return real(host, port, *args, **kwargs)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (names[host][0], port))]

    async def connect(self: AutoBackend, host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        served = dict(names.values())
        if port == 443 and host in served:
            host, port = "127.0.0.1", served[host]
        return await backend(self, host, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(AutoBackend, "connect_tcp", connect)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle()))
    return StandIns(authority, names)

"""A service with its pages, in this process or in one that can be killed, and a real Chromium."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tests.browsers import browser
from tests.service.conftest import Running, Service, folder_url

__all__ = ["Running", "Service", "folder_url"]
PATIENCE_S = 60.0
OUTAGE = r"Failed to load resource.*(503|net::ERR)|htmx: htmx:(sse:error|error: (Failed to fetch|timeout))"
"""Errors that a browser reports while a service or its store is gone."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Service with pages, worker and the workflows of tests/service/flows.py, for the tests of one module."""
    with Running(f"sqlite:{tmp_path_factory.mktemp('ui') / 'outlast.db'}") as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Browser for the tests of one module."""
    expect.set_options(timeout=PATIENCE_S * 1000 / 2)  # 5 s is too short while other tests use both cores
    with browser() as started:
        yield started


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a page of another person, without the cookies of the others.

    The test fails if a page reports an error that `expects` does not match, a violation of its policy, or opens a
    dialog. A refused form is reported as `status of 409`.
    """
    complaints: list[str] = []
    opened: list[Any] = []

    def open_(*, width: int = 900, scheme: str = "light", expects: str = "(?!)", **more: Any) -> Page:
        def console(message: ConsoleMessage) -> None:
            text = f"{message.text} ({message.location['url']})"
            if message.type == "error" and not re.search(expects, text):
                complaints.append(text)

        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)  # type: ignore[arg-type]
        opened.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", console)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        return page

    yield open_
    for context in opened:
        context.close()
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    """Page of 900 pixels."""
    return open_page()


class Site:
    """`outlast serve` in another process, which can be killed and started again at the same address."""

    def __init__(self, folder: Path, flows: Path, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.store = f"sqlite:{folder / 'outlast.db'}"
        self._folder, self._flows, self._options = folder, flows, options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "outlast", "--store", self.store, "serve", str(self._flows)]
        command += ["--port", str(self.port), *self._options]
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self._process.stdout is not None
        said = b""
        while self.url.encode() not in said:
            line = self._process.stdout.readline()
            assert line, said.decode()
            said += line

    def kill(self) -> None:
        """Kill it as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate(timeout=PATIENCE_S)
            self._process = None

    def stop(self) -> None:
        """Stop it as an operator would, and wait until it has ended."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=PATIENCE_S)
            self._process = None

    def signal(self, number: int) -> None:
        """Send a signal to it."""
        assert self._process is not None
        self._process.send_signal(number)

    def get(self, path: str, **more: Any) -> httpx2.Response:
        """Return the answer to a GET."""
        return httpx2.get(self.url + path, timeout=PATIENCE_S, verify=False, **more)

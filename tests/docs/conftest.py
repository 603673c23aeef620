"""Begins the slow checks of the documentation side by side: each page in a folder of its own, and the type checker."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs import desk
from tests.docs.pages import ROOT, blocks, pages, programs
from tests.docs.terminal import play

PLAYED = [page for page in pages() if any(block.language == "console" for block in blocks(page))]


class Receiver(BaseHTTPRequestHandler):
    """Accepts whatever is POSTed."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name http.server gives it
        pass


def receiver(folder: Path) -> dict[str, str]:
    """The page about webhooks: a store with runs, and somebody who listens."""
    desk.make(folder)
    (folder / "outlast.toml").write_text("[webhooks]\nallow_private = true\nallow_http = true\n", encoding="utf-8")
    (folder / "gateway").write_text("a secret", encoding="utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/hooks"
    return {"https://example.com/hooks": url, "/run/secrets/gateway": "gateway"}


BEGIN: dict[str, Callable[[Path], dict[str, str]]] = {"webhooks.md": receiver}
"""What pages with terminals find in their folder."""


@pytest.fixture(scope="session")
def side_by_side() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture(scope="session")
def played(
    side_by_side: ThreadPoolExecutor, checked: object, tmp_path_factory: pytest.TempPathFactory
) -> dict[Path, tuple[Path, "Future[int]"]]:
    """Each page with terminals: the folder it is played in, and how many commands were typed, once it is over."""
    begun = {}
    for page in PLAYED:
        folder = tmp_path_factory.mktemp(page.stem)
        begun[page] = folder, side_by_side.submit(play, page, folder, BEGIN.get(page.name, lambda _: {}))
    return begun


@pytest.fixture(scope="session")
def checked(
    side_by_side: ThreadPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> "Future[subprocess.CompletedProcess[str]]":
    """What a strict type checker says of every Python block."""
    folder = tmp_path_factory.mktemp("typed")
    files = programs()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), *files]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    return side_by_side.submit(
        subprocess.run, command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )

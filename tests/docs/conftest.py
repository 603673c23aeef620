"""Start the slow checks of the documentation in parallel: each page in its own folder, and the type checker."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs import sample_store
from tests.docs.pages import ROOT, blocks, pages, programs
from tests.docs.terminal import run_page

CONSOLE_PAGES = [page for page in pages() if any(block.language == "console" for block in blocks(page))]


class Receiver(BaseHTTPRequestHandler):
    """Handler that accepts every POST."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204 if self.path == "/hooks" else 200)  # as a webhook's page shows, and as ntfy answers
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name http.server gives it
        pass


def receiver(folder: Path) -> dict[str, str]:
    """Prepare the folder of the webhooks page: a store with runs, and a receiver."""
    sample_store.make(folder)
    (folder / "outlast.toml").write_text("[webhooks]\nallow_private = true\nallow_http = true\n", encoding="utf-8")
    (folder / "gateway").write_text("a secret", encoding="utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = f"127.0.0.1:{server.server_port}"
    return {
        "https://example.com/hooks": f"http://{place}/hooks", "https://example.com/…": f"http://{place}/…",
        "ntfys://ntfy.example.com/approvals": f"ntfy://{place}/approvals",
        "ntfys://ntfy.example.com/…": f"ntfy://{place}/…", "/run/secrets/gateway": "gateway",
    }  # fmt: skip


PREPARE: dict[str, Callable[[Path], dict[str, str]]] = {"webhooks.md": receiver, "notifications.md": receiver}
"""Preparation of the folders of pages with terminals."""


@pytest.fixture(scope="session")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture(scope="session")
def page_runs(
    executor: ThreadPoolExecutor, checked: object, tmp_path_factory: pytest.TempPathFactory
) -> dict[Path, tuple[Path, "Future[int]"]]:
    """Return the folder of each page with terminals, and a future of its number of commands."""
    started = {}
    for page in CONSOLE_PAGES:
        folder = tmp_path_factory.mktemp(page.stem)
        started[page] = folder, executor.submit(run_page, page, folder, PREPARE.get(page.name, lambda _: {}))
    return started


@pytest.fixture(scope="session")
def checked(
    executor: ThreadPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> "Future[subprocess.CompletedProcess[str]]":
    """Return the result of the strict type checker over every Python block.

    It runs as for the sources, so that it reads Outlast from the cache that `scripts/check` has filled.
    """
    folder = tmp_path_factory.mktemp("typed")
    files = programs()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", *(str(folder / name) for name in files)]
    return executor.submit(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, check=False)

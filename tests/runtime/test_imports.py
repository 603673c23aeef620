"""Importing the handle loads neither the HTTP client, nor the terminal, nor the worker."""

import subprocess
import sys

import pytest

TERMINAL_AND_HTTP = ("click", "fastapi", "httpx2", "rich", "starlette", "standardwebhooks", "uvicorn")
SERVING = ("outlast.engine.worker", "outlast.outbox.dispatcher", "outlast.store.memory", "outlast.store.sqlite.store")


@pytest.mark.parametrize("module", ["outlast.runtime", "outlast.runtime.operations", "outlast.runtime.webhooks"])
def test_the_handle_is_imported_without_a_terminal_or_http(module: str) -> None:
    """In a fresh interpreter, because this one has loaded everything."""
    unwanted = (*TERMINAL_AND_HTTP, *SERVING)
    code = f"import {module}, sys; print([name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

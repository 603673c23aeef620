"""Begins the slow checks of the documentation side by side: each page in a folder of its own, and the type checker."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, pages, programs
from tests.docs.terminal import play

PLAYED = [page for page in pages() if any(block.language == "console" for block in blocks(page))]


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
        begun[page] = folder, side_by_side.submit(play, page, folder)
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

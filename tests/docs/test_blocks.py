"""Every Python block of the documentation is a program that compiles, type-checks and, in its definitions, runs."""

import ast
import asyncio
import subprocess
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.docs.pages import ROOT, Block, blocks, code, pages, program, programs

PYTHON = [block for page in pages() for block in blocks(page) if block.language == "python"]
WITH_DEFINITIONS = [page for page in pages() if program(page)]


def test_every_block_names_its_language() -> None:
    known = {"python", "console", "bash", "text", "mermaid", "json", "sql", "toml"}
    wrong = [block.where for page in pages() for block in blocks(page) if block.language not in known]
    assert wrong == []


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.where)
def test_a_block_compiles(block: Block) -> None:
    ast.parse(block.body, block.where)


@pytest.mark.parametrize("block", [each for each in PYTHON if each.copied], ids=lambda block: block.where)
def test_a_block_that_shows_a_file_is_that_file(block: Block) -> None:
    assert block.copied is not None
    assert block.body == code(block.copied), "run: python -m tests.docs.pages"


@pytest.mark.parametrize("page", WITH_DEFINITIONS, ids=lambda page: page.name)
def test_the_definitions_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outlast.db").touch()
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": f"page_{page.stem}"}
    exec(compile(program(page), str(page.relative_to(ROOT)), "exec"), namespace)


def test_the_application_that_mounts_the_service_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page_http"}
    exec(compile(program(ROOT / "docs/http.md"), "docs/http.md", "exec"), namespace)
    app = namespace["app"]

    async def ask() -> list[Any]:
        transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 50_000))
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000/outlast") as client,
        ):
            return [(await client.get(path)).json() for path in ("/readyz", "/v1/runs", "/openapi.json")]

    ready, runs, document = asyncio.run(ask())
    assert ready["status"] == "ok" and runs == {"runs": [], "next_cursor": "", "sorted_among": None}
    assert document["servers"] == [{"url": "/outlast"}]


def test_every_block_passes_a_strict_type_checker(
    checked: "Future[subprocess.CompletedProcess[str]]",
) -> None:
    done = checked.result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"flows.py", "payments.py", "test_orders.py", "test_alone.py", "page_readme.py", "refund.py"} <= set(
        programs()
    )

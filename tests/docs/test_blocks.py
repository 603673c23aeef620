"""Every Python block of the documentation is a program that compiles, type-checks and, in its definitions, runs."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, pages

PYTHON = [block for page in pages() for block in blocks(page) if block.language == "python"]
NAMES_OF_FILES = {"flows.py", "payments.py", "test_orders.py", "test_alone.py"}


def program(page: Path) -> str:
    """The untitled Python blocks of a page, which build on each other, at the lines where they stand."""
    lines: list[str] = []
    for block in PYTHON:
        if block.page == page and not block.title:
            lines += [""] * (block.line - len(lines))
            lines += block.body.splitlines()
    return "\n".join(lines) + "\n"


PROGRAMS = {page: program(page) for page in {block.page for block in PYTHON if not block.title}}


def test_every_block_names_its_language() -> None:
    known = {"python", "console", "bash", "text", "mermaid", "json", "sql", "pycon"}
    wrong = [block.where for page in pages() for block in blocks(page) if block.language not in known]
    assert wrong == []


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.where)
def test_a_block_compiles(block: Block) -> None:
    ast.parse(block.body, block.where)


@pytest.mark.parametrize("page", sorted(PROGRAMS), ids=lambda page: page.name)
def test_the_definitions_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outlast.db").touch()
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": f"page_{page.stem}"}
    exec(compile(PROGRAMS[page], str(page.relative_to(ROOT)), "exec"), namespace)


def test_all_of_it_is_clean_under_a_strict_type_checker(tmp_path: Path) -> None:
    files: list[str] = []
    for page, text in PROGRAMS.items():
        files.append(f"page_{page.stem.lower().replace('-', '_')}.py")
        (tmp_path / files[-1]).write_text(text, encoding="utf-8")
    for block in PYTHON:
        if block.title:
            files.append(block.title)
            (tmp_path / block.title).write_text(block.body, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), *files]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(files) >= NAMES_OF_FILES

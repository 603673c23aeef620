"""Each row of the table of spellings in docs/waiting.md does what it says."""

import asyncio
import importlib.util
import itertools
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.errors import DefinitionError
from outlast.testing import App
from tests.docs.pages import ROOT

TABLE = re.compile(r"^\| (?P<where>a method that runs )?`(?P<code>.+)` \| (?P<then>.+) \|$", re.MULTILINE)
TEXT = (ROOT / "docs/waiting.md").read_text(encoding="utf-8").partition('<a id="spellings"></a>')[2]
ROWS = [(bool(row["where"]), row["code"], row["then"]) for row in TABLE.finditer(TEXT.partition("\n## D")[0])]
MODULE = """
import asyncio
from asyncio import create_task as task
from collections.abc import AsyncIterator
from outlast import Context, Workflow, activity
from pydantic import BaseModel

class Go(BaseModel):
    v: int = 0

class State(BaseModel):
    n: int = 0

@activity(key="pay_{number}/{{n}}", name="pay_{number}", no_undo="a test")
async def pay(n: int) -> int:
    return n

async def fails() -> None:
    raise ValueError("the other one failed")

async def heard(ctx: Context[State]) -> AsyncIterator[Go | None]:
    yield await ctx.receive("go", Go)

async def first(ctx: Context[State]) -> Go | None:
    async for each in heard(ctx):
        return each

class Helper:
    async def runs(self, ctx: Context[State]) -> None:
        {method}

flow = Workflow("spelling_{number}", state=State)

@flow.node(start=True)
async def only(ctx: Context[State]) -> None:
    {node}
"""
NUMBERS = itertools.count()


@pytest.fixture
def quiet() -> Iterator[None]:
    """Hide the tracebacks that the runs log."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def workflow_of(folder: Path, code: str, *, in_method: bool) -> Any:
    """Return a workflow whose node, or a method that it calls, runs this code."""
    number = next(NUMBERS)
    name = f"spelling_{number}"
    node, method = ("await Helper().runs(ctx)", code) if in_method else (code, "pass")
    path = folder / f"{name}.py"
    path.write_text(MODULE.format(number=number, node=node, method=method))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.flow


def outcome(folder: Path, code: str, *, in_method: bool) -> str:
    """Return, in the words of the table, how a run of this code goes on."""
    flow = workflow_of(folder, code, in_method=in_method)
    try:
        flow.validate()
    except DefinitionError as refused:
        names_both = "ctx.receive" in refused.what and refused.what.count(f"{flow.name}.py:") == 3
        return "refused at load" if names_both else refused.what
    app = App((flow,))
    try:
        return _went_on(app, flow, code)
    finally:
        app.close()


def _went_on(app: App, flow: Any, code: str) -> str:
    run = app.start(flow, {})
    app.clock.advance("2s")
    if run.attention:
        return "the exception is the result" if "the other one failed" in f"{run.now.attention}" else "attention"
    if run.status == "completed":
        return "the call is made"
    app.clock.skip("2h")
    app.clock.advance("2s")
    if run.status == "completed":
        return "waits for the signal or the hour"
    run.signal("go", {})
    app.clock.advance("2s")
    assert run.status == "completed"
    return "has no effect: waits for the signal" if "timeout" in code else "waits for all"


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("in_method", "code", "then"), ROWS)
def test_a_spelling_does_what_the_table_says(tmp_path: Path, in_method: bool, code: str, then: str) -> None:
    assert outcome(tmp_path, code, in_method=in_method) == then


def test_the_table_is_read() -> None:
    assert len(ROWS) >= 16 and {then for *_, then in ROWS} >= {"refused at load", "attention", "waits for all"}
    assert asyncio.iscoroutinefunction(asyncio.wait_for), "found by its code, so it must be a coroutine function"

"""Children that failed beside a parent that completes: they are listed, and its outcome stays (S-30)."""

import pytest
from pydantic import BaseModel

from outlast import Context, Fail, workflow
from outlast.testing.virtual_runtime import App

pytestmark = pytest.mark.req("RUN-13")


class Word(BaseModel):
    text: str


@workflow
async def listed_late(ctx: Context, n: int) -> str:
    """Fail if the input says so."""
    word = await ctx.receive("word", Word)
    raise Fail(f"{word.text} {n}")


@workflow
async def listed_parent(ctx: Context) -> str:
    """Return before its children have ended."""
    for n in (1, 2, 3):
        child = await ctx.start(listed_late, listed_late.arguments(n=n), key=f"late-{n}")
        if n == 3:
            await child.cancel(reason="two are enough")
    return "mine"


def test_a_child_that_fails_while_its_parent_completes_is_listed() -> None:
    app = App((listed_parent, listed_late))
    ops = app.runtime.operations
    try:
        run = app.start(listed_parent, {})
        assert run.status == "waiting"
        children = {each.key: each.run for each in app.do(ops.tree(run.id)).children}
        app.do(ops.signal(children["late-2"], "word", {"text": "no supplier"}))
        app.settle()
        assert run.status == "waiting"
        facts = app.do(ops.explain(run.id)).facts
        assert facts["failed children"] == f"listed_late late-2 ({children['late-2']}) failed: no supplier 2"
        app.do(ops.signal(children["late-1"], "word", {"text": "too late"}))
        app.settle()
        assert (run.status, run.outcome) == ("completed", "mine")
        detail = app.do(ops.run(run.id))
        listed = [(each.key, each.run, each.code, each.detail) for each in detail.failed_children]
        assert listed == [
            ("late-1", children["late-1"], "failed", "too late 1"),
            ("late-2", children["late-2"], "failed", "no supplier 2"),
        ]
        assert "late-1" in app.do(ops.explain(run.id)).facts["failed children"]
        assert app.do(ops.run(children["late-1"])).failed_children == []
    finally:
        app.close()

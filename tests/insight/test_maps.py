"""Maps in the answers about a run: counts and the first failed children, and never all of them (S-31)."""

import json

import pytest
from pydantic import BaseModel

from outlast import Context, Fail, workflow
from outlast.errors import Conflict
from outlast.testing.virtual_runtime import App
from outlast.upkeep.export import export, verify
from outlast.upkeep.recording import recording_of

pytestmark = pytest.mark.req("RUN-14")


class Word(BaseModel):
    text: str


@workflow
async def seen_dig(ctx: Context, what: str) -> str:
    """Fail, wait for a word, or return at once."""
    if what.startswith("bad"):
        raise Fail(f"no {what} here")
    if what.startswith("ask"):
        await ctx.receive("word", Word)
    return what


@workflow
async def seen_map(ctx: Context) -> int:
    """Map over ten inputs, of which some fail and two wait."""
    names = ("tin", "ask-1", *(f"bad-{n}" for n in range(7)), "ask-2", "lead", "gold")
    done = await ctx.map(seen_dig, {name: seen_dig.arguments(name) for name in names}, at_most=2, key="mines")
    return len(done.completed)


def test_a_map_is_one_line_with_its_counts() -> None:
    app = App((seen_map, seen_dig))
    ops = app.runtime.operations
    try:
        run = app.start(seen_map, {})
        detail = app.do(ops.run(run.id))
        assert detail.waiting_text == "map seen_dig mines: 8 of 12 have ended, 2 run"
        (shown,) = detail.maps
        assert (shown.key, shown.workflow, shown.inputs, shown.at_most) == ("mines", "seen_dig", 12, 2)
        assert (shown.completed, shown.failed, shown.cancelled, shown.running, shown.not_started) == (1, 7, 0, 2, 2)
        assert [(each.key, each.code, each.detail) for each in shown.failed_children] == [
            (f"mines/bad-{n}", "failed", f"no bad-{n} here") for n in range(5)
        ]
        assert all(app.do(ops.run(each.run)).status == "failed" for each in shown.failed_children)
        assert detail.children == 10 and detail.failed_children == []
        tree = app.do(ops.tree(run.id))
        assert [each.key for each in tree.children] == ["mines/ask-1", "mines/ask-2"] and tree.more == 0
        listed = app.do(ops.runs(parent=run.id, status="failed")).runs
        assert len(listed) == 7 and len(app.do(ops.runs(parent=run.id)).runs) == 10
        assert set(app.do(ops.runs_below(run.id))) == {each.run for each in app.do(ops.runs(parent=run.id)).runs}
        told = app.do(ops.explain(run.id))
        waits = f"{run.id} waits for the map seen_dig mines: 8 of 12 have ended, 2 run"
        assert told.sentence == f"{waits}: {tree.children[0].run} waits for the signal word, without a deadline."
        assert told.facts["maps"] == "seen_dig mines: 1 of 12 completed, 7 failed, 2 run"
        assert any(command.startswith("outlast signal ") for command in told.unblock)
        for child in tree.children:
            app.do(ops.signal(child.run, "word", {"text": "go"}))
        app.settle()
        assert (run.status, run.outcome) == ("completed", 5)
        detail = app.do(ops.run(run.id))
        assert detail.maps[0].ended and detail.maps[0].decided == "too_few" and detail.children == 12
    finally:
        app.close()


@workflow
async def seen_stop(ctx: Context) -> int:
    """Map over two inputs that wait."""
    done = await ctx.map(seen_dig, {name: seen_dig.arguments(name) for name in ("ask-x", "ask-y")})
    return len(done.completed)


def test_a_child_of_a_map_that_needs_a_person_holds_up_the_run_above() -> None:
    app = App((seen_stop, seen_dig))
    ops = app.runtime.operations
    try:
        run = app.start(seen_stop, {})
        one = app.do(ops.tree(run.id)).children[0].run
        app.do(ops.cancel(run.id, reason="enough"))
        app.settle()
        assert run.status == "cancelled" and app.do(ops.run(one)).status == "cancelled"
        (shown,) = app.do(ops.run(run.id)).maps
        assert shown.cancelled == 2 and shown.running == 0 == shown.not_started
    finally:
        app.close()


@workflow
async def seen_whole(ctx: Context) -> int:
    """Map over three inputs."""
    names = ("tin", "lead", "gold")
    return len((await ctx.map(seen_dig, {name: seen_dig.arguments(name) for name in names})).completed)


def test_an_export_has_the_rows_of_maps_and_no_test_is_made_of_them() -> None:
    app = App((seen_whole, seen_dig))
    ops = app.runtime.operations
    try:
        run = app.start(seen_whole, {})
        document = app.do(export(ops, run.id))
        assert [row["place"] for row in document["map_outcome"]] == [0, 1, 2]
        assert document["map_progress"][0]["states"] == "ccc" and len(document["map_inputs"]) == 1
        assert verify(json.dumps(document).encode()).findings == ()
        document["map_outcome"][0]["child"] = "run-other"
        assert verify(json.dumps(document).encode()).findings != ()
        with pytest.raises(Conflict, match="has a map"):
            app.do(recording_of(ops, run.id))
    finally:
        app.close()

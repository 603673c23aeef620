"""Results on the command line: the count beside the status equals the number of printed rows."""

import json

import pytest

from outlast.core.rows.run_rows import is_over
from tests.cli.conftest import PATIENCE_S, Terminal, waits_for
from tests.cli.test_remote import Far, serve

pytestmark = pytest.mark.req("OUT-5", "OUT-7")
FLOWS = """
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from outlast import Context, Workflow


class Search(BaseModel):
    leads: int
    waits: bool


searches = Workflow("search", state=Search)


@searches.node(start=True)
async def look(ctx: Context[Search]) -> None:
    for n in range(ctx.state.leads):
        await ctx.emit({"company": f"c-{n}"}, key=f"lead/{n}", kind="lead")
    if ctx.state.waits:
        await ctx.receive("enough", dict[str, Any])
        await ctx.emit({"company": "late"}, key="lead/late", kind="lead")
"""


@pytest.fixture
def searched(outlast: Terminal) -> Terminal:
    """Three runs: `many` has ended with 5 results, `none` without one, `open` has emitted 2 and waits."""
    (outlast.folder / "emitting.py").write_text(FLOWS)
    outlast.module = str(outlast.folder / "emitting.py")
    for run, *given in (
        ("many", "leads=5", "waits=false"),
        ("none", "leads=0", "waits=false"),
        ("open", "leads=2", "waits=true"),
    ):
        assert outlast("-q", "run", "search", *given, "--id", run).code == 0
    outlast.serve("open", waits_for("signal"))
    outlast.serve("none", is_over)
    return outlast


def test_the_rows_are_printed_page_by_page_and_the_status_counts_them(searched: Terminal) -> None:
    """The store itself and a service in front of it print the same."""
    far = Far(searched, serve(searched))
    for ask in (searched, far):
        first = ask("runs", "results", "many", "--limit", "3")
        assert first.code == 0 and "3 of 5 results" in first.err and "--cursor 3" in first.err, first
        assert first.row("1").startswith("1 lead/0 lead ") and '{"company": "c-0"}' in first.out
        page = ask("runs", "results", "many", "--limit", "2", "-o", "json").json
        keys = [each["key"] for each in page["results"]]
        while page["cursor"]:
            page = ask("runs", "results", "many", "--limit", "2", "--cursor", page["cursor"], "-o", "json").json
            keys += [each["key"] for each in page["results"]]
        assert keys == [f"lead/{n}" for n in range(5)] and page["count"] == 5
        lines = ask("runs", "results", "open", "-o", "ndjson").out.splitlines()
        assert [json.loads(line)["key"] for line in lines] == ["lead/0", "lead/1"], "emitted before the wait"
        assert "none has no result yet" in ask("runs", "results", "none").out
        listed = {each["run"]: each["results"] for each in ask("runs", "ls", "-o", "json").json["runs"]}
        assert listed == {"many": 5, "none": 0, "open": 2}
        assert {run: ask("runs", "show", run, "-o", "json").json["results"] for run in listed} == listed
        assert "results      5 → outlast runs results many" in ask("runs", "show", "many").out
        assert "results" not in ask("runs", "show", "none").out
        assert ask("runs", "ls").row("many").endswith(" 5") and "RESULTS" in ask("runs", "ls").out
        assert "RESULTS" not in ask("runs", "ls", "--waiting-for", "approval").out


@pytest.mark.parametrize("place", ["store", "service"])
def test_rows_are_followed_until_the_run_has_ended(searched: Terminal, place: str) -> None:
    env = {"OUTLAST_URL": serve(searched)} if place == "service" else {}
    following = searched.spawn("runs", "results", "open", "--follow", "-o", "ndjson", **env)
    assert following.stdout is not None
    assert [json.loads(following.stdout.readline())["key"] for _ in range(2)] == ["lead/0", "lead/1"]
    assert searched("signal", "open", "enough", "--data", "{}").code == 0
    if place == "store":
        searched.serve("open", is_over)
    assert json.loads(following.stdout.readline())["key"] == "lead/late"
    assert following.wait(PATIENCE_S) == 0
    plain = searched("runs", "results", "many", "--follow", "--cursor", "3")
    assert plain.out.splitlines()[0] == '   4  lead/3  lead  {"company": "c-3"}' and len(plain.out.splitlines()) == 2
    assert searched("runs", "results", "many", "--follow", "--limit", "2").code == 2
    assert searched("runs", "results", "nothing", "--follow").code == 3

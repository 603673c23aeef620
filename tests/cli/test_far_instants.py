"""Waits of more than 100 years, which an earlier version stored, in lists and pages of the terminal."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from outlast.cli.global_options import CliSettings
from outlast.cli.screen import Screen
from outlast.core import durations
from outlast.core.events import FAR_TEXT
from tests.cli.conftest import Terminal, waits_for
from tests.removals import replace

FLOWS = """
from datetime import UTC, datetime
from outlast import *

@activity(key="act", no_undo="x")
async def act() -> int:
    return 1

@workflow
async def sleeps(ctx: Context) -> None:
    await ctx.sleep(until=datetime.max.replace(tzinfo=UTC))

@workflow
async def asks(ctx: Context) -> None:
    await ctx.approval(act.plan(), summary="far", by=role("lead"), within="2000000d")
"""


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal whose store has two runs that wait for more than 100 years."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far.py").write_text(FLOWS, encoding="utf-8")
    terminal = Terminal(tmp_path, module=str(tmp_path / "far.py"))
    with monkeypatch.context() as earlier:
        replace(earlier, durations.check_near, lambda what, given, ms: None)
        for name, kind in (("sleeps", "timer"), ("asks", "approval")):
            assert terminal("-q", "run", name, "--id", name).code == 0
            terminal.serve(name, waits_for(kind))
    return terminal


FAR_SHOWN = (
    "runs ls", "--utc runs ls", "runs show sleeps", "--utc runs show sleeps", "runs show asks", "explain sleeps",
    "explain asks", "approvals ls", "--utc approvals ls", "approvals show {approval}",
)  # fmt: skip
OTHERS = ("status", "attention ls", "runs steps sleeps", "runs events asks", "export sleeps", "fsck")


@pytest.mark.req("CKP-8")
def test_lists_and_pages_show_a_far_instant_as_after_2126_and_other_commands_work(far: Terminal) -> None:
    (approval,) = far("-o", "json", "approvals", "ls").json["approvals"]
    wrong = []
    for command in FAR_SHOWN:
        done = far(*command.format(approval=approval["approval"]).split())
        if done.code or FAR_TEXT not in done.out or re.search(r"9999-|in after|[0-9]{6,}d", done.out):
            wrong.append((command, done))
    assert not wrong
    assert [command for command in OTHERS if far(*command.split()).code] == []


@pytest.mark.req("CKP-8")
def test_programs_get_a_far_instant_as_an_instant(far: Terminal) -> None:
    for run in far("-o", "json", "runs", "ls").json["runs"]:
        assert datetime.fromisoformat(run["waiting_for"][0]["until"]) > datetime(2127, 1, 1, tzinfo=UTC)


def test_a_column_of_next_times_shows_it() -> None:
    far = datetime(9999, 12, 30, tzinfo=UTC)
    assert Screen(CliSettings()).ahead(far) == Screen(CliSettings(utc=True)).ahead(far) == FAR_TEXT

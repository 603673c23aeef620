"""`outlast check`: which runs in flight the code at hand would not carry on, before it is deployed."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from outlast.cli.failure import OK, RUN_FAILED
from outlast.cli.modules import load_workflows
from outlast.cli.screen import Screen
from outlast.cli.session import operations, settings_now
from outlast.cli.settings import Command, Settings
from outlast.core.adoption import version_in
from outlast.errors import WillNotContinue
from outlast.flow.workflow import Workflow
from outlast.runtime.check import Checked, Verdict, check

NAMED_MAX = 6  # runs named in one line; all of them with -o json


@click.command("check", cls=Command)
@click.argument("module", metavar="MODULE[:NAME]")
@click.option("--against", default="", metavar="URL", help="The store the code will meet [--store].")
def check_command(module: str, against: str) -> None:
    """Say which unfinished runs, of every tenant, the code of MODULE would not carry on, and why.

    Nothing is changed and no run is taken. Exit code 0: all of them go on; 1: some would not.
    """
    settings = settings_now()
    if against:
        settings = replace(settings, store=against)
    click.get_current_context().exit(asyncio.run(_check(settings, load_workflows(module))))


async def _check(settings: Settings, workflows: Sequence[Workflow[Any]]) -> int:
    async with operations(settings, workflows=workflows, use="read") as bound:
        found = await check(bound.store, workflows)
    screen = Screen(settings)
    if screen.data(view(found)):
        return RUN_FAILED if found.verdicts else OK
    for lane, state in found.lanes.items():
        screen.advice(f"{lane}: {state}")
    if found.elsewhere:
        said = ", ".join(f"{n} of {lane}" for lane, n in sorted(found.elsewhere.items()))
        screen.advice(f"not looked at, since this code does not have them: {said}")
    if found.verdicts:
        raise refusal(found, workflows)
    screen.line(f"{_runs(found.looked_at)} looked at: every one goes on with this code")
    return OK


def view(found: Checked) -> dict[str, Any]:
    """The verdict as plain data."""
    return {
        "all_go_on": not found.verdicts,
        "runs": found.looked_at,
        "stranded": list(found.stranded),
        "findings": [verdict._asdict() for verdict in found.verdicts],
        "elsewhere": found.elsewhere,
        "lanes": found.lanes,
    }


def refusal(found: Checked, workflows: Sequence[Workflow[Any]]) -> WillNotContinue:
    """What does not go on, one sentence for each reason, and the ways out."""
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in found.verdicts:
        groups.setdefault((verdict.lane, verdict.node, verdict.why), []).append(verdict)
    lines = [f"{_named([v.run for v in group])} ({lane}, node {node}): {why.splitlines()[0]}"
             for (lane, node, why), group in groups.items()]  # fmt: skip
    first = found.verdicts[0]
    newest = max((w for w in workflows if w.name == first.workflow), key=lambda w: w.version)
    keep = f"keep version {version_in(first.lane)} running until they have ended"
    if newest.version == version_in(first.lane):
        fix = f"take the edit back, or raise version= and {keep}"
    else:
        fix = f"{keep}; declare @….migrate(from_={version_in(first.lane)}); or, once it is deployed, move them: "
        fix += f"outlast versions adopt {first.workflow} {newest.version} {first.run} --at NODE"
    what = f"{_runs(len(found.stranded))} will NOT continue with this code: {_named(found.stranded)}"
    return WillNotContinue(what, "\n".join(lines), fix)


def _runs(n: int) -> str:
    return f"{n} run{'' if n == 1 else 's'}"


def _named(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - NAMED_MAX} more" if len(runs) > NAMED_MAX else ""
    return ", ".join(runs[:NAMED_MAX]) + more

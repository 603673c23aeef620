"""`outlast versions`: which versions of each workflow have runs and workers, and moving runs from one to another."""

import click

from outlast.cli.desk.port import Desk
from outlast.cli.failure import CONFLICT, OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_desk, on_store
from outlast.cli.settings import Group
from outlast.core.adoption import lane_of
from outlast.runtime import versions as of_store
from outlast.runtime.operations import Operations


@click.group(cls=Group)
def versions() -> None:
    """List the versions of workflows, and move runs from one to another."""


@versions.command("ls")
@on_desk
async def ls(desk: Desk, screen: Screen) -> int:
    """List every version with its unfinished runs, its workers, and the topology they last showed."""
    views = await desk.versions()
    if screen.listing("versions", views):
        return OK
    if not views:
        screen.line("no workflow has been served here yet → outlast worker MODULE")
        return OK
    rows = []
    for each in views:
        needs = f" ({each['flagged']} need a person)" if each["flagged"] else ""
        by = " ".join(each["served_by"]) or (f"no worker serves {each['lane']}" if each["runs"] else "nobody")
        since = screen.since(each["since"])
        rows.append((each["workflow"], str(each["version"]), f"{each['runs']}{needs}", by, each["topology"], since))
    screen.table(("WORKFLOW", "VERSION", "RUNS", "SERVED BY", "TOPOLOGY", "SEEN FIRST"), rows)
    for each in views:
        others = [v for v in views if v["workflow"] == each["workflow"] and v["served_by"]]
        if each["runs"] and not each["served_by"] and others:
            to, of = others[-1]["version"], each["version"]
            move = f"outlast versions adopt {each['workflow']} {to} --all-of {of} --reason …"
            screen.advice(f"{each['lane']}: start a worker of version {of}, or → {move}")
    return OK


@versions.command("adopt")
@click.argument("workflow")
@click.argument("version", type=click.IntRange(min=1))
@click.argument("runs", nargs=-1, metavar="RUN…")
@click.option("--at", "node", default="", metavar="NODE", help="Go on in this node [where it stands].")
@click.option(
    "--all-of", type=click.IntRange(min=1), default=None, metavar="V", help="Every unfinished run of version V."
)
@click.option("--reason", default="", help="People will read it in the runs' histories.")
@on_store
async def adopt(
    ops: Operations, screen: Screen, workflow: str, version: int, runs: tuple[str, ...], node: str,
    all_of: int | None, reason: str,
) -> int:  # fmt: skip
    """Let runs go on in VERSION of WORKFLOW: those that no worker serves, or whose node is gone.

    A worker of that version moves them: by the declared migration where there is one, else with the state as it is, if
    it fits. The visit stays, so nothing that was done is done again.
    """
    if bool(runs) == (all_of is not None):
        raise click.UsageError("name the runs, or all of a version with --all-of")
    wanted = list(runs)
    if all_of is not None:
        lane = lane_of(workflow, all_of)
        wanted = [run.run for run in await of_store.unfinished(ops.store, ops.tenant, workflow) if run.lane == lane]
    asked = await of_store.adopt(ops, workflow, version, wanted, node=node, reason=reason)
    code = CONFLICT if asked.failed else OK
    data = {"asked": list(asked.runs), "not_asked": [{"run": run, "why": why} for run, why in asked.failed]}
    if screen.data(data):
        return code
    n = len(asked.runs)
    where = f" at {node}" if node else ""
    if n or not asked.failed:
        screen.line(f"{n} run{'' if n == 1 else 's'} asked to go on in {lane_of(workflow, version)}{where}")
    for run, why in asked.failed:
        screen.line(f"{run}: {why}")
    return code

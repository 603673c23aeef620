"""`outlast versions`: which versions of each workflow have runs and workers, and moving runs from one to another."""

import click

from outlast.cli.desk.port import Desk
from outlast.cli.failure import CONFLICT, OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_desk, reads_desk
from outlast.cli.settings import Group
from outlast.core.adoption import lane_of


@click.group(cls=Group)
def versions() -> None:
    """List the versions of workflows, and move runs from one to another."""


@versions.command("ls")
@reads_desk
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
@on_desk
async def adopt(
    desk: Desk, screen: Screen, workflow: str, version: int, runs: tuple[str, ...], node: str,
    all_of: int | None, reason: str,
) -> int:  # fmt: skip
    """Let runs go on in VERSION of WORKFLOW: those that no worker serves, or whose node is gone.

    A worker of that version moves them: by the declared migration where there is one, else with the state as it is, if
    it fits. The visit stays, so nothing that was done is done again.
    """
    if bool(runs) == (all_of is not None):
        raise click.UsageError("name the runs, or all of a version with --all-of")
    wanted = list(runs) if all_of is None else await desk.of_lane(workflow, lane_of(workflow, all_of))
    asked, failed = await desk.adopt(workflow, version, wanted, node=node, reason=reason)
    code = CONFLICT if failed else OK
    if screen.data({"asked": list(asked), "not_asked": [{"run": run, "why": why} for run, why in failed]}):
        return code
    n = len(asked)
    where = f" at {node}" if node else ""
    if n or not failed:
        screen.line(f"{n} run{'' if n == 1 else 's'} asked to go on in {lane_of(workflow, version)}{where}")
    for run, why in failed:
        screen.line(f"{run}: {why}")
    return code

"""`outlast runs graph`: the nodes of a run's workflow, how they lead to each other, and where the run stands."""

import click

from outlast.cli.desk.port import Desk, View
from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import reads_desk
from outlast.cli.settings import Command
from outlast.core.machine import TERMINAL
from outlast.errors import NotFound

END = "end"


@click.command(cls=Command)
@click.argument("run")
@click.option("--mermaid", is_flag=True, help="As Mermaid, for a README.")
@reads_desk
async def graph(desk: Desk, screen: Screen, run: str, mermaid: bool) -> int:
    """Show the graph of RUN's workflow: ✓ has been there, ▸ stands there, · has not been there."""
    view = await desk.run(run)
    topology = await desk.topology(view)
    if topology is None:
        raise NotFound(
            f"nobody has shown what {view['lane']} looks like",
            "a worker writes it down when it begins to serve that version",
            "start one: outlast worker MODULE",
        )
    if not screen.data({"run": run, "node": view["node"], "nodes": topology["nodes"]}):
        for line in _mermaid(view, topology) if mermaid else _text(view, topology):
            screen.line(line)
    return OK


def _text(view: View, topology: View) -> list[str]:
    nodes = topology["nodes"]
    order = _order(topology)
    width = max(map(len, order))
    return [f"{_mark(view, name)} {name:<{width}}  → {', '.join(_to(nodes[name]))}" for name in order]


def _mermaid(view: View, topology: View) -> list[str]:
    nodes, been = topology["nodes"], {visit["node"] for visit in view["visits"]}
    lines = ["flowchart LR"]
    lines += [f"  {name}[{name}]" for name in _order(topology)]
    lines += [f"  {name} --> {to if to != END else '_end((end))'}" for name in nodes for to in _to(nodes[name])]
    lines += [f"  class {name} been" for name in sorted(been & nodes.keys())]
    lines += ["  classDef been fill:#dfd", f"  style {view['node']} stroke-width:3px"]
    return lines


def _mark(view: View, name: str) -> str:
    if name == view["node"] and view["status"] not in TERMINAL:
        return "▸"
    return "✓" if any(visit["node"] == name for visit in view["visits"]) else "·"


def _to(node: View) -> list[str]:
    return [*node["to"], *([END] if node["ends"] else [])]


def _order(topology: View) -> list[str]:
    """From the start on, the nearest first."""
    nodes = topology["nodes"]
    found = [name for name in nodes if nodes[name]["start"]]
    for name in found:
        found += [to for to in nodes[name]["to"] if to not in found]
    return found

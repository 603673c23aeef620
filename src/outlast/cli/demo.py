"""`outlast demo`: play the demo of the negotiation example, which the wheel and a checkout carry."""

import importlib
import sys
from pathlib import Path
from typing import Any

import click

import outlast
from outlast.cli.global_options import Command, settings_now
from outlast.core.lanes import OWN, SCHEDULERS
from outlast.errors import NotFound


@click.command(cls=Command)
@click.option("--approve", "unattended", is_flag=True, help="Approve without a person, by a process of the demo.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the facts, and nothing else.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder of the demo; an interrupted demo continues.")
@click.option("--keep/--no-keep", default=None, help="Keep a temporary folder [keep; with --json: no].")
@click.option("--speed", type=click.IntRange(1, 100_000), default=30_000, help="Speed of the wait for bids [30000].")
@click.option("--runtime", type=click.Choice(SCHEDULERS), default=OWN, help=f"Engine that schedules the run [{OWN}].")
@click.option("--sample", metavar="NAME", help="Another program; an unknown name lists them [leverage].")
def demo(sample: str | None, **options: Any) -> None:
    """Play an auction that survives a crash and waits for you.

    Real processes on a SQLite file in a temporary folder, or on the empty store that --store names. A worker is killed
    in round 3. Another worker takes over, no supplier is invited twice, and nothing runs while the order waits for
    approval. The store and the suppliers' own record prove the end; a report is written to the folder. --sample plays
    another purchase, `desk` (an agent works an incident) or `acquisition` (an inquiry becomes a customer). --runtime
    temporal uses the server that TEMPORAL_ADDRESS names, or starts one in the folder.
    """
    settings = settings_now()
    # Only a store named on this command line: the demo moves the business time of every run in its store.
    store = settings.store if "store" in settings.given else ""
    play = _driver().play
    click.get_current_context().exit(
        play(store=store, sample=sample if sample not in (None, "leverage") else "", **options)
    )


def _driver() -> Any:
    """Import the demo. Raises NotFound if this installation came without the example."""
    package = Path(outlast.__file__).parent
    wheel, checkout = (package.parent, f"{package.name}._examples"), (package.parents[1], "examples")
    for root, name in (wheel, checkout):
        if root.joinpath(*name.split("."), "negotiation", "workflow.py").exists():
            if str(root) not in sys.path:
                sys.path.append(str(root))
            return importlib.import_module(f"{name}.negotiation.demo.driver")
    raise NotFound("the negotiation example is not installed", "it comes with the wheel and with a checkout")

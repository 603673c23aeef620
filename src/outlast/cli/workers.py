"""`outlast workers`: which processes serve the store, and what they hold."""

from typing import Any

import click

from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_store
from outlast.cli.settings import Group
from outlast.runtime.operations import Operations
from outlast.runtime.views import worker_view


@click.group(cls=Group)
def workers() -> None:
    """List the workers and what they serve."""


@workers.command("ls")
@click.option("--all", "every", is_flag=True, help="Those that have gone too.")
@on_store
async def ls(ops: Operations, screen: Screen, every: bool) -> int:
    """List the workers that serve this store."""
    now = await ops.store.now()
    views = [worker_view(row, now, await ops.held(row.id)) for row in await ops.workers()]
    views = [view for view in views if every or view["serving"]]
    if screen.listing("workers", views):
        return OK
    if not views:
        screen.line("no worker serves this store → outlast worker MODULE")
        return OK
    screen.table(("WORKER", "NAME", "STATUS", "SERVES", "HOLDS", "STARTED"), [_row(screen, view) for view in views])
    return OK


def _row(screen: Screen, view: dict[str, Any]) -> tuple[str, ...]:
    lanes, started = " ".join(view["serves"]), screen.since(view["started_at"])
    state = "serving" if view["serving"] else "gone"
    return view["worker"], view["name"], state, lanes, str(view["holds"]), started

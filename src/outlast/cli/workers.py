"""`outlast workers`: list the workers of the store and the runs they hold, and drain one."""

import click

from outlast.cli.command_session import on_client, reads_client
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Group
from outlast.cli.screen import Screen
from outlast.core.durations import SECOND, span
from outlast.core.lanes import OWN
from outlast.insight.labels import STALLED
from outlast.models.service import WorkerStatus
from outlast.runtime.client import Client

LATE = SECOND // 10


@click.group(cls=Group)
def workers() -> None:
    """List the workers and the workflows they serve, and drain one."""


@workers.command("ls")
@click.option("--all", "every", is_flag=True, help="Include stopped workers.")
@reads_client
async def ls(client: Client, screen: Screen, every: bool) -> int:
    """List the workers that serve this store."""
    views = [view for view in await client.workers() if every or view.serving]
    if screen.listing("workers", views):
        return OK
    if not views:
        screen.line("no worker serves this store → outlast worker MODULE")
        return OK
    columns: tuple[str, ...] = (
        "WORKER",
        "NAME",
        "STATUS",
        "SERVES",
        "HOLDS",
        "LEASE",
        "HEARTBEAT",
        "LOOP",
        "AT",
        "STARTED",
    )
    rows = [_row(screen, view) for view in views]
    if any(view.scheduler != OWN for view in views):
        columns += ("SCHEDULER",)
        rows = [(*row, view.scheduler) for row, view in zip(rows, views, strict=True)]
    screen.table(columns, rows)
    return OK


@workers.command("drain")
@click.argument("worker")
@click.option("--reason", required=True, help="Reason, shown in the list of workers.")
@on_client
async def drain(client: Client, screen: Screen, worker: str, reason: str) -> int:
    """Let a worker take no more runs, give back those that it holds, and stop.

    WORKER is its id, as `outlast workers ls` shows it. The worker reads the request at its next heartbeat. Its process
    ends as at Ctrl-C; `outlast serve` goes on without a worker.
    """
    view = await client.drain_worker(worker, reason=reason)
    if not screen.data(view):
        screen.line(f"{view.worker} drains, says {view.drain_asked_by}: {view.drain_reason}")
        screen.advice("→ outlast workers ls")
    return OK


def _row(screen: Screen, view: WorkerStatus) -> tuple[str, ...]:
    of, alive = view.concurrency, view.serving
    at = f"{view.pid}@{view.host}" if view.pid else ""
    return (
        view.worker,
        view.name,
        view.state,
        " ".join(view.serves),
        f"{view.holds} of {of}" if of and alive else str(view.holds),
        f"{span(view.lease_left_ms)} left" if alive else "",
        f"{span(view.heartbeat_ago_ms)} ago",
        _loop(view) if alive else "",
        f"{at} {view.version or ''}".strip(),
        screen.since(view.started_at),
    )


def _loop(view: WorkerStatus) -> str:
    """Return the state of a worker's event loop at the last heartbeat; a stalled loop loses the lease (S-5)."""
    late, ticked = view.loop_late_ms, view.loop_ticked_ms
    if late is None or ticked is None:
        return ""
    if ticked > STALLED:
        return f"stalled for {span(ticked)}"
    return f"{span(late)} late" if late > LATE else "ok"

"""Pages of the threads of LangGraph graphs: their checkpoints with parents, branches, writes and sizes.

They show no value of a state: `outlast threads export` writes those.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.graph_threads import branches
from outlast.core.rows.graph_rows import GRAPH_WRITE, GraphCheckpoint, GraphThread
from outlast.errors import Corrupt, NotFound
from outlast.models import exact_instant
from outlast.runtime.graph_threads import GraphThreads
from outlast.runtime.operations import Operations
from outlast.service.service_state import Ops, Pages, State
from outlast.ui.page_route import PageRoute
from outlast.ui.rendering import render, stamp

router = APIRouter(prefix="/ui", route_class=PageRoute)
SIZE: Final = 50
READ_MAX: Final = 1_000
"""Checkpoints of a namespace that are read, the last ones. The command line shows all."""
SPACES_MAX: Final = 20
"""Namespaces to which a page links, besides the graph itself and the shown one."""
Name = Annotated[str, Query(max_length=500)]


class ShownCheckpoint(NamedTuple):
    """A checkpoint as a row of its page."""

    row: GraphCheckpoint
    is_last: bool
    branch: int
    from_branch: int  # of its parent, if that is another one; else 0
    source: str
    step: str
    channels: Sequence[str]
    problem: str  # why metadata or channels cannot be read
    writes: int
    size: int  # bytes of its rows


@router.get("/threads", operation_id="ui:list_runs")
async def list_threads(state: State, ops: Ops, pages: Pages, request: Request, response: Response) -> Response:
    """Show the threads, the last changed first."""
    found = await GraphThreads(ops.store, ops.tenant).threads(cursor=pages.after, limit=pages.limit)
    return await render(
        request,
        "threads.html",
        title="Threads",
        live="runs",
        versions={"threads": stamp([row[:4] for row in found.rows])},
        rows=found.rows,
        at=exact_instant,
        cursor=await state.cursors.seal(request, response, ops.tenant, found.cursor),
    )


@router.get("/thread", operation_id="ui:get_run")
async def get_thread(
    ops: Ops, request: Request, thread: Name = "", ns: Name = "", after: Annotated[int, Query(ge=0, le=READ_MAX)] = 0
) -> Response:
    """Show the checkpoints of one namespace of a thread, the last first."""
    threads = GraphThreads(ops.store, ops.tenant)
    spaces = await threads.namespaces(thread) if thread else ()
    space = next((row for row in spaces if row.ns == ns), None)
    if space is None:
        missing = f"no namespace {ns[:100]!r} in it" if spaces else ""
        raise NotFound(f"no thread {thread[:100]}", missing, "open the list of threads", refusal="no_such_path")
    rows = await _last(threads, space)
    shown = await _shown(ops, space, rows, after)
    return await render(
        request,
        "thread.html",
        title=f"Thread {thread[:100]}",
        live="runs",
        versions={"thread": stamp([row[:4] for row in spaces], after)},
        space=space,
        spaces=spaces,
        linked=linked(spaces, space),
        read=len(rows),
        rows=shown,
        after=after,
        size=SIZE,
        branch_count=max(branches(rows, space.head).values(), default=0),
        at=exact_instant,
    )


def linked(spaces: Sequence[GraphThread], shown: GraphThread) -> list[GraphThread]:
    """Return the namespaces to which a page links: the graph itself, the shown one, and those that changed last.

    LangGraph gives each call of a subgraph a namespace, so a thread may have thousands.
    """
    last = sorted(spaces, key=lambda each: (each.changed_at, each.ns), reverse=True)[:SPACES_MAX]
    return [each for each in spaces if not each.ns or each.ns == shown.ns or each in last]


async def _last(threads: GraphThreads, space: GraphThread) -> list[GraphCheckpoint]:
    """Return the last READ_MAX checkpoints of a namespace, the greatest id first."""
    found: list[GraphCheckpoint] = []
    reader = await threads.newest([space[:3]])
    while len(found) < READ_MAX and (row := await reader.next()) is not None:
        found.append(row)
    return found


async def _shown(
    ops: Operations, space: GraphThread, rows: Sequence[GraphCheckpoint], after: int
) -> list[ShownCheckpoint]:
    page = rows[after : after + SIZE]
    numbers = branches(rows, space.head)
    writes = await asyncio.gather(*(ops.store.rows(GRAPH_WRITE, row[:4]) for row in page))
    found: list[ShownCheckpoint] = []
    for row, own in zip(page, writes, strict=True):
        branch, before = numbers[row.checkpoint], numbers.get(row.parent, 0)
        size = len(row.body) + len(row.metadata) + len(row.channels) + sum(len(each.body) for each in own)
        source, step, channels, problem = _details(row)
        found.append(
            ShownCheckpoint(
                row,
                row.checkpoint == space.head,
                branch,
                before if before != branch else 0,
                source,
                step,
                channels,
                problem,
                len(own),
                size,
            )
        )
    return found


def _details(row: GraphCheckpoint) -> tuple[str, str, Sequence[str], str]:
    """Return source, step and channels of a checkpoint, and why they cannot be read, or ''."""
    try:
        details = row.details()
        return str(details.get("source", "")), str(details.get("step", "")), [*row.places()], ""
    except Corrupt as error:
        return "", "", (), error.what

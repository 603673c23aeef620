"""`outlast threads`: the threads of LangGraph graphs that `outlast.langgraph.OutlastSaver` keeps in the store."""

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import click

from outlast.cli.command_session import on_store, reads_store, unsure
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Command, Group
from outlast.cli.screen import Screen
from outlast.cli.text import duration, json_escaped
from outlast.core.durations import span
from outlast.core.graph_threads import GraphData, unused_before
from outlast.core.rows.graph_rows import GraphCheckpoint, GraphThread
from outlast.errors import Corrupt, InvalidInput, NotFound
from outlast.models import exact_instant
from outlast.runtime.graph_threads import GraphThreads, ReadCheckpoint
from outlast.runtime.operations import Operations


@click.group(cls=Group)
def threads() -> None:
    """List, show, export and delete threads of LangGraph."""


def _threads(ops: Operations) -> GraphThreads:
    return GraphThreads(ops.store, ops.tenant)


@threads.command("ls")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="Threads on a page.")
@click.option("--cursor", default="", help="Cursor that the last page printed.")
@reads_store
async def ls(ops: Operations, screen: Screen, limit: int, cursor: str) -> int:
    """List threads, the last changed first."""
    page = await _threads(ops).threads(cursor=cursor, limit=limit)
    if screen.listing("threads", [_shown(row) for row in page.rows], cursor=page.cursor):
        return OK
    if not page.rows:
        screen.line("no graph of LangGraph keeps a thread here → outlast.langgraph.OutlastSaver")
        return OK
    rows = [
        (row.thread, f"{row.checkpoints:,}", row.head, screen.since(exact_instant(row.changed_at))) for row in page.rows
    ]
    screen.table(("THREAD", "CHECKPOINTS", "LAST", "CHANGED"), rows)
    if page.cursor:
        screen.advice(f"more: outlast threads ls --cursor {page.cursor}")
    return OK


@threads.command("show")
@click.argument("thread", metavar="THREAD")
@reads_store
async def show(ops: Operations, screen: Screen, thread: str) -> int:
    """Show the namespaces and the checkpoints of a thread, the last first."""
    spaces, checkpoints = await _found(_threads(ops), thread)
    heads = {row.ns: row.head for row in spaces}
    view = {
        "thread": thread,
        "namespaces": [_shown(row) for row in spaces],
        "checkpoints": [_checkpoint(row, heads) for row in checkpoints],
    }
    if screen.data(view):
        return OK
    screen.line(f"{thread} has {len(checkpoints):,} checkpoints in {len(spaces):,} namespaces")
    rows = []
    for row in checkpoints:
        details, channels, problem = _details(row)
        last = " (last)" if heads.get(row.ns) == row.checkpoint else ""
        what = problem or f"{details.get('source', '')} {details.get('step', '')}"
        at = screen.since(exact_instant(row.at))
        rows.append((f"{row.checkpoint}{last}", row.ns or "-", what, row.parent or "-", " ".join(channels), at))
    screen.table(("CHECKPOINT", "NAMESPACE", "SOURCE, STEP", "AFTER", "CHANNELS", "PUT"), rows)
    return OK


async def _found(store: GraphThreads, thread: str) -> tuple[tuple[GraphThread, ...], list[GraphCheckpoint]]:
    spaces = await store.namespaces(thread)
    if not spaces:
        raise NotFound(f"no thread {thread}", "", "outlast threads ls lists the threads of this tenant")
    return spaces, await store.checkpoints(thread)


@threads.command("export")
@click.argument("thread", metavar="THREAD")
@click.option("--to", "file", type=click.Path(path_type=Path), metavar="FILE", help="File to write to [stdout].")
@reads_store
async def export_thread(ops: Operations, screen: Screen, thread: str, file: Path | None) -> int:
    """Write all checkpoints of a thread with their values as one JSON document.

    Values have their format and their bytes as base64. They may hold secrets: protect the file like the store.
    """
    store = _threads(ops)
    spaces, rows = await _found(store, thread)
    heads = {row.ns: row.head for row in spaces}
    read = [await store.read(row, is_head=heads.get(row.ns) == row.checkpoint) for row in rows]
    document = {
        "thread": thread,
        "namespaces": [_shown(row) for row in spaces],
        "checkpoints": [_checkpoint(each.row, heads) | _values(each) for each in read],
    }
    text = json_escaped(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"
    if file is None:
        click.echo(text, nl=False)
        return OK
    try:
        await asyncio.to_thread(file.write_text, text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written", error.strerror or str(error), "name another file") from error
    if not screen.data({"file": str(file), "thread": thread, "checkpoints": len(rows)}):
        screen.line(f"{file}: {len(rows):,} checkpoints of {thread}")
    return OK


@threads.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="THREAD…")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@on_store
async def rm(ops: Operations, screen: Screen, names: tuple[str, ...], yes: bool) -> int:
    """Delete threads with all their checkpoints. The next invocation begins a new one."""
    if not yes and (code := await unsure(screen, f"delete {', '.join(names)} with all checkpoints?")) is not None:
        return code
    for name in names:
        if not await _threads(ops).delete(name):
            raise NotFound(f"no thread {name}", "", "outlast threads ls lists the threads of this tenant")
        if not screen.data({"thread": name, "deleted": True}):
            screen.line(f"{name} is deleted")
    return OK


@threads.command("purge", cls=Command)
@click.option("--older", type=duration, required=True, metavar="DURATION", help="Minimum time since the last change.")
@click.option("--keep-latest", is_flag=True, help="Keep the last checkpoint of each.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@on_store
async def purge_threads(ops: Operations, screen: Screen, older: int, keep_latest: bool, yes: bool) -> int:
    """Delete the threads of the tenant that have not changed for some time, or all but their last checkpoints.

    It works in small transactions and may run beside graphs: a thread that is used again in between is kept whole.
    """
    what = "all but the last checkpoint of every thread" if keep_latest else "every thread"
    if not yes and (code := await unsure(screen, f"delete {what} unchanged for {span(older)}?")) is not None:
        return code
    store = _threads(ops)
    before = unused_before((await ops.store.now()).business, older, ops.store.skew)
    n = 0
    for row in await store.unchanged_since(before):
        if keep_latest:
            await store.keep_latest(row.thread)
        n += keep_latest or await store.delete(row.thread, before=before)
    if not screen.data({"threads": n, "older_ms": older, "keep_latest": keep_latest}):
        kept = "cut to the last checkpoint" if keep_latest else "deleted"
        screen.line(f"{n:,} thread{'' if n == 1 else 's'} {kept}, unchanged for {span(older)}")
    return OK


def _shown(row: GraphThread) -> dict[str, Any]:
    return {
        "thread": row.thread,
        "namespace": row.ns,
        "checkpoints": row.checkpoints,
        "last": row.head,
        "created_at": exact_instant(row.created_at).isoformat(),
        "changed_at": exact_instant(row.changed_at).isoformat(),
    }


def _details(row: GraphCheckpoint) -> tuple[dict[str, Any], list[str], str]:
    """Return the metadata and the channels of a checkpoint, and why they cannot be read, or ''."""
    try:
        return row.details(), [*row.places()], ""
    except Corrupt as error:
        return {}, [], f"unreadable: {error.what}"


def _checkpoint(row: GraphCheckpoint, heads: dict[str, str]) -> dict[str, Any]:
    details, channels, problem = _details(row)
    return {
        "checkpoint": row.checkpoint,
        "namespace": row.ns,
        "after": row.parent,
        "last": heads.get(row.ns) == row.checkpoint,
        "metadata": details,
        "channels": channels,
        "at": exact_instant(row.at).isoformat(),
    } | ({"problem": problem} if problem else {})


def _values(read: ReadCheckpoint) -> dict[str, Any]:
    return {
        "body": _data(read.body),
        "values": {name: _data(value) for name, value in read.values.items()},
        "writes": [
            {"task": each.task, "path": each.path, "channel": each.channel, "value": _data(each.value)}
            for each in read.writes
        ],
    }


def _data(value: GraphData) -> dict[str, str]:
    return {"format": value.format, "base64": b64encode(value.data).decode()}

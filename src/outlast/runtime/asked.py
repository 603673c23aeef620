"""What people have asked of a run that no worker has heeded yet: its notes beyond what a walk has read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outlast.core.commit import Instant
from outlast.core.events import iso
from outlast.core.machine import Choice
from outlast.core.overlay import attention_of
from outlast.core.route import ANSWERED_BY_CONTINUE
from outlast.core.rows import NOTE, Note, Run, is_over
from outlast.runtime.words import is_held
from outlast.store.port import Store

NOTES_PER_READ = 1_000


def may_be_unheeded(run: Run, now: Instant) -> bool:
    """May it have an unread note? A note makes a run that nobody holds due, so a run at rest has read all (S-1)."""
    return (
        run.inbox_seq > 0 and not is_over(run) and (is_held(run) or (run.due_at is not None and run.due_at <= now.real))
    )


async def notes_of(store: Store, run: Run) -> list[Note]:
    """Every note of a run, in the order they were left."""
    found: list[Note] = []
    after = 0
    while True:
        key = (run.tenant, run.run)
        page = await store.rows(NOTE, key, after=(*key, after), limit=NOTES_PER_READ)
        found += [row for row in page if isinstance(row, Note)]
        if len(page) < NOTES_PER_READ:
            return found
        after = found[-1].n


def asked_of(run: Run, notes: Iterable[Note]) -> list[dict[str, Any]]:
    """The first cancel, or else the `continue` that answers the present attention, as plain data."""
    if is_over(run):
        return []
    posted: Sequence[Note] = list(notes)
    found = [note for note in posted if note.kind == Choice.CANCEL]
    seen = [a.seen for a in attention_of(run) if a.reason in ANSWERED_BY_CONTINUE]
    if not found and seen:
        found = [note for note in posted if note.kind == Choice.CONTINUE and note.n > max(seen)]
    return [_view(note) for note in found[:1]]


def _view(note: Note) -> dict[str, Any]:
    payload: Mapping[str, Any] = json.loads(note.payload)
    return {"verb": note.kind, "by": note.actor, "at": iso(note.at), "reason": payload.get("reason", "")}

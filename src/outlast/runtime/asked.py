"""What people have asked of a run that no worker has heeded yet: its notes beyond what a walk has read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outlast.core.commit import Instant
from outlast.core.events import iso
from outlast.core.machine import Choice
from outlast.core.overlay import attention_of
from outlast.core.route import ANSWERED_BY_CONTINUE
from outlast.core.rows import MESSAGE, Message, Run, is_over
from outlast.runtime.words import is_held
from outlast.store.port import Store

NOTES_PER_READ = 1_000


def may_be_unheeded(run: Run, now: Instant) -> bool:
    """May it have an unread note? A note makes a run that nobody holds due, so a run at rest has read all (S-1)."""
    return (
        run.inbox_seq > 0 and not is_over(run) and (is_held(run) or (run.due_at is not None and run.due_at <= now.real))
    )


async def notes_of(store: Store, run: Run) -> list[Message]:
    """Every note of a run, in the order they were left."""
    found: list[Message] = []
    after = 0
    while True:
        key = (run.tenant, run.run)
        page = await store.rows(MESSAGE, key, after=(*key, after), limit=NOTES_PER_READ)
        found += [row for row in page if isinstance(row, Message)]
        if len(page) < NOTES_PER_READ:
            return found
        after = found[-1].n


def asked_of(run: Run, notes: Iterable[Message]) -> list[dict[str, Any]]:
    """The first cancel, or else the `continue` that answers the present attention, as plain data."""
    if is_over(run):
        return []
    posted: Sequence[Message] = list(notes)
    found = [message for message in posted if message.kind == Choice.CANCEL]
    seen = [a.seen for a in attention_of(run) if a.reason in ANSWERED_BY_CONTINUE]
    if not found and seen:
        found = [message for message in posted if message.kind == Choice.CONTINUE and message.n > max(seen)]
    return [_view(message) for message in found[:1]]


def _view(message: Message) -> dict[str, Any]:
    payload: Mapping[str, Any] = json.loads(message.payload)
    return {"verb": message.kind, "by": message.actor, "at": iso(message.at), "reason": payload.get("reason", "")}

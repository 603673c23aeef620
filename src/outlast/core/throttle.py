"""The row of one limit on calls, shared by all workers of a store: who is inside, and when the next call may begin."""

import json
from collections.abc import Collection
from typing import Final, NamedTuple

from outlast.core.durations import INLINE_WAIT_MAX, SECOND
from outlast.core.rows import STORE, Meta, Row
from outlast.errors import Corrupt

AHEAD: Final = SECOND // 5  # a worker books turns for so long at most: what it loses by dying is less than this
WANTS_FOR: Final = 2 * SECOND  # how long the word counts that a worker wants in; said again while it does


def limit_row(name: str) -> tuple[str, str]:
    """The key of a limit's meta row."""
    return (STORE, f"limit/{name}")


class Door(NamedTuple):
    """What all workers know of one limit. Instants are real."""

    inside: dict[str, int]  # calls under way, by worker
    wanting: dict[str, int]  # workers that found it full, and until when that counts
    next_at: int = 0  # the first turn that nobody has booked; turns lie 1/per_second apart

    def row(self, name: str, version: int) -> Meta:
        """The meta row that says so."""
        inside = {worker: n for worker, n in sorted(self.inside.items()) if n}
        value = {"inside": inside, "wanting": dict(sorted(self.wanting.items())), "next_at": self.next_at}
        return Meta(*limit_row(name), version, json.dumps(value))


class Entry(NamedTuple):
    """How many calls of a worker may begin, the first at an instant and each a gap after the one before; and the door
    as it is left."""

    n: int
    first_at: int
    gap_ms: float
    door: Door


def door_of(row: Row | None) -> Door:
    """What a meta row says; an empty door where there is none yet. Raises Corrupt."""
    if row is None:
        return Door({}, {})
    assert isinstance(row, Meta)
    try:
        value = json.loads(row.value)
        return Door(dict(value["inside"]), dict(value["wanting"]), int(value["next_at"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def enter(
    door: Door,
    worker: str,
    mine: int,
    wanted: int,
    *,
    concurrent: int,
    per_second: float,
    now: int,
    living: Collection[str] | None = None,
) -> Entry:
    """Let in as many of `wanted` calls as there is room for; `mine`: the worker's calls that are under way.

    `living`: the workers that are; places of others are free. None: not looked at, all are believed.
    """
    assert mine >= 0 and wanted >= 0
    others = {w: n for w, n in door.inside.items() if w != worker and (living is None or w in living)}
    wanting = {w: until for w, until in door.wanting.items() if w != worker and until > now}
    room = wanted if not concurrent else min(wanted, max(0, concurrent - sum(others.values()) - mine))
    gap = SECOND / per_second if per_second else 0.0
    # A clock that a restore set back must not close the door for longer than a run waits at it.
    first_at = max(now, door.next_at) if door.next_at <= now + INLINE_WAIT_MAX else now
    if gap and room:
        room = min(room, max(1, int(AHEAD / gap)))
    next_at = round(first_at + room * gap) if gap and room else door.next_at
    if room < wanted:
        wanting[worker] = now + WANTS_FOR
    return Entry(room, first_at, gap, Door({**others, worker: mine + room}, wanting, next_at))


assert AHEAD < WANTS_FOR < INLINE_WAIT_MAX

"""Row of a rate limit shared by all workers of a store: calls in flight and the time of the next call."""

import json
from collections.abc import Collection
from typing import Final, NamedTuple

from outlast.core.durations import INLINE_WAIT_MAX, SECOND
from outlast.core.rows.store_rows import STORE, Meta
from outlast.errors import Corrupt

BOOKED_AHEAD_MAX: Final = SECOND // 5  # longest time for which a worker books calls ahead; a crash loses less than this
WANTS_FOR: Final = 2 * SECOND  # how long the demand of a worker counts; workers renew it


def limit_row(name: str) -> tuple[str, str]:
    """Return the key of the meta row of a limit."""
    return (STORE, f"limit/{name}")


class RateLimitState(NamedTuple):
    """Shared state of one limit. Instants are real time."""

    inside: dict[str, int]  # calls in flight by worker
    wanting: dict[str, int]  # workers that found no capacity, and until when that counts
    next_at: int = 0  # first start time not booked; start times are 1/per_second apart

    def row(self, name: str, version: int) -> Meta:
        """Return the meta row with this state."""
        inside = {worker: n for worker, n in sorted(self.inside.items()) if n}
        value = {"inside": inside, "wanting": dict(sorted(self.wanting.items())), "next_at": self.next_at}
        return Meta(*limit_row(name), version, json.dumps(value))


class BookedCalls(NamedTuple):
    """Calls that a worker may start: their number, the first instant, the gap between them, and the new state."""

    n: int
    first_at: int
    gap_ms: float
    limit_state: RateLimitState


def rate_limit_of(row: Meta | None) -> RateLimitState:
    """Return the state in the meta row; an empty one if there is no row. Raises Corrupt."""
    if row is None:
        return RateLimitState({}, {})
    try:
        value = json.loads(row.value)
        return RateLimitState(dict(value["inside"]), dict(value["wanting"]), int(value["next_at"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def book_calls(
    limit_state: RateLimitState,
    worker: str,
    mine: int,
    wanted: int,
    *,
    concurrent: int,
    per_second: float,
    now: int,
    living: Collection[str] | None = None,
) -> BookedCalls:
    """Admit as many of `wanted` calls as the limit allows. `mine`: calls of this worker in flight.

    `living`: workers that are alive; calls of others do not count. None: count the calls of all workers.
    """
    assert mine >= 0 and wanted >= 0
    others = {w: n for w, n in limit_state.inside.items() if w != worker and (living is None or w in living)}
    wanting = {w: until for w, until in limit_state.wanting.items() if w != worker and until > now}
    granted = wanted if not concurrent else min(wanted, max(0, concurrent - sum(others.values()) - mine))
    gap = SECOND / per_second if per_second else 0.0
    # a clock that a restore set back must not block calls for longer than a run waits inline
    first_at = max(now, limit_state.next_at) if limit_state.next_at <= now + INLINE_WAIT_MAX else now
    if gap and granted:
        granted = min(granted, max(1, int(BOOKED_AHEAD_MAX / gap)))
    next_at = round(first_at + granted * gap) if gap and granted else limit_state.next_at
    if granted < wanted:
        wanting[worker] = now + WANTS_FOR
    return BookedCalls(granted, first_at, gap, RateLimitState({**others, worker: mine + granted}, wanting, next_at))


assert BOOKED_AHEAD_MAX < WANTS_FOR < INLINE_WAIT_MAX

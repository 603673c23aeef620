"""Requests of operators that a worker drains: one meta row, which every worker reads at its heartbeat."""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from outlast.core.commit import Commit, Put
from outlast.core.machine import LeaseStatus
from outlast.core.rows.store_rows import META, STORE, Meta, Worker, has_expired
from outlast.errors import Conflict, Corrupt, NotFound

DRAINS: Final = (STORE, "drains")
"""Key of the meta row of the requests."""


class DrainRequest(NamedTuple):
    """Request of an operator that a worker takes no more runs, gives back those that it holds, and stops."""

    by: str
    at: int  # business
    reason: str


def drains_of(row: Meta | None) -> dict[str, DrainRequest]:
    """Return the requests in the meta row, by worker. Raises Corrupt."""
    if row is None:
        return {}
    try:
        return {str(worker): DrainRequest(str(by), int(at), str(why)) for worker, (by, at, why) in _items(row)}
    except (ValueError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def _items(row: Meta) -> Iterable[tuple[Any, Any]]:
    found = json.loads(row.value)
    if not isinstance(found, dict):
        raise ValueError(f"{type(found).__name__} instead of an object")
    return found.items()


def request_drain(
    before: Meta | None, workers: Iterable[Worker], worker: str, ask: DrainRequest, real: int, skew: int
) -> tuple[Worker, Commit | None]:
    """Return the worker, and the commit that records a request to drain it; None if one is recorded.

    `workers`: all of the store. `skew`: as in `is_overdue`. Requests for dead workers are dropped, so the row stays
    small. Raises NotFound, Conflict if the worker is dead.
    """
    rows = {row.id: row for row in workers}
    if worker not in rows:
        raise NotFound(f"no worker {worker}", "this store has none of this id", "list them with: outlast workers ls")
    alive = {row.id for row in rows.values() if row.status is LeaseStatus.ALIVE and not has_expired(row, real, skew)}
    if worker not in alive:
        stopped = rows[worker].status is not LeaseStatus.ALIVE
        raise Conflict(
            f"worker {worker} cannot drain",
            "it has stopped" if stopped else "its lease has ended, so it is dead",
            "do nothing: other workers take over its runs",
            refusal="no_lease",
        )
    found = drains_of(before)
    if worker in found:
        return rows[worker], None
    kept = {name: each for name, each in found.items() if name in alive}
    row = Meta(*DRAINS, before.version + 1 if before else 1, json.dumps({**kept, worker: ask}))
    return rows[worker], Commit((Put(META, row, row.version - 1),), label=f"drain worker {worker}")

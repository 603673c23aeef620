"""Rows of the store and of the processes that use it: workers, writers, topologies, answers to requests, facts.

See `all_kinds.py`.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from outlast.core import machine
from outlast.core.rows import columns
from outlast.core.rows.row_kind import Kind

STORE: Final = "*"  # tenant of rows that belong to the store itself


class Topology(NamedTuple):
    """Structure of one version of a workflow, written by the worker that serves it. `check` compares it (S-15)."""

    tenant: str
    lane: str  # workflow@version
    version: int
    digest: str
    body: str  # JSON: nodes, edges, key templates, schema of the state
    at: int  # business; when a worker first served this version, in whatever form

    def structure(self) -> dict[str, Any]:
        """Return the nodes, edges, key templates and schema of the state, decoded at each call."""
        return TOPOLOGY.decode_object("body", self.body, self)


class Request(NamedTuple):
    """Stored answer to an HTTP request with an idempotency key."""

    tenant: str
    key: str
    version: int
    actor: str
    operation: str
    digest: str  # of the request
    status: int  # HTTP status; 0 = in flight, -1 = refused, so the key may be used again
    headers: str  # JSON
    body: bytes
    at: int


class Worker(NamedTuple):
    """Worker process with one lease for all runs that it holds. A closed worker never renews."""

    tenant: str
    id: str
    version: int
    status: machine.LeaseStatus
    lease_until: int
    lanes: str
    name: str
    started_at: int
    renewed_at: int
    health_text: str
    died_holding: int = 0  # number of runs it owned when it died; 0 = alive or drained

    @property
    def health(self) -> columns.WorkerHealth:
        """Return the facts of the process at its last heartbeat."""
        return WORKER.decode(columns.HEALTH, self.health_text, self)

    @property
    def lane_names(self) -> tuple[str, ...]:
        """Return the lanes that the process serves while its lease is valid."""
        return tuple(self.lanes.split())

    def is_alive(self, real: int) -> bool:
        """True if its lease is valid by the store's clock: it is renewed in time, and no other worker closed it."""
        return self.status is machine.LeaseStatus.ALIVE and self.lease_until > real

    def serves(self, lane: str, real: int) -> bool:
        """True if it can be expected to claim runs of the lane now. The only meaning of "a worker serves a lane"."""
        return lane in self.lane_names and self.is_alive(real)


class Writer(NamedTuple):
    """Process that writes, with the number of its last batch: the receipt of all commits in that batch."""

    tenant: str
    id: str
    version: int
    status: machine.LeaseStatus
    batch: int
    started_at: int


class Meta(NamedTuple):
    """Fact about the store, such as its generation or the mapping of business time."""

    tenant: str
    key: str
    version: int
    value: str


TOPOLOGY: Final = Kind("topology", Topology, 2, True, True)
REQUEST: Final = Kind("request", Request, 2, True, True)
WORKER: Final = Kind("worker", Worker, 2, True, True)
WRITER: Final = Kind("writer", Writer, 2, True, True)
META: Final = Kind("meta", Meta, 2, True, True)


def has_expired(worker: Worker, real: int, skew: int) -> bool:
    """True if the worker's lease has ended, also by the worker's own clock. `skew`: as in `is_overdue` of a run.

    It decides what may be taken from a worker. `Worker.is_alive` decides what is expected of one.
    """
    return worker.lease_until + skew <= real


def lanes_served(workers: Iterable[Worker], real: int) -> frozenset[str]:
    """Return the lanes that at least one worker serves."""
    return frozenset(lane for worker in workers if worker.is_alive(real) for lane in worker.lane_names)

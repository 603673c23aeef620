"""The measured engines, one small file each, and the protocol that such a file implements.

A file `bench/engines/NAME.py` has one object `ENGINE`; `scripts/bench --store NAME` then measures it beside the others.
Its workers are separate processes, so that their usage can be measured. A workload is one of WORKS, the same for every
engine, at the engine's full durability:

    effectful        ten steps, each one call that may happen once only; its answer is recorded before the next step
    readonly         ten steps, each one call that is recorded, and may be made again after a crash
    long-effectful   the first in one run of `loops` steps        long-readonly   likewise
    cargo            `loops` steps over a state of `cargo` bytes of which each step changes a few

The measurements of decisions, takeovers and rows (W3, W4, scale, history, purge) use Outlast's own store below
`Place.url`, and work for Outlast only. The others (W1, W2, W5) use nothing but this protocol.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.usage import Usage

WORKS = ("effectful", "readonly", "long-effectful", "long-readonly", "silent", "logging", "cargo")


class Place(NamedTuple):
    """A new, empty store and a folder, both removed after the measurement."""

    url: str
    folder: Path
    server: int = 0  # the process whose descendants serve the store; 0 if embedded or unknown


class Worker(Protocol):
    """A worker process that is ready, and idle until `begin`."""

    def begin(self) -> None:
        """Let the worker serve from now on."""

    def used(self) -> Usage:
        """Return its resource usage since the start."""


class Engine(Protocol):
    """One engine on one store."""

    name: str

    def place(self) -> AbstractContextManager[Place]:
        """Create an empty store and a folder."""

    def control(self, place: Place, seconds: float) -> float:
        """Return how many single small commits per second the same store accepts: one connection, one row each."""

    def start(self, place: Place, work: str, runs: int, *, loops: int = 0, cargo: int = 0, name: str = "") -> None:
        """Start runs durably, without a worker. `name` distinguishes them from earlier ones."""

    def serve(self, place: Place, work: str, workers: int) -> AbstractContextManager[Sequence[Worker]]:
        """Run worker processes for this workload, ready but idle, for a block."""

    def ended(self, place: Place, work: str) -> None:
        """Return when every run of this workload has ended. Raises RuntimeError if one did not complete."""

    def kept(self, place: Place) -> int:
        """Return the size of the store on the disk after a checkpoint, log included."""


def engine_of(name: str) -> Engine:
    """Return the engine of this name. Raises ModuleNotFoundError."""
    engine: Engine = import_module(f"bench.engines.{name}").ENGINE
    return engine


class Setup(NamedTuple):
    """The parameters of one measurement."""

    engine: Engine
    workers: int = 1

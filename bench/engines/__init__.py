"""What can be measured: one small file for each engine. This page says what such a file has to offer.

A file `bench/engines/NAME.py` has one object `ENGINE` that keeps the protocol below; `scripts/bench --store NAME` then
measures it beside the others. Its workers are processes of their own, so that what they use can be told apart. A work
is one of WORKS, the same for every engine, at the engine's full durability:

    effectful        ten steps, each one call that may happen once only; its answer is recorded before the next step
    readonly         ten steps, each one call that is recorded, and may be made again after a crash
    long-effectful   the first in one run of `loops` steps        long-readonly   likewise
    cargo            `loops` steps over a state of `cargo` bytes of which each step changes a few

The measurements that time a decision, a takeover or rows (W3, W4, scale, history, purge) use Outlast's own store below
`Place.url`, and are for Outlast alone; the others (W1, W2, W5) use nothing but this protocol.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.usage import Usage

WORKS = ("effectful", "readonly", "long-effectful", "long-readonly", "cargo")


class Place(NamedTuple):
    """A new, empty store and a folder, both gone when the measurement is over."""

    url: str
    folder: Path
    server: int = 0  # the process whose descendants serve the store; 0: it is embedded, or out of sight


class Worker(Protocol):
    """A worker process that is ready, and does nothing until told."""

    def begin(self) -> None:
        """Serve from now on."""

    def used(self) -> Usage:
        """What it has used since its start."""


class Engine(Protocol):
    """One engine on one store."""

    name: str

    def place(self) -> AbstractContextManager[Place]:
        """Make a place."""

    def control(self, place: Place, seconds: float) -> float:
        """How many single small commits a second the very same store takes: one connection, one row a commit."""

    def start(self, place: Place, work: str, runs: int, *, loops: int = 0, cargo: int = 0, name: str = "") -> None:
        """Start so many runs, durably; nobody serves them yet. `name` sets them apart from earlier ones."""

    def serve(self, place: Place, work: str, workers: int) -> AbstractContextManager[Sequence[Worker]]:
        """So many worker processes for this work, ready; gone after the block."""

    def ended(self, place: Place, work: str) -> None:
        """Return as soon as every run of this work has ended. Raises RuntimeError when one has not ended well."""

    def kept(self, place: Place) -> int:
        """The bytes of the store on the disk, log included, after a checkpoint."""


def engine_of(name: str) -> Engine:
    """The engine of this name. Raises ModuleNotFoundError."""
    engine: Engine = import_module(f"bench.engines.{name}").ENGINE
    return engine


class Setup(NamedTuple):
    """What one measurement is made with."""

    engine: Engine
    workers: int = 1

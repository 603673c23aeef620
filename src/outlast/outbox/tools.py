"""What a dispatcher gives to everything that works for it."""

from collections.abc import Callable
from typing import NamedTuple

from outlast.core.clock import Clock
from outlast.store.port import Store
from outlast.telemetry import Counters


class Tools(NamedTuple):
    """The store, this dispatcher's name, its clock and its dice."""

    store: Store
    dispatcher: str
    clock: Clock
    chance: Callable[[], float]
    counters: Counters
    stopping: Callable[[], bool]

"""Seeds whose processes have separate clocks, as on a store without a clock (S-4): up to 10 s off true time.

python -m tests.simulation.skewed 0-199 [--not-widened]
"""

import argparse
import sys
from typing import Final
from zlib import crc32

from outlast.core.commit import Instant
from outlast.core.durations import SECOND
from outlast.store.memory import MemoryCore, MemoryStore
from tests.simulation.environment import Environment
from tests.simulation.loop import PROC
from tests.simulation.sim import played, prepare

OFF: Final = 10 * SECOND
LAST_MOMENT: Final = "after its last moment"
"""A violation by true time only: the sender judges its last moment by the clock that wrote it."""


def off_by() -> int:
    """Return how far the clock of the present process is ahead of true time. People and receivers tell true time."""
    process = PROC.get(None)
    return (
        0 if process is None or not process.name.startswith("wk-") else (-OFF, 0, OFF)[crc32(process.name.encode()) % 3]
    )


def skew(ms: int) -> None:
    """Give each worker a clock, and tell the engine that two of them may differ by `ms`."""
    MemoryStore.skew = ms
    kept = Environment.fail

    def now(self: MemoryCore) -> Instant:
        return self.mapping().at(self.store_clock.real() + off_by())

    def fail(self: Environment, what: str) -> None:
        if LAST_MOMENT not in what:
            kept(self, what)

    MemoryCore.now = now  # type: ignore[method-assign]
    Environment.fail = fail  # type: ignore[method-assign]


def main() -> int:
    """Play the seeds and print each violation. Return 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.skewed")
    parser.add_argument("seeds", help="A-B, both included")
    parser.add_argument("--not-widened", action="store_true", help="the engine takes the clocks for one")
    given = parser.parse_args()
    first, last = map(int, given.seeds.split("-"))
    prepare()
    skew(0 if given.not_widened else 2 * OFF)
    found = [(seed, wrong) for seed in range(first, last + 1) for wrong in played(seed).wrong]
    sys.stdout.writelines(f"seed {seed}: {wrong}\n" for seed, wrong in found)
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())

"""`outlast` in a process with a wrong wall clock: seconds, a safeguard to remove or "", and the command line (REC-6).

python -m tests.chaos.skewed -7200 "" worker flows.py
"""

import sys
import time

from outlast.clocks import SystemClock


def main() -> None:
    """Skew the clock, then run the command line."""
    skew_ms = int(float(sys.argv.pop(1)) * 1_000)
    without = sys.argv.pop(1)
    sys.argv[0] = "outlast"
    SystemClock.wall = lambda self: time.time_ns() // 1_000_000 + skew_ms  # type: ignore[method-assign]
    from outlast.cli import cli

    if without:
        from tests.mutants import remove

        remove(without)
    cli()


if __name__ == "__main__":
    main()

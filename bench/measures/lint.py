"""`outlast lint`: lines of this checkout per second of CPU, and the start of the command for one small file.

CPU is that of the command's process, because it differs less with other work on the machine than time does.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.engines import Setup
from bench.figures import Figures, Goal, Size

STORES = ("sqlite",)  # independent of the store
REPEATS = 5
ROOT = Path(__file__).parents[2]
ONE = "examples/refund.py"
FOLDERS = ("examples", "src", "tests", "bench")
GOALS = (
    Goal("lines", ""),
    Goal("lines_per_cpu_s", "lines/s of CPU"),
    Goal("lines_per_s", "lines/s"),
    Goal("start_cpu_s", "s CPU", digits=2),
    Goal("start_s", "s", digits=2),
    Goal("start_importing_cpu_s", "s CPU", digits=2),
    Goal("start_importing_s", "s", digits=2),
)


def measure(size: Size, setup: Setup) -> Figures:
    """Lint one file, with and without its import, then folders of this checkout, less the start."""
    _, start_cpu, start = ran("--no-import", ONE)
    _, importing_cpu, importing = ran(ONE)
    lines, cpu, took = ran("--no-import", *FOLDERS[: size.of(4, 2, 1)])
    return {
        "lines": lines,
        "lines_per_cpu_s": lines / (cpu - start_cpu),
        "lines_per_s": lines / max(took - start, 0.001),
        "start_cpu_s": start_cpu,
        "start_s": start,
        "start_importing_cpu_s": importing_cpu,
        "start_importing_s": importing,
    }


def ran(*arguments: str) -> tuple[int, float, float]:
    """Run the command and return the lines that it read, its CPU seconds and its seconds."""
    before, begun = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "outlast", "-o", "json", "lint", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    took, after = time.perf_counter() - begun, os.times()
    if done.returncode not in (0, 1):  # 1: something is found, as in tests/lint/public
        raise RuntimeError(f"outlast lint failed: {done.stderr}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return json.loads(done.stdout)["lines"], used, took

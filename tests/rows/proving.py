"""Run the test of a row without its safeguard. It must fail.

`python -m tests.rows --prove` does so for all rows; with ids, for these. `--with` keeps the safeguards: it must pass.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.rows.table import Row

ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT_S: Final = 150
"""Within it a test has noticed the removal, or nothing is known of it. A test session ends one after 180 s."""
LONG: Final = ("e2e/", "examples/", "temporal/", "telemetry/test_traces", "testing/", "langgraph/")
"""Tests that start processes. A command plays them without their rules, a test session does not."""


class Proof(NamedTuple):
    """How the test of a row ended without the safeguard."""

    noticed: bool | None
    """None if it did not end."""
    text: str


def prove(row: Row, *, removed: bool = True, limit_s: float = LIMIT_S) -> Proof:
    """Run the test of a row in another process, with the safeguard removed there and in all that it starts."""
    test = f"tests/{row.test}"
    assert (ROOT / test.partition("::")[0]).is_file(), f"no file of {row.test}"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}"}
    if removed:
        env |= {"PYTHONPATH": f"{ROOT / 'tests/rows/in_each_process'}{os.pathsep}{ROOT}", "TEST_WITHOUT": row.removal}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", test]
    began = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return Proof(None, f"did not end within {limit_s} s")
    errors = [line.strip() for line in done.stdout.splitlines() if line.startswith("E  ")]
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
    text = f"{time.monotonic() - began:.0f} s: {' '.join(errors[:1] or last)[:160]}"
    if "sitecustomize" in done.stderr:
        return Proof(False, f"the removal failed: {done.stderr.strip().splitlines()[-1]}")
    return Proof(done.returncode == 1, text)

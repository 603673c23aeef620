"""The kernel needs nothing around it: all of it loads, and its tests pass, in a copy that has nothing else."""

import subprocess
import sys

from tests import kernel


def test_the_kernel_needs_nothing_around_it() -> None:
    command = [sys.executable, "-m", "tests.kernel", "-n", "0", "-k", "test_effects"]  # it collects all
    played = subprocess.run(command, cwd=kernel.ROOT, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout[-5_000:] + played.stderr
    assert "need the kernel alone" in played.stdout and " passed" in played.stdout

"""Outlast runs inside the processes of others, so it changes no global state: neither by its import nor at run time."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def program(*arguments: object) -> str:
    """Return what the program prints, in an interpreter without pytest, which changes such states itself."""
    command = [sys.executable, "-m", "tests.runtime.global_state", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_and_use_change_no_global_state(tmp_path: Path) -> None:
    """Import of every module, then: connect, serve, execute a run, close; and the service, and the sync client."""
    listed = tmp_path / "modules.txt"
    program(listed)
    assert "\nsocket\n" in listed.read_text(), "the modules of others, which are imported first"
    assert program(listed) == ""


def test_each_planted_change_is_noticed(tmp_path: Path) -> None:
    assert program(tmp_path / "modules.txt", "plant") == ""

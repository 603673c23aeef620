"""Errors of commands whose extra is not installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.cli.init import FLOWS


@pytest.mark.parametrize(
    ("command", "library"),
    [
        ("dev flows.py", "watchfiles"),
        ("serve", "fastapi"),
        ("dispatcher", "standardwebhooks"),
    ],
)
def test_a_missing_extra_is_named_before_a_store_is_created(tmp_path: Path, command: str, library: str) -> None:
    code = f"""
import sys
class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {library!r}:
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Bare())
from outlast.cli import main
main()
"""
    (tmp_path / "flows.py").write_text(FLOWS)
    found = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        cwd=tmp_path, env={**os.environ, "OUTLAST_STORE": "sqlite:new.db"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (2, "") and not (tmp_path / "new.db").exists()
    assert f"{library} is not installed" in found.stderr and "pip install '.[service]'" in found.stderr

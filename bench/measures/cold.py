"""A cold start: the command's help, the author's imports, and the size of an installation."""

import os
import subprocess
import sys
import time
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

import outlast
from bench.engines import Setup
from bench.figures import Figures, Goal, Size

REPEATS = 5
STORES = ("sqlite",)  # independent of the store
MEGA = 1_000_000
GOALS = (
    Goal("help_s", "s", gate=0.3, digits=3),
    Goal("import_s", "s", gate=0.1, digits=3),
    Goal("packages", "", gate=20),
    Goal("installed_mb", "MB", gate=25, digits=1),
)
IMPORT = """
import asyncio, time
from pydantic import BaseModel, TypeAdapter
class Warm(BaseModel):
    n: int
begun = time.perf_counter()
from outlast import Workflow, activity, Context
print(time.perf_counter() - begun)
"""


def measure(size: Size, setup: Setup) -> Figures:
    """Start new interpreters. The files are in the system's cache from the first repeat on."""
    brought = [distribution(name) for name in _closure("outlast")]
    found = {
        "import_s": float(_python("-c", IMPORT)),
        "packages": float(len(brought)),
        "installed_mb": sum(map(_bytes, brought)) / MEGA,
    }
    command = Path(sys.executable).with_name("outlast")
    if command.exists():
        begun = time.perf_counter()
        subprocess.run([command, "--help"], check=True, stdout=subprocess.DEVNULL)
        found["help_s"] = time.perf_counter() - begun
    return found


def _python(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout


def _closure(root: str) -> set[str]:
    """Return the distributions of an installation, without extras and development groups."""
    found: set[str] = set()
    ahead = [root]
    while ahead:
        name = ahead.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:  # for another platform or Python
            continue
        found.add(name)
        wanted = (Requirement(line) for line in needs)
        ahead += [need.name for need in wanted if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def _bytes(brought: Distribution) -> int:
    """Return the size of a distribution without bytecode; of an editable installation, the package's sources."""
    if brought.name == "outlast":
        return sum(path.stat().st_size for path in Path(outlast.__file__).parent.rglob("*.py"))
    paths = [str(brought.locate_file(file)) for file in brought.files or () if file.suffix != ".pyc"]
    return sum(os.path.getsize(path) for path in paths if os.path.exists(path))

"""Modules that a small program loads: one workflow with one call, on SQLite. `python -m tests.loaded` prints them.

The program connects, serves, starts a run and waits for its result. `limits.toml` bounds the number of modules and the
number of lines, rounded up to `STEP`, so that a docstring does not change it.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final

import outlast
from outlast import Context, activity, workflow

ROOT: Final = Path(__file__).parents[1]
STEP: Final = 500


@activity(key="refund/{order}", once_per="run", no_undo="the customer keeps the money")
async def issue_refund(order: str) -> str:
    """Make the only call."""
    return f"receipt-{order}"


@workflow(key="refund/{order}")
async def refund(ctx: Context[Any], order: str) -> str:
    """Refund one order."""
    return await ctx.do(issue_refund, order)


async def play(folder: str) -> str:
    """Connect, serve, start a run and return its result."""
    async with outlast.connect(f"sqlite:{folder}/runs.db") as client, client.worker([refund]):
        return await (await client.start(refund, order="A-1")).result()


def lines_by_module() -> dict[str, int]:
    """Return the lines of each module of the package that this process has loaded."""
    found = {name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "outlast"}
    return {name: len(Path(file).read_text(encoding="utf-8").splitlines()) for name, file in found.items() if file}


@cache
def in_a_process() -> dict[str, int]:
    """Return the lines of each module that the program loads in a separate process."""
    command = [sys.executable, "-m", "tests.loaded"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = (line.split() for line in done.stdout.splitlines())
    return {name: int(lines) for lines, name in rows}


def rounded(lines: int) -> int:
    """Return a number of lines, rounded up to `STEP`."""
    return -(-lines // STEP) * STEP


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="outlast-loaded-") as place:
        assert asyncio.run(play(place)) == "receipt-A-1"
    modules = lines_by_module()
    sys.stdout.writelines(f"{lines:6} {name}\n" for name, lines in sorted(modules.items()))
    packages = Counter[str]()
    for name, lines in modules.items():
        packages[".".join(name.split(".")[:2])] += lines
    sys.stderr.write(f"{len(modules)} modules, {sum(modules.values()):,} lines: {dict(packages.most_common())}\n")

"""The event loop and the collector of commands that serve."""

import asyncio
import gc
import subprocess
import sys
from typing import Any

import pytest

from outlast import Context, connect, workflow
from outlast.cli import serving

LINES = """
import asyncio, gc, sys
from outlast.cli import serving
if {hide}:
    sys.modules["uvloop"] = None
async def main():
    return type(asyncio.get_running_loop()).__module__, gc.get_threshold(), gc.get_freeze_count() > 0
print(*serving.run(main()))
"""


@pytest.mark.parametrize(("hide", "module"), [(False, "uvloop"), (True, "asyncio.unix_events")])
def test_a_serving_process_has_the_fastest_loop_and_a_collector_for_many_runs(hide: bool, module: str) -> None:
    """In another process, because the collector belongs to the process. uvloop is not required."""
    if module == "uvloop":
        pytest.importorskip("uvloop")
    done = subprocess.run([sys.executable, "-c", LINES.format(hide=hide)], capture_output=True, text=True, check=True)
    assert done.stdout.split(" ", 1)[0] == module
    assert f"{serving.GC_THRESHOLDS} True" in done.stdout


def test_a_worker_in_the_process_of_an_application_leaves_its_collector_alone() -> None:
    @workflow
    async def left_alone(ctx: Context[Any]) -> int:
        return 1

    async def main() -> int:
        async with connect("memory:") as client, client.worker([left_alone]):
            return await (await client.start(left_alone)).result()

    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    assert asyncio.run(main()) == 1
    assert gc.get_threshold() == before and gc.get_freeze_count() <= frozen  # a frozen object may end

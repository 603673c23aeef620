"""Lanes: names under which workers serve the runs of one version of a workflow, with the engine that schedules them.

`negotiation@1` is a lane of this package's workers. `temporal:negotiation@1` is the lane of the same version for runs
that Temporal schedules. Workers serve, take and adopt runs by lane, so no worker touches a run of another scheduler.
"""

from functools import lru_cache
from typing import Final

from outlast.errors import InvalidInput

OWN: Final = "outlast"
"""Scheduler of runs that this package's workers claim by themselves."""
GUESTS: Final = ("temporal", "langgraph")
"""Other engines that decide when and where a run is executed."""
SCHEDULERS: Final = (OWN, *GUESTS)
BUILT_IN: Final = "outlast."
"""First characters of the names of built-in workflows, which each worker serves."""


def lane_of(workflow: str, version: int, scheduler: str = OWN) -> str:
    """Return the lane of one version of a workflow."""
    lane = f"{workflow}@{version}"
    return lane if scheduler == OWN else f"{scheduler}:{lane}"


@lru_cache(maxsize=1_024)
def scheduler_of(lane: str) -> str:
    """Return the scheduler of a lane."""
    scheduler, colon, _ = lane.partition(":")
    return scheduler if colon else OWN


def is_built_in(name: str) -> bool:
    """Return True if a workflow or a lane is a built-in one."""
    return name.startswith(BUILT_IN)


def workflow_in(lane: str) -> str:
    """Return the workflow in a lane's name."""
    return lane.rpartition("@")[0].rpartition(":")[2]


def version_in(lane: str) -> int:
    """Return the version in a lane's name; 0 if a stored name has none."""
    version = lane.rpartition("@")[2]
    return int(version) if version.isdecimal() and len(version) < 10 else 0


def check_scheduler(name: str) -> str:
    """Return the scheduler of this name; '' is the own one. Raises InvalidInput."""
    if name and name not in SCHEDULERS:
        raise InvalidInput(f"no scheduler {name}", f"known: {', '.join(SCHEDULERS)}", "choose one of these")
    return name or OWN


def worker_command(scheduler: str, module: str = "MODULE") -> str:
    """Return the command that starts a worker for runs of a scheduler."""
    return f"outlast worker {module}" + ("" if scheduler == OWN else f" --runtime {scheduler}")

"""Safeguards of runs that other engines schedule."""

from typing import Any

from outlast.core import lanes, slices
from outlast.core.commit import Instant
from outlast.core.rows.run_rows import Run
from outlast.engine import guest
from outlast.engine.capacity import Taking
from outlast.engine.run_executor import SliceLimit
from tests.removals import Patch, replace


def lanes_without_scheduler(patch: Patch) -> None:
    replace(patch, lanes.lane_of, lambda workflow, version, scheduler="": f"{workflow}@{version}")


def takes_over_for_a_guest(patch: Patch) -> None:
    def claimed(self: Taking, run: Run, now: Instant) -> Any:
        return self._of_owners(run, now)

    replace(patch, Taking._queued, claimed)


def dead_guests_runs_stay(patch: Patch) -> None:
    replace(patch, Taking._queued, lambda self, run, now: None)


def slices_without_end(patch: Patch) -> None:
    replace(patch, SliceLimit.reached, lambda self: False)


def no_engine_timer(patch: Patch) -> None:
    kept = slices.slice_end
    replace(patch, kept, lambda *args, **options: kept(*args, **options)._replace(after_ms=None))


def no_sweep(patch: Patch) -> None:
    patch.setattr(guest, "SWEEP", 10**12)

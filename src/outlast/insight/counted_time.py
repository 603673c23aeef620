"""Filters of counts by time: the interval, and the runs of a workflow, a version and a cause."""

from datetime import datetime

from outlast.core.causes import cause_mark
from outlast.core.commit import Instant
from outlast.core.durations import DAY
from outlast.core.lanes import lane_of
from outlast.core.run_filters import Interval
from outlast.errors import InvalidInput
from outlast.models import checked_instant
from outlast.store.bars import OfRuns


def counted_time(since: datetime | None, until: datetime | None, now: Instant) -> Interval:
    """Return the time of a count in business time; by default, the last day. Raises InvalidInput."""
    high = now.business if until is None else checked_instant("until", until)
    low = high - DAY if since is None else checked_instant("since", since)
    if low >= high:
        raise InvalidInput("since is not before until", "the time would have no length", "choose an earlier instant")
    return Interval(low, high)


def check_version(workflow: str, version: int | None) -> None:
    """Raise InvalidInput for a version without a workflow."""
    if version is not None and not workflow:
        raise InvalidInput("a version without a workflow", "versions of workflows are not alike", "name the workflow")


def counted_runs(workflow: str, version: int | None, cause: str = "") -> OfRuns:
    """Return the runs to count; '' and None are any. Raises InvalidInput."""
    check_version(workflow, version)
    lane = lane_of(workflow, version) if version is not None else ""
    return OfRuns(workflow, lane, cause_mark(cause) if cause else "")

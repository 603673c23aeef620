"""Causes of flagged runs, and counts of runs by time."""

from pydantic import Field

from outlast.models import Count, Instant, Model


class Cause(Model):
    """Cause that runs which need a person share, with the number of these runs."""

    cause: str
    reason: str
    workflow: str
    node: str
    name: str = Field(description="Activity or type of the exception. Empty: the reason concerns none.")
    text: str = Field(description="Message with a mark in place of what differs from run to run.")
    example: str = Field(description="First line of the message of the run `run`.")
    version: int = Field(description="Version of the workflow in the run that was flagged first.")
    deployed: Instant | None = Field(
        description="When a worker first served this version, if that was before the first run."
    )
    since: Instant = Field(description="When the first of these runs was flagged.")
    last: Instant = Field(description="When the last of these runs was flagged.")
    runs: Count = Field(description="Runs with this cause that need a person.")
    run: str = Field(description="Example: the run that was flagged first; if no run needs a person now, the last one.")
    bars: list[Count] = Field(description="Runs by when they were flagged, one number for each part of time.")


class CauseList(Model):
    """Causes of the runs that need a person, those with an uncertain effect first, then by the number of runs."""

    causes: list[Cause]
    more: bool = Field(description="True if there may be further causes, with fewer runs.")
    at_least: bool = Field(description="True if there may be more runs than were counted.")
    about: bool = Field(description="True if the numbers come from indexes that may lag by a moment.")
    bars_since: Instant = Field(description="Beginning of the first part of time.")
    bar_ms: Count = Field(description="Length of a part of time.")
    bars_at_least: bool = Field(description="True if the newest flaggings were counted only: earlier parts lack some.")


class CountedValue(Model):
    """Value, and the number of runs that have it."""

    value: str
    runs: Count


class CountedField(Model):
    """Field of the input, with its most frequent values."""

    name: str
    values: list[CountedValue]
    others: Count = Field(description="Number of further values.")
    attribute: bool = Field(default=False, description="True for an attribute, by which a list finds the runs.")


class FirstSeen(Model):
    """Version of a workflow, and the first instant at which a worker served it."""

    version: int
    at: Instant


class CauseDetail(Cause):
    """Cause with what differs among its runs."""

    detail: str = Field(description="Whole message of the example, with its traceback if it has one.")
    read: Count = Field(description="Number of its runs, the newest, from which versions and fields are counted.")
    versions: list[CountedValue]
    fields: list[CountedField] = Field(description="Of their input.")
    deploys: list[FirstSeen] = Field(description="Versions of the workflow, the newest first.")
    at_least: bool = Field(description="True if there may be more runs than were counted.")
    about: bool
    bars_since: Instant
    bar_ms: Count
    bars_at_least: bool


class Bar(Model):
    """Numbers of runs in one part of time."""

    at: Instant = Field(description="Beginning of the part.")
    completed: Count
    failed: Count
    cancelled: Count
    flagged: Count = Field(
        description="Runs that began to need a person in this part, answered or not. Each counts once."
    )
    started: Count = Field(description="Runs that started in this part, if starts were asked for; else 0.")


class Bars(Model):
    """Runs by the time of their end and by the times at which they began to need a person, or by their start."""

    bars: list[Bar]
    since: Instant
    until: Instant
    bar_ms: Count
    at_least: bool = Field(description="True if not all runs were counted: the earlier parts lack some.")
    about: bool = Field(description="True if the numbers come from indexes that may lag by a moment.")

"""Measured durations: of runs, of their nodes, and of decisions."""

from pydantic import Field

from outlast.models import Count, Instant, Model


class HistogramPart(Model):
    """Number of durations from `from_ms` up to, but without, `to_ms`."""

    from_ms: Count
    to_ms: Count | None = Field(description="Null: without an end.")
    count: Count


class MeasuredTime(Model):
    """Distribution of durations. The three durations are null without any."""

    count: Count = Field(description="Number of durations.")
    p50_ms: Count | None = Field(description="Median.")
    p95_ms: Count | None = Field(description="95th percentile: the least duration that 95 % do not exceed.")
    longest_ms: Count | None
    histogram: list[HistogramPart] = Field(description="From the first to the last part that has some.")


class NodeDurations(Model):
    """Durations of the visits to one node."""

    workflow: str
    node: str
    visit: MeasuredTime = Field(description="From the entry into the node until it was left.")
    people: MeasuredTime = Field(description="Part of each visit in which the run waited for a person.")
    waits: MeasuredTime = Field(description="Part of each visit in which it waited for anything else.")
    calls: MeasuredTime = Field(description="Part of each visit in which at least one call was open.")


class RunDurations(Model):
    """Durations of ended runs, and of the nodes of a sample of them."""

    runs: Count = Field(description="Runs that were measured: those that ended last.")
    ended: Count = Field(description="Runs that ended in the time.")
    at_least: bool = Field(description="True if `ended` is a lower bound.")
    about: bool = Field(description="True if the rows come from indexes that may lag by a moment.")
    since: Instant
    until: Instant
    duration: MeasuredTime = Field(description="From the start to the end, waits included.")
    first_step: MeasuredTime = Field(description="From the start until a worker first took it, of at most 2,000 runs.")
    sampled: Count = Field(
        description="Runs whose events were read, those that ended last. The next fields are theirs."
    )
    people: MeasuredTime = Field(description="Part of each run in which it waited for a person.")
    waits: MeasuredTime = Field(description="Part of each run in which it waited for anything else.")
    calls: MeasuredTime = Field(description="Part of each run in which at least one call was open.")
    nodes: list[NodeDurations] = Field(description="The node with the greatest 95th percentile first, at most 100.")


class DecisionGroup(Model):
    """Approvals of one workflow and one rule."""

    workflow: str
    rule: str = Field(description="Who may decide.", examples=["role:finance"])
    decided: MeasuredTime = Field(description="From the request to the decision.")
    open: MeasuredTime = Field(description="Age of the pending requests.")


class DecisionTimes(Model):
    """Time that people took to decide approvals, and the age of the pending ones."""

    at_least: bool = Field(description="True if further approvals were requested in the time: the newest were read.")
    open_at_least: bool = Field(description="True if further approvals are pending: the earliest deadlines were read.")
    about: bool = Field(description="True if the rows come from indexes that may lag by a moment.")
    since: Instant
    until: Instant
    decided: MeasuredTime = Field(description="From the request to the decision, of approvals requested in the time.")
    open: MeasuredTime = Field(description="Age of the pending requests, whenever they were requested.")
    groups: list[DecisionGroup] = Field(description="The group with the most requests first, at most 100.")

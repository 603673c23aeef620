"""Workflows, workers, versions, pauses, budgets and the caller."""

from typing import Any

from pydantic import Field

from outlast.models import Count, Instant, Model
from outlast.models.runs import AllowedAmounts, UsedAmounts


class WorkflowSummary(Model):
    """Workflow that can be started here."""

    workflow: str
    version: int
    lane: str
    served: bool
    versions: list[int]


class WorkflowList(Model):
    """List of the workflows that can be started here."""

    workflows: list[WorkflowSummary]


class WorkflowDetail(WorkflowSummary):
    """Workflow with its graph and the schema of its input."""

    input_schema: dict[str, Any]
    topology: dict[str, Any]
    start: str


class WorkerStatus(Model):
    """Worker with its lanes, its lease, and its state at the last heartbeat."""

    worker: str
    name: str
    status: str
    serving: bool
    state: str
    serves: list[str]
    scheduler: str = Field(description="Engine that decides which runs it executes.")
    away_ms: int | None = Field(description="For how long that engine has not answered. Null: it answers.")
    away_why: str
    bridged_ms: int | None = Field(description="Time since its bridge last searched for due runs. Null: it has none.")
    holds: int
    concurrency: int | None
    free: int | None
    pid: int | None
    host: str | None
    version: str | None
    loop_late_ms: int | None
    loop_ticked_ms: int | None
    lease_left_ms: int
    heartbeat_ago_ms: int
    started_at: Instant | None
    renewed_at_real: Instant | None
    lease_until_real: Instant | None


class WorkerList(Model):
    """List of the workers of this store."""

    workers: list[WorkerStatus]


class VersionStatus(Model):
    """Version of a workflow that is served or has unfinished runs."""

    workflow: str
    version: int
    lane: str
    scheduler: str = Field(description="Engine that schedules the runs of this lane.")
    runs: Count
    flagged: Count
    served_by: list[str]
    topology: str
    since: Instant | None


class VersionList(Model):
    """List of the versions that this store knows."""

    versions: list[VersionStatus]


class ActivePause(Model):
    """Active pause of an operator, or open circuit breaker."""

    paused: str = Field(examples=["activity erp.reserve"])
    kind: str
    runs: Count = Field(description="Number of runs that wait for it.")
    by: str
    since: Instant | None
    again_at: Instant | None = Field(
        description="Time from which one run tests whether the provider answers. Circuit breakers only."
    )
    reason: str


class PauseList(Model):
    """List of the active pauses and open circuit breakers."""

    pauses: list[ActivePause]


class PauseCreated(Model):
    """Pause that was created."""

    paused: str
    by: str
    reason: str


class PauseEnded(Model):
    """Pause that was removed, and the number of runs that waited for it."""

    resumed: str
    by: str
    runs: Count


class DailyBudget(Model):
    """Budget of a tenant for each business day (UTC), and what the calls of its runs have used today."""

    tenant: str
    limits: AllowedAmounts
    used: UsedAmounts
    runs: Count = Field(description="Number of runs that wait for a budget.")
    by: str
    since: Instant | None
    reason: str


class BudgetList(Model):
    """List of the tenant's daily budgets: one or none."""

    budgets: list[DailyBudget]


class CallerInfo(Model):
    """Authenticated caller."""

    name: str
    tenant: str
    roles: list[str]
    every_role: bool = Field(description="True for the local operator, without authentication.")
    person: bool = Field(description="True if the credential belongs to a person. Only people decide.")
    until_real: Instant | None = Field(description="Expiry of the credential. Streams end with it.")

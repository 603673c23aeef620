"""Workflows, workers, versions, pauses, budgets and the caller."""

from typing import Any

from pydantic import Field

from outlast.models import Count, Instant, Model
from outlast.models.runs import AllowedAmounts, RunSummary, UsedAmounts


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
    drain_asked_by: str = Field(description="Who asked it to drain. Empty: it was not asked.")
    drain_asked_at: Instant | None
    drain_reason: str


class WorkerList(Model):
    """List of the workers of this store."""

    workers: list[WorkerStatus]


class VersionStatus(Model):
    """Version of a workflow that is served or has unfinished runs."""

    workflow: str
    version: int
    lane: str
    scheduler: str = Field(description="Engine that schedules the runs of this lane.")
    runs: Count = Field(description="Number of unfinished runs. 1,000 means: so many or more.")
    flagged: Count = Field(description="Number of runs that need a move to another version.")
    flagged_at_least: bool = Field(False, description="True if more than `flagged` runs may need one.")
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


class LimitShare(Model):
    """Used amount of one limit of a budget."""

    name: str = Field(examples=["tokens"])
    counts: str = Field(description="The counted thing, in words.", examples=["tokens"])
    used: str = Field(description="In the unit of the limit: minutes, or the currency.", examples=["50,120"])
    limit: str = Field(examples=["60,000"])
    percent: float = Field(ge=0, description="Used part, rounded down: 100 only if nothing is left. It may be more.")


class DailyBudget(Model):
    """Budget of a tenant for each business day (UTC), and what the calls of its runs have used today."""

    tenant: str
    limits: AllowedAmounts
    used: UsedAmounts
    shares: list[LimitShare] = Field(description="One for each limit, the one with the least left first.")
    resets_at: Instant | None = Field(description="End of the business day, when all is left again.")
    runs: Count = Field(description="Number of runs that wait for a budget.")
    by: str
    since: Instant | None
    reason: str


class BudgetList(Model):
    """List of the tenant's daily budgets: one or none."""

    budgets: list[DailyBudget]


class BudgetedRun(RunSummary):
    """Unfinished run with a budget, and the used amounts."""

    shares: list[LimitShare] = Field(
        description="One for each limit, raises included, the one with the least left first. "
        "Of the root of a tree: those of the whole tree."
    )


class BudgetedRunList(Model):
    """Unfinished runs with a budget, the one that is nearest to a limit first."""

    runs: list[BudgetedRun]
    read: Count = Field(description="Number of unfinished runs with a budget that were compared.")
    every: bool = Field(description="False if there are more: only the newest were compared.")


class UsageLine(Model):
    """Usage that calls have reported on one business day (UTC), by workflow, model and activity."""

    day: str = Field(examples=["2026-03-01"])
    workflow: str = Field(description="Empty if the run was purged.")
    model: str = Field(description="Empty for calls that named none.")
    activity: str
    tokens: Count
    input_tokens: Count
    output_tokens: Count
    money: str = Field(examples=["1.25"], description="Decimal number, exact to a millionth.")
    calls: Count = Field(description="Calls that have reported usage.")
    unpriced: Count = Field(0, description="Calls that have reported tokens without a price.")


class UsageList(Model):
    """Usage of a tenant on its last business days, the latest day first, then the most money."""

    usage: list[UsageLine]
    since: str = Field(description="First day.", examples=["2026-03-01"])
    until: str = Field(description="Last day: today.", examples=["2026-03-14"])
    every: bool = Field(description="False if the days have more reports than were added up: the earliest are missing.")


class SlotLimit(Model):
    """Maximum of admitted runs of one tenant, or of all tenants."""

    slots: Count = Field(description="Maximum of runs that are admitted and have not ended.")
    used: Count = Field(description="Slots that a run holds.")
    everywhere: bool = Field(description="True if it is the maximum of all tenants.")


class ReasonCount(Model):
    """Number of items of one reason of attention. Items that are no runs count, too: providers and webhooks."""

    reason: str
    count: Count
    at_least: bool = Field(False, description="True if more than `count` may have this reason.")
    since: Instant | None = Field(description="Since when the oldest of them waits.")
    until: Instant | None = Field(description="The first instant at which one continues without an answer.")
    if_ignored: str


class UnservedLane(Model):
    """Version of a workflow with unfinished runs that no live worker serves."""

    lane: str
    workflow: str
    version: int
    runs: Count


class ActiveStop(Model):
    """Pause of an operator, or open circuit breaker (`kind` is `breaker`). See `ActivePause` for its runs."""

    paused: str = Field(examples=["activity erp.reserve"])
    kind: str
    by: str
    since: Instant | None
    again_at: Instant | None
    reason: str


class TroubledWebhook(Model):
    """Webhook that is disabled by the dispatcher, or with events that it has given up."""

    webhook: str
    url: str
    events: Count = Field(description="Number of events given up.")
    since: Instant
    detail: str


class StatusSummary(Model):
    """Counts of the items that need a person, and of all that cannot continue, for one caller.

    A count is exact unless `at_least` names it. Uncertain effects, runs of a version and approvals with votes are
    counted up to `count_max`. Other pending approvals and runs that need a person are all counted, on DynamoDB up to
    100 and 10,000.
    """

    version: str = Field(description="It changes if anything else here but `now` has changed. The ETag of the answer.")
    now: Instant = Field(description="Business time of the store.")
    count_max: Count
    at_least: list[str] = Field(
        default_factory=list,
        description="Fields whose count is a lower bound, because only so many rows were read. If `reasons` or "
        "`webhooks` is among them, further ones may exist.",
    )
    approvals_pending: Count
    approvals_mine: Count = Field(description="Pending approvals that the caller may decide now.")
    approvals_overdue: Count = Field(
        description="Pending approvals past their deadline, and runs that need a person because one expired."
    )
    approvals_due: Count = Field(
        description="Pending approvals whose deadline is within 24 hours, without the overdue."
    )
    next_deadline: Instant | None = Field(description="Earliest deadline of a pending approval.")
    attention: Count = Field(description="Runs that need a person, open circuit breakers and troubled webhooks.")
    attention_runs: Count
    reasons: list[ReasonCount] = Field(description="By the nearest consequence, then by age.")
    uncertain: Count = Field(description="Effects that are uncertain.")
    unserved: list[UnservedLane]
    pauses: list[ActiveStop]
    webhooks: list[TroubledWebhook]


class CallerInfo(Model):
    """Authenticated caller."""

    name: str
    tenant: str
    roles: list[str]
    every_role: bool = Field(description="True for the local operator, without authentication.")
    person: bool = Field(description="True if the credential belongs to a person. Only people decide.")
    until_real: Instant | None = Field(description="Expiry of the credential. Streams end with it.")

"""Workflows, workers, versions, health, and the one form of problems."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from outlast.service.shapes.base import Count, Shape


class Workflow(Shape):
    """A workflow that can be started here."""

    workflow: str
    version: int
    lane: str
    served: bool
    versions: list[int]


class Workflows(Shape):
    """What can be started here."""

    workflows: list[Workflow]


class WholeWorkflow(Workflow):
    """A workflow with its graph and the schema of its input."""

    input_schema: dict[str, Any]
    topology: dict[str, Any]
    start: str


class Worker(Shape):
    """A worker, what it serves, whether its lease still runs, and how it was at its last heartbeat."""

    worker: str
    name: str
    status: str
    serving: bool
    state: str
    serves: list[str]
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
    started_at: str | None
    renewed_at_real: str | None
    lease_until_real: str | None


class Workers(Shape):
    """The workers of this store."""

    workers: list[Worker]


class Version(Shape):
    """A version of a workflow that is served, or has unfinished runs, or both."""

    workflow: str
    version: int
    lane: str
    runs: Count
    flagged: Count
    served_by: list[str]
    topology: str
    since: str | None


class Versions(Shape):
    """The versions that this store knows."""

    versions: list[Version]


class ListedHold(Shape):
    """A stop sign that is up: an operator's, or a circuit breaker's."""

    held: str = Field(examples=["activity erp.reserve"])
    kind: str
    runs: Count = Field(description="Runs that wait for it.")
    by: str
    since: str | None
    again_at: str | None = Field(description="A breaker's: from then on one run tries whether the provider answers.")
    reason: str


class Holds(Shape):
    """What is held."""

    holds: list[ListedHold]


class Held(Shape):
    """What is held from here on."""

    held: str
    by: str
    reason: str


class Released(Shape):
    """What goes on, and how many runs waited for it."""

    released: str
    by: str
    runs: Count


class Caller(Shape):
    """Who asks, as the credential proves it."""

    name: str
    tenant: str
    roles: list[str]
    every_role: bool = Field(description="The local operator, without authentication.")
    person: bool = Field(description="Only people decide.")
    until_real: str | None = Field(description="When the credential ends; streams end with it.")


class Health(Shape):
    """Whether this process answers, or can serve."""

    status: Literal["ok", "not ready"]
    checks: dict[str, str] = Field(default_factory=dict)


class Wrong(Shape):
    """One thing that does not fit."""

    path: str
    text: str


class Problem(BaseModel):
    """RFC 9457: what, why, what to do, and words that a program may tell apart."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    hint: str
    code: str = Field(description="Never changes its meaning.", examples=["OUT-402"])
    refusal: str = Field(description="Which rule refused, where one code has several.", examples=["decided"])
    request_id: str
    problems: list[Wrong] | None = None

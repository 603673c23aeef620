"""What a policy is asked before each write, and its three verdicts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from pydantic import JsonValue

from outlast.flow.people import Rule


@dataclass(frozen=True)
class PolicyRequest:
    """One write about to be intended: what, with which arguments, in which run, when (business time, UTC)."""

    activity: str
    key: str
    arguments: Mapping[str, JsonValue]
    tenant: str
    workflow: str
    version: int
    run_id: str
    node: str
    visit: int
    requested_by: str
    moment: datetime


@dataclass(frozen=True)
class Allow:
    """Do it. `rule` is kept with the effect as who allowed it."""

    rule: str = "default"


@dataclass(frozen=True)
class Deny:
    """Never do it; the run goes to attention with `rule` and `detail`."""

    rule: str
    detail: str = ""


@dataclass(frozen=True)
class NeedsApproval:
    """Do it only when a person has approved exactly this plan."""

    rule: str
    by: Rule
    summary: str = ""
    within: timedelta = timedelta(hours=96)


Verdict: TypeAlias = Allow | Deny | NeedsApproval
Policy: TypeAlias = Callable[[PolicyRequest], Verdict]
"""A plain function: fast, without side effects, the same answer for the same request."""

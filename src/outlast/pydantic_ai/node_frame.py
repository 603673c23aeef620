"""Counters of one execution of a node that runs agents."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from outlast.flow.approval_rule import Decision
from outlast.flow.calls import Plan
from outlast.pydantic_ai.recorded_requests import Fault


@dataclass(frozen=True)
class AskedApproval:
    """An approval that this execution of a node has asked for: the proposed plan and the task of its decision."""

    plan: Plan[Any]
    decision: asyncio.Task[Decision[Any]]


@dataclass
class NodeFrame:
    """Counters of one execution of a node. Every execution of a visit counts alike."""

    runs: int = 0
    run_names: dict[str, str] = field(default_factory=dict)
    """Id of an agent run → its name in keys: its number, or the id that the caller gave it."""
    units: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    """Digest of the first call by stored name and key, of tools that have a key."""
    made: set[tuple[str, str]] = field(default_factory=set)
    """Stored names and keys of the calls of this execution."""
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    """Faults of the answers of each agent run, by its id."""
    unjudged: set[str] = field(default_factory=set)
    """Agent runs whose latest answer was recorded by an earlier version."""
    asked: dict[tuple[str, str], list[AskedApproval]] = field(default_factory=dict)
    """By stored name and key of the activity."""
    approved: dict[tuple[str, str], Plan[Any]] = field(default_factory=dict)
    """Plan that may run, by stored name of the activity and the model's id of the call."""

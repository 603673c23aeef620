"""Durable execution for agentic workflows: the names an author needs, and no others.

They are loaded at their first use, so the command line answers `--help` without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.flow import (
        ActivityFailed,
        Allow,
        CannotTell,
        Context,
        Decision,
        Deny,
        Failed,
        Found,
        Limit,
        NeedsApproval,
        NotFound,
        NotNow,
        NoUndo,
        Plan,
        Refusal,
        Refused,
        Retry,
        Stopped,
        Workflow,
        activity,
        lookup,
        repeat,
        role,
        this_call,
    )

__all__ = [
    "ActivityFailed",
    "Allow",
    "CannotTell",
    "Context",
    "Decision",
    "Deny",
    "Failed",
    "Found",
    "Limit",
    "NeedsApproval",
    "NoUndo",
    "NotFound",
    "NotNow",
    "Plan",
    "Refusal",
    "Refused",
    "Retry",
    "Stopped",
    "Workflow",
    "activity",
    "lookup",
    "repeat",
    "role",
    "this_call",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'outlast' has no attribute {name!r}")
    value = getattr(import_module("outlast.flow"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

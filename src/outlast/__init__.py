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
    from outlast.service.app import asgi

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
    "asgi",
    "lookup",
    "repeat",
    "role",
    "this_call",
]


HOMES = {"asgi": "outlast.service.app"}
"""Names that live elsewhere than in `outlast.flow`, and what they need comes with an extra."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'outlast' has no attribute {name!r}")
    try:
        value = getattr(import_module(HOMES.get(name, "outlast.flow")), name)
    except ModuleNotFoundError as error:
        if name not in HOMES or (error.name or "").startswith("outlast"):
            raise
        raise ImportError(f"outlast.{name} needs the extra `service`: uv add 'outlast[service]'") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

"""Durable execution for agentic workflows: the names that authors use.

They are imported at first use, so that `outlast --help` starts without them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.flow import (
        Allow,
        Cancel,
        Context,
        Decision,
        Deny,
        DidNotHappen,
        Fail,
        Happened,
        NeedsApproval,
        Plan,
        RateLimit,
        Refusal,
        Refused,
        Retry,
        RetryLater,
        Unknown,
        Workflow,
        activity,
        lookup,
        resend,
        role,
        this_call,
        workflow,
    )
    from outlast.service.app import asgi

__all__ = [
    "Allow",
    "Cancel",
    "Context",
    "Decision",
    "Deny",
    "DidNotHappen",
    "Fail",
    "Happened",
    "NeedsApproval",
    "Plan",
    "RateLimit",
    "Refusal",
    "Refused",
    "Retry",
    "RetryLater",
    "Unknown",
    "Workflow",
    "activity",
    "asgi",
    "lookup",
    "resend",
    "role",
    "this_call",
    "workflow",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'outlast' has no attribute {name!r}")
    value = globals()[name] = _asgi() if name == "asgi" else getattr(_flow(), name)
    return value


def _flow() -> Any:
    from outlast import flow

    return flow


def _asgi() -> Any:
    from outlast.errors import to_install

    try:
        from outlast.service.app import asgi
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("outlast"):
            raise
        raise ImportError(f"outlast.asgi needs the extra `service`: {to_install('service')}") from error
    return asgi


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

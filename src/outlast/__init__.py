"""Durable execution for agentic workflows: the names that authors and callers use.

They are imported at first use, so that `outlast --help` starts without them.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from outlast.client import connect
    from outlast.client.sync import SyncClient, connect_sync
    from outlast.flow import (
        Allow,
        Amount,
        Budget,
        Cancel,
        ChildFailed,
        ChildHandle,
        Context,
        Decision,
        Deny,
        DidNotHappen,
        Fail,
        FailedRun,
        Failures,
        FanOut,
        Happened,
        NeedsApproval,
        ParentHandle,
        Plan,
        RateLimit,
        Refusal,
        Refused,
        Retry,
        RetryLater,
        StatusLabels,
        Unknown,
        Workflow,
        activity,
        business_days,
        lookup,
        person,
        resend,
        role,
        this_call,
        workflow,
    )
    from outlast.runtime.client import Client
    from outlast.runtime.run_handle import RunHandle
    from outlast.ui.app import asgi

__all__ = [
    "Allow",
    "Amount",
    "Budget",
    "Cancel",
    "ChildFailed",
    "ChildHandle",
    "Client",
    "Context",
    "Decision",
    "Deny",
    "DidNotHappen",
    "Fail",
    "FailedRun",
    "Failures",
    "FanOut",
    "Happened",
    "NeedsApproval",
    "ParentHandle",
    "Plan",
    "RateLimit",
    "Refusal",
    "Refused",
    "Retry",
    "RetryLater",
    "RunHandle",
    "StatusLabels",
    "SyncClient",
    "Unknown",
    "Workflow",
    "activity",
    "asgi",
    "business_days",
    "connect",
    "connect_sync",
    "lookup",
    "person",
    "resend",
    "role",
    "this_call",
    "workflow",
]

_HOMES: Final = {
    "Client": "outlast.runtime.client",
    "RunHandle": "outlast.runtime.run_handle",
    "SyncClient": "outlast.client.sync",
    "connect": "outlast.client",
    "connect_sync": "outlast.client.sync",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'outlast' has no attribute {name!r}")
    value = globals()[name] = _asgi() if name == "asgi" else _find(name)
    return value


def _find(name: str) -> Any:
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "outlast.flow")), name)


def _asgi() -> Any:
    from outlast.errors import to_install

    try:
        from outlast.ui.app import asgi
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("outlast"):
            raise
        raise ImportError(f"outlast.asgi needs the extra `service`: {to_install('service')}") from error
    return asgi


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

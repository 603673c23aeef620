"""The handle: what callers hold to start runs, act on them and read them, whatever the store and the runtime."""

from outlast.core.machine import Choice, Reason
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.open import open_store
from outlast.runtime.operations import Operations
from outlast.runtime.port import Actor, ExecutionRuntime, WorkflowHandle, WorkflowState

__all__ = [
    "Actor",
    "Choice",
    "ExecutionRuntime",
    "InProcessRuntime",
    "Operations",
    "Reason",
    "WorkflowHandle",
    "WorkflowState",
    "open_store",
]

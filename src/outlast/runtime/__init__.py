"""The handle: what callers hold to start runs, act on them and read them, whatever the store and the runtime."""

from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.open import open_store
from outlast.runtime.operations import Operations
from outlast.runtime.port import Actor, ExecutionRuntime, WorkflowHandle, WorkflowState

__all__ = [
    "Actor",
    "ExecutionRuntime",
    "InProcessRuntime",
    "Operations",
    "WorkflowHandle",
    "WorkflowState",
    "open_store",
]

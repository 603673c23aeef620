"""LangGraph as the engine that executes runs.

A workflow becomes a `StateGraph`, and a run becomes a thread of it. LangGraph calls the nodes; runs, effects, approvals
and events stay in the store. Needs an extra: `pip install 'outlast[langgraph]'`.
"""

from outlast.errors import to_install

try:
    from outlast.langgraph.graph_of_workflow import ThreadState
    from outlast.langgraph.langgraph_guest import LangGraphGuest, LangGraphRuntime
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("langgraph"):
        raise
    raise ImportError(f"outlast.langgraph needs LangGraph: {to_install('langgraph')}") from error

__all__ = ["LangGraphGuest", "LangGraphRuntime", "ThreadState"]

"""LangGraph and Outlast, in both directions.

`OutlastSaver` keeps the threads of your own graphs in a store of Outlast. `LangGraphRuntime` has LangGraph execute
runs: a workflow becomes a `StateGraph`, and a run becomes a thread of it. LangGraph calls the nodes; runs, effects,
approvals and events stay in the store. Needs an extra: `pip install 'outlast[langgraph]'`.
"""

from outlast.errors import to_install

try:
    from outlast.langgraph.graph_of_workflow import ThreadState
    from outlast.langgraph.langgraph_guest import LangGraphGuest, LangGraphRuntime
    from outlast.langgraph.saver import OutlastSaver
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("langgraph"):
        raise
    raise ImportError(f"outlast.langgraph needs LangGraph: {to_install('langgraph')}") from error

__all__ = ["LangGraphGuest", "LangGraphRuntime", "OutlastSaver", "ThreadState"]

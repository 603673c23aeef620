"""Agents of pydantic-ai whose model requests and tool calls are rows of the ledger.

Give an agent the capability `OutlastDurability()`, and `await agent.run(…)` in a node: every answer of a model is paid
once, and every tool call is an effect. Needs an extra: `pip install 'outlast[pydantic-ai]'`.
"""

from outlast.errors import to_install

try:
    from outlast.pydantic_ai.approved_tools import OutlastApprovals
    from outlast.pydantic_ai.durability import OutlastDurability
    from outlast.pydantic_ai.tool_activities import DurableTool
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("pydantic_ai"):
        raise
    raise ImportError(f"outlast.pydantic_ai needs pydantic-ai: {to_install('pydantic-ai')}") from error

__all__ = ["DurableTool", "OutlastApprovals", "OutlastDurability"]

"""Agents: a model proposes, the workflow decides, and every paid answer is kept."""

from outlast.agent.agent_loop import AgentState, AgentTask, AgentWorkflow, agent_workflow
from outlast.agent.chat_completions import ChatCompletions
from outlast.agent.model import (
    Message,
    Model,
    ModelAnswer,
    ModelRequest,
    OfferedTool,
    RecordingModel,
    ResultFormat,
    ScriptedModel,
    ToolCall,
)
from outlast.agent.model_requests import ask
from outlast.agent.prices import Price
from outlast.agent.proposal import Admission, Admitted, AlreadyDone, Proposal, Rejected, admit, propose
from outlast.agent.provided import provided
from outlast.agent.sub_agents import SubAgent
from outlast.agent.typed_answers import TypedAnswer

__all__ = [
    "Admission",
    "Admitted",
    "AgentState",
    "AgentTask",
    "AgentWorkflow",
    "AlreadyDone",
    "ChatCompletions",
    "Message",
    "Model",
    "ModelAnswer",
    "ModelRequest",
    "OfferedTool",
    "Price",
    "Proposal",
    "RecordingModel",
    "Rejected",
    "ResultFormat",
    "ScriptedModel",
    "SubAgent",
    "ToolCall",
    "TypedAnswer",
    "admit",
    "agent_workflow",
    "ask",
    "propose",
    "provided",
]

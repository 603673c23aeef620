"""The agent. `outlast worker examples.desk.workflow` serves it; DESK_URL is the address of the office."""

from outlast import Budget
from outlast.agent import AgentWorkflow, Model, agent_workflow

from .incident import INSTRUCTIONS
from .model import desk_model
from .policy import policy
from .tools import TOOLS


def desk_of(model: Model) -> AgentWorkflow[str]:
    """Return the agent with this model."""
    return agent_workflow(
        "desk",
        tools=TOOLS,
        model=model,
        instructions=INSTRUCTIONS,
        policy=policy,
        budget=Budget(tokens=200_000, calls=100),
    )


desk = desk_of(desk_model())

"""Agents that an agent may call: workflows that are offered to its model as tools, and run as its children."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outlast.core.argument_checks import Arguments
from outlast.flow.child_tool import ChildTool
from outlast.flow.registry import where_called
from outlast.flow.workflow import Workflow


@dataclass(frozen=True)
class SubAgent:
    """A workflow that a model may start, with its terms: `agents=[SubAgent(research, background=True)]`.

    - `workflow`: an agent, or any other workflow. Its input is what the model gives as arguments.
    - `background`: the agent goes on while it runs, and reads its result before a later request.
    - `description`: what it does, for the model (default: that of the agent, or the docstring of the function).
    - `no_undo`: why nothing of it is undone if the agent fails later. A workflow that makes writes needs it.

    Raises DefinitionError.
    """

    workflow: Workflow[Any, Any, Any]
    background: bool = False
    description: str = ""
    no_undo: str | None = None

    def __post_init__(self) -> None:
        """Check each field. Raises DefinitionError."""
        check = Arguments("SubAgent", where_called(2))
        check.instance("workflow", self.workflow, Workflow, "SubAgent(research)", optional=False)
        check.flag("background", self.background)
        check.is_text("description", self.description, 'description="Finds prices of metals."')
        if self.no_undo is not None:
            check.text("no_undo", self.no_undo, 'no_undo="a published text stays"')

    @property
    def tool(self) -> ChildTool:
        """Return the tool by which a model starts it."""
        description = self.description or self.workflow.description
        return ChildTool(self.workflow, description=description, background=self.background, no_undo=self.no_undo)


def tools_of(agents: Sequence[Workflow[Any, Any, Any] | SubAgent], where: str) -> tuple[ChildTool, ...]:
    """Return the tools of these agents. Raises DefinitionError."""
    fix = "list workflows: agents=[research, SubAgent(write, background=True)]"
    check = Arguments("agent_workflow", where)
    given = [
        SubAgent(each) if isinstance(each, Workflow) else each for each in check.members("agents", agents, object, fix)
    ]
    return tuple(each.tool for each in check.members("agents", given, SubAgent, fix))

"""The runs that a run has started, and theirs."""

from pydantic import Field

from outlast.models import Count, Model


class TreeRun(Model):
    """One run of a tree, below the run that was asked for."""

    level: int = Field(ge=1, description="1 for a child, 2 for a child of a child.")
    parent: str = Field(description="Run that started it.")
    key: str = Field(description="Its key in its parent.")
    workflow: str
    run: str
    status: str = Field(description="Status of the engine. '' if the run was purged.")
    shown: str = Field(description="Status for people. Of a purged run, the outcome that its parent recorded.")
    waiting_text: str
    detached: bool = Field(False, description="True if an operator has let its parent go on without it.")


class RunTree(Model):
    """A run with the runs below it, each after its parent. Of many, the unfinished ones come before the ended ones."""

    run: str
    parent: str
    root: str
    children: list[TreeRun]
    more: Count = Field(description="Number of further children of these runs. They and the runs below are not listed.")

"""Forks of runs: the checkpoints that are offered, and what the start of a fork did."""

from pydantic import Field

from outlast.models import Instant, Model


class LaterCall(Model):
    """Call that a run made after a checkpoint. A fork asks about it, repeats it or answers it from the recording."""

    activity: str
    key: str
    kind: str = Field(description="`write` or `lookup`.")
    once_per: str
    visit: int = Field(description="Visit that made it.")
    status: str


class OfferedPoint(Model):
    """Checkpoint from which a run can be forked."""

    checkpoint: int = Field(description="Its number in the history.")
    node: str = Field(description="Node that the fork executes first.")
    visit: int
    at: Instant | None
    to_accept: list[str] = Field(
        description="Effects before it that may not be in force. A fork needs `accept_undone` if there are any."
    )
    past: int = Field(description="Number of calls before it, which a fork copies and never makes.")
    later: list[LaterCall] = Field(description="Calls after it, at most 200.")


class ForkPointList(Model):
    """Checkpoints from which a run can be forked, oldest first."""

    run: str
    points: list[OfferedPoint]


class RunForked(Model):
    """Fork that this request, or an earlier one with the same id, has started."""

    fork: str = Field(description="Id of the new run.")
    created: bool
    run: str = Field(description="Run that it was forked from.")
    checkpoint: int
    node: str = Field(description="Node that it executes first.")
    effects: str = Field(description="How its writes are permitted: `ask`, `recorded` or `live`.")
    lookups: str = Field(description="`recorded`: lookups are answered from the recording if they can be.")
    approvers: str = Field(description="Approvers of writes for which neither the policy nor the node names some.")
    copied: int = Field(description="Number of calls of the past, which it never makes.")
    later: list[LaterCall] = Field(description="Calls of its ancestor after the checkpoint, at most 200.")
    changed: list[str] = Field(description="Fields of the state that differ from those of the checkpoint.")
    accepted: list[str] = Field(description="Effects of the past that may not be in force.")

"""Forks of runs: the checkpoints that are offered, and what the start of a fork did."""

from typing import Literal

from pydantic import Field

from outlast.models import Count, Instant, Json, Model


class LaterCall(Model):
    """Call that a run made after a checkpoint. A fork asks about it, repeats it or answers it from the recording."""

    activity: str
    key: str
    kind: str = Field(description="`write`, `lookup` or `child`.")
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
    in_flight: bool = Field(description="Whether the run has not ended. A fork needs a reason why both go on.")
    points: list[OfferedPoint]


class PreviewedCall(LaterCall):
    """Call after a checkpoint, and what a fork does if it asks for the same call again."""

    outcome: Literal["answered", "waits", "shared", "asked", "policy", "made", "started"] = Field(
        description="`answered`: from the recording. `waits`: until the run that made it has settled it. `shared`: by "
        "the rules of calls once per tenant. `asked`: a person approves it. `policy`: the policy decides. `made`: the "
        "lookup is made again. `started`: the fork starts its own child."
    )


class ForkSignal(Model):
    """Signal that the run got after a checkpoint."""

    signal: str = Field(description="Its id, or its number if it has no id.")
    name: str
    by: str = Field(description="Who sent it to the run.")
    at: Instant | None
    sent: bool = Field(description="True if the fork gets it.")


class StateChange(Model):
    """One place in which the state of a fork differs from its checkpoint. Values are redacted JSON text, cut."""

    path: str = Field(description="Place in the state, for example `items.3.price`. '' is the whole state.")
    checkpoint: str | None = Field(description="Value at the checkpoint. None: it has none there.")
    fork: str | None = Field(description="Value of the fork. None: it has none there.")


class ForkPreview(Model):
    """Preview of a fork: its state, the calls that it answers, asks for or sends, and reasons to refuse it."""

    run: str
    checkpoint: int
    node: str = Field(description="Node that the fork executes first.")
    visit: int
    at: Instant | None
    effects: str = Field(description="How its writes are permitted: `ask`, `recorded` or `live`.")
    lookups: str = Field(description="`recorded`: lookups are answered from the recording if they can be.")
    approvers: str
    in_flight: bool = Field(description="Whether the run has not ended, so that it and the fork may both act.")
    refused: list[str] = Field(description="Reasons for which the start would be refused.")
    copied: Count = Field(description="Number of calls of the past, which the fork never makes.")
    calls: list[PreviewedCall] = Field(description="Calls of the run after the checkpoint, at most 200.")
    more_calls: Count = Field(description="Number of further calls.")
    to_accept: list[str] = Field(description="Effects before the checkpoint that may not be in force.")
    signals: list[ForkSignal] = Field(description="Signals after the checkpoint, at most 200.")
    unread: Count = Field(description="Number of signals from before the checkpoint that the fork still gets.")
    state: Json = Field(description="State of the checkpoint. Values that look like secrets are redacted.")
    redacted: bool = Field(description="Whether a value was left out. Its mark in an edited state means that value.")
    changes: list[StateChange] = Field(description="Places in which the given state differs, at most 100.")
    more_changes: Count = Field(description="Number of further changed places.")


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
    both_go_on: str = Field(description="Reason why the run, which had not ended, goes on as well. '' if it had ended.")

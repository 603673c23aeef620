"""Steps: the history of a run as decisions of a model, calls, approvals, waits, takeovers and checkpoints."""

from typing import Literal, TypeAlias

from pydantic import Field

from outlast.models import Count, Instant, Model, PagedList

StepKind: TypeAlias = Literal[
    "start",
    "model_decision",
    "tool_call",
    "approval_request",
    "approval_response",
    "wait",
    "signal",
    "attention",
    "answer",
    "takeover",
    "log",
    "change",
    "checkpoint",
]
"""Kinds of steps."""


class StepText(Model):
    """Input or output of a step as stored text, often JSON. Secrets are redacted."""

    text: str
    bytes: Count = Field(description="Size of the stored text.")
    cut: bool = Field(description="True if `text` is only the beginning. The request with `step` returns all of it.")


class ProposedCall(Model):
    """Call that a model has proposed, and how it was decided."""

    tool: str
    proposed_by: str = Field(description="Name of the model, as the workflow gave it to policy.")
    outcome: str = Field(description="`admitted`, `not_admitted`, `already_done`, or `needs_approval`.")
    code: str
    reason: str
    arguments: str = Field(description="The beginning of the arguments as JSON.")


class Step(Model):
    """One step in the history of a run. Fields that do not apply to its kind are empty."""

    id: str
    kind: StepKind
    status: str
    what: str = Field(description="The activity, the summary of the approval, the awaited, or the completed node.")
    node: str
    visit: Count
    began: Instant | None = Field(description="None for the answer of a model and for a lookup: only its end is known.")
    ended: Instant | None
    detail: str
    by: str = Field(description="Who may decide, who decided, or which worker called.")
    key: str
    digest: str = Field(description="Digest of the call with its arguments, of the approved call, or of the request.")
    input: StepText
    output: StepText
    attempts: Count
    external_id: str
    settled_by: str
    allowed_by: str = Field(description="Verdict of the policy.")
    approval: str = Field(description="Id of the approval.")
    model: str
    tokens: Count
    input_tokens: Count
    output_tokens: Count
    money: str = Field(description="Reported price as a decimal number. '' if none was reported.")
    proposals: list[ProposedCall]
    child: str = Field("", description="The run that the call has started. '' for others.")
    said: StepText = Field(StepText(text="", bytes=0, cut=False), description="Words of the model.")
    undoes: str = Field("", description="Visit and key of the call that this one undoes. '' for others.")
    until: Instant | None = Field(None, description="Deadline of a wait or of a request.")
    nth: Count = Field(0, description="Number of the visit among those of its node. 0: its first visits were purged.")
    ms: Count = Field(0, description="Time of a request to a model, all attempts that were recorded. 0: not recorded.")
    prompt: str = Field("", description="Digest of the instructions of a request to a model. '': not recorded.")
    tools: str = Field("", description="Digest of the tools that it offered. '': not recorded.")
    event: Count = Field(0, description="Number of the event that it was made from. 0: other rows.")


class StepList(PagedList):
    """Page of steps of a run, oldest first."""

    steps: list[Step]

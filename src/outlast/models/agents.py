"""Requests to models by prompt, and calls of tools, counted from the newest rows of a tenant."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.models import Count, Instant, Model, PagedList


class PromptUse(Model):
    """Requests with the same instructions, tools and model, of one version of a workflow."""

    prompt: str = Field(description="Digest of the instructions. '' if an earlier version made the requests.")
    tools: str = Field(description="Digest of the offered tools. '' if an earlier version made the requests.")
    head: str = Field(description="Beginning of the instructions, redacted. '' for none, and if it is not stored.")
    model: str
    workflow: str = Field(description="'' if the runs were purged.")
    version: int = Field(description="Version of the workflow. 0 if the runs were purged.")
    first: Instant = Field(description="First of the counted requests.")
    last: Instant = Field(description="Last of the counted requests.")
    requests: Count = Field(description="Attempts of requests.")
    unusable: Count = Field(description="Answers that were cut, filtered, refused by the model, empty or too large.")
    errors: Count = Field(description="Attempts without an answer.")
    outcomes: dict[str, Count] = Field(description="Both by the end of the answer or the name of the error.")
    tokens: Count
    input_tokens: Count
    output_tokens: Count
    money: str = Field(examples=["1.25"], description="Decimal number, exact to a millionth.")
    unpriced: Count = Field(description="Requests without a price.")
    p50_ms: Count | None = Field(description="Median time of an answer. None if it was not recorded.")
    p95_ms: Count | None
    run: str = Field(description="The run that made the last of these requests.")


class PromptList(Model):
    """Use of models by prompt, the latest prompt of each workflow first."""

    uses: list[PromptUse]
    read: Count = Field(description="Number of counted requests.")
    every: bool = Field(description="False if there are earlier requests, which are not counted.")
    since: Instant = Field(description="Requests from this instant on are counted.")


class DifferenceLine(Model):
    """Line of a difference."""

    mark: Literal["same", "old", "new", "left_out"] = Field(description="`left_out`: further equal lines.")
    text: str


class PromptDetail(Model):
    """Instructions or offered tools of requests, with what changed in them and the requests that had them."""

    digest: str
    kind: Literal["instructions", "tools", ""] = Field(description="'' if the text is not stored.")
    text: str = Field(description="Redacted text; tools as JSON. '' if it is not stored.")
    chars: Count = Field(description="Length of the stored text before its end was left out.")
    cut: bool = Field(description="True if only its beginning is stored.")
    workflow: str = Field(description="Workflow that sent it first.")
    version: int = Field(description="Version of the workflow that sent it first.")
    since: Instant | None = Field(description="When it was sent first.")
    previous: str = Field(description="Digest of the text that runs of the workflow had before. '' for the first one.")
    difference: list[DifferenceLine] = Field(description="Difference to the previous one.")
    uses: list[PromptUse]
    every: bool = Field(description="False if earlier requests are not counted.")


class ToolOutcome(StrEnum):
    """How a call of a tool ended."""

    DONE = EffectStatus.DONE.value
    REFUSED = EffectStatus.REFUSED.value
    UNCERTAIN = EffectStatus.UNCERTAIN.value
    UNDONE = EffectStatus.UNDONE.value
    UNDER_WAY = "under_way"
    DENIED = "denied"
    REJECTED = ApprovalStatus.REJECTED.value


class ToolFilter(StrEnum):
    """Calls that a list has: of one outcome; `made`: all but denials and rejections; `again`: sent more than once."""

    MADE = "made"
    DONE = ToolOutcome.DONE.value
    REFUSED = ToolOutcome.REFUSED.value
    UNCERTAIN = ToolOutcome.UNCERTAIN.value
    UNDONE = ToolOutcome.UNDONE.value
    UNDER_WAY = ToolOutcome.UNDER_WAY.value
    AGAIN = "again"
    DENIED = ToolOutcome.DENIED.value
    REJECTED = ToolOutcome.REJECTED.value


class ToolUse(Model):
    """Calls of one activity, lookups of one function, or starts of one workflow, by a version of a workflow."""

    tool: str
    workflow: str = Field(description="'' if the runs were purged.")
    version: int = Field(description="0 if the runs were purged.")
    read_only: bool = Field(description="True for lookups, which change nothing.")
    calls: Count = Field(description="Counted calls of the ledger, or lookups.")
    done: Count
    refused: Count = Field(description="Calls that the receiver refused, or that failed for good.")
    uncertain: Count = Field(description="Calls that may or may not have happened.")
    undone: Count
    under_way: Count = Field(description="Calls without an outcome yet.")
    again: Count = Field(description="Calls that were sent more than once.")
    denied: Count = Field(description="Calls that a policy denied, in the newest runs. They have no row in the ledger.")
    rejected: Count = Field(description="Requests for a call that a person rejected, of the newest rejected ones.")
    timed: Count = Field(description="Calls with a time: answered at their first attempt. Lookups have none.")
    p50_ms: Count | None = Field(description="Median time from the intent to the answer of these. None without one.")
    p95_ms: Count | None


class ToolList(Model):
    """Use of tools, those with most calls first."""

    tools: list[ToolUse]
    read: Count = Field(description="Number of counted calls.")
    every: bool = Field(description="False if there are earlier calls, which are not counted.")
    lookups: Count = Field(description="Number of counted lookups.")
    every_lookup: bool = Field(description="False if the newest runs have more lookups and verdicts than are counted.")
    newest_runs: Count = Field(description="Number of newest runs whose lookups and denials are counted.")


class CountedToolCall(Model):
    """Call, lookup, denial or rejection that a list of tools counts."""

    tool: str
    workflow: str = Field(description="'' if the run was purged.")
    version: int = Field(description="0 if the run was purged.")
    outcome: ToolOutcome
    read_only: bool = Field(description="True for a lookup.")
    run: str
    visit: Count = Field(description="Visit of the row; 0 for a call once per run.")
    key: str = Field(description="Key of the call, or of the verdict of a policy.")
    at: Instant = Field(description="First intent of a call; end of a lookup, denial or rejection.")
    attempts: Count = Field(description="0 for a lookup, a denial and a rejection.")
    took_ms: Count | None = Field(description="Time of the only attempt. None for any other call.")
    approval: str = Field(description="Request that was rejected. '' for any other.")


class ToolCallList(PagedList):
    """Page of the calls that a list of tools counts, the newest first."""

    calls: list[CountedToolCall]
    every: bool = Field(description="False if there are earlier ones, which are not counted.")

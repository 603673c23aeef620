"""Requests to models by prompt, and calls of tools, counted from the newest rows of a tenant."""

from typing import Literal

from pydantic import Field

from outlast.models import Count, Instant, Model


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


class ToolUse(Model):
    """Calls of one activity, or starts of one workflow, by a version of a workflow."""

    tool: str
    workflow: str = Field(description="'' if the runs were purged.")
    version: int = Field(description="0 if the runs were purged.")
    calls: Count = Field(description="Counted calls of the ledger.")
    done: Count
    refused: Count = Field(description="Calls that the receiver refused, or that failed for good.")
    uncertain: Count = Field(description="Calls that may or may not have happened.")
    undone: Count
    open: Count = Field(description="Calls under way.")
    denied: Count = Field(description="Calls that a policy denied, in the newest runs. They have no row in the ledger.")
    rejected: Count = Field(description="Requests for a call that a person rejected, of the newest rejected ones.")
    p50_ms: Count | None = Field(description="Median time from the first intent to the end. None without one.")
    p95_ms: Count | None


class ToolList(Model):
    """Use of tools, those with most calls first."""

    tools: list[ToolUse]
    read: Count = Field(description="Number of counted calls.")
    every: bool = Field(description="False if there are earlier calls, which are not counted.")
    denials_of: Count = Field(description="Number of newest runs whose verdicts of policies are counted.")

"""Operations on what agents did: prompts and models, tools."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Final

from pydantic import Field

from outlast.core.limits import USAGE_DAYS_MAX
from outlast.models.agents import PromptDetail, PromptList, ToolCallList, ToolFilter, ToolList
from outlast.operations.declaration import Operation, OperationRequest
from outlast.operations.field_types import Cursor, Limit, OneVersion, Word

PROMPT: Final = "3f2a9c01d7be4a5b8c6d7e8f90a1b2c3"
Days = Annotated[int, Field(ge=1, le=USAGE_DAYS_MAX, description="Number of business days, today included.")]
OfWorkflow = Annotated[Word, Field(description="Only runs of this workflow.")]


@dataclass(frozen=True)
class ListPrompts(OperationRequest[PromptList]):
    """Count requests to models by prompt, model and version of the workflow."""

    _: KW_ONLY
    workflow: OfWorkflow = ""
    model: Annotated[Word, Field(description="Only requests that this model answered.")] = ""
    days: Days = 30


LIST_PROMPTS: Final = Operation(
    "list_prompts",
    ListPrompts,
    PromptList,
    "GET",
    "/prompts",
    ("viewer",),
    ListPrompts(workflow="desk", model="gpt-5", days=7),
    summary="List prompts",
    tag="operators",
    description=(
        "Count requests to models by instructions, tools, model and version of the workflow: tokens, money, unusable "
        "answers, errors and time.\n"
        "\n"
        "At most 10,000 requests are counted, the newest. The requests of a run go with the run when it is purged."
    ),
)


@dataclass(frozen=True)
class GetPrompt(OperationRequest[PromptDetail]):
    """Show instructions or tools of requests, and what changed in them."""

    prompt: Annotated[str, Field(max_length=64, description="Digest of the instructions or of the tools.")]
    _: KW_ONLY
    workflow: Annotated[Word, Field(description="Workflow whose previous text is compared. Default: the latest.")] = ""


GET_PROMPT: Final = Operation(
    "get_prompt",
    GetPrompt,
    PromptDetail,
    "GET",
    "/prompts/{prompt}",
    ("viewer",),
    GetPrompt(PROMPT, workflow="desk"),
    summary="Show a prompt",
    tag="operators",
    description="Show the instructions or tools of requests to models, with the difference to the previous ones.",
)


@dataclass(frozen=True)
class ListTools(OperationRequest[ToolList]):
    """Count calls by activity and version of the workflow."""

    _: KW_ONLY
    workflow: OfWorkflow = ""


LIST_TOOLS: Final = Operation(
    "list_tools",
    ListTools,
    ToolList,
    "GET",
    "/tools",
    ("viewer",),
    ListTools(workflow="desk"),
    summary="List tools",
    tag="operators",
    description=(
        "Count calls by activity and version of the workflow: refusals, uncertainty, denials and time.\n"
        "\n"
        "At most 10,000 calls are counted, the newest. Lookups and denials are those of the newest 200 runs, rejected "
        "requests the newest 1,000 of each kind."
    ),
)


@dataclass(frozen=True)
class ListToolCalls(OperationRequest[ToolCallList]):
    """List the calls that a list of tools counts, the newest first."""

    _: KW_ONLY
    tool: Annotated[Word, Field(description="Only calls of this activity, or starts of this workflow.")] = ""
    workflow: OfWorkflow = ""
    version: Annotated[OneVersion, Field(description="Only this version of the workflow. 0: purged runs.")] = None
    outcome: Annotated[
        ToolFilter | None,
        Field(description="Only calls that ended so; `made`: calls and lookups; `again`: sent more than once."),
    ] = None
    cursor: Cursor = ""
    limit: Limit = 50


LIST_TOOL_CALLS: Final = Operation(
    "list_tool_calls",
    ListToolCalls,
    ToolCallList,
    "GET",
    "/tools/calls",
    ("viewer",),
    ListToolCalls(tool="restart_service", workflow="desk", version=2, outcome=ToolFilter.REFUSED),
    summary="List calls of tools",
    tag="operators",
    description="List the calls, lookups, denials and rejections that `GET /tools` counts, the newest first.",
)

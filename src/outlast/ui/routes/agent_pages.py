"""The pages of models and prompts by version, and of tools."""

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated, Final, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.limits import NAME_CHARS_MAX
from outlast.models.agents import CountedToolCall, DifferenceLine, PromptUse, ToolFilter, ToolOutcome, ToolUse
from outlast.models.effects import effect_id
from outlast.service.request_parts import PromptId
from outlast.service.service_state import Ops, Pages
from outlast.ui.page_route import PageRoute
from outlast.ui.rendering import render, stamp

router = APIRouter(prefix="/ui", route_class=PageRoute)
Word = Annotated[str, Query(max_length=NAME_CHARS_MAX)]
ROWS_MAX: Final = 60
"""Rows of a table."""
TEXT_CHARS_MAX: Final = 12_000
LINES_MAX: Final = 300
"""Lines of a difference that a page shows."""


class VersionUses(NamedTuple):
    """Requests of one version of a workflow."""

    workflow: str
    version: int
    uses: tuple[PromptUse, ...]


def by_version(uses: Iterable[PromptUse]) -> list[VersionUses]:
    """Return lines that follow each other in one table for each version of a workflow."""
    groups = groupby(uses, key=lambda use: (use.workflow, use.version))
    return [VersionUses(workflow, version, tuple(found)) for (workflow, version), found in groups]


@router.get("/prompts", operation_id="ui:list_prompts")
async def list_prompts(ops: Ops, request: Request, workflow: Word = "", model: Word = "") -> Response:
    """Show the requests to models by version of the workflow, prompt and model."""
    found = await ops.prompts(workflow=workflow, model=model)
    return await render(
        request,
        "prompts.html",
        title="Models and prompts",
        live="runs",
        versions={"prompts": stamp(found)},
        found=found,
        groups=by_version(found.uses[:ROWS_MAX]),
        more=len(found.uses) - ROWS_MAX,
        workflow=workflow,
        model=model,
    )


@router.get("/prompts/{prompt}", operation_id="ui:get_prompt")
async def show_prompt(ops: Ops, request: Request, prompt: PromptId, workflow: Word = "") -> Response:
    """Show one text with what changed in it, and the requests that had it."""
    found = await ops.prompt(prompt, workflow=workflow)
    return await render(
        request,
        "prompt.html",
        title=f"{'Tools' if found.kind == 'tools' else 'Prompt'} {prompt[:8]}",
        live="",
        found=found,
        workflow=workflow,
        text=found.text[:TEXT_CHARS_MAX],
        difference=shown_lines(found.difference),
        groups=by_version(found.uses[:ROWS_MAX]),
    )


def shown_lines(lines: list[DifferenceLine]) -> list[DifferenceLine]:
    """Return the lines of a difference that a page shows."""
    if len(lines) <= LINES_MAX:
        return lines
    left = DifferenceLine(mark="left_out", text=f"{len(lines) - LINES_MAX:,} further lines")
    return [*lines[:LINES_MAX], left]


@router.get("/tools", operation_id="ui:list_tools")
async def list_tools(ops: Ops, request: Request, workflow: Word = "") -> Response:
    """Show the calls of each tool by version of the workflow."""
    found = await ops.tools(workflow=workflow)
    shown: list[ToolUse] = found.tools[:ROWS_MAX]
    return await render(
        request,
        "tools.html",
        title="Tools",
        live="runs",
        versions={"tools": stamp(found)},
        found=found,
        shown=shown,
        more=len(found.tools) - len(shown),
        workflow=workflow,
        columns=COLUMNS,
        calls_query=calls_query,
        number_of=number_of,
    )


COLUMNS: Final = {
    ToolFilter.MADE: "Calls", ToolFilter.DONE: "Done", ToolFilter.REFUSED: "Refused",
    ToolFilter.UNCERTAIN: "Uncertain", ToolFilter.UNDONE: "Undone", ToolFilter.UNDER_WAY: "Under way",
    ToolFilter.AGAIN: "Sent again", ToolFilter.DENIED: "Denied", ToolFilter.REJECTED: "Rejected",
}  # fmt: skip
"""Numbers of a line, each with a list behind it."""
_KINDS: Final = {ToolOutcome.DONE: "good", ToolOutcome.UNCERTAIN: "person", ToolOutcome.REFUSED: "bad",
                 ToolOutcome.DENIED: "bad", ToolOutcome.REJECTED: "bad"}  # fmt: skip


def number_of(use: ToolUse, counted: ToolFilter) -> int:
    """Return one number of a line."""
    return use.calls if counted is ToolFilter.MADE else int(getattr(use, counted.value))


def calls_query(use: ToolUse, outcome: ToolFilter) -> str:
    """Return the query of the page that lists the calls of a number. Version 0: purged runs."""
    chosen = {"tool": use.tool, "workflow": use.workflow, "version": str(use.version), "outcome": outcome.value}
    return urlencode({name: value for name, value in chosen.items() if value})


@router.get("/tools/calls", operation_id="ui:list_tool_calls")
async def list_tool_calls(
    ops: Ops,
    pages: Pages,
    request: Request,
    tool: Word = "",
    workflow: Word = "",
    version: Annotated[str, Query(pattern=r"^\d{0,9}$")] = "",
    outcome: ToolFilter | None = None,
) -> Response:
    """Show the calls that a number of the list of tools counts."""
    number = int(version) if version else None
    found = await pages.sealed(
        await ops.tool_calls(
            tool=tool, workflow=workflow, version=number, outcome=outcome, cursor=pages.after, limit=pages.limit
        )
    )
    of_version = {None: "", 0: "purged runs"}.get(number, f"version {number}")
    chosen = {"workflow": workflow, "version": of_version}
    given = (("--workflow", workflow), ("--version", version), ("--outcome", outcome.value if outcome else ""))
    return await render(
        request,
        "tool_calls.html",
        title=f"Calls of {tool}" if tool else "Calls of tools",
        live="",
        found=found,
        tool=tool,
        workflow=workflow,
        outcome=outcome,
        columns=COLUMNS,
        chips=[(name, value) for name, value in chosen.items() if value],
        options=[*([tool] if tool else []), *(word for pair in given if pair[1] for word in pair)],
        kind_of=call_kind,
        effect_id=effect_id,
    )


def call_kind(call: CountedToolCall) -> str:
    """Return the kind of the state of a call."""
    return _KINDS.get(call.outcome, "plain")

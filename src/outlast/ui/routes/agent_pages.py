"""The pages of models and prompts by version, and of tools."""

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.limits import NAME_CHARS_MAX
from outlast.models.agents import DifferenceLine, PromptUse, ToolUse
from outlast.service.request_parts import PromptId
from outlast.service.service_state import Ops
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
    )

"""The page of acts: who did what, on which run, and why."""

from typing import Annotated, Final, Literal, get_args

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.limits import PERSON_CHARS_MAX
from outlast.models.audit_entries import AuditEntry, AuditKind
from outlast.service.service_state import Ops, Pages
from outlast.ui.page_route import PageRoute
from outlast.ui.rendering import render, stamp

router = APIRouter(prefix="/ui", route_class=PageRoute)
PERIODS: Final = {"": "all", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}
PAGES: Final = {"decision": "approvals", "reassign": "approvals", "effect": "effects",
                "webhook": "webhooks"}  # fmt: skip
"""Pages of what an act concerns, by its kind."""


@router.get("/audit", operation_id="ui:list_audit")
async def list_audit(
    ops: Ops,
    pages: Pages,
    request: Request,
    by: Annotated[str, Query(max_length=PERSON_CHARS_MAX)] = "",
    kind: AuditKind | Literal[""] = "",
    since: Literal["", "24h", "7d", "30d"] = "",
) -> Response:
    """Show the acts of people and programs, newest first."""
    found = await pages.sealed(
        await ops.audit(by=by, kind=kind or None, since=since or None, cursor=pages.after, limit=pages.limit)
    )
    return await render(
        request,
        "audit.html",
        title="Audit",
        live="runs",
        versions={"audit": stamp(found)},
        found=found,
        by=by,
        kind=kind,
        since=since,
        kinds=get_args(AuditKind),
        periods=PERIODS,
        page_of=page_of,
    )


def page_of(entry: AuditEntry) -> str:
    """Return the page of what an act concerns, below `/ui/`; '' for none."""
    if entry.kind == "job":
        return f"answers/{entry.run}"
    return f"{PAGES[entry.kind]}/{entry.about}" if entry.kind in PAGES and entry.about else ""

"""Saved views on the page of runs: which of them it shows, and the forms that save and remove one."""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.limits import VIEW_NAME_CHARS_MAX
from outlast.core.saved_views import view_name, view_named
from outlast.errors import Conflict
from outlast.models.views import SavedView
from outlast.service.service_state import Ops
from outlast.ui.page_route import PageRoute, form_of, see_other

router = APIRouter(prefix="/ui/views", route_class=PageRoute)
ViewName = Annotated[str, Query(max_length=VIEW_NAME_CHARS_MAX)]
FIRST: Final = 8
"""Views that are seen at once, because they take one line; the others are behind a button."""


class ShownViews(NamedTuple):
    """Views of a page: those that are seen at once, the others, and those with the query of the page."""

    first: Sequence[SavedView]
    further: Sequence[SavedView]
    present: Sequence[SavedView]


def shown_views(views: Sequence[SavedView], query: str) -> ShownViews:
    """Return the views as the page of a query shows them. A view with this query is always seen."""
    present = [each for each in views if each.query == query]
    first = [each for at, each in enumerate(views) if at < FIRST or each in present]
    return ShownViews(first, [each for each in views if each not in first], present)


@router.post("", operation_id="ui:save_view")
async def save(ops: Ops, request: Request) -> Response:
    """Save the query of the page under a name, and lead to the view."""
    form = form_of(request)
    name = view_name(form.text("name"))
    before = next((each for each in await ops.views() if each.name == name), None)
    saved = await ops.save_view(name, form.text("query"))
    done = f"You saved the view {saved.name}. All of the tenant see it here."
    if before is not None and before.query != saved.query:
        done += f" Before, it was {before.query}, saved by {before.by}."
    return see_other(request, f"/ui/runs?{urlencode({'view': saved.name})}", done)


@router.post("/remove", operation_id="ui:remove_view")
async def remove(ops: Ops, request: Request) -> Response:
    """Remove a view, and lead to its query, with the form that saves it again."""
    form = form_of(request)
    gone = view_named(await ops.views(), form.text("name"))
    if gone.query != form.text("query"):
        raise Conflict(
            f"the view {gone.name} has changed since you saw it",
            f"{gone.by} has saved {gone.query}",
            "look again",
            refusal="moved",
        )
    await ops.remove_view(gone.name)
    if form.text("unreadable"):
        return see_other(request, "/ui/runs", f"You removed the view {gone.name}, whose query was {gone.query}.")
    again = urlencode({"q": gone.query, "save_as": gone.name})
    done = f"You removed the view {gone.name}. To take it back, save its query again below."
    return see_other(request, f"/ui/runs?{again}", done)

"""Operations on saved views: list, save and remove named queries of lists of runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from outlast.core.limits import QUERY_CHARS_MAX, VIEW_NAME_CHARS_MAX
from outlast.models.views import SavedView, SavedViewList
from outlast.operations.declaration import Operation, OperationRequest, part

ViewName = Annotated[str, Field(max_length=VIEW_NAME_CHARS_MAX, description="Name of the view.")]


@dataclass(frozen=True)
class ListViews(OperationRequest[Sequence[SavedView]]):
    """List the saved views of the tenant."""


def _views(found: SavedViewList) -> Sequence[SavedView]:
    return found.views


LIST_VIEWS: Final = Operation(
    "list_views",
    ListViews,
    part(SavedViewList, _views),
    "GET",
    "/views",
    ("viewer",),
    ListViews(),
    summary="List saved views",
    tag="runs",
    description="List the named queries of lists of runs that the tenant has saved, ordered by name.",
)


@dataclass(frozen=True)
class SaveView(OperationRequest[SavedView]):
    """Save a query of a list of runs under a name, in place of an earlier one."""

    name: ViewName
    query: Annotated[str, Field(max_length=QUERY_CHARS_MAX, description="Words and terms of a list of runs.")]


SAVE_VIEW: Final = Operation(
    "save_view",
    SaveView,
    SavedView,
    "POST",
    "/views",
    ("operator",),
    SaveView("declined cards of acme", "customer:acme reason:exception"),
    summary="Save a view",
    tag="runs",
    description=(
        "Save a query of a list of runs under a name, which every caller of the tenant sees. "
        "A view of this name is replaced."
    ),
)


@dataclass(frozen=True)
class RemoveView(OperationRequest[Sequence[SavedView]]):
    """Remove a saved view."""

    name: ViewName


REMOVE_VIEW: Final = Operation(
    "remove_view",
    RemoveView,
    part(SavedViewList, _views),
    "POST",
    "/views/remove",
    ("operator",),
    RemoveView("declined cards of acme"),
    summary="Remove a view",
    tag="runs",
    description="Remove a saved view, and list those that are left.",
)

"""Saved views of a tenant: listed, saved and removed in their row."""

from outlast.core.acts import KeyedAct
from outlast.core.commit import Commit, Instant
from outlast.core.limits import QUERY_CHARS_MAX
from outlast.core.rows.store_rows import META, Meta
from outlast.core.saved_views import StoredView, remove_view, save_view, view_named, views_of, views_row
from outlast.engine.commands import Once, land
from outlast.errors import InvalidInput
from outlast.models import exact_instant
from outlast.models.views import SavedView
from outlast.operations.run_query import parse_query, query_terms, query_text
from outlast.store.port import Store

_WHAT = "the list of views"


async def saved_views(store: Store, tenant: str) -> list[SavedView]:
    """Return the views of a tenant, ordered by name."""
    return [_view(each) for each in views_of(await _row(store, tenant))]


async def save(store: Store, tenant: str, name: str, query: str, *, by: str, act: KeyedAct | None) -> SavedView:
    """Save a query under a name, and return the view; at a repetition, the view of this name as it is.

    Raises InvalidInput, LimitExceeded, Conflict.
    """
    text = query_text(query_terms(parse_query(query)))  # as links and chips spell it
    if len(text) > QUERY_CHARS_MAX:
        raise InvalidInput("the query is too long", f"with its quotes it has {len(text):,} characters", "shorten it")

    async def decide(now: Instant) -> tuple[Commit, StoredView]:
        return save_view(await _row(store, tenant), tenant, StoredView(name, text, by, now.business))

    async def again() -> StoredView:
        return view_named(views_of(await _row(store, tenant)), name)

    return _view(await land(store, _WHAT, decide, once=Once(act, "a view", again)))


async def remove(store: Store, tenant: str, name: str, *, act: KeyedAct | None) -> list[SavedView]:
    """Remove a view, and return those that are left. Raises NotFound, Conflict."""

    async def decide(_: Instant) -> tuple[Commit, tuple[StoredView, ...]]:
        return remove_view(await _row(store, tenant), tenant, name)

    async def again() -> tuple[StoredView, ...]:
        return views_of(await _row(store, tenant))

    return [_view(each) for each in await land(store, _WHAT, decide, once=Once(act, "a view", again))]


async def _row(store: Store, tenant: str) -> Meta | None:
    return await store.load(META, views_row(tenant))


def _view(row: StoredView) -> SavedView:
    return SavedView(name=row.name, query=row.query, by=row.by, at=exact_instant(row.at))

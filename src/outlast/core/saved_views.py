"""Saved views: named queries of lists of runs, in one meta row per tenant, which only operators write."""

import json
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol, TypeVar
from unicodedata import normalize

from outlast.core.commit import Commit, Put
from outlast.core.limits import KIB, VIEW_NAME_CHARS_MAX, VIEWS_BYTES_MAX, VIEWS_MAX
from outlast.core.rows.row_kind import Key
from outlast.core.rows.store_rows import META, Meta
from outlast.core.visible import INVISIBLE, is_blank
from outlast.errors import Corrupt, InvalidInput, LimitExceeded, NotFound

_KEY: Final = "views"


class Named(Protocol):
    """Value with a name."""

    @property
    def name(self) -> str:
        """Return the name by which it is found."""
        ...


V = TypeVar("V", bound=Named)


class StoredView(NamedTuple):
    """Query of a list of runs with a name, which is unique in the tenant. `by` has saved it last."""

    name: str
    query: str
    by: str
    at: int  # business


def views_row(tenant: str) -> Key:
    """Return the key of the meta row of a tenant's views."""
    return tenant, _KEY


def views_of(row: Meta | None) -> tuple[StoredView, ...]:
    """Return the views in the meta row, ordered by name. Raises Corrupt."""
    if row is None:
        return ()
    try:
        return tuple(
            StoredView(str(name), str(query), str(by), int(at)) for name, query, by, at in json.loads(row.value)
        )
    except (ValueError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def view_name(given: str) -> str:
    """Return a name as views are compared by it: two names that look alike by their spaces or accents are one."""
    return " ".join(normalize("NFC", given).split())


def view_named(views: Iterable[V], name: str) -> V:
    """Return the view of a name. Raises NotFound."""
    wanted = view_name(name)
    found = next((each for each in views if each.name == wanted), None)
    if found is None:
        raise NotFound(f"no view {wanted!r}"[:200], "the tenant has no view of this name", "outlast views ls")
    return found


def save_view(before: Meta | None, tenant: str, view: StoredView) -> tuple[Commit, StoredView]:
    """Save a view in place of the one with its name, and return it as stored.

    Raises InvalidInput for a name with invisible characters or a query without a term, LimitExceeded.
    """
    saved = view._replace(name=_checked_name(view.name))
    if not saved.query:
        raise InvalidInput(
            f"the view {saved.name!r} has no query", "it would be the list of all runs", "give words or terms"
        )
    kept = [each for each in views_of(before) if each.name != saved.name]
    row = _row(before, tenant, [*kept, saved])
    if len(kept) >= VIEWS_MAX or len(row.value.encode()) > VIEWS_BYTES_MAX:
        raise LimitExceeded(
            "too many views are saved",
            f"a tenant has at most {VIEWS_MAX}, of {VIEWS_BYTES_MAX // KIB} KiB together",
            "remove some: outlast views rm NAME",
        )
    return _commit(row), saved


def remove_view(before: Meta | None, tenant: str, name: str) -> tuple[Commit, tuple[StoredView, ...]]:
    """Remove a view, and return those that are left. Raises NotFound."""
    views = views_of(before)
    gone = view_named(views, name)
    left = tuple(each for each in views if each is not gone)
    return _commit(_row(before, tenant, left)), left


def _checked_name(given: str) -> str:
    name, why = view_name(given), ""
    if is_blank(name):
        why = "it has no visible character"
    elif len(name) > VIEW_NAME_CHARS_MAX:
        why = f"a name has at most {VIEW_NAME_CHARS_MAX} characters"
    elif INVISIBLE.search(name) or not name.isprintable():
        why = "it has characters that are not seen"
    if why:
        raise InvalidInput(f"{name!r} cannot name a view"[:300], why, 'e.g. "declined cards of acme"')
    return name


def _row(before: Meta | None, tenant: str, views: Iterable[StoredView]) -> Meta:
    ordered = sorted(views, key=lambda each: (each.name.casefold(), each.name))
    value = json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))
    return Meta(tenant, _KEY, before.version + 1 if before is not None else 1, value)


def _commit(row: Meta) -> Commit:
    return Commit((Put(META, row, row.version - 1),), label=f"views of {row.tenant}")

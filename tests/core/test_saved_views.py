"""Saved views: one of each name, in one row that stays small."""

import json

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.limits import QUERY_CHARS_MAX, VIEW_NAME_CHARS_MAX, VIEWS_MAX
from outlast.core.rows.store_rows import META, Meta
from outlast.core.saved_views import StoredView, remove_view, save_view, view_named, views_of, views_row
from outlast.errors import Corrupt, InvalidInput, LimitExceeded, NotFound
from tests.conformance.subject import TENANT

FAILED = StoredView("failed", "status:failed", "ana", 5_000)


def landed(commit: Commit, before: Meta | None) -> Meta:
    """Return the row that the commit writes."""
    (put,) = commit.writes
    assert isinstance(put, Put) and put.kind is META and isinstance(put.row, Meta)
    assert put.replaces == (before.version if before else 0) == put.row.version - 1
    return put.row


def saved(before: Meta | None, *views: StoredView) -> Meta:
    """Return the row after each of the views is saved."""
    row = before
    for each in views:
        row = landed(save_view(row, TENANT, each)[0], row)
    assert row is not None
    return row


def test_views_are_kept_in_the_order_of_their_names() -> None:
    acme = StoredView("Acme", "customer:acme", "bo", 6_000)
    row = saved(None, FAILED, acme)
    assert (row.tenant, row.key) == views_row(TENANT) and views_of(row) == (acme, FAILED)
    assert json.loads(row.value)[1] == ["failed", "status:failed", "ana", 5_000]


def test_a_view_replaces_the_one_with_its_name_however_it_is_written() -> None:
    row = saved(None, FAILED, StoredView("caf\u00e9 orders", "order:7", "ana", 1))
    again = saved(row, StoredView(" cafe\u0301\u00a0  orders ", "order:8", "bo", 2))
    assert [(each.name, each.query, each.by) for each in views_of(again)] == [
        ("caf\u00e9 orders", "order:8", "bo"), ("failed", "status:failed", "ana"),
    ]  # fmt: skip
    assert view_named(views_of(again), "cafe\u0301 orders").query == "order:8"


def test_a_removed_view_is_gone_and_another_one_is_not_found() -> None:
    row = saved(None, FAILED, FAILED._replace(name="late"))
    commit, left = remove_view(row, TENANT, " failed")
    assert left == views_of(landed(commit, row)) == (FAILED._replace(name="late"),)
    for before in (None, row):
        with pytest.raises(NotFound, match="no view 'none'"):
            remove_view(before, TENANT, "none")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        "\u200b",
        "x" * (VIEW_NAME_CHARS_MAX + 1),
        "late\u202eorders",
        "a\u200db",
        "a\x00b",
        "a\u2066b",
        "\ud800",
    ],
)
def test_a_name_that_cannot_be_read_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name a view"):
        save_view(None, TENANT, FAILED._replace(name=name))


def test_a_view_without_a_query_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has no query"):
        save_view(None, TENANT, FAILED._replace(query=""))


def test_the_number_and_the_size_of_views_are_bounded() -> None:
    full = saved(None, *(FAILED._replace(name=f"view {n}") for n in range(VIEWS_MAX)))
    with pytest.raises(LimitExceeded, match="at most 100"):
        save_view(full, TENANT, FAILED)
    assert len(views_of(saved(full, FAILED._replace(name="view 7", query="status:waiting")))) == VIEWS_MAX
    longest = FAILED._replace(query="\U0001f40c" * QUERY_CHARS_MAX)
    row = saved(None, *(longest._replace(name=f"view {n}") for n in range(88)))
    with pytest.raises(LimitExceeded, match="of 350 KiB together"):
        saved(row, *(longest._replace(name=f"more {n}") for n in range(12)))


@pytest.mark.parametrize("value", ["{", "7", '["failed"]', '[["failed", "q", "ana"]]'])
def test_a_row_that_cannot_be_read_is_corrupt(value: str) -> None:
    with pytest.raises(Corrupt, match="views"):
        views_of(Meta(TENANT, "views", 1, value))

"""Requests to drain a worker: recorded once, for living workers, in one row that stays small."""

import json

import pytest

from outlast.core.commit import Put
from outlast.core.drain import DRAINS, DrainRequest, drains_of, request_drain
from outlast.core.machine import LeaseStatus
from outlast.core.rows.store_rows import META, STORE, Meta, Worker
from outlast.errors import Conflict, Corrupt, NotFound

ASK = DrainRequest("local:ana", 5_000, "a new machine")
SKEW = 500


def worker(name: str, until: int = 60_000, status: LeaseStatus = LeaseStatus.ALIVE) -> Worker:
    return Worker(STORE, name, 3, status, until, "refund@1", "", 1_000, 2_000, "")


def asked(before: Meta | None, name: str, *rows: Worker, ask: DrainRequest = ASK) -> Meta:
    """Return the row after a request."""
    _, commit = request_drain(before, rows, name, ask, 10_000, SKEW)
    assert commit is not None
    (put,) = commit.writes
    assert isinstance(put, Put) and put.kind is META and isinstance(put.row, Meta)
    assert put.replaces == (before.version if before else 0)
    return put.row


def test_a_request_is_recorded_once() -> None:
    one, two = worker("w-1"), worker("w-2")
    row = asked(None, "w-1", one, two)
    assert (row.tenant, row.key) == DRAINS and drains_of(row) == {"w-1": ASK}
    assert request_drain(row, (one, two), "w-1", DrainRequest("bo", 6_000, "again"), 10_000, SKEW) == (one, None)
    assert drains_of(asked(row, "w-2", one, two)) == {"w-1": ASK, "w-2": ASK}


def test_requests_for_dead_workers_are_dropped() -> None:
    row = asked(None, "w-1", worker("w-1"))
    assert set(drains_of(asked(row, "w-2", worker("w-1", until=9_000), worker("w-2")))) == {"w-2"}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (worker("w-1", status=LeaseStatus.CLOSED), "it has stopped"),
        (worker("w-1", until=9_500), "its lease has ended"),
    ],
)
def test_a_dead_worker_does_not_drain(row: Worker, why: str) -> None:
    with pytest.raises(Conflict, match=why):
        request_drain(None, (row,), "w-1", ASK, 10_000, SKEW)
    assert asked(None, "w-1", worker("w-1", until=9_501)), "by its own clock it may still live"


def test_an_unknown_worker_is_not_found() -> None:
    with pytest.raises(NotFound):
        request_drain(None, (worker("w-1"),), "w-2", ASK, 10_000, SKEW)


@pytest.mark.parametrize("value", ["", "[]", "{", json.dumps({"w-1": 1}), json.dumps({"w-1": ["a", "x", ""]})])
def test_a_damaged_row_is_reported(value: str) -> None:
    with pytest.raises(Corrupt, match="drains"):
        drains_of(Meta(*DRAINS, 1, value))

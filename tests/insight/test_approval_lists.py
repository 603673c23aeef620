"""Lists of approvals: overdue ones are found page by page, however many others were asked for since."""

import asyncio

import pytest

from outlast.core.approvals import Actor
from outlast.core.commit import Commit, Put
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.errors import InvalidInput
from outlast.insight.approval_reads import word_pattern
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from outlast.store.queries import Query
from tests.conformance.subject import approval_row

NOW = 1_000_000


async def opened(*rows: Approval) -> tuple[Operations, Store]:
    store = await open_store("memory:")
    now = (await store.now()).business
    for row in rows:
        moved = row._replace(within_until=now + row.within_until - NOW)
        await store.commit(Commit((Put(APPROVAL, moved, 0),)))
    return Operations(store, tenant="default", actor=Actor("local:ana"), workflows={}), store


def asked(n: int, until: int, status: ApprovalStatus = ApprovalStatus.PENDING) -> Approval:
    return approval_row(f"ap-{n}", f"run-{n}", "default", asked_at=NOW + n)._replace(within_until=until, status=status)


LATE = [asked(n, NOW - 60_000 + n) for n in (3, 1, 4)]
EXPIRED = [asked(n, NOW - 90_000, ApprovalStatus.EXPIRED) for n in (5, 2, 6)]
IN_TIME = [asked(n, NOW + 3_600_000) for n in range(100, 400)]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 50])
def test_overdue_approvals_are_listed_once_the_pending_ones_first(limit: int) -> None:
    async def go() -> None:
        ops, _ = await opened(*LATE, *EXPIRED, *IN_TIME)
        found: list[str] = []
        cursor = ""
        while True:
            page = await ops.approvals(overdue=True, cursor=cursor, limit=limit)
            found += [each.approval for each in page.approvals]
            cursor = page.next_cursor
            assert len(page.approvals) == limit or not cursor
            if not cursor:
                break
        assert found == ["ap-1", "ap-3", "ap-4", "ap-6", "ap-5", "ap-2"]

    asyncio.run(go())


def test_a_list_of_overdue_approvals_passes_over_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        ops, store = await opened(*LATE, *IN_TIME)
        queries: list[Query[object]] = []
        ask = store.query

        async def counted(query: Query[object]) -> object:
            queries.append(query)
            return await ask(query)

        monkeypatch.setattr(store, "query", counted)
        page = await ops.approvals(overdue=True, limit=4)
        assert (len(page.approvals), page.next_cursor) == (3, "")
        assert len(queries) == 2

    asyncio.run(go())


def test_a_wrong_cursor_is_refused() -> None:
    async def go() -> None:
        ops, _ = await opened(*LATE)
        with pytest.raises(InvalidInput):
            await ops.approvals(overdue=True, cursor="expired.nonsense")

    asyncio.run(go())


@pytest.mark.parametrize(
    ("word", "text", "found"),
    [
        ("hooli", "refund to hooli 1", True),
        ("hoo", "refund to hooli 1", True),
        ("ho", "refund to hooli 1", False),
        ("ooli", "refund to hooli 1", False),
        ("1", "refund to hooli 1", True),
        ("1", "refund to hooli 12", False),
        ("00", "refund of 999.00", False),
        ("999", "refund of 999.00", True),
        ("999.00", "refund of 999.00 eur", True),
        ("النور", "جمعيةالنور", True),
    ],
)
def test_a_searched_word_is_whole_or_the_beginning_of_one(word: str, text: str, found: bool) -> None:
    assert bool(word_pattern(word).search(text)) is found

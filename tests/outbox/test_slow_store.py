"""A subscription is added although the commits of its store are slow."""

import asyncio
from typing import Any

import pytest

from outlast.core.commit import Commit
from outlast.core.rows.outbox_rows import SUBSCRIPTION
from outlast.errors import Conflict, Stale
from outlast.outbox import subscriptions
from outlast.runtime.operations import Operations
from tests.outbox.helpers import a_store, until


def delay_commits(ops: Operations, by_ms: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pass the commit of a subscription on after a time of the store's clock. Return the time of each."""
    commit, tried = ops.store.commit, list[int]()

    async def passed(at: int) -> bool:
        return (await ops.store.now()).business > at

    async def late(what: Commit, *args: Any, **more: Any) -> Any:
        if any(write.kind is SUBSCRIPTION for write in what.writes):
            tried.append((await ops.store.now()).business)
            await until(lambda: passed(tried[-1] + by_ms))
        return await commit(what, *args, **more)

    monkeypatch.setattr(ops.store, "commit", late)
    return tried


@pytest.mark.every_store
def test_the_time_for_the_commit_grows_until_a_slow_store_reaches_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit takes longer than the first lead: one webhook, which the caller sees."""
    monkeypatch.setattr(subscriptions, "LEAD_MS", 20)

    async def live() -> None:
        async with a_store(url) as ops:
            tried = delay_commits(ops, 100, monkeypatch)
            made = await ops.webhooks.add("http://127.0.0.1:9/")
            assert 1 < len(tried) < subscriptions.TRIES
            assert [each.subscription for each in await ops.webhooks.rows()] == [made.webhook]
            assert (await ops.store.now()).business >= (await subscriptions.get(ops.store, "acme", made.webhook)).since

    asyncio.run(live())


def test_a_refusal_says_that_nothing_was_added_and_why(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def live() -> None:
        async with a_store(url) as ops:
            commit = ops.store.commit

            async def stale(what: Commit, *args: Any, **more: Any) -> Any:
                if any(write.kind is SUBSCRIPTION for write in what.writes):
                    raise Stale("moved")
                return await commit(what, *args, **more)

            monkeypatch.setattr(ops.store, "commit", stale)
            with pytest.raises(Conflict, match="was not added") as refused:
                await ops.webhooks.add("http://127.0.0.1:9/")
            assert "20 commits came too late" in refused.value.why
            assert await ops.webhooks.rows() == ()

    asyncio.run(live())

"""A tenant that floods: its requests wait or are refused with a retry time, others are answered (S35)."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from outlast.core.rows.run_rows import RUN
from outlast.errors import Busy
from outlast.service import tenant_limits as module
from outlast.service.tenant_limits import TenantLimits
from outlast.store.queries import CountBy
from tests.security.server import Service


def test_each_tenant_has_its_own_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    monkeypatch.setattr(module, "WAITING", 3)

    async def check() -> None:
        turns, go, begun = TenantLimits(), asyncio.Event(), list[str]()

        async def one(tenant: str) -> None:
            async with turns.of(tenant):
                begun.append(tenant)
                await go.wait()

        tasks = [asyncio.create_task(one("acme")) for _ in range(5)]
        await asyncio.sleep(0)
        assert begun == ["acme"] * 2
        with pytest.raises(Busy) as caught:
            await one("acme")
        assert caught.value.retry_after_s > 0
        other = asyncio.create_task(one("globex"))
        await asyncio.sleep(0)
        assert begun == ["acme", "acme", "globex"]
        tasks[4].cancel()
        tasks[0].cancel()
        await asyncio.gather(tasks[0], tasks[4], return_exceptions=True)
        assert begun.count("acme") == 3, "a turn that was given up is the next one's"
        go.set()
        await asyncio.gather(*tasks[1:4], other)
        assert begun.count("acme") == 4 and not turns._tenants, "nothing is kept of who asks nothing"

    asyncio.run(check())


def body(size: int) -> Callable[[], Awaitable[int]]:
    """Return a reader for a body of this size."""

    async def read() -> int:
        return size

    return read


def test_slow_bodies_delay_only_their_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request counts before its body is read. Once, a tenant held every connection with missing bodies."""
    monkeypatch.setattr(module, "AT_ONCE", 2)

    async def check() -> None:
        turns, come = TenantLimits(3), asyncio.Event()

        async def slow() -> int:
            await come.wait()
            return 1

        async def one() -> None:
            async with turns.of("acme", slow):
                pass

        tasks = [asyncio.create_task(one()) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await one()
        async with turns.of("globex", body(1)):
            pass
        come.set()
        await asyncio.gather(*tasks)
        assert not turns._tenants

    asyncio.run(check())


def test_waiting_bodies_of_a_tenant_have_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand bodies of a megabyte would be a gigabyte of one tenant. A single large body is allowed."""
    monkeypatch.setattr(module, "BODIES_BYTES", 10)

    async def check() -> None:
        turns = TenantLimits()
        async with turns.of("acme", body(6)):
            with pytest.raises(Busy):
                async with turns.of("acme", body(5)):
                    pass
            async with turns.of("acme", body(4)), turns.of("globex", body(10)), turns.of("acme"):
                pass
            async with turns.of("acme", body(4)):
                pass
        async with turns.of("acme", body(11)):
            pass
        assert not turns._tenants

    asyncio.run(check())


@pytest.mark.req("RUN-5")
def test_a_flood_is_answered_completely_and_another_tenant_promptly(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of started runs equals the number of 201 answers. Other requests get a retry time."""
    monkeypatch.setattr(module, "AT_ONCE", 4)
    monkeypatch.setattr(module, "WAITING", 8)
    answers: Counter[int] = Counter()
    stop = threading.Event()
    before = service.do(service.app.state.service.store.query(CountBy(RUN, "acme", "status")))

    def flood(n: int) -> None:
        with service.client("starter") as client:
            while not stop.is_set():
                answer = client.post("/v1/workflows/listener/runs", json={"input": {}})
                answers[answer.status_code] += 1
                if answer.status_code == 429:
                    assert int(answer.headers["Retry-After"]) >= 1 and answer.json()["code"] == "OUT-414"

    threads = [threading.Thread(target=flood, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    try:
        with service.client("viewer", "globex") as client:
            for _ in range(20):
                answer = client.get("/v1/runs")
                assert answer.status_code == 200, answer.text
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert set(answers) == {201, 429}, answers
    after = service.do(service.app.state.service.store.query(CountBy(RUN, "acme", "status")))
    assert sum(after.values()) - sum(before.values()) == answers[201]

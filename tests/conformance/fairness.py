"""Promises about tenants with due runs at the same time: tenants take turns, whatever their backlog (S35)."""

import asyncio

from outlast.core.rows.run_rows import Run
from outlast.store.fair_queueing import SLACK, TRUSTED
from outlast.store.port import Store
from tests.conformance.subject import LANE, T0, Subject, claim_by, run_row, start, two

CROWD = 40
N = 5  # taken at once


async def a_backlog_does_not_delay_other_tenants(s: Subject) -> None:
    """A tenant's first due run is among the next taken, however many runs of others are due.

    This holds however late the run came. In the end every run has been taken once.
    """
    a, b = await two(s)
    await _crowd(a, "acme", CROWD, T0 - 100)
    await _crowd(a, "beta", 1, T0)
    assert sorted(await _tenants(b, N)) == ["acme"] * 4 + ["beta"]
    await _crowd(a, "beta", 2, T0, "again")
    await _crowd(a, "core", 1, T0, lane="other@2")
    taken = await asyncio.gather(*(_tenants(store, N, lanes=(LANE, "other@2")) for store in (a, b)))
    assert sorted({tenant for some in taken for tenant in some}) == ["acme", "beta", "core"]
    left = [await a.take((LANE, "other@2"), CROWD, claim_by("worker")) for _ in range(2)]
    assert 5 + sum(map(len, taken)) + sum(map(len, left)) == CROWD + 4


async def a_slot_goes_to_the_tenant_with_fewest_runs(s: Subject) -> None:
    """Each run taken is of the tenant with the fewest held runs, and the oldest of that tenant."""
    a, b = await two(s)
    await _crowd(a, "acme", CROWD, T0 - 100)
    await _crowd(a, "beta", CROWD, T0 - 50)
    s.clock.time += 2 * SLACK
    assert sorted(await _tenants(b, 5, held={"acme": 5, "beta": 2})) == ["acme"] + ["beta"] * 4
    assert await _tenants(b, 1, held={"acme": 6, "beta": 6}) == ["acme"]
    assert await _tenants(b, 1, held={"acme": 6, "beta": 5}) == ["beta"]
    taken = await b.take((LANE,), 10, claim_by("worker"), held={"core": 9})
    for tenant in ("acme", "beta"):
        mine = [run.run for run in taken if run.tenant == tenant]
        assert mine == sorted(mine) and len(mine) == 5, mine


async def many_backlogs_do_not_delay_other_tenants(s: Subject) -> None:
    """The oldest run of a tenant without held runs goes before further runs of other tenants.

    This holds however many tenants have a backlog.
    """
    a, b = await two(s)
    crowd = [f"crowd-{i}" for i in range(8)]
    for i, tenant in enumerate(crowd):
        await _crowd(a, tenant, 4, T0 - 100 + i)
    await _crowd(a, "late", 1, T0)
    await _crowd(a, "last", 1, T0 + 1)
    s.clock.time += 1
    held = dict.fromkeys(crowd, 1)
    assert [await _tenants(b, 1, held=held), await _tenants(b, 1, held={**held, "late": 1})] == [["late"], ["last"]]
    assert await _tenants(b, 1, held=held) == ["crowd-0"]


async def a_run_behind_a_backlog_is_found(s: Subject) -> None:
    """The next take finds a run that fell due after a take found no other tenant.

    The run may have been due for up to SLACK ms already. After TRUSTED ms, any due run is found.
    """
    a, b = await two(s)
    await _crowd(a, "acme", CROWD, T0 - 100)
    assert await _tenants(b, N) == ["acme"] * N
    s.clock.time += 10 * SLACK // 2
    assert await _tenants(b, N) == ["acme"] * N
    await _crowd(a, "beta", 1, s.clock.time)
    assert "beta" in await _tenants(b, N)
    await _crowd(a, "core", 1, s.clock.time - SLACK)
    assert "core" in await _tenants(b, N)
    await _crowd(a, "dell", 1, T0)
    s.clock.time += TRUSTED
    assert "dell" in await _tenants(b, N)


async def _crowd(store: Store, tenant: str, count: int, due_at: int, name: str = "run", lane: str = LANE) -> None:
    rows = [run_row(f"{name}-{i:03}", tenant, due_at=due_at, lane=lane) for i in range(count)]
    await asyncio.gather(*(store.commit(start(row)) for row in rows))


async def _tenants(
    store: Store, n: int, held: dict[str, int] | None = None, lanes: tuple[str, ...] = (LANE,)
) -> list[str]:
    """Take `n` runs and return their tenants."""
    taken: tuple[Run, ...] = await store.take(lanes, n, claim_by("worker"), held=held or {})
    return [run.tenant for run in taken]

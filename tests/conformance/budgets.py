"""Promises about the usage that calls report, and about the budgets of tenants."""

from outlast.core.budget import raises_of
from outlast.core.commit import Commit, Expect, Put, append_to_inbox
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.limit_rows import CALL_USAGE, TENANT_BUDGET
from outlast.core.rows.run_columns import RAISE, RaiseRequest
from outlast.core.rows.run_rows import RUN
from outlast.core.usage import Amounts, CallUsage, Limits, TenantBudget
from outlast.store.agent_calls import AskedRequest, NewestRequests
from outlast.store.budgeted_runs import RunSpending, SpentOfRuns, UnfinishedRuns
from outlast.store.dynamodb.store import DynamoStore
from outlast.store.port import maintenance
from outlast.store.usage_sums import (
    RUNS_PER_STATEMENT,
    DayUsage,
    RunsUsage,
    RunUsage,
    TenantDayUsage,
    TenantUsage,
    TreeUsage,
    UsageOfDays,
    UsageSum,
)
from tests.conformance.subject import (
    T0,
    TENANT,
    Subject,
    effect_row,
    ended,
    fence,
    held,
    refused_for,
    the_run,
    two,
)

DAY_MS = 86_400_000
DAY = T0 // DAY_MS


def _used(run: str = "run-1", epoch: int = 1, n: int = 1, tokens: int = 10, **more: object) -> CallUsage:
    row = CallUsage(TENANT, run, epoch, n, 1, "ask/1", 1, "ask", DAY, "m-1", tokens, tokens, 0, 3, 1, T0)
    return row._replace(**more)  # type: ignore[arg-type]


async def usage_is_summed_by_run_and_by_day(s: Subject) -> None:
    """`RunUsage` sums a run up to one of its rows, `TenantDayUsage` a tenant's day. Without rows, all sums are 0."""
    a, b = await two(s)
    first, second = await held(a), await held(a, "run-2")
    assert await b.query(RunUsage(TENANT, "run-1")) == Amounts()
    assert await b.query(TenantDayUsage(TENANT, DAY)) == DayUsage(Amounts(), reports=False)
    rows = [
        _used(),
        _used(n=2, tokens=5, unpriced=1),
        _used(epoch=2, tokens=1),
        _used(epoch=3, n=1, day=DAY + 1, at=T0 + DAY_MS),
    ]
    for row in rows:
        await a.commit(Commit((Put(CALL_USAGE, row, 0),), fence(first)))
    await a.commit(Commit((Put(CALL_USAGE, _used("run-2", activity="print"), 0),), fence(second)))
    assert await b.query(RunUsage(TENANT, "run-1")) == Amounts(26, 12, 4, unpriced=1)
    assert await b.query(RunUsage(TENANT, "run-1", 1, 1)) == Amounts(10, 3, 1)
    assert await b.query(RunUsage(TENANT, "run-1", 2, 0)) == Amounts(15, 6, 2, unpriced=1)
    assert await b.query(RunUsage(TENANT, "run-1", 2, 1)) == Amounts(16, 9, 3, unpriced=1)
    assert await b.query(RunsUsage(TENANT, ("run-1", "run-2", "run-3"))) == {
        "run-1": Amounts(26, 12, 4, unpriced=1),
        "run-2": Amounts(10, 3, 1),
    }
    many = tuple(f"run-{n}" for n in range(RUNS_PER_STATEMENT + 2))
    assert set(await b.query(RunsUsage(TENANT, many))) == {"run-1", "run-2"}
    assert await b.query(RunsUsage("globex", ("run-1",))) == {}
    assert await b.query(TenantDayUsage(TENANT, DAY, "ask")) == DayUsage(Amounts(26, 12, 4, unpriced=1), reports=True)
    assert await b.query(TenantDayUsage(TENANT, DAY + 1, "print")) == DayUsage(Amounts(10, 3, 1), reports=False)
    assert (await b.query(TenantDayUsage("globex", DAY))).amounts == Amounts()
    await refused_for("version", b.commit(Commit((Put(CALL_USAGE, rows[0], 0),), fence(first))))


async def the_newest_requests_to_models_are_read(s: Subject) -> None:
    """`NewestRequests` reads rows with a model, the newest first, with the lane of their runs, and no sums."""
    a, b = await two(s)
    first = await held(a)
    rows = [
        _used(prompt="p", tools="t", ms=7, outcome="cut", at=T0 + 2),
        _used(n=2, at=T0 + 1),
        _used(n=3, model="", at=T0 + 3),
        _used(epoch=0, n=4, at=T0 + 4),
        _used(n=5, day=DAY - 1, at=T0 - DAY_MS),
    ]
    for row in rows:
        await a.commit(Commit((Put(CALL_USAGE, row, 0),), fence(first)))
    newest = AskedRequest(T0 + 2, "run-1", "p", "t", "m-1", "cut", 7, 10, 10, 0, 3, 0, first.lane)
    earlier = newest._replace(at=T0 + 1, prompt="", tools="", outcome="", ms=0)
    assert await b.query(NewestRequests(TENANT, DAY, DAY)) == (newest, earlier)
    assert await b.query(NewestRequests(TENANT, DAY - 1, DAY, most=1)) == (newest,)
    assert len(await b.query(NewestRequests(TENANT, DAY - 1, DAY))) == 3
    assert not await b.query(NewestRequests("globex", DAY - 1, DAY))


async def usage_is_summed_by_tree(s: Subject) -> None:
    """`TreeUsage` sums a root and the runs below it, at will without one of them, and no other tree."""
    a, b = await two(s)
    top, below, other = await held(a), await held(a, "run-2"), await held(a, "run-3")
    assert await b.query(TreeUsage(TENANT, "run-1")) == Amounts()
    await a.commit(Commit((Put(CALL_USAGE, _used(), 0),), fence(top)))
    await a.commit(Commit((Put(CALL_USAGE, _used("run-2", tokens=5, unpriced=1, root="run-1"), 0),), fence(below)))
    await a.commit(Commit((Put(CALL_USAGE, _used("run-2", n=2, tokens=2, root="run-1"), 0),), fence(below)))
    await a.commit(Commit((Put(CALL_USAGE, _used("run-3", tokens=900), 0),), fence(other)))
    assert await b.query(TreeUsage(TENANT, "run-1")) == Amounts(17, 9, 3, unpriced=1)
    assert await b.query(TreeUsage(TENANT, "run-1", but="run-1")) == Amounts(7, 6, 2, unpriced=1)
    assert await b.query(TreeUsage(TENANT, "run-1", but="run-2")) == Amounts(10, 3, 1)
    assert await b.query(TreeUsage("globex", "run-1")) == Amounts()
    assert await b.query(RunUsage(TENANT, "run-2")) == Amounts(7, 6, 2, unpriced=1)


async def spending_of_runs_has_their_tree_and_raises(s: Subject) -> None:
    """`SpentOfRuns` has usage, that below, starts, and raises, in the order asked; `UnfinishedRuns` the first runs."""
    a, b = await two(s)
    top = await held(a)
    below = await held(a, "run-2", root="run-1", root_created_at=T0, depth=1, created_at=T0 + 1)
    await held(a, "run-3", lane="other@1")
    assert await b.query(SpentOfRuns(TENANT, ("run-1",))) == (RunSpending(Amounts(), Amounts(), 0, 1, ()),)
    await a.commit(Commit((Put(CALL_USAGE, _used(), 0), Put(CALL_USAGE, _used(n=2), 0)), fence(top)))
    await a.commit(Commit((Put(CALL_USAGE, _used("run-2", tokens=5, unpriced=1, root="run-1"), 0),), fence(below)))
    child = effect_row("run-1", "child/1")._replace(child_text="{}", attempts=2)
    await a.commit(Commit((Put(EFFECT, child, 0), Put(EFFECT, effect_row("run-1", "invite/2"), 0)), fence(top)))
    raise_ = RAISE.encode(RaiseRequest(Amounts(tokens=7), "why")).encode()
    for run, kind in (("run-3", "raise"), ("run-3", "signal"), ("run-1", "raise")):
        await a.commit(Commit((append_to_inbox(TENANT, run, kind, kind, "op", raise_),)))
    third, none, first, second = await b.query(SpentOfRuns(TENANT, ("run-3", "run-9", "run-1", "run-2")))
    assert none == RunSpending(Amounts(), Amounts(), 0, 0, ())
    assert first[:4] == (Amounts(20, 6, 2), Amounts(5, 3, 1, unpriced=1), 2, 1)
    assert second[:4] == (Amounts(5, 3, 1, unpriced=1), Amounts(), 0, 0)
    assert third[:4] == (Amounts(), Amounts(), 0, 0)
    assert [each.kind for each in third.raises] == ["raise"] and len(first.raises) == 1 and not second.raises
    assert raises_of(third.raises)[0].amounts == Amounts(tokens=7)
    assert await b.query(SpentOfRuns("globex", ("run-1",))) == (none,)

    async def unfinished(*lanes: str, most: int = 9, tenant: str = TENANT) -> list[str]:
        return [run.run for run in await b.query(UnfinishedRuns(tenant, lanes, most))]

    assert await unfinished(top.lane) == ["run-1", "run-2"]
    cut = await unfinished(top.lane, "other@1", most=2)
    assert cut == ["run-1", "run-3"] or (isinstance(b, DynamoStore) and len(cut) == 2)
    assert await unfinished("none@1") == await unfinished(top.lane, tenant="globex") == []
    now = await the_run(a)
    await a.commit(Commit((Put(RUN, ended(now), now.version),)))
    assert await unfinished(top.lane, "other@1") == ["run-3", "run-2"]


async def usage_is_summed_by_day_workflow_and_model(s: Subject) -> None:
    """`TenantUsage` adds up the days by workflow, model and activity, the latest reports first if there are many."""
    a, b = await two(s)
    first = await held(a)
    assert await b.query(TenantUsage(TENANT, DAY - 1, DAY)) == UsageOfDays((), every=True)
    rows = [_used(), _used(n=2, tokens=5, unpriced=1), _used(n=3, model="m-2", activity="print")]
    rows += [_used(n=n, day=DAY + by, at=T0 + by * DAY_MS, tokens=7) for n, by in ((4, -1), (5, -2), (6, 1))]
    for row in rows:
        await a.commit(Commit((Put(CALL_USAGE, row, 0),), fence(first)))
    today = (
        UsageSum(DAY, first.workflow, "m-1", "ask", 15, 15, 0, 6, 2, 1, 2),
        UsageSum(DAY, first.workflow, "m-2", "print", 10, 10, 0, 3, 1, 0, 1),
    )
    former = UsageSum(DAY - 1, first.workflow, "m-1", "ask", 7, 7, 0, 3, 1, 0, 1)
    assert await b.query(TenantUsage(TENANT, DAY - 1, DAY)) == UsageOfDays((*today, former), every=True)
    assert await b.query(TenantUsage(TENANT, DAY, DAY, most=3)) == UsageOfDays(today, every=True)
    cut = await b.query(TenantUsage(TENANT, DAY - 1, DAY, most=2))
    assert not cut.every and {each.day for each in cut.sums} == {DAY}
    assert (await b.query(TenantUsage("globex", DAY - 1, DAY))).sums == ()


async def usage_goes_with_its_run(s: Subject) -> None:
    """`purge` deletes the usage of a run together with it."""
    a, b = await two(s)
    row = await held(a)
    await a.commit(Commit((Put(CALL_USAGE, _used(), 0),), fence(row)))
    await a.commit(Commit((Put(RUN, ended(row), row.version),)))
    assert await maintenance(b).purge(T0 * 2, 10) == 1
    assert await b.rows(CALL_USAGE, (TENANT,)) == ()
    assert await b.query(TenantDayUsage(TENANT, DAY)) == DayUsage(Amounts(), reports=False)


async def a_budget_is_a_condition(s: Subject) -> None:
    """A limit may be missing. A commit that names the version of a budget is refused after the budget has changed."""
    a, b = await two(s)
    row = TenantBudget(TENANT, "day", 1, 1_000, None, 9, "op", "the plan", T0)
    await a.commit(Commit((Put(TENANT_BUDGET, row, 0),)))
    (found,) = await b.rows(TENANT_BUDGET, ())
    assert found == row and found.limits == Limits(1_000, None, 9)
    run = await held(b)
    seen = Expect(TENANT_BUDGET, (TENANT, "day"), 1)
    await b.commit(Commit((Put(CALL_USAGE, _used(), 0),), fence(run), (seen,)))
    await a.commit(Commit((Put(TENANT_BUDGET, row._replace(version=2, tokens=None), 1),)))
    await refused_for("version", b.commit(Commit((Put(CALL_USAGE, _used(n=2), 0),), fence(run), (seen,))))

"""Daily budgets, usage by day, and the unfinished runs that are nearest to a limit of their budget."""

from collections.abc import Iterable
from functools import partial

from outlast.core.budget import SHOWN, Share, amount_text, raised, raises_of, shares, total_of
from outlast.core.durations import DAY
from outlast.core.limits import BUDGETED_RUNS_MAX
from outlast.core.machine import Reason
from outlast.core.paging import pages
from outlast.core.rows.limit_rows import TENANT_BUDGET
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import Run
from outlast.core.rows.store_rows import STORE, TOPOLOGY
from outlast.core.usage import EACH_DAY, NO_LIMITS, Limits, day_of
from outlast.insight.row_models import allowed_amounts, usage_list, used_amounts
from outlast.insight.run_reads import summaries_of
from outlast.insight.tenant_rows import TenantRows
from outlast.models import instant
from outlast.models.service import BudgetedRun, BudgetedRunList, DailyBudget, LimitShare, UsageList
from outlast.store.budgeted_runs import RunSpending, SpentOfRuns, UnfinishedRuns
from outlast.store.open_rows import LaneCounts
from outlast.store.usage_sums import TenantDayUsage, TenantUsage


def limit_shares(found: Iterable[Share]) -> list[LimitShare]:
    """Return shares in the units of people."""
    return [
        LimitShare(
            name=each.name,
            counts=SHOWN[each.name],
            used=amount_text(each.name, each.used),
            limit=amount_text(each.name, each.limit),
            percent=each.percent,
        )
        for each in found
    ]


# --- of a tenant ----------------------------------------------------------------------------------
async def daily_budgets(of: TenantRows) -> list[DailyBudget]:
    """Return the tenant's daily budget with its usage today and the number of runs that wait for a budget."""
    row = await of.store.load(TENANT_BUDGET, (of.tenant, EACH_DAY))
    if row is None or row.limits == NO_LIMITS:
        return []
    today = day_of((await of.store.now()).business)
    used = (await of.store.query(TenantDayUsage(of.tenant, today))).amounts
    waiting = [len(page.rows) async for page in pages(partial(of.flagged, reason=Reason.BUDGET_EXHAUSTED))]
    budget = DailyBudget(
        tenant=row.tenant,
        limits=allowed_amounts(row.limits),
        used=used_amounts(used),
        shares=limit_shares(shares(used, row.limits)),
        resets_at=instant((today + 1) * DAY),
        runs=sum(waiting),
        by=row.by,
        since=instant(row.since),
        reason=row.reason,
    )
    return [budget]


async def usage_of_days(of: TenantRows, days: int) -> UsageList:
    """Return the sums of usage of the last business days."""
    until = day_of((await of.store.now()).business)
    return usage_list(await of.store.query(TenantUsage(of.tenant, until - days + 1, until)), days, until)


# --- of runs ----------------------------------------------------------------------------------------
async def nearest_runs(of: TenantRows, limit: int) -> BudgetedRunList:
    """Return the unfinished runs with a budget, at most `limit`, the one with the least left first.

    At most BUDGETED_RUNS_MAX runs are compared, those that began first, because they had the most time to spend.
    """
    limits = await _limits_of_lanes(of)
    if not limits:
        return BudgetedRunList(runs=[], read=0, every=True)
    found = await of.store.query(UnfinishedRuns(of.tenant, tuple(limits), BUDGETED_RUNS_MAX + 1))
    runs = found[:BUDGETED_RUNS_MAX]
    spent = await of.store.query(SpentOfRuns(of.tenant, tuple(run.run for run in runs))) if runs else ()
    now = (await of.store.now()).business
    compared = [(run, shares_of_run(run, limits[run.lane], each, now)) for run, each in zip(runs, spent, strict=True)]
    compared.sort(key=lambda each: (-each[1][0].percent, each[0].created_at))
    nearest = compared[:limit]
    summaries = await summaries_of(of, [run for run, _ in nearest])
    return BudgetedRunList(
        runs=[
            BudgetedRun(**vars(summary), shares=limit_shares(spent_of))
            for summary, (_, spent_of) in zip(summaries, nearest, strict=True)
        ],
        read=len(runs),
        every=len(found) == len(runs),
    )


async def _limits_of_lanes(of: TenantRows) -> dict[str, Limits]:
    """Return the budget of each version of a workflow that has one and unfinished runs."""
    lanes = [*await of.store.query(LaneCounts(of.tenant))]
    keys: list[Key] = [(STORE, lane) for lane in lanes]
    found: dict[str, Limits] = {}
    for row in await of.store.load_many(TOPOLOGY, keys):
        if row is not None and (limits := row.structure().get("budget")):
            found[row.lane] = Limits(*limits)
    return found


def shares_of_run(run: Run, limits: Limits, spent: RunSpending, now: int) -> tuple[Share, ...]:
    """Return the used amount of each limit of a run, raises included; of a root, that of its tree."""
    children = max(spent.started, spent.started_below)
    used = spent.own.plus(spent.below)._replace(ms=now - run.created_at, children=children)
    return shares(used, raised(limits, total_of(raises_of(spent.raises))))

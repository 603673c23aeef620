"""The pages of budgets and of usage: the share of each limit, and the amounts that calls reported on each day."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.budget import shares
from outlast.core.usage import Amounts, Limits, micros
from outlast.models.runs import AllowedAmounts
from outlast.models.service import UsageLine
from outlast.service.service_state import Ops
from outlast.ui.page_route import PageRoute
from outlast.ui.rendering import render, stamp
from outlast.ui.run_words import kind_of, name_of

router = APIRouter(prefix="/ui", route_class=PageRoute)
DAYS: Final = 14
RUNS_MAX: Final = 20
"""Runs of the list of those that are nearest to a limit."""
Day = Annotated[str, Query(pattern=r"^(\d{4}-\d{2}-\d{2})?$")]
GROUPS: Final[dict[str, Callable[[UsageLine], str]]] = {
    "Model": lambda each: each.model, "Workflow": lambda each: each.workflow, "Activity": lambda each: each.activity,
}  # fmt: skip


class UsageTotal(NamedTuple):
    """Sums of usage under one name, and their share of the largest: of money, without any of tokens."""

    name: str
    money: str
    tokens: int
    input_tokens: int
    output_tokens: int
    calls: int
    unpriced: int
    share: int
    """Per cent."""


class DayShare(NamedTuple):
    """Usage of a business day, and its share of the present daily budget; None without one."""

    total: UsageTotal
    percent: float | None


@router.get("/budgets", operation_id="ui:list_budgets")
async def show_budgets(ops: Ops, request: Request) -> Response:
    """Show the daily budget with its shares, the runs that are nearest to a limit, and the last days."""
    budgets = await ops.budgets()
    nearest = await ops.budgeted_runs(limit=RUNS_MAX)
    found = await ops.usage(days=DAYS)
    return await render(
        request,
        "budgets.html",
        title="Budgets",
        live="runs",
        versions={"budgets": stamp(budgets, nearest, found)},
        budgets=budgets,
        nearest=nearest,
        kind_of=kind_of,
        name_of=name_of,
        days=[
            DayShare(each, _share_of_day(each, budgets[0].limits) if budgets else None)
            for each in totals(found.usage, lambda each: each.day, by_name=True)
        ],
        found=found,
    )


def _share_of_day(day: UsageTotal, allowed: AllowedAmounts) -> float:
    """Return the used part of the limit with the least left, in per cent."""
    money = None if allowed.money is None else micros(allowed.money)
    limits = Limits(allowed.tokens, money, allowed.calls)
    return shares(Amounts(day.tokens, micros(day.money), day.calls), limits)[0].percent


@router.get("/usage", operation_id="ui:list_usage")
async def show_usage(ops: Ops, request: Request, day: Day = "") -> Response:
    """Show the last days, and of one of them the usage by model, workflow and activity."""
    found = await ops.usage(days=DAYS)
    chosen = day or found.until
    of_day = [each for each in found.usage if each.day == chosen]
    return await render(
        request,
        "usage.html",
        title="Usage",
        live="runs",
        versions={"usage": stamp(found, chosen)},
        days=totals(found.usage, lambda each: each.day, by_name=True),
        chosen=chosen,
        found=found,
        groups=[(name, totals(of_day, key)) for name, key in GROUPS.items()],
    )


def totals(
    lines: Iterable[UsageLine], name_of: Callable[[UsageLine], str], *, by_name: bool = False
) -> list[UsageTotal]:
    """Return the sums of lines with one name, the most money first; `by_name`: the last name first."""
    sums: dict[str, list[Decimal]] = {}
    for each in lines:
        counts = each.tokens, each.input_tokens, each.output_tokens, each.calls, each.unpriced
        amounts = [Decimal(each.money), *map(Decimal, counts)]
        name = name_of(each)
        sums[name] = [a + b for a, b in zip(sums[name], amounts, strict=True)] if name in sums else amounts
    measured = 0 if any(amounts[0] for amounts in sums.values()) else 1
    most = max((amounts[measured] for amounts in sums.values()), default=Decimal()) or 1
    order = sorted(sums.items(), key=lambda each: each[0] if by_name else (each[1][measured], each[0]), reverse=True)
    found = []
    for name, (money, *numbers) in order:
        tokens, given, made, calls, unpriced = map(int, numbers)
        share = int(100 * (money, *numbers)[measured] / most)
        found.append(UsageTotal(name, f"{money.normalize():f}", tokens, given, made, calls, unpriced, share))
    return found

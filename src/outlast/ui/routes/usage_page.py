"""The page of usage: the amounts that calls have reported on each business day, and the daily budget."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.models.service import UsageLine
from outlast.service.service_state import Ops
from outlast.ui.page_route import PageRoute
from outlast.ui.rendering import render, stamp

router = APIRouter(prefix="/ui", route_class=PageRoute)
DAYS: Final = 14
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


@router.get("/usage", operation_id="ui:list_usage")
async def show_usage(ops: Ops, request: Request, day: Day = "") -> Response:
    """Show the last days, and of one of them the usage by model, workflow and activity."""
    found = await ops.usage(days=DAYS)
    chosen = day or found.until
    of_day = [each for each in found.usage if each.day == chosen]
    budgets = await ops.budgets()
    return await render(
        request,
        "usage.html",
        title="Usage",
        live="runs",
        versions={"usage": stamp(found, chosen, budgets)},
        days=totals(found.usage, lambda each: each.day, by_name=True),
        chosen=chosen,
        found=found,
        groups=[(name, totals(of_day, key)) for name, key in GROUPS.items()],
        budgets=budgets,
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

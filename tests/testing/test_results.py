"""Results across crashes at every chunk, tested with `every_crash`."""

from datetime import timedelta
from typing import Literal

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity, resend
from outlast.testing import every_crash
from outlast.testing.campaign import RunEnd

pytestmark = pytest.mark.req("CKP-4", "CKP-5", "TEST-1")


class Harvest(BaseModel):
    pages: int
    taken: int = 0


class Lead(BaseModel):
    page: int
    n: int


harvest = Workflow("harvest", state=Harvest)
PER_PAGE = 30


@activity(key="book/{page}", if_uncertain=resend(remembered_for=timedelta(hours=24)), no_undo="it lapses")
async def book(page: int) -> int:
    return page


@harvest.node(start=True)
async def take(ctx: Context[Harvest]) -> Literal["close"]:
    """Yield two chunks and a rest in one visit, with a call between them."""
    for page in range(ctx.state.pages):
        await ctx.do(book, page)
        for n in range(PER_PAGE):
            await ctx.emit(Lead(page=page, n=n), key=f"lead/{page}/{n}")
    return "close"


@harvest.node
async def close(ctx: Context[Harvest]) -> None:
    await ctx.emit({"closed": True}, key="lead/0/0", kind="mark")
    ctx.state.taken = ctx.state.pages * PER_PAGE


@every_crash(harvest, {"pages": 4}, cases=12, seed=1)
def test_no_crash_loses_or_repeats_a_result(end: RunEnd) -> None:
    """`scripts/crash drawn` plays all cases."""
    assert end.outcome["taken"] == 120

"""An auction in two rounds: the highest bid of both rounds wins."""

from typing import Literal

from pydantic import BaseModel, Field

from outlast import Cancel, Context, Workflow, activity


class Bid(BaseModel):
    bidder: str
    cents: int = Field(gt=0, le=100_000)


class Auction(BaseModel):
    lot: str
    bids: list[Bid] = []
    sold_for: int = 0


auctions = Workflow("auction", state=Auction)


@activity(key="award/{lot}", once_per="run", no_undo="the buyer has been told")
async def award(lot: str, bidder: str, cents: int) -> str:
    return f"{lot} goes to {bidder}"


@auctions.node(start=True)
async def first_round(ctx: Context[Auction]) -> Literal["second_round"]:
    ctx.state.bids = await ctx.collect("bid", Bid, timeout="2d", limit=3)
    return "second_round"


@auctions.node
async def second_round(ctx: Context[Auction]) -> Literal["close"]:
    ctx.state.bids += await ctx.collect("bid", Bid, timeout="1d", limit=3)
    return "close"


@auctions.node
async def close(ctx: Context[Auction]) -> None:
    s = ctx.state
    if not s.bids:
        raise Cancel("no bids")
    best = max(s.bids, key=lambda bid: bid.cents)
    await ctx.do(award, s.lot, best.bidder, best.cents)
    s.sold_for = best.cents

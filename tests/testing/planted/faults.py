"""The planted faults: a healthy workflow, the change that breaks it, and the sentence that an author would check.

Two workflows are examples that were not written for it. A fault is a replaced text of the module, as a careless edit
would be.
"""

import importlib.util
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from outlast.testing import Story

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
EXAMPLES = TESTS.parent / "examples"


class Planted(NamedTuple):
    """A fault: `old` of the module `file` becomes `new`. `holds` is the author's invariant."""

    name: str
    file: Path
    workflow: str
    given: dict[str, Any]
    old: str
    new: str
    holds: Callable[[Story], None]


def money_goes_back_once(story: Story) -> None:
    paid = sum(call.arguments["cents"] for call in story.executed("refund"))
    assert paid <= 900, f"{paid} cents of 900 went back"


def the_highest_bid_wins(story: Story) -> None:
    bids = [signal.payload["cents"] for signal in story.signals if signal.name == "bid" and signal.taken]
    for call in story.executed("award"):
        assert call.arguments["cents"] == max(bids), f"sold for {call.arguments['cents']}, the best bid was {max(bids)}"


def the_total_is_what_was_charged(story: Story) -> None:
    if story.status == "completed":
        charged = sum(call.arguments["cents"] for call in story.executed("charge"))
        assert story.outcome["total"] == charged, f"the invoice says {story.outcome['total']}, charged was {charged}"


def no_flight_no_trip(story: Story) -> None:
    if story.ended and not story.executed("book_flight"):
        left = [e.key for e in story.effects if e.status == "done" and e.activity in ("reserve_hotel", "charge_card")]
        assert not left, f"without a flight, {left} are still booked"


def money_leaves_under_a_valid_approval(story: Story) -> None:
    for call in story.executed("pay_out", "transfer"):
        ends = [each.valid_until for each in story.approvals if each.valid_until is not None]
        assert any(call.at < end + ON_THE_WAY for end in ends), (
            f"{call.key} was paid at {call.at}, approved until {ends}"
        )


ON_THE_WAY = timedelta(hours=1)  # a request that was sent in time may arrive later
PLANTED = (
    Planted(
        "double refund after a late signal",
        HERE / "returns.py",
        "returns",
        {"order": "A-1", "cents": 900},
        "    if parcel is None or ctx.state.refunded:\n",
        "    if parcel is None:\n",
        money_goes_back_once,
    ),
    Planted(
        "lost bid",
        HERE / "auction.py",
        "auctions",
        {"lot": "L-1"},
        "    ctx.state.bids += await",
        "    ctx.state.bids = await",
        the_highest_bid_wins,
    ),
    Planted(
        "wrong total",
        HERE / "invoice.py",
        "invoices",
        {"order": "A-1"},
        """        try:
            await ctx.do(charge, s.order, line.sku, line.cents)
        except Refused:
            continue
        s.total += line.cents
""",
        """        s.total += line.cents
        try:
            await ctx.do(charge, s.order, line.sku, line.cents)
        except Refused:
            continue
""",
        the_total_is_what_was_charged,
    ),
    Planted(
        "undo skipped",
        EXAMPLES / "trip.py",
        "trip",
        {"traveller": "ana", "ends": "booked"},
        "    await ctx.do(book_flight, who)\n",
        "    try:\n        await ctx.do(book_flight, who)\n    except Refused:\n        pass\n",
        no_flight_no_trip,
    ),
    Planted(
        "approval used after its expiry",
        TESTS / "crash" / "refund.py",
        "refund",
        {"order_id": "o-7"},
        """    s.paid = await ctx.do(pay_out, s.order_id, s.cents + int(os.environ.get(SNEAK, "0")))
    return "close"
""",
        """    return "transferring"


@activity(key="transfer/{order_id}", once_per="run", no_undo="paid is paid")
async def transfer(order_id: str, cents: int) -> str:
    return f"transfer-{order_id}"


@refund.node
async def transferring(ctx: Context[Claim]) -> Literal["close"]:
    await ctx.receive("bank_open", Comment, timeout="3d")
    await ctx.do(transfer, ctx.state.order_id, ctx.state.cents)
    return "close"
""",
        money_leaves_under_a_valid_approval,
    ),
)
ALSO = {
    "approval used after its expiry": [
        (
            'async def pay(ctx: Context[Claim]) -> Literal["close"]:',
            'async def pay(ctx: Context[Claim]) -> Literal["transferring"]:',
        )
    ]
}
"""Further texts of a fault that are replaced."""


def text_of(planted: Planted, *, broken: bool) -> str:
    """Return the text of the module, healthy or broken. Raises AssertionError if the text to replace is gone."""
    text = planted.file.read_text(encoding="utf-8")
    for old, new in ((planted.old, planted.new), *ALSO.get(planted.name, ())):
        assert text.count(old) == 1, f"{planted.file.name} has {text.count(old)} times: {old}"
        text = text.replace(old, new) if broken else text
    return text


def module_of(planted: Planted, folder: Path, *, broken: bool) -> ModuleType:
    """Load the module, healthy or broken, from a file in a folder."""
    stem = f"planted_{planted.file.stem}_{'broken' if broken else 'healthy'}"
    file = folder / f"{stem}.py"
    name = f"tests.crash.{stem}" if planted.file.parent.name == "crash" else stem  # for its relative import
    file.write_text(text_of(planted, broken=broken), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""An order as a saga: reserve, charge, wait for the carrier, ship. A refused shipment undoes the earlier steps."""

import os
from typing import Any, Final, Literal

from pydantic import BaseModel

import outlast.http
from outlast import Context, DidNotHappen, Fail, Happened, Refused, Unknown, Workflow, activity, resend, role, this_call
from outlast.testing import FakeReceivers, resets, status

ENV: Final = "ORDERS_URL"
RESEND: Final = resend(remembered_for="24h")


class Order(BaseModel):
    """State of an order: its number, how many pieces, and the reference of each step."""

    number: str
    pieces: int
    stock: str = ""
    charge: str = ""
    slot: str = ""
    parcel: str = ""


class Slot(BaseModel):
    """The carrier's signal."""

    at: str


class Reference(BaseModel):
    """Answer of the warehouse, the bank or the carrier."""

    id: str


orders = Workflow("orders", state=Order, key="order/{number}")


async def _post(path: str, **body: Any) -> Reference:
    async with outlast.http.AsyncClient(base_url=os.environ[ENV], trust_env=False, verify=False) as http:
        return Reference.model_validate_json((await http.post(path, json=body)).content)


@activity(key="stock/{number}", once_per="run", if_uncertain=RESEND)
async def reserve(number: str, pieces: int) -> Reference:
    return await _post("/stock", number=number, pieces=pieces)


@reserve.undo(if_uncertain=RESEND)
async def release(done: Reference, number: str, pieces: int) -> None:
    await _post("/stock/released", id=done.id)


@activity(key="charge/{number}", once_per="run")
async def charge(number: str, cents: int) -> Reference:
    return await _post("/charges", number=number, cents=cents)


@charge.reconcile
async def find_charge(number: str, cents: int) -> Happened[Reference] | DidNotHappen | Unknown:
    async with outlast.http.AsyncClient(base_url=os.environ[ENV], trust_env=False, verify=False) as http:
        said = await http.get("/charges", headers={"Idempotency-Key": this_call().idempotency_key})
    return Happened(Reference.model_validate_json(said.content)) if said.is_success else DidNotHappen()


@charge.undo(if_uncertain=RESEND)
async def refund(done: Reference, number: str, cents: int) -> None:
    await _post("/charges/refunded", id=done.id)


@activity(key="parcel/{number}", once_per="run", no_undo="a parcel is on its way", if_uncertain=RESEND)
async def ship(number: str, slot: str) -> Reference:
    return await _post("/parcels", number=number, slot=slot)


@orders.node(start=True, plane="execution")
async def take(ctx: Context[Order]) -> Literal["pay"]:
    ctx.state.stock = (await ctx.do(reserve, ctx.state.number, ctx.state.pieces)).id
    return "pay"


@orders.node(plane="execution")
async def pay(ctx: Context[Order]) -> Literal["send"]:
    plan = charge.plan(ctx.state.number, ctx.state.pieces * 900)
    decision = await ctx.approval(plan, summary=f"Charge {ctx.state.number}", by=role("finance"), within="96h")
    if not decision.approved:
        raise Fail(f"not charged: {decision.reason}")
    ctx.state.charge = (await ctx.do(plan)).id
    return "send"


@orders.node(end="SHIPPED", plane="execution")
async def send(ctx: Context[Order]) -> None:
    await ctx.sleep("1d")
    slot = await ctx.receive("slot", Slot)
    ctx.state.slot = slot.at
    try:
        ctx.state.parcel = (await ctx.do(ship, ctx.state.number, slot.at)).id
    except Refused as error:
        raise Fail(f"not shipped: {error.code}") from error


def systems(*, ships: bool) -> FakeReceivers:
    """Return warehouse, bank and carrier, which are not started. The bank's first answer is lost."""
    found = FakeReceivers(env=ENV).route("/stock", status(502, acts=True)).route("/stock/released")
    found.route("/charges", resets(), duplicates="act").route("/charges/refunded")
    return found.route("/parcels", *(() if ships else (status(422),) * 50))

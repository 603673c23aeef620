"""A trip with four bookings that fails at the end: Outlast undoes the bookings, the latest first.

Run it with `python examples/trip.py`. Each booking shows another way to handle an uncertain call and its undo. The
hotel asks a person, the card payment is resent with the same key, and the flight is reconciled. The mail has no undo.
The travel agency deduplicates requests by key and records them.
"""

import asyncio
import tempfile
from typing import Literal

from pydantic import BaseModel

from outlast import (
    Context,
    DidNotHappen,
    Fail,
    Happened,
    Refused,
    Retry,
    Unknown,
    Workflow,
    activity,
    resend,
    this_call,
)
from outlast.runtime import Choice, InProcessRuntime, Reason, open_store

REMEMBERS = "24h"  # the payment service deduplicates by key for this long


class Agency:
    """A fake receiver: it records what it did by idempotency key, and refuses the requests in `refuses`."""

    def __init__(self) -> None:
        self.did: dict[str, str] = {}
        self.refuses: set[str] = set()

    def act(self, what: str) -> str:
        """Act once per key and return the reference. Raises Refused if `what` is in `refuses`."""
        if what in self.refuses:
            raise Refused("http_422", f"{what}: the agency says no")
        key = this_call().idempotency_key
        if key not in self.did:
            self.did[key] = f"ref-{len(self.did) + 1}"
            print(f"  agency: {what}")
        return self.did[key]

    def find(self) -> str | None:
        """Return the reference recorded for the key of this call, or None."""
        return self.did.get(this_call().idempotency_key)


agency = Agency()


class Trip(BaseModel):
    traveller: str
    ends: Literal["booked", "failed"]


trip = Workflow("trip", state=Trip)


# --- ask_person, the default: a person decides if the booking or its undo is uncertain ---------------
@activity(key="hotel/{traveller}", once_per="run")
async def reserve_hotel(traveller: str) -> str:
    return agency.act(f"hotel for {traveller}")


@reserve_hotel.undo
async def release_hotel(done: str, traveller: str) -> None:
    agency.act(f"release hotel {done}")


# --- resend: the receiver deduplicates by key ----------------------------------------------------------
@activity(key="card/{traveller}", once_per="run", if_uncertain=resend(remembered_for=REMEMBERS))
async def charge_card(traveller: str, cents: int) -> str:
    return agency.act(f"charge {cents} cents")


@charge_card.undo(if_uncertain=resend(remembered_for=REMEMBERS), timeout="20s", retry=Retry(attempts=5))
async def refund_card(done: str, traveller: str, cents: int) -> None:
    agency.act(f"refund {cents} cents of {done}")


# --- reconcile: the receiver can be asked whether the call happened ------------------------------------
@activity(key="flight/{traveller}", once_per="run")
async def book_flight(traveller: str) -> str:
    return agency.act(f"flight for {traveller}")


@book_flight.reconcile
async def find_flight(traveller: str) -> Happened[str] | DidNotHappen | Unknown:
    found = agency.find()
    return Happened(found) if found else DidNotHappen()


async def find_cancelled(done: str, traveller: str) -> Happened[str] | DidNotHappen | Unknown:
    found = agency.find()
    return Happened(found) if found else DidNotHappen()


@book_flight.undo(reconcile=find_cancelled)
async def cancel_flight(done: str, traveller: str) -> None:
    agency.act(f"cancel flight {done}")


# --- no undo -------------------------------------------------------------------------------------------
@activity(key="mail/{traveller}", once_per="run", no_undo="a mail cannot be unsent")
async def send_mail(traveller: str) -> str:
    return agency.act(f"mail to {traveller}")


@trip.node(start=True)
async def book(ctx: Context[Trip]) -> Literal["confirm"]:
    who = ctx.state.traveller
    await ctx.do(reserve_hotel, who)
    await ctx.do(charge_card, who, 42_000)
    await ctx.do(send_mail, who)
    await ctx.do(book_flight, who)
    return "confirm"


@trip.node
async def confirm(ctx: Context[Trip]) -> None:
    if ctx.state.ends == "failed":
        raise Fail("the conference was called off")


async def travel(runtime: InProcessRuntime, traveller: str, ends: str, refuses: str = "") -> None:
    """Run one trip to its end. `refuses`: an undo that the agency refuses, so that an operator does it by hand."""
    print(f"{traveller}'s trip")
    agency.refuses = {refuses} if refuses else set()
    given = {"traveller": traveller, "ends": ends}
    begun = await runtime.start(workflow_name="trip", input=given, idempotency_key=traveller, correlation_id=traveller)
    state = await runtime.finished(begun.id)
    if state.shown == "REQUIRES_ATTENTION":
        print(f"  a person is called, {state.status}: {refuses} was refused")
        answer = runtime.operations.answer
        await answer(begun.id, Choice.DONE_BY_HAND, reason=Reason.UNDO_FAILED, text="phoned them")
        while state.shown == "REQUIRES_ATTENTION":
            await asyncio.sleep(0.01)
            state = await runtime.finished(begun.id)
    print(f"  {state.status}" + (f": {state.reason}" if state.reason else ""))


async def main() -> None:
    """Run three trips: one completes, one is undone, and one has an undo that needs an operator."""
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(f"sqlite:{folder}/trips.db")
        async with InProcessRuntime(store, [trip]) as runtime:
            await travel(runtime, "ana", "booked")
            await travel(runtime, "bo", "failed")
            await travel(runtime, "cy", "failed", refuses="cancel flight ref-15")
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())

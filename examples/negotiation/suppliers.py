"""Activities that call a supplier's HTTP mailbox, with their reconcile and undo functions."""

import functools
import os
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ValidationError

from outlast import DidNotHappen, Happened, Refused, RetryLater, Unknown, activity, this_call

from .inbox import answer_to
from .letters import (
    Ask,
    Cancellation,
    Feedback,
    Inquiry,
    Invitation,
    Message,
    Order,
    OrderForm,
    Proposal,
    Receipt,
    Terms,
    Wanted,
)
from .record import Kind

INBOX = "NEGOTIATION_INBOX"
"""The environment variable with the address of the inbox. It belongs to the installation, not to the run. An inbox
that moves during an auction does not change the identity of an invitation."""

Word = TypeVar("Word", bound=BaseModel)
Finding: TypeAlias = Happened[Word] | DidNotHappen | Unknown


@activity(key="invite/{supplier_id}/{round_number}", no_undo="an invitation cannot be unsent")
async def invite(supplier_id: str, round_number: int, mailbox: str, ask: Ask) -> Receipt:
    """Invite a supplier to bid in one round."""
    return await _post(mailbox, "invitations", Invitation(**ask.model_dump(), **_back()), Receipt)


@invite.reconcile
async def find_invitation(supplier_id: str, round_number: int, mailbox: str, ask: Ask) -> Finding[Receipt]:
    """Ask the supplier whether it received the invitation."""
    return await _ask(mailbox, Receipt)


@activity(key="quote/{supplier_id}", no_undo="a request cannot be unsent")
async def request_quote(supplier_id: str, mailbox: str, ask: Ask) -> Receipt:
    """Ask a supplier for one quote."""
    return await _post(mailbox, "quotes", Invitation(**ask.model_dump(), **_back()), Receipt)


@request_quote.reconcile
async def find_quote(supplier_id: str, mailbox: str, ask: Ask) -> Finding[Receipt]:
    """Ask the supplier whether it received the request."""
    return await _ask(mailbox, Receipt)


@activity(key="inquiry/{supplier_id}/{wanted}", no_undo="an inquiry cannot be unsent")
async def inquire(supplier_id: str, wanted: Wanted, mailbox: str, ask: Ask) -> Receipt:
    """Ask a supplier of a scarce item for full, substitute or partial delivery."""
    return await _post(mailbox, "inquiries", Inquiry(**ask.model_dump(), **_back(), wanted=wanted), Receipt)


@inquire.reconcile
async def find_inquiry(supplier_id: str, wanted: Wanted, mailbox: str, ask: Ask) -> Finding[Receipt]:
    """Ask the supplier whether it received the inquiry."""
    return await _ask(mailbox, Receipt)


@activity(key="proposal/{supplier_id}/{round_number}", no_undo="a proposal cannot be unsent")
async def propose(supplier_id: str, round_number: int, mailbox: str, ask: Ask, terms: Terms) -> Receipt:
    """Send a supplier the buyer's position of one round."""
    return await _post(mailbox, "proposals", Proposal(**ask.model_dump(), **_back(), terms=terms), Receipt)


@propose.reconcile
async def find_proposal(supplier_id: str, round_number: int, mailbox: str, ask: Ask, terms: Terms) -> Finding[Receipt]:
    """Ask the supplier whether it received the proposal."""
    return await _ask(mailbox, Receipt)


@activity(key="feedback/{supplier_id}/{round_number}", no_undo="feedback cannot be unsent")
async def send_feedback(supplier_id: str, round_number: int, mailbox: str, feedback: Feedback) -> Receipt:
    """Send a supplier its rank and the best price after a round."""
    return await _post(mailbox, "feedback", feedback, Receipt)


@send_feedback.reconcile
async def find_feedback(supplier_id: str, round_number: int, mailbox: str, feedback: Feedback) -> Finding[Receipt]:
    """Ask the supplier whether it received the feedback."""
    return await _ask(mailbox, Receipt)


@activity(key="order/{supplier_id}/{bid_id}", once_per="run")
async def place_order(supplier_id: str, bid_id: str, cents: int, mailbox: str, reference: str) -> Order:
    """Order the goods of a bid at the price of the bid."""
    letter = OrderForm(run_id=this_call().run_id, reference=reference, bid_id=bid_id, cents=cents)
    return await _post(mailbox, "orders", letter, Order)


@place_order.reconcile
async def find_order(supplier_id: str, bid_id: str, cents: int, mailbox: str, reference: str) -> Finding[Order]:
    """Ask the supplier whether it received the order."""
    return await _ask(mailbox, Order)


@place_order.undo
async def cancel_order(done: Order, supplier_id: str, bid_id: str, cents: int, mailbox: str, reference: str) -> None:
    """Cancel the order at the supplier."""
    letter = Cancellation(run_id=this_call().run_id, order_id=done.order_id)
    await _post(mailbox, "cancellations", letter, Receipt)


@activity(key="message/{supplier_id}/{subject}", no_undo="a letter cannot be unsent")
async def send_message(supplier_id: str, subject: str, mailbox: str, message: Message) -> Receipt:
    """Send a supplier the result of the negotiation."""
    return await _post(mailbox, "messages", message, Receipt)


@send_message.reconcile
async def find_message(supplier_id: str, subject: str, mailbox: str, message: Message) -> Finding[Receipt]:
    """Ask the supplier whether it received the letter."""
    return await _ask(mailbox, Receipt)


def _back() -> dict[str, Any]:
    """Return the run of a letter and the address for the bid."""
    run_id, inbox = this_call().run_id, os.environ.get(INBOX)
    if not inbox:
        raise RetryLater(f"{INBOX} is not set, so the supplier would not know where to send its bid")
    return {"run_id": run_id, "answer_to": answer_to(inbox, run_id)}


async def _post(mailbox: str, kind: Kind, letter: BaseModel, word: type[Word]) -> Word:
    """Send a letter with this call's idempotency key.

    Raises Refused for 422 and 410. Other failures reach the engine, which decides whether the call is uncertain.
    """
    key = {"Idempotency-Key": this_call().idempotency_key}
    async with _client() as http:
        answer = await http.post(f"{mailbox.rstrip('/')}/{kind}", json=letter.model_dump(mode="json"), headers=key)
    if answer.status_code in (httpx2.codes.UNPROCESSABLE_CONTENT, httpx2.codes.GONE):
        raise Refused("declined", _detail(answer))
    answer.raise_for_status()
    return word.model_validate_json(answer.content)


async def _ask(mailbox: str, word: type[Word]) -> Finding[Word]:
    """Ask a supplier whether it has accepted this call's request. Any unclear answer is Unknown."""
    try:
        async with _client() as http:
            answer = await http.get(f"{mailbox.rstrip('/')}/requests/{quote(this_call().idempotency_key, safe='')}")
    except httpx2.TransportError as failed:
        return Unknown(f"the supplier could not be reached: {failed}")
    if answer.status_code != httpx2.codes.OK:
        return Unknown(f"the supplier answered {answer.status_code}: {_detail(answer)}")
    try:
        said = answer.json()
        if said["known"] is False:
            return DidNotHappen()
        response = word.model_validate(said["response"])
    except (ValueError, KeyError, TypeError, ValidationError):
        return Unknown("the supplier's answer cannot be read")
    return Happened(response, external_id=next(iter(response.model_dump().values())))


def _client() -> httpx2.AsyncClient:
    """Return a client that times out at this call's deadline.

    It ignores proxies of the environment, because an error page of a proxy is not an answer of the supplier.
    """
    left = (this_call().deadline - datetime.now(UTC)).total_seconds()
    return httpx2.AsyncClient(timeout=max(left, 0.001), trust_env=False, verify=_trust())


@functools.cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def _detail(answer: httpx2.Response) -> str:
    try:
        said: Any = answer.json()
    except ValueError:
        return answer.text[:200]
    return str(said.get("detail", said))[:200] if isinstance(said, Mapping) else str(said)[:200]

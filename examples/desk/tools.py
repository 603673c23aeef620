"""The tools of the desk. A lookup only reads; an activity changes something and says what an uncertain call needs.

The five activities are the kinds of receivers that a tool meets: `open_ticket` and `restart_service` can be asked
whether a request was executed, `comment` and `refund` are recognized by their key, and `send_mail` is neither.
"""

import functools
import os
import ssl
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel

import outlast.http
from outlast import DidNotHappen, Happened, RetryLater, Unknown, activity, lookup, resend, this_call
from outlast.flow.activity import Activity

from .office import ENV, REQUESTS

REMEMBERS = "24h"
"""Time for which the ticket system and the bank recognize the key of a request."""
Answer = TypeVar("Answer", bound=BaseModel)
Finding: TypeAlias = Happened[Answer] | DidNotHappen | Unknown


class Ticket(BaseModel):
    """A ticket as the ticket system shows it."""

    number: str
    title: str
    service: str
    text: str
    customer: str = ""
    status: Literal["open", "closed"] = "open"
    comments: list[str] = []


class Order(BaseModel):
    """An order with each charge for it, in cents."""

    order: str
    charges: list[int]


class Opened(BaseModel):
    """A ticket that the desk opened."""

    number: str


class Receipt(BaseModel):
    """The answer of a system that executed a request."""

    id: str


# --- lookups -------------------------------------------------------------------------------------------
@lookup(key="ticket/{number}")
async def read_ticket(number: str) -> Ticket:
    """Read a ticket with its comments."""
    return Ticket.model_validate(await _get(f"/tickets/{quote(number)}"))


@lookup(key="logs/{service}")
async def read_logs(service: str) -> list[str]:
    """Read the last log lines of a service."""
    lines: list[str] = await _get(f"/logs/{quote(service)}")
    return lines


@lookup(key="runbook/{name}")
async def read_runbook(name: str) -> str:
    """Read the instructions for a kind of incident."""
    return str(await _get(f"/runbooks/{quote(name)}"))


@lookup(key="order/{order}")
async def read_order(order: str) -> Order:
    """Read an order with each charge for it, in cents."""
    return Order.model_validate(await _get(f"/orders/{quote(order)}"))


# --- the receiver can be asked: reconcile ------------------------------------------------------------
@activity(key="ticket/{about}/{topic}", once_per="run", if_uncertain="reconcile")
async def open_ticket(about: str, topic: str, text: str) -> Opened:
    """Open a follow-up ticket about another ticket. `topic` is a short name for the work."""
    return await _post("/tickets", Opened, about=about, title=topic, text=text)


@open_ticket.reconcile
async def find_ticket(about: str, topic: str, text: str) -> Finding[Opened]:
    """Ask the ticket system for the ticket of this call's key."""
    return await _find(REQUESTS, Opened)


@open_ticket.undo(if_uncertain=resend(remembered_for=REMEMBERS))
async def withdraw_ticket(done: Opened, about: str, topic: str, text: str) -> None:
    """Close the ticket that was opened."""
    await _post(f"/tickets/{quote(done.number)}/close", Receipt, reason="the incident was cancelled")


@activity(key="restart/{service}", once_per="run", if_uncertain="reconcile", no_undo="a service stays restarted")
async def restart_service(number: str, service: str, reason: str) -> Receipt:
    """Restart a service for a ticket. Requests in progress are lost."""
    return await _post(f"/services/{quote(service)}/restarts", Receipt, reason=reason)


@restart_service.reconcile
async def find_restart(number: str, service: str, reason: str) -> Finding[Receipt]:
    """Ask the service platform for the restart of this call's key."""
    return await _find(f"/services/{quote(service)}/restarts", Receipt)


# --- the receiver recognizes a key: resend -------------------------------------------------------------
@activity(
    key="comment/{number}/{topic}",
    once_per="run",
    if_uncertain=resend(remembered_for=REMEMBERS),
    no_undo="a comment has been read",
)
async def comment(number: str, topic: str, text: str) -> Receipt:
    """Write a comment on a ticket. `topic` is a short name for its content."""
    return await _post(f"/tickets/{quote(number)}/comments", Receipt, text=text)


@activity(
    key="refund/{order}",
    once_per="tenant",
    if_uncertain=resend(remembered_for=REMEMBERS),
    no_undo="the customer keeps the money",
)
async def refund(number: str, order: str, cents: int) -> Receipt:
    """Refund the second charge for an order that a ticket names, once."""
    return await _post("/refunds", Receipt, order=order, cents=cents)


# --- neither: a person is asked ----------------------------------------------------------------------
@activity(key="mail/{to}/{topic}", once_per="run", if_uncertain="ask_person", no_undo="a mail cannot be unsent")
async def send_mail(number: str, to: str, topic: str, text: str) -> Receipt:
    """Send a mail to the customer of a ticket, or within the shop. `topic` is its subject."""
    return await _post("/mail", Receipt, to=to, subject=topic, text=text)


TOOLS: list[Activity[..., Any]] = [
    read_ticket,
    read_logs,
    read_runbook,
    read_order,
    open_ticket,
    comment,
    restart_service,
    refund,
    send_mail,
]


# --- the wire -----------------------------------------------------------------------------------------
@functools.cache
def trust() -> ssl.SSLContext:
    """Return the certificates to trust. It is cached, because reading them takes longer than a request."""
    return ssl.create_default_context()


def _client() -> outlast.http.AsyncClient:
    """Return a client that adds this call's key and deadline. Raises RetryLater without the office's address."""
    if not (url := os.environ.get(ENV)):
        raise RetryLater(f"{ENV} is not set, so the office cannot be reached")
    return outlast.http.AsyncClient(base_url=url, trust_env=False, verify=trust())


async def _get(path: str) -> Any:
    async with _client() as http:
        return outlast.http.checked(await http.get(path)).json()


async def _post(path: str, answer: type[Answer], **body: Any) -> Answer:
    async with _client() as http:
        return answer.model_validate_json((await http.post(path, json=body)).content)


async def _find(path: str, answer: type[Answer]) -> Finding[Answer]:
    """Ask a system for the request with this call's key. Any unclear answer is Unknown."""
    try:
        async with _client() as http:
            said = await http.get(path, headers={"Idempotency-Key": this_call().idempotency_key})
        if said.status_code == httpx2.codes.NOT_FOUND:
            return DidNotHappen()
        return Happened(answer.model_validate_json(outlast.http.checked(said).content))
    except (httpx2.HTTPError, ValueError) as unclear:
        return Unknown(f"{path} gave no clear answer: {unclear}")

"""Activities on the systems outside: CRM, calendar, mail and messenger. Each has an undo with a name.

Contacts, meetings and chat messages are recognized by their key, so a call is resent. Deals, mails and tasks are not,
but their systems can be asked for the request of a key.
"""

import functools
import os
import ssl
from typing import Any, Final
from urllib.parse import quote

import httpx2
from pydantic import BaseModel

import outlast.http
from outlast import DidNotHappen, Happened, RetryLater, Unknown, activity, lookup, resend, this_call
from outlast.flow.options import Retry

from .office import CHAT, CONTACTS, DEALS, ENV, MAIL, MEETINGS, PROFILES, SITES, TASKS

RESEND: Final = resend(remembered_for="24h")
RETRY: Final = Retry(attempts=5, total_wait="60s")


class Receipt(BaseModel):
    """Answer of a system that executed a request: its id for the new thing."""

    id: str


# --- lookups -------------------------------------------------------------------------------------------
@lookup(key="site/{domain}")
async def read_site(domain: str) -> str:
    """Read the front page of a company's web site."""
    return await _get(f"{SITES}/{quote(domain)}")


@lookup(key="profile/{email}")
async def read_profile(email: str) -> str:
    """Read the public profile of a person."""
    return await _get(f"{PROFILES}/{quote(email)}")


# --- CRM -------------------------------------------------------------------------------------------------
@activity(key="contact/{email}", once_per="run", if_uncertain=RESEND, retry=RETRY)
async def upsert_contact(email: str, name: str, company: str) -> Receipt:
    """Create or update the contact."""
    return await _post(CONTACTS, email=email, name=name, company=company)


@upsert_contact.undo(if_uncertain=RESEND)
async def archive_contact(done: Receipt, email: str, name: str, company: str) -> None:
    """Archive the contact."""
    await _post(f"{CONTACTS}/archived", id=done.id)


@activity(key="deal/{email}", once_per="run", retry=RETRY)
async def open_deal(email: str, contact_id: str, grade: str, cents: int) -> Receipt:
    """Open a deal."""
    return await _post(DEALS, contact=contact_id, grade=grade, cents=cents)


@open_deal.reconcile
async def find_deal(email: str, contact_id: str, grade: str, cents: int) -> Happened[Receipt] | DidNotHappen | Unknown:
    """Ask the CRM for the deal of this call."""
    return await _find(DEALS)


@open_deal.undo(if_uncertain=RESEND)
async def close_deal(done: Receipt, email: str, contact_id: str, grade: str, cents: int) -> None:
    """Close the deal as lost."""
    await _post(f"{DEALS}/closed", id=done.id)


# --- calendar --------------------------------------------------------------------------------------------
@activity(key="meeting/{email}", once_per="run", if_uncertain=RESEND, retry=RETRY)
async def book_meeting(email: str, topic: str) -> Receipt:
    """Book a first meeting."""
    return await _post(MEETINGS, with_=email, topic=topic)


@book_meeting.undo(if_uncertain=RESEND)
async def cancel_meeting(done: Receipt, email: str, topic: str) -> None:
    """Cancel the meeting."""
    await _post(f"{MEETINGS}/cancelled", id=done.id)


@activity(key="task/{email}", once_per="run", retry=RETRY)
async def schedule_follow_up(email: str, deal_id: str) -> Receipt:
    """Schedule the task to call the contact."""
    return await _post(TASKS, about=deal_id, contact=email)


@schedule_follow_up.reconcile
async def find_task(email: str, deal_id: str) -> Happened[Receipt] | DidNotHappen | Unknown:
    """Ask the calendar for the task of this call."""
    return await _find(TASKS)


@schedule_follow_up.undo(if_uncertain=RESEND)
async def cancel_task(done: Receipt, email: str, deal_id: str) -> None:
    """Cancel the task."""
    await _post(f"{TASKS}/cancelled", id=done.id)


# --- mail and messenger --------------------------------------------------------------------------------
@activity(key="proposal/{email}", once_per="run", retry=RETRY)
async def send_proposal(email: str, subject: str, text: str, cents: int, discount_percent: int) -> Receipt:
    """Mail the proposal, which binds us."""
    return await _post(MAIL, to=email, subject=subject, text=text, cents=cents, discount_percent=discount_percent)


@send_proposal.reconcile
async def find_proposal(
    email: str, subject: str, text: str, cents: int, discount_percent: int
) -> Happened[Receipt] | DidNotHappen | Unknown:
    """Ask the mail system for the mail of this call."""
    return await _find(MAIL)


@send_proposal.undo(if_uncertain=RESEND)
async def withdraw_proposal(
    done: Receipt, email: str, subject: str, text: str, cents: int, discount_percent: int
) -> None:
    """Mail that the proposal is withdrawn."""
    await _post(f"{MAIL}/withdrawn", to=email, mail=done.id)


@activity(key="chat/{email}", once_per="run", if_uncertain=RESEND, retry=RETRY)
async def send_outreach(email: str, text: str) -> Receipt:
    """Send the contact a chat message."""
    return await _post(CHAT, to=email, text=text)


@send_outreach.undo(if_uncertain=RESEND)
async def retract_outreach(done: Receipt, email: str, text: str) -> None:
    """Retract the chat message."""
    await _post(f"{CHAT}/retracted", id=done.id)


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


async def _get(path: str) -> str:
    async with _client() as http:
        return str(outlast.http.checked(await http.get(path)).json())


async def _post(path: str, **body: Any) -> Receipt:
    async with _client() as http:
        return Receipt.model_validate_json((await http.post(path, json=body)).content)


async def _find(path: str) -> Happened[Receipt] | DidNotHappen | Unknown:
    """Ask a system for the request with this call's key. Any unclear answer is Unknown."""
    try:
        async with _client() as http:
            said = await http.get(path, headers={"Idempotency-Key": this_call().idempotency_key})
        if said.status_code == httpx2.codes.NOT_FOUND:
            return DidNotHappen()
        return Happened(Receipt.model_validate_json(outlast.http.checked(said).content))
    except (httpx2.HTTPError, ValueError) as unclear:
        return Unknown(f"{path} gave no clear answer: {unclear}")
